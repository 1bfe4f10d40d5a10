"""Trains the demo model from the shards of make_data.py, by the clock; can be stopped and taken up again.

usage: train.py --data DIR --out DIR --state FILE --heldout FILE [--seconds 1000] [--stop-after 480]
Writes into --out: loss.csv, train.json, the weights as bf16-*.safetensors (the 4-bit file is a function of them). A run that finds
--state goes on from there. The rate and the start of the 4-bit phase follow the training time used so far, all runs together."""
import argparse, csv, json, os, queue, threading, time
import numpy as np
import torch
import torch.nn.functional as F

import evaluate as ev
import grid
import network
from optimiser import Optimiser

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "demo")
END = json.load(open(os.path.join(MODEL, "tokenizer.json"), encoding="utf-8"))["added_tokens"][0]["id"]
STEPS_PER_SHARD, DRAFTS = 10, 3
BATCHES = [("a",), ("b", "d"), ("c",)]                      # parts whose rows are equally long run together
DEEP = [0, 1, None]                                         # the batch that trains all drafts, step by step in turn
SHARE = {"a": 1.0, "b": 1.0, "c": 0.7, "d": 0.4}


def arguments():
    p = argparse.ArgumentParser()
    for name in ("data", "out", "state", "heldout"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--seconds", type=float, default=1000, help="training time in all, evaluation and compilation not counted")
    p.add_argument("--stop-after", type=float, default=1e9, help="seconds from the start of this run")
    p.add_argument("--steps", type=int, default=10 ** 9, help="stop after so many steps at the latest")
    p.add_argument("--lr", type=float, default=0.015, help="Muon")
    p.add_argument("--lr-adam", type=float, default=2e-3)
    p.add_argument("--decay", type=float, default=0.02)
    p.add_argument("--hold", type=float, default=0.5, help="share of the run before the rate falls")
    p.add_argument("--qat", type=float, default=0.65, help="share of the run before 4-bit weights are used")
    p.add_argument("--mtp", type=float, default=0.2)
    p.add_argument("--balance", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--evals", type=int, default=8, help="quick evaluations on the way")
    p.add_argument("--final", type=int, default=1)
    p.add_argument("--tiny", action="store_true", help="a dry run on the CPU")
    return p.parse_args()


def targets(ids, w, shift):
    """Flat positions, wanted tokens and weights: position t must tell token t + shift."""
    t, v = ids[:, shift:], w[:, shift:]
    r, c = np.nonzero(v)
    return r * ids.shape[1] + c, t[r, c], np.where(v[r, c] == 2, 1.0, 0.3).astype(np.float32)


def feeder(q, a, first_step, pin):
    """Steps in order, from any step on."""
    i, skip = divmod(first_step, STEPS_PER_SHARD)
    while True:
        path = f"{a.data}/{i:05d}.npz"
        while not os.path.exists(path):
            time.sleep(0.1)
        z = np.load(path)
        parts = {k: (z[k + "_ids"], z[k + "_w"]) for k in "abcd"}
        for s in range(skip, STEPS_PER_SHARD):
            step = []
            for names in [("a",)] if a.tiny else BATCHES:
                cut = {}
                for k in names:
                    n = 2 if a.tiny else len(parts[k][0]) // STEPS_PER_SHARD
                    cut[k] = [x[s * n:(s + 1) * n] for x in parts[k]]
                ids = np.concatenate([cut[k][0] for k in names]).astype(np.int64)
                item, before = [ids, (ids != END).astype(np.float32)], 0
                for k in names:
                    for shift in range(1, 3 if k == "c" else DRAFTS + 2):
                        at, want, weight = targets(cut[k][0].astype(np.int64), cut[k][1], shift)
                        item += [at + before, want, weight]
                    before += cut[k][0].size
                item = [torch.from_numpy(x) for x in item]
                step.append((names, [x.pin_memory() for x in item] if pin else item))
            q.put(step)
        i, skip = i + 1, 0


class Trainer:
    def __init__(self, a):
        self.a, self.dev = a, "cpu" if a.tiny else "cuda"
        torch.manual_seed(a.seed)
        torch.set_float32_matmul_precision("high")
        tiny = dict(hidden_size=128, num_hidden_layers=4, num_experts=8, num_attention_heads=2, num_key_value_heads=1)
        self.net = network.Model(network.Shape(**(tiny if a.tiny else {}))).to(self.dev)
        self.opt = Optimiser(self.net, self.dev, a)                 # before the network loses precision
        if not a.tiny:
            self.net.to(torch.bfloat16)
            self.opt.live = dict(self.net.named_parameters())
            torch._dynamo.config.recompile_limit = 64
            network.Layer.forward = torch.compile(network.Layer.forward, dynamic=False)
            network.Layer.draft = torch.compile(network.Layer.draft, dynamic=False)
            grid.round_to_grid = torch.compile(grid.round_to_grid, dynamic=False)
        self.step, self.tokens, self.used, self.quality = 0, 0, 0.0, []     # used: seconds of training
        if os.path.exists(a.state):
            s = torch.load(a.state, map_location=self.dev, weights_only=False)
            self.opt.restore(s)
            self.step, self.tokens, self.used, self.quality = s["step"], s["tokens"], s["used"], s["quality"]
            torch.set_rng_state(s["rng"].cpu())
        self.held = ev.HeldOut(a.heldout, every=97 if a.tiny else 1)
        if a.tiny:
            ev.SIZES, self.held.texts = [(256, 2), (1024, 1)], self.held.texts[:1]
            self.held.items = [x for x in self.held.items if len(x["p"]) + len(x["w"]) < 200][:4]
        os.makedirs(a.out, exist_ok=True)
        new = not os.path.exists(f"{a.out}/loss.csv")
        self.log = csv.writer(open(f"{a.out}/loss.csv", "a", buffering=1))
        if new:
            self.log.writerow(["step", "seconds", "tokens", "rate", "four_bit", "loss_a", "loss_b", "loss_c", "loss_d",
                               "draft_1", "draft_2", "draft_3", "balance"])

    def cross_entropy(self, h, at, want, weight):
        logits = (h.flatten(0, 1)[at] @ self.net.lm_head.weight.T).float()
        return (F.cross_entropy(logits, want, reduction="none") * weight).sum() / weight.sum()

    def batch(self, i, names, item):
        """Forward and backward of one batch; for each of its parts (name, loss, losses of the drafts, balance)."""
        ids, valid, *rest = (x.to(self.dev, non_blocking=True) for x in item)
        goals = [rest[j:j + 3] for j in range(0, len(rest), 3)]
        each = len(goals) // len(names)
        deep = DEEP[self.step % len(DEEP)] == i
        h, ms, balance = self.net(ids, valid, drafts=DRAFTS if deep else 1)
        total, out = self.a.balance * balance, []
        for j, k in enumerate(names):
            goal = goals[j * each:(j + 1) * each]
            main = self.cross_entropy(h, *goal[0])
            drafts = [self.cross_entropy(m, *g) for m, g in zip(ms, goal[1:])]
            total = total + SHARE[k] * (main + self.a.mtp * (drafts[0] + 0.5 * sum(drafts[1:])))
            out.append((k, main.detach(), [d.detach() for d in drafts], balance.detach()))
        total.backward()
        self.tokens += ids.numel()
        return out

    def report(self, sums, rate, four, waiting):
        loss = {k: x.item() for k, x, _, _ in sums}
        drafts = max((d for _, _, d, _ in sums), key=len)
        drafts = [f"{d.item():.4f}" for d in drafts] + [""] * (DRAFTS - len(drafts))
        row = [self.step, f"{self.used:.1f}", self.tokens, f"{rate:.3f}", int(four)]
        row += [f"{loss.get(k, 0):.4f}" for k in "abcd"] + drafts + [f"{sums[0][3].item():.4f}"]
        self.log.writerow(row)
        if self.step % 100 == 0:
            print(*row, "waiting", waiting, f"{self.tokens / max(self.used, 1):.0f} tokens/s", flush=True)

    def run(self):
        a, began = self.a, time.time()
        q = queue.Queue(16)
        threading.Thread(target=feeder, args=(q, a, self.step, self.dev == "cuda"), daemon=True).start()
        self.opt.load(False)
        warm, last = 0, None
        while True:
            at = max(self.used / a.seconds, self.step / a.steps)
            if at >= 1 or time.time() - began > a.stop_after:
                break
            rate = min(1.0, (self.step + 1) / 60) * min(1.0, max(0.0, (1 - at) / (1 - a.hold)))
            four = at > a.qat
            self.opt.load(four)
            sums = [x for i, (names, item) in enumerate(q.get()) for x in self.batch(i, names, item)]
            self.opt.update(rate)
            self.step, warm = self.step + 1, warm + 1
            if warm == 6:                                           # compilation is not training time
                print(f"first steps (compilation) {time.time() - began:.0f} s", flush=True)
            if warm >= 6:
                if warm % 20 == 0 or warm == 6:
                    sums[0][1].item()                               # the clock waits for the device
                now = time.time()
                self.used += min(now - last, 5.0) if last else 0.0
                last = now
            if self.step % 20 == 0:
                self.report(sums, rate, four, q.qsize())
            if warm >= 6 and a.evals and at * (a.evals + 1) > len(self.quality) + 1:
                t = time.time()
                self.quality.append((round(at, 3), ev.quick(self.net, self.dev, self.held)))
                print(f"at {at:.2f}, {time.time() - t:.1f} s:", self.quality[-1][1], flush=True)
                last = time.time()
        return self.used >= a.seconds or self.step >= a.steps

    def save(self):
        from safetensors.torch import save_file
        a = self.a
        os.makedirs(os.path.dirname(os.path.abspath(a.state)), exist_ok=True)
        torch.save(dict(self.opt.state(), step=self.step, tokens=self.tokens, used=self.used, quality=self.quality,
                        rng=torch.get_rng_state()), a.state + ".tmp")
        os.rename(a.state + ".tmp", a.state)
        parts, size = [{}], 0
        for n, w in self.opt.master.items():
            w = grid.grid(n, w, False).cpu().contiguous()
            if size + w.numel() * 2 > 15.5 * 2 ** 20:
                parts.append({})
                size = 0
            parts[-1][n] = w
            size += w.numel() * 2
        for i, x in enumerate(parts):
            save_file(x, f"{a.out}/bf16-{i + 1}-of-{len(parts)}.safetensors", {"format": "pt"})
        self.write({})

    def write(self, both):
        info = dict(steps=self.step, tokens=self.tokens, seconds=round(self.used), quick=self.quality, seed=self.a.seed,
                    parameters=sum(w.numel() for w in self.opt.master.values()))
        info.update({k: {x: y for x, y in v.items() if x != "tops"} for k, v in both.items()})
        with open(f"{self.a.out}/train.json", "w", encoding="utf-8") as f:
            json.dump(info, f, ensure_ascii=False, indent=1)

    def final(self):
        both = {}
        for name, four in (("bf16", False), ("4 bits", True)):
            self.opt.load(four)
            t = time.time()
            both[name] = ev.evaluate(self.net, self.dev, self.held, both.get("bf16"))
            print(name, f"{time.time() - t:.0f} s", flush=True)
            self.write(both)
        print(ev.table(both), flush=True)


def main():
    t = Trainer(arguments())
    done = t.run()
    print(f"{'finished' if done else 'stopped'}: {t.step} steps, {t.tokens} tokens, {t.used:.0f} s", flush=True)
    t.save()
    if done and t.a.final:
        t.final()


if __name__ == "__main__":
    main()
