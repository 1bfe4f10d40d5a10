"""Compares network.py with Hugging Face and delta_rule.py with the recurrence; prints the largest differences."""
import torch
import torch.nn.functional as F

import grid
import network as N
from delta_rule import delta_rule


def against_hugging_face():
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig
    torch.manual_seed(0)
    c = N.Shape()
    mine = N.Model(c)
    for n, w in mine.named_parameters():
        if "norm" in n:
            w.data += 0.1 * torch.randn_like(w)
    theirs = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**N.hf_config(c))).eval()
    print(theirs.load_state_dict(mine.state_dict(), strict=False))
    ids = torch.randint(0, c.vocab_size, (2, 192))
    with torch.no_grad():
        a, b = mine.lm_head(mine(ids)[0]), theirs(ids).logits
    size = sum({4: p.numel() // 2, 8: p.numel(), 0: 2 * p.numel()}[k] + (p.numel() // 16 if k else 0)
               for n, p in mine.named_parameters() for k in [grid.bits_of(n, p)])
    print(sum(p.numel() for p in mine.parameters()), "parameters,", size, "bytes in 4 bits")
    print("logits differ by", (a - b).abs().max().item(), "of", b.abs().max().item())
    return mine


def drafts_one_by_one(net):
    """The masked passes of Model.drafts against a cache that is really grown: one start position at a time."""
    ids = torch.randint(0, net.c.vocab_size, (1, 64))
    valid = torch.ones(1, 64)
    with torch.no_grad():
        h, ms, _ = net(ids, valid, drafts=3)
        worst = 0.0
        for t in (0, 7, 40):
            cos, sin = net.angles(0, t + 1, ids.device)
            e = net.model.embed_tokens(ids[:, 1:t + 2])
            m, _, kv = net.mtp(e, h[:, :t + 1], cos, sin, valid[:, :t + 1])
            last, past = m[:, -1:], [kv]
            for i in (1, 2):
                cos, sin = net.angles(t + i, 1, ids.device)
                last, _, kv = net.mtp(net.model.embed_tokens(ids[:, t + 1 + i:t + 2 + i]), last, cos, sin, valid[:, :1], tuple(past), None)
                past.append(kv)
                worst = max(worst, (last[0, 0] - ms[i][0, t]).abs().max().item())
    print("drafts differ by", worst)


def recurrence():
    q, k, v = (torch.randn(1, 128, 2, 128, dtype=torch.double) for _ in range(3))
    q, k = F.normalize(q, dim=-1) / 128 ** .5, F.normalize(k, dim=-1)
    g, be = -torch.rand(1, 128, 2, dtype=torch.double), torch.rand(1, 128, 2, dtype=torch.double)
    xs = [t.requires_grad_() for t in (q, k, v, g, be)]
    s, out = torch.zeros(1, 2, 128, 128, dtype=torch.double), []
    for t in range(128):
        s = s * g[:, t, :, None, None].exp()
        d = be[:, t, :, None] * (v[:, t] - (k[:, t, :, :, None] * s).sum(2))
        s = s + k[:, t, :, :, None] * d[:, :, None]
        out.append((q[:, t, :, :, None] * s).sum(2))
    ref, got = torch.stack(out, 1), delta_rule(*xs)
    w = torch.randn_like(ref)
    ga, gb = torch.autograd.grad((ref * w).sum(), xs), torch.autograd.grad((got * w).sum(), xs)
    print("delta rule differs by", (ref - got).abs().max().item(), "its gradients by",
          max((x - y).abs().max().item() for x, y in zip(ga, gb)))


if __name__ == "__main__":
    recurrence()
    drafts_one_by_one(against_hugging_face())
