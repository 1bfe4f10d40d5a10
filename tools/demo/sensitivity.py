"""What single mistakes and roundings cost on the demo model: best id equal, mean KL, largest difference of a logit.

usage: sensitivity.py HELDOUT.jsonl MLX_FOLDER          one story and one log, fp32, as a Markdown table"""
import sys
import torch
import torch.nn.functional as F

import evaluate
import export
import network as N

MISTAKE = ""
MISTAKES = ["rotate all 256 dims", "no rotation", "rotation pairs (2i, 2i+1)", "theta 1e6", "k rotated one position late", "no output gate",
            "query and gate halves swapped", "no q norm", "looks one token ahead", "kv head = h mod 2", "scale 1/128 for 1/16",
            "recurrent q and k swapped", "recurrent key head = h mod 2", "convolution taps shifted", "no dt bias",
            "state transposed on reading", "decay after the update", "no l2 norm of k", "q not scaled by 128^-1/2", "gate before the norm",
            "router not renormalised over 8", "no shared-expert gate", "gate and up swapped", "norm weights without the 1 +", "eps 1e-5",
            "bf16 recurrent state", "bf16 keys and values", "fp8 keys and values", "bf16 activations", "int8 activations, group 64"]


def on(name):
    return MISTAKE == name


def activation(x):
    if on("bf16 activations"):
        return x.bfloat16().float()
    if on("int8 activations, group 64") and x.shape[-1] % 64 == 0:
        g = x.unflatten(-1, (-1, 64))
        s = g.abs().amax(-1, keepdim=True).clamp(min=1e-20) / 127
        return ((g / s).round() * s).flatten(-2)
    return x


def linear_forward(self, x):
    return F.linear(activation(x), self.weight)


def norm_forward(self, x):
    eps = 1e-5 if on("eps 1e-5") else self.eps
    w = self.weight if on("norm weights without the 1 +") else 1 + self.weight
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def rotate(x, late=0):
    L, dims = x.shape[1], 256 if on("rotate all 256 dims") else 64
    theta = 1e6 if on("theta 1e6") else 1e7
    f = theta ** (-torch.arange(0, dims, 2).float() / dims)
    a = (torch.arange(L).float() + late)[:, None] * f
    c, s = a.cos()[:, None], a.sin()[:, None]
    if on("no rotation"):
        return x
    if on("rotation pairs (2i, 2i+1)"):
        p, q = x[..., 0:dims:2], x[..., 1:dims:2]
        return torch.cat([torch.stack([p * c - q * s, q * c + p * s], -1).flatten(-2), x[..., dims:]], -1)
    p, q = x[..., :dims // 2], x[..., dims // 2:dims]
    return torch.cat([p * c - q * s, q * c + p * s, x[..., dims:]], -1)


def attention_forward(self, x, cos, sin, past=(), mask=None):
    B, L, _ = x.shape
    q, gate = self.q_proj(x).view(B, L, self.h, 2 * self.d).chunk(2, -1)
    if on("query and gate halves swapped"):
        q, gate = gate, q
    k, v = (p(x).view(B, L, self.kv, self.d) for p in (self.k_proj, self.v_proj))
    q = rotate(q if on("no q norm") else self.q_norm(q))
    k = rotate(self.k_norm(k), int(on("k rotated one position late")))
    kind = {"bf16 keys and values": torch.bfloat16, "fp8 keys and values": torch.float8_e4m3fn}.get(MISTAKE)
    if kind:
        k, v = k.to(kind).float(), v.to(kind).float()
    heads = torch.arange(self.h) % self.kv if on("kv head = h mod 2") else torch.arange(self.h) // (self.h // self.kv)
    q, k, v = q.transpose(1, 2), k[:, :, heads].transpose(1, 2), v[:, :, heads].transpose(1, 2)
    low = torch.ones(L, L, dtype=torch.bool).tril(int(on("looks one token ahead")))
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=low, scale=1 / 128 if on("scale 1/128 for 1/16") else None)
    o = o.transpose(1, 2).reshape(B, L, -1)
    return self.o_proj(o if on("no output gate") else o * gate.reshape(B, L, -1).sigmoid()), None


def recurrence(q, k, v, g, beta):
    """One token at a time: the state is [heads, key, value]."""
    s, out = torch.zeros(v.shape[2], 128, 128), []
    for t in range(v.shape[1]):
        d = g[0, t, :, None, None].exp()
        if not on("decay after the update"):
            s = s * d
        kt = k[0, t]
        u = beta[0, t, :, None] * (v[0, t] - torch.einsum("hkv,hk->hv", s, kt))
        s = s + kt[:, :, None] * u[:, None, :]
        if on("decay after the update"):
            s = s * d
        if on("bf16 recurrent state"):
            s = s.bfloat16().float()
        out.append(torch.einsum("hvk,hk->hv" if on("state transposed on reading") else "hkv,hk->hv", s, q[0, t]))
    return torch.stack(out)[None]


def delta_forward(self, x):
    B, L, _ = x.shape
    u, w, n = self.in_proj_qkv(x), self.conv1d.weight[:, 0], 4
    late = int(on("convolution taps shifted"))
    y = F.silu(sum(F.pad(u, (0, 0, n - 1 - j + late, 0))[:, :L] * w[:, j] for j in range(n)))
    kd = self.hk * self.d
    q, k = (y[..., i * kd:(i + 1) * kd].unflatten(-1, (self.hk, self.d)) for i in ((1, 0) if on("recurrent q and k swapped") else (0, 1)))
    v = y[..., 2 * kd:].unflatten(-1, (self.hv, self.d))
    unit = lambda z: z * torch.rsqrt(z.pow(2).sum(-1, keepdim=True) + 1e-6)
    q = unit(q) * (1 if on("q not scaled by 128^-1/2") else self.d ** -0.5)
    k = k if on("no l2 norm of k") else unit(k)
    heads = torch.arange(self.hv) % self.hk if on("recurrent key head = h mod 2") else torch.arange(self.hv) // (self.hv // self.hk)
    g = -self.A_log.exp() * F.softplus(self.in_proj_a(x) + (0 if on("no dt bias") else self.dt_bias))
    o = recurrence(q[:, :, heads], k[:, :, heads], v, g, self.in_proj_b(x).sigmoid())
    z = F.silu(self.in_proj_z(x).view(B, L, self.hv, self.d))
    rms = lambda t: t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + (1e-5 if on("eps 1e-5") else 1e-6)) * self.norm.weight
    return self.out_proj((rms(o * z) if on("gate before the norm") else rms(o) * z).reshape(B, L, -1))


def moe_forward(self, x, valid):
    E, f2, d = self.experts.gate_up_proj.shape
    p = F.linear(x, self.gate.weight).softmax(-1)
    top = p.topk(self.top)
    w = torch.zeros_like(p).scatter(-1, top.indices, top.values)
    if not on("router not renormalised over 8"):
        w = w / w.sum(-1, keepdim=True)
    a = activation(x)
    gu = F.linear(a, self.experts.gate_up_proj.reshape(E * f2, d)).unflatten(-1, (E, f2))
    gate, up = gu[..., :f2 // 2], gu[..., f2 // 2:]
    h = F.silu(up) * gate if on("gate and up swapped") else F.silu(gate) * up
    y = F.linear((activation(h) * w[..., None]).flatten(-2), self.experts.down_proj.permute(1, 0, 2).reshape(d, -1))
    share = 1 if on("no shared-expert gate") else F.linear(x, self.shared_expert_gate.weight).sigmoid()
    return y + share * self.shared_expert(x), torch.zeros(())


def logits(net, texts):
    return torch.cat([net.lm_head(net(torch.tensor([x["p"] + x["w"]]), drafts=0)[0])[0].double() for x in texts])


@torch.no_grad()
def main(held, folder):
    global MISTAKE
    net = N.Model()
    net.load_state_dict({k: v.float() for k, v in export.from_mlx(folder).items()})
    texts = {x["task"]: x for x in reversed(evaluate.HeldOut(held).texts)}.values()
    texts = [dict(x, w=x["w"][:(len(x["p"]) + len(x["w"])) // 64 * 64 - len(x["p"])]) for x in texts]      # the chunks of 64
    plain = logits(net, texts)
    for kind, f in ((N.Attention, attention_forward), (N.DeltaNet, delta_forward), (N.Moe, moe_forward), (N.Norm, norm_forward)):
        kind.forward = f
    torch.nn.Linear.forward = linear_forward
    print("| mistake | best id equal, % | mean KL | largest difference |\n| --- | --- | --- | --- |")
    for MISTAKE in ["none (this script against network.py)"] + MISTAKES:
        got = logits(net, texts)
        kl = F.kl_div(got.log_softmax(-1), plain.log_softmax(-1), log_target=True, reduction="none").sum(-1)
        same = (got.argmax(-1) == plain.argmax(-1)).double().mean()
        print(f"| {MISTAKE} | {100 * same:.1f} | {kl.mean():.1e} | {(got - plain).abs().max():.3f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
