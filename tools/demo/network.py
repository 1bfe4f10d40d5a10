"""The network in plain PyTorch: gated delta rule, gated attention, sparse experts, one MTP layer.

Parameter names equal those of Hugging Face's Qwen3_5MoeForCausalLM (mtp.* beside them); formulas are those of docs/model.md."""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

from delta_rule import delta_rule


@dataclass
class Shape:
    vocab_size: int = 4096
    hidden_size: int = 384
    num_hidden_layers: int = 8
    full_attention_interval: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 256
    rotary_dim: int = 64
    rope_theta: float = 1e7
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_head_dim: int = 128
    linear_conv_kernel_dim: int = 4
    num_experts: int = 24
    num_experts_per_tok: int = 8
    moe_intermediate_size: int = 64
    shared_expert_intermediate_size: int = 64
    rms_norm_eps: float = 1e-6

    def is_attention(self, i):
        return (i + 1) % self.full_attention_interval == 0


def linear(i, o):
    return nn.Linear(i, o, bias=False)


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(n)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * (1 + self.weight.float())).to(x.dtype)


class GatedNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x, z):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        y = self.weight * y.to(x.dtype)
        return (y.float() * F.silu(z.float())).to(x.dtype)


class DeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.hk, self.hv, self.d = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_head_dim
        kd, vd = self.hk * self.d, self.hv * self.d
        self.in_proj_qkv = linear(c.hidden_size, 2 * kd + vd)
        self.in_proj_z = linear(c.hidden_size, vd)
        self.in_proj_b = linear(c.hidden_size, self.hv)
        self.in_proj_a = linear(c.hidden_size, self.hv)
        self.conv1d = nn.Conv1d(2 * kd + vd, 2 * kd + vd, c.linear_conv_kernel_dim, groups=2 * kd + vd, bias=False)
        self.A_log = nn.Parameter(torch.empty(self.hv).uniform_(1, 16).log())
        dt = torch.exp(torch.empty(self.hv).uniform_(math.log(1e-3), math.log(1e-1)))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.norm = GatedNorm(self.d, c.rms_norm_eps)
        self.out_proj = linear(vd, c.hidden_size)

    def forward(self, x):
        B, L, _ = x.shape
        u = self.in_proj_qkv(x).float()
        w = self.conv1d.weight[:, 0].float()
        n = w.shape[1]
        y = sum(F.pad(u, (0, 0, n - 1 - j, 0))[:, :L] * w[:, j] for j in range(n)).to(x.dtype)
        y = F.silu(y).float()
        kd = self.hk * self.d
        q = y[..., :kd].unflatten(-1, (self.hk, self.d))
        k = y[..., kd:2 * kd].unflatten(-1, (self.hk, self.d))
        v = y[..., 2 * kd:].unflatten(-1, (self.hv, self.d))
        q = q * torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6) * self.d ** -0.5
        k = k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)
        r = self.hv // self.hk
        q, k = q.repeat_interleave(r, 2), k.repeat_interleave(r, 2)
        beta = self.in_proj_b(x).sigmoid().float()
        g = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias.float())
        o = delta_rule(q, k, v, g, beta).to(x.dtype)
        o = self.norm(o, self.in_proj_z(x).view(B, L, self.hv, self.d))
        return self.out_proj(o.reshape(B, L, -1))


def rope(x, cos, sin):
    n = cos.shape[-1]
    a, b, rest = x[..., :n].float(), x[..., n:2 * n].float(), x[..., 2 * n:]
    return torch.cat([(a * cos - b * sin).to(x.dtype), (b * cos + a * sin).to(x.dtype), rest], -1)


class Attention(nn.Module):
    """forward also gives the keys and values of its rows; past: those of others, which mask [L, rows of all] lets it see."""
    def __init__(self, c):
        super().__init__()
        self.h, self.kv, self.d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = linear(c.hidden_size, self.h * self.d * 2)
        self.k_proj = linear(c.hidden_size, self.kv * self.d)
        self.v_proj = linear(c.hidden_size, self.kv * self.d)
        self.o_proj = linear(self.h * self.d, c.hidden_size)
        self.q_norm, self.k_norm = Norm(self.d, c.rms_norm_eps), Norm(self.d, c.rms_norm_eps)

    def forward(self, x, cos, sin, past=(), mask=None):
        B, L, _ = x.shape
        q, gate = self.q_proj(x).view(B, L, self.h, 2 * self.d).chunk(2, -1)
        k = self.k_proj(x).view(B, L, self.kv, self.d)
        v = self.v_proj(x).view(B, L, self.kv, self.d).transpose(1, 2)
        q = rope(self.q_norm(q), cos, sin).transpose(1, 2)
        k = rope(self.k_norm(k), cos, sin).transpose(1, 2)
        if past:
            r = self.h // self.kv
            ks, vs = (torch.cat([p[i] for p in past] + [own], 2).repeat_interleave(r, 1) for i, own in ((0, k), (1, v)))
            o = F.scaled_dot_product_attention(q, ks, vs, attn_mask=mask)
        else:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        o = o.transpose(1, 2).reshape(B, L, -1) * gate.reshape(B, L, -1).sigmoid()
        return self.o_proj(o), (k, v)


class Mlp(nn.Module):
    def __init__(self, d, f):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(d, f), linear(d, f), linear(f, d)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        E, f, d = c.num_experts, c.moe_intermediate_size, c.hidden_size
        self.gate_up_proj = nn.Parameter(torch.empty(E, 2 * f, d))
        self.down_proj = nn.Parameter(torch.empty(E, d, f))


class Moe(nn.Module):
    """All experts are computed and weighted by the (mostly zero) routing weights: fast for small counts."""
    def __init__(self, c):
        super().__init__()
        self.top = c.num_experts_per_tok
        self.gate = linear(c.hidden_size, c.num_experts)
        self.experts = Experts(c)
        self.shared_expert = Mlp(c.hidden_size, c.shared_expert_intermediate_size)
        self.shared_expert_gate = linear(c.hidden_size, 1)

    def forward(self, x, valid):
        E, f2, d = self.experts.gate_up_proj.shape
        p = self.gate(x).float().softmax(-1)
        i = torch.arange(E, device=x.device)
        a, b = p[..., :, None].detach(), p[..., None, :].detach()
        ahead = (b > a) | ((b == a) & (i[None, :] < i[:, None]))       # who outranks whom, ties by index
        mask = (ahead.sum(-1) < self.top).float()
        w = p * mask
        w = (w / w.sum(-1, keepdim=True)).to(x.dtype)
        gu = F.linear(x, self.experts.gate_up_proj.view(E * f2, d)).unflatten(-1, (E, f2))
        h = F.silu(gu[..., :f2 // 2]) * gu[..., f2 // 2:] * w[..., None]
        y = F.linear(h.flatten(-2), self.experts.down_proj.permute(1, 0, 2).reshape(d, -1))
        y = y + self.shared_expert_gate(x).sigmoid() * self.shared_expert(x)
        n = valid.sum().clamp(min=1)
        load = (mask * valid[..., None]).sum((0, 1)) / (n * self.top)
        balance = E * (load * ((p * valid[..., None]).sum((0, 1)) / n)).sum()
        return y, balance


class Layer(nn.Module):
    def __init__(self, c, attention):
        super().__init__()
        if attention:
            self.self_attn = Attention(c)
        else:
            self.linear_attn = DeltaNet(c)
        self.attention = attention
        self.mlp = Moe(c)
        self.input_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x, cos, sin, valid):
        y = self.input_layernorm(x)
        x = x + (self.self_attn(y, cos, sin)[0] if self.attention else self.linear_attn(y))
        y, balance = self.mlp(self.post_attention_layernorm(x), valid)
        return x + y, balance

    def draft(self, x, cos, sin, valid, past, mask):
        y, kv = self.self_attn(self.input_layernorm(x), cos, sin, past, mask)
        x = x + y
        y, balance = self.mlp(self.post_attention_layernorm(x), valid)
        return x + y, balance, kv


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList([Layer(c, c.is_attention(i)) for i in range(c.num_hidden_layers)])
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)


class Mtp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = linear(2 * c.hidden_size, c.hidden_size)
        self.layers = nn.ModuleList([Layer(c, True)])
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)
        self.pre_fc_norm_embedding = Norm(c.hidden_size, c.rms_norm_eps)
        self.pre_fc_norm_hidden = Norm(c.hidden_size, c.rms_norm_eps)

    def forward(self, e, h, cos, sin, valid, past=(), mask=None):
        u = self.fc(torch.cat([self.pre_fc_norm_embedding(e), self.pre_fc_norm_hidden(h)], -1))
        u, balance, kv = self.layers[0].draft(u, cos, sin, valid, past, mask)
        return self.norm(u), balance, kv


class Model(nn.Module):
    def __init__(self, c=Shape()):
        super().__init__()
        self.c = c
        self.model = Body(c)
        self.lm_head = linear(c.hidden_size, c.vocab_size)
        self.mtp = Mtp(c)
        deep = (2 * c.num_hidden_layers) ** -0.5
        for name, w in self.named_parameters():
            if "conv1d" in name:
                nn.init.uniform_(w, -0.5, 0.5)
            elif "embed_tokens" in name:
                nn.init.normal_(w, std=0.2)
            elif w.ndim >= 2:
                out = name.split(".")[-2] in ("o_proj", "out_proj") or "down_proj" in name
                nn.init.normal_(w, std=0.02 * (deep if out else 1))

    def angles(self, start, n, device):
        dims = self.c.rotary_dim
        f = self.c.rope_theta ** (-torch.arange(0, dims, 2, device=device, dtype=torch.float) / dims)
        a = torch.arange(start, start + n, device=device, dtype=torch.float)[:, None] * f
        return a.cos()[:, None], a.sin()[:, None]                       # [L, 1, 32]

    def drafts(self, ids, h, valid, n):
        """Hidden states of n drafts in a row from each position: entry i at t tells t + 2 + i.  Draft i > 0 is fed with the
        one before it and sees what an engine's cache holds then: the rows 0 .. t made from the model's own hidden states and
        those of its own earlier drafts."""
        L, out, past, balance = ids.shape[1], [], [], 0.0
        for i in range(n):
            e = self.model.embed_tokens(F.pad(ids[:, 1 + i:], (0, 1 + i)))
            cos, sin = self.angles(i, L, ids.device)
            mask = None
            if i:
                low = torch.ones(L, L, device=ids.device, dtype=torch.bool).tril()
                own = torch.eye(L, device=ids.device, dtype=torch.bool)
                mask = torch.cat([low] + [own] * i, 1)
            h, b, kv = self.mtp(e, h, cos, sin, valid, tuple(past), mask)
            past.append(kv)
            out.append(h)
            balance = balance + b
        return out, balance

    def forward(self, ids, valid=None, drafts=1):
        """Hidden states after the final norm, those of the drafts, load-balance loss."""
        valid = torch.ones(ids.shape, device=ids.device) if valid is None else valid
        cos, sin = self.angles(0, ids.shape[1], ids.device)
        x = self.model.embed_tokens(ids)
        balance = 0.0
        for layer in self.model.layers:
            x, b = layer(x, cos, sin, valid)
            balance = balance + b
        h = self.model.norm(x)
        ms, b = self.drafts(ids, h, valid, drafts) if drafts else ([], 0.0)
        return h, ms, (balance + b) / (self.c.num_hidden_layers + drafts)


def hf_config(c):
    """config.json of the same kind as the original (text part only)."""
    return dict(
        vocab_size=c.vocab_size, hidden_size=c.hidden_size, num_hidden_layers=c.num_hidden_layers,
        full_attention_interval=c.full_attention_interval,
        layer_types=["full_attention" if c.is_attention(i) else "linear_attention" for i in range(c.num_hidden_layers)],
        num_attention_heads=c.num_attention_heads, num_key_value_heads=c.num_key_value_heads, head_dim=c.head_dim,
        attention_bias=False, attn_output_gate=True, linear_conv_kernel_dim=c.linear_conv_kernel_dim,
        linear_key_head_dim=c.linear_head_dim, linear_value_head_dim=c.linear_head_dim,
        linear_num_key_heads=c.linear_num_key_heads, linear_num_value_heads=c.linear_num_value_heads,
        moe_intermediate_size=c.moe_intermediate_size,
        shared_expert_intermediate_size=c.shared_expert_intermediate_size,
        num_experts=c.num_experts, num_experts_per_tok=c.num_experts_per_tok, rms_norm_eps=c.rms_norm_eps,
        max_position_embeddings=16384, tie_word_embeddings=False, mtp_num_hidden_layers=1,
        rope_parameters=dict(rope_type="default", rope_theta=c.rope_theta, partial_rotary_factor=0.25,
                             mrope_interleaved=True, mrope_section=[11, 11, 10]))
