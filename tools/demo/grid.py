"""The 4-bit grid of the MLX layout: affine, groups of 64 inputs; what the network sees of a master weight."""
import torch


def quantise(w, bits, group=64):
    """Codes, scale and bias of w [..., n]; scale and bias rounded to bf16."""
    g = w.float().unflatten(-1, (-1, group))
    hi, lo = g.amax(-1, keepdim=True), g.amin(-1, keepdim=True)
    n = 2 ** bits - 1
    s = ((hi - lo) / n).clamp(min=1e-7)
    low = lo.abs() > hi.abs()
    s = torch.where(low, s, -s)
    edge = torch.where(low, lo, hi)
    q0 = torch.round(edge / s)
    zero = q0 == 0
    s = torch.where(zero, s, edge / torch.where(zero, torch.ones_like(q0), q0))
    b = torch.where(zero, torch.zeros_like(edge), edge)
    q = torch.round((g - b) / s).clamp(0, n)
    return q, s.bfloat16(), b.bfloat16()


def dequantise(q, s, b):
    return (q * s.float() + b.float()).flatten(-2)


def bits_of(name, w):
    """0 = kept in bf16."""
    if w.ndim < 2 or "conv1d" in name:
        return 0
    return 8 if name.endswith("mlp.gate.weight") or "shared_expert_gate" in name else 4


def zero_centred(name):
    """Norms that a Hugging Face file stores as w - 1."""
    return "norm" in name and "linear_attn.norm" not in name


def round_to_grid(w, bits):
    return dequantise(*quantise(w, bits)).to(torch.bfloat16)


def grid(name, w, four_bit):
    """The value the network sees for a master weight: rounded to bf16, or to the 4-bit file's value.
    Norms are rounded as 1 + w, since the 4-bit file stores 1 + w."""
    w = w.bfloat16()
    if zero_centred(name):
        return ((1 + w.float()).bfloat16().float() - 1).bfloat16()
    bits = bits_of(name, w) if four_bit else 0
    return round_to_grid(w, bits) if bits else w
