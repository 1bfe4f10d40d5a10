"""The gated delta rule in chunks of 64 (docs/model.md, "Gated DeltaNet"), with its own backward pass."""
import torch
from torch import library

CHUNK = 64


@library.custom_op("demo::tri_inv", mutates_args=())
def tri_inv(a: torch.Tensor) -> torch.Tensor:
    """(I + a)^-1 for strictly lower a [..., 64, 64]: 16-blocks by a finite product, then 2x2 merges."""
    n = a.shape[-1]
    eye = torch.eye(n, device=a.device, dtype=a.dtype)
    r = torch.arange(n, device=a.device)
    block = lambda m: (r[:, None] // m == r[None, :] // m).to(a.dtype)
    d = a * block(16)
    x, p = eye - d, d @ d
    for _ in range(3):
        x = x + x @ p
        p = p @ p
    for m in (32, 64):
        off = a * (block(m) - block(m // 2))
        x = x - x @ (off @ x)
    return x


@tri_inv.register_fake
def _(a):
    return torch.empty_like(a)


def _tri_setup(ctx, inputs, output):
    ctx.save_for_backward(output)


def _tri_back(ctx, g):
    x, = ctx.saved_tensors
    xt = x.transpose(-1, -2)
    return -torch.tril(xt @ g @ xt, -1)


tri_inv.register_autograd(_tri_back, setup_context=_tri_setup)


@library.custom_op("demo::scan", mutates_args=())
def scan(d: torch.Tensor, p: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """States before every chunk: s[0] = 0, s[c+1] = d[c] s[c] + p[c] s[c] + b[c]."""
    s = torch.empty_like(b)
    s[0].zero_()
    ds, ps, bs, ss = d.unbind(0), p.unbind(0), b.unbind(0), s.unbind(0)
    for c in range(len(bs) - 1):
        torch.addcmul(bs[c], ds[c], ss[c], out=ss[c + 1])
        ss[c + 1].baddbmm_(ps[c], ss[c])
    return s


@scan.register_fake
def _(d, p, b):
    return torch.empty_like(b)


@library.custom_op("demo::scan_back", mutates_args=())
def scan_back(d: torch.Tensor, p: torch.Tensor, ds: torch.Tensor) -> torch.Tensor:
    """r[c] = gradient of the state after chunk c."""
    r = torch.empty_like(ds)
    r[-1].zero_()
    d, pt, ds, rs = d.unbind(0), p.transpose(-1, -2).unbind(0), ds.unbind(0), r.unbind(0)
    for c in range(len(rs) - 1, 0, -1):
        torch.addcmul(ds[c], d[c], rs[c], out=rs[c - 1])
        rs[c - 1].baddbmm_(pt[c], rs[c])
    return r


@scan_back.register_fake
def _(d, p, ds):
    return torch.empty_like(ds)


def _scan_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1], output)


def _scan_back(ctx, g):
    d, p, s = ctx.saved_tensors
    r = scan_back(d, p, g.contiguous())
    return (r * s).sum((-1, -2), keepdim=True), r @ s.transpose(-1, -2), r


scan.register_autograd(_scan_back, setup_context=_scan_setup)


def delta_rule(q, k, v, g, beta):
    """q, k, v [B, L, H, 128] fp32 (q, k normalised, q scaled), g, beta [B, L, H]; L a multiple of 64."""
    B, L, H, D = v.shape
    C = L // CHUNK
    cut = lambda t: t.unflatten(1, (C, CHUNK)).permute(1, 0, 3, 2, 4).reshape(C, B * H, CHUNK, -1)
    q, k, v, g, beta = cut(q), cut(k), cut(v), cut(g[..., None]), cut(beta[..., None])
    G = g.cumsum(2)
    low = torch.ones(CHUNK, CHUNK, device=q.device, dtype=torch.bool).tril()
    decay = torch.where(low, (G - G.transpose(2, 3)).masked_fill(~low, 0).exp(), 0.0)
    kt = k.transpose(2, 3)
    inv = tri_inv((beta * (k @ kt) * decay).tril(-1))
    u = inv @ (beta * v)
    w = inv @ (beta * G.exp() * k)
    end = G[:, :, -1:, :]
    kd = ((end - G).exp() * k).transpose(2, 3)
    s = scan(end.exp(), -(kd @ w), kd @ u)
    n = u - w @ s
    o = (q * G.exp()) @ s + ((q @ kt) * decay) @ n
    return o.reshape(C, B, H, CHUNK, D).permute(1, 0, 3, 2, 4).reshape(B, L, H, D)


