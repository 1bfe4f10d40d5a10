"""Held-out evaluation: greedy answers judged by exact match, drafts, perplexity against the grammar's true one.

usage: evaluate.py HELDOUT.jsonl WEIGHTS.safetensors...       both as bf16 and on the 4-bit grid

A held-out item is first read with the wanted text given. Where every token is the most likely one, greedy decoding gives exactly
that text; only the other items are really decoded, from their first difference on."""
import json, os, sys
from collections import defaultdict
import numpy as np
import torch
import torch.nn.functional as F

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "demo")
SIZES = [(256, 128), (1024, 48), (8192, 4)]              # the shapes of training, which are compiled
WINDOW, DRAFTS = 64, 3


class HeldOut:
    def __init__(self, path, every=1):
        from tokenizers import Tokenizer
        self.tok = Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
        self.stop = self.tok.token_to_id("<|im_end|>")
        self.items, self.texts = [], []
        with open(path, encoding="utf-8") as f:
            for i, line in enumerate(f):
                x = json.loads(line)
                x["p"], x["w"] = self.tok.encode(x["prompt"]).ids, self.tok.encode(x.get("want") or x["text"]).ids
                if "text" in x:
                    self.texts.append(x)
                elif i % every == 0:
                    self.items.append(x)


def key(x):
    return x["task"] + ("+t" if x.get("think") else "")


def batches(xs, slack):
    """Rows of equal length in full batches, so that the compiled shapes are met again."""
    low = 0
    for L, n in SIZES:
        ys = [x for x in xs if low < len(x["p"]) + len(x["w"]) + slack <= L or (L == SIZES[-1][0] < len(x["p"]) + len(x["w"]) + slack)]
        for i in range(0, len(ys), n):
            yield L, n, ys[i:i + n]
        low = L


def read(net, dev, xs):
    """For every item: most likely tokens at the wanted positions, summed loss, accepted drafts [DRAFTS], positions."""
    out = []
    for L, n, ys in batches(xs, 0):
        ids = torch.zeros(n, L, dtype=torch.long)
        for r, x in enumerate(ys):
            t = (x["p"] + x["w"])[:L]
            ids[r, :len(t)] = torch.tensor(t)
        ids = ids.to(dev)
        h, ms, _ = net(ids, drafts=DRAFTS if L <= 1024 else 1)     # gradients stay on: turning them off compiles all again
        h, ms = h.detach(), [m.detach() for m in ms]
        for r, x in enumerate(ys):
            a, b = len(x["p"]) - 1, len(x["p"]) - 1 + len(x["w"])
            logits = (h[r, a:b] @ net.lm_head.weight.detach().T).float()
            top, want = logits.argmax(-1), torch.tensor(x["w"], device=dev)[:logits.shape[0]]
            good, took = torch.ones(max(0, b - a - DRAFTS), device=dev), []
            for i, m in enumerate(ms):                    # the draft i at t must equal the model's own choice at t + 1 + i
                d = (m[r, a:b - DRAFTS] @ net.lm_head.weight.detach().T).float().argmax(-1)
                good = good * (d == top[1 + i:1 + i + len(d)])
                took.append(good.sum())
            out.append((x, top, F.cross_entropy(logits, want, reduction="sum").detach(), took, max(0, b - a - DRAFTS)))
    return [(x, t.cpu().numpy(), l.item(), [v.item() for v in took], n) for x, t, l, took, n in out]


def quick(net, dev, held, limit=1024):
    """Share of items whose wanted text is the greedy text, per task; perplexity of the uncertain texts."""
    acc = defaultdict(list)
    for x, top, _, _, _ in read(net, dev, [x for x in held.items if len(x["p"]) + len(x["w"]) <= limit]):
        acc[key(x)].append(float((top == x["w"][:len(top)]).all()))
    out = {k: round(float(np.mean(v)), 2) for k, v in acc.items()}
    got = read(net, dev, held.texts)
    for k in sorted({x["task"] for x in held.texts}):
        n = sum(len(g[0]["w"]) for g in got if g[0]["task"] == k)
        out["perplexity of " + k] = round(float(np.exp(sum(g[2] for g in got if g[0]["task"] == k) / n)), 3)
    return out


def decode(net, dev, xs, tops, stop):
    """Greedy continuation from the first difference, without a cache."""
    todo = []
    for x, top in zip(xs, tops):
        k = int(np.argmax(top != np.array(x["w"][:len(top)])))
        todo.append(dict(x, out=x["w"][:k] + [int(top[k])], most=len(x["w"]) + 48))
    for L, n, ys in batches(todo, 48):
        ids = torch.zeros(n, L, dtype=torch.long, device=dev)
        for r, y in enumerate(ys):
            t = (y["p"] + y["out"])[-L:]
            ids[r, :len(t)] = torch.tensor(t)
            y["base"] = len(t) - len(y["out"])
        while True:
            left = [r for r, y in enumerate(ys)
                    if y["out"][-1] != stop and len(y["out"]) < y["most"] and y["base"] + len(y["out"]) < L]
            if not left:
                break
            h, rows = net(ids, drafts=0)[0].detach(), torch.tensor(left, device=dev)
            pos = torch.tensor([ys[r]["base"] + len(ys[r]["out"]) - 1 for r in left], device=dev)
            new = (h[rows, pos] @ net.lm_head.weight.detach().T).float().argmax(-1)
            ids[rows, pos + 1] = new
            for r, v in zip(left, new.tolist()):
                ys[r]["out"].append(v)
    return todo


def fits(text, schema):
    """Is text JSON of the schema (the part that our schemas use)?"""
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}

    def ok(v, s):
        if not isinstance(v, kinds[s["type"]]) or (s["type"] in ("integer", "number") and isinstance(v, bool)):
            return False
        if s["type"] == "array":
            return all(ok(x, s["items"]) for x in v)
        if s["type"] == "object":
            return set(v) == set(s["properties"]) and all(ok(v[k], t) for k, t in s["properties"].items())
        return True
    try:
        return ok(json.loads(text), schema)
    except ValueError:
        return False


def schema_of(prompt):
    i = prompt.index('{"type": "object"')
    return json.JSONDecoder().raw_decode(prompt[i:])[0]


def windowed(net, dev, texts):
    """Summed loss of the wanted tokens with only the last WINDOW tokens as context."""
    total = 0.0
    for x in texts:
        ids = torch.tensor(x["p"] + x["w"])
        at = torch.arange(len(x["p"]), len(ids))
        rows = torch.stack([F.pad(ids[max(0, t - WINDOW):t], (0, max(0, WINDOW - t))) for t in at.tolist()])
        last = at.clamp(max=WINDOW) - 1
        for i in range(0, len(rows), 512):
            part = F.pad(rows[i:i + 512], (0, 0, 0, max(0, 512 - len(rows[i:i + 512])))).to(dev)
            h = net(part, drafts=0)[0].detach()
            n = len(rows[i:i + 512])
            logits = (h[torch.arange(n, device=dev), last[i:i + n].to(dev)] @ net.lm_head.weight.detach().T).float()
            total += F.cross_entropy(logits, ids[at[i:i + n]].to(dev), reduction="sum").item()
    return total


def uncertain(net, dev, held):
    out = {}
    for k in sorted({x["task"] for x in held.texts}):
        xs = [x for x in held.texts if x["task"] == k]
        got, n = read(net, dev, xs), sum(len(x["w"]) for x in xs)
        true = float(np.exp(-sum(x["log_p"] for x in xs) / n))
        mine = float(np.exp(sum(g[2] for g in got) / n))
        out[k] = dict(tokens=n, true=true, perplexity=mine, ratio=mine / true,
                      last_64=float(np.exp(windowed(net, dev, xs) / n)),
                      drafts=[sum(g[3][i] for g in got) / sum(g[4] for g in got) for i in range(DRAFTS)])
    return out


def evaluate(net, dev, held, other=None):
    got = read(net, dev, held.items)
    wrong = [g for g in got if not (g[1] == np.array(g[0]["w"][:len(g[1])])).all()]
    done = {id(g[0]): g[0]["w"] for g in got}
    for g, y in zip(wrong, decode(net, dev, [w[0] for w in wrong], [w[1] for w in wrong], held.stop)):
        done[id(g[0])] = y["out"]
    acc, closed, valid, samples = defaultdict(list), [], [], []
    for x in held.items:
        text = held.tok.decode(done[id(x)], skip_special_tokens=False)
        body = text
        if x["think"]:
            closed.append("</think>" in text)
            body = text.split("</think>\n\n")[-1] if "</think>" in text else ""
        good = body == x["answer"] + "<|im_end|>"
        acc[key(x)].append(good)
        if x["task"] == "json":
            valid.append(fits(body.removesuffix("<|im_end|>"), schema_of(x["prompt"])))
        if not good and len(samples) < 200:
            samples.append(dict(task=key(x), want=x["want"][-200:], got=text[-200:], prompt=x["prompt"][-200:]))
    tops = {id(g[0]): g[1] for g in got}
    deep = [g for g in got if len(g[3]) == DRAFTS]
    n = sum(len(g[0]["w"]) for g in got)
    res = dict(accuracy={k: [int(sum(v)), len(v)] for k, v in acc.items()}, think_closed=[sum(closed), len(closed)],
               json_valid=[sum(valid), len(valid)], perplexity=float(np.exp(sum(g[2] for g in got) / n)), tokens=n,
               drafts=[sum(g[3][i] for g in deep) / sum(g[4] for g in deep) for i in range(DRAFTS)],
               uncertain=uncertain(net, dev, held), samples=samples, tops=tops)
    if other:
        res["top1_agreement_with_bf16"] = float(np.concatenate([tops[k] == other["tops"][k] for k in tops]).mean())
    return res


def table(both):
    names = list(both)
    first, pc = both[names[0]], lambda v: f"{100 * v[0] / max(v[1], 1):.1f}"
    out = ["| task | n | " + " | ".join(names) + " |", "| --- | --- |" + " --- |" * len(names)]
    for k, v in first["accuracy"].items():
        out.append(f"| {k} | {v[1]} | " + " | ".join(pc(both[n]["accuracy"][k]) for n in names) + " |")
    for k in ("think_closed", "json_valid"):
        out.append(f"| {k} | {first[k][1]} | " + " | ".join(pc(both[n][k]) for n in names) + " |")
    out.append("| perplexity of wanted text | | " + " | ".join(f"{both[n]['perplexity']:.5f}" for n in names) + " |")
    out.append("| drafts 1, 1-2, 1-3 accepted | | "
               + " | ".join(", ".join(f"{100 * d:.1f}" for d in both[n]["drafts"]) for n in names) + " |")
    for k, v in first["uncertain"].items():
        out.append(f"| {k}: perplexity (true {v['true']:.4f}) | {v['tokens']} | "
                   + " | ".join(f"{both[n]['uncertain'][k]['perplexity']:.4f}" for n in names) + " |")
        out.append(f"| {k}: perplexity from the last 64 tokens | | "
                   + " | ".join(f"{both[n]['uncertain'][k]['last_64']:.4f}" for n in names) + " |")
        out.append(f"| {k}: drafts accepted | | "
                   + " | ".join(", ".join(f"{100 * d:.1f}" for d in both[n]["uncertain"][k]["drafts"]) for n in names) + " |")
    if "top1_agreement_with_bf16" in both[names[-1]]:
        out.append(f"| top-1 agreement with bf16 | | | {100 * both[names[-1]]['top1_agreement_with_bf16']:.2f} |")
    return "\n".join(out)


def main():
    import grid, network
    from safetensors.torch import load_file
    torch.set_grad_enabled(False)
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    weights, both, held = {}, {}, HeldOut(sys.argv[1])
    for f in sys.argv[2:]:
        weights.update(load_file(f))
    for name, four in (("bf16", False), ("4 bits", True)):
        net = network.Model().to(dev).to(torch.bfloat16)
        net.load_state_dict({k: grid.grid(k, v, four) for k, v in weights.items()})
        both[name] = evaluate(net, dev, held, both.get("bf16"))
    print(table(both))


if __name__ == "__main__":
    main()
