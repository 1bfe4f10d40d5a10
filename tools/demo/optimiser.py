"""Muon for the matrices, AdamW for the rest; fp32 master weights, which the network holds rounded."""
import torch

import grid

ADAM = ("embed_tokens", "lm_head", "mlp.gate.", "shared_expert_gate", "in_proj_a", "in_proj_b", "conv1d")


def by_muon(name, w):
    return w.ndim >= 2 and not any(x in name for x in ADAM)


def orthogonal(g):
    """Newton-Schulz: nearly the nearest orthogonal matrices of a batch."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        y = x @ x.mT
        x = 3.4445 * x + (-4.7750 * y + 2.0315 * y @ y) @ x
    return (x.mT if tall else x).float()


class Optimiser:
    def __init__(self, net, dev, a):
        self.live, self.a = dict(net.named_parameters()), a
        self.master = {n: w.detach().float().clone() for n, w in self.live.items()}
        self.groups = {}
        for n, w in self.master.items():
            if by_muon(n, w):
                self.groups.setdefault(tuple(w.shape), []).append(n)
        self.moment = {s: torch.zeros(len(ns), *s, device=dev) for s, ns in self.groups.items()}
        self.rest = [n for n, w in self.master.items() if not by_muon(n, w)]
        split = lambda inside: [self.master[n] for n in self.rest if ("embed_tokens" in n) == inside]
        self.adam = torch.optim.AdamW([{"params": split(True), "scale": 2.0}, {"params": split(False), "scale": 1.0}],
                                      lr=a.lr_adam, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=dev != "cpu")

    @torch.no_grad()
    def load(self, four_bit):
        """Puts the rounded master weights into the network; gradients go straight through."""
        plain = [n for n in self.master if not grid.zero_centred(n)]
        if four_bit:
            for n in plain:
                self.live[n].copy_(grid.grid(n, self.master[n], True))
        else:
            torch._foreach_copy_([self.live[n] for n in plain], [self.master[n] for n in plain])
        for n in self.master:
            if grid.zero_centred(n):
                self.live[n].copy_(grid.grid(n, self.master[n], four_bit))

    @torch.no_grad()
    def update(self, rate):
        """One step; where a gradient is not finite (some rows break the chunks' inverse in TF32) there is none."""
        a = self.a
        norms = torch.stack(torch._foreach_norm([w.grad for w in self.live.values()])).float()
        if not bool(torch.isfinite(norms.sum())):
            print("skipped a step: its gradient is not finite", flush=True)
            for w in self.live.values():
                w.grad = None
            return
        for s, ns in self.groups.items():
            g = torch.stack([self.live[n].grad for n in ns]).float()
            m = self.moment[s]
            m.lerp_(g, 0.05)
            u = orthogonal(g.lerp(m, 0.95)) * (max(1, s[-2] / s[-1]) ** 0.5 * a.lr * rate)
            ws = [self.master[n] for n in ns]
            torch._foreach_mul_(ws, 1 - a.lr * rate * a.decay)
            torch._foreach_sub_(ws, list(u.unbind(0)))
        gs = []
        for n in self.rest:
            self.master[n].grad = self.live[n].grad.float()
            gs.append(self.master[n].grad)
        total = torch.stack(torch._foreach_norm(gs)).norm()
        torch._foreach_mul_(gs, (1.0 / (total + 1e-6)).clamp(max=1.0))
        for grp in self.adam.param_groups:
            grp["lr"] = a.lr_adam * rate * grp["scale"]
        self.adam.step()
        for w in self.live.values():
            w.grad = None

    def state(self):
        return dict(master=self.master, moment=self.moment, adam=self.adam.state_dict())

    @torch.no_grad()
    def restore(self, s):
        for n, w in s["master"].items():
            self.master[n].copy_(w)
        for k, m in s["moment"].items():
            self.moment[k].copy_(m)
        self.adam.load_state_dict(s["adam"])
