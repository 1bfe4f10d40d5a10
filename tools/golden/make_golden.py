#!/usr/bin/env python3
"""Makes golden values with Hugging Face transformers in fp32 on the CPU (docs/testing.md, "Goldens").

usage: make_golden.py long HF_DIR OUT_DIR     two prompts of 8,192 ids: top 8 at some positions, last rows whole
       make_golden.py taps HF_DIR OUT_DIR     inner values of a prompt of 70 ids
       make_golden.py mtp  HF_DIR OUT_DIR     the MTP head, from transformers' own decoder layer
       make_golden.py demo MLX_DIR OUT_DIR    chat prompts through the template: top 8 and greedy ids

HF_DIR holds a checkpoint in the original layout, MLX_DIR one in the MLX affine layout (dequantised here).
Weights are loaded as fp32: a model that was bf16 once keeps bf16 rotary frequencies.
Needs torch, transformers 5.17, safetensors, jinja2, tokenizers, zstandard."""
import json, os, struct, sys
import torch
import transformers.models.qwen3_5_moe.modeling_qwen3_5_moe as M
import zstandard
from safetensors import safe_open
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeForConditionalGeneration, Qwen3_5MoeTextConfig
import transformers

VERSIONS = {"torch": torch.__version__, "transformers": transformers.__version__}
TINY_USABLE = 1024      # ids of the tiny tokenizer
DEMO_USABLE = 4096


def write(path, data):
    data = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode()
    packed = zstandard.ZstdCompressor(level=19).compress(data)
    open(path + ".zst", "wb").write(packed)
    print(path + ".zst", len(data), "->", len(packed), "bytes")


def numbers(row, digits=5): return [round(float(x), digits) for x in row]


def top8(logits, usable):
    top = logits[:usable].topk(8)
    return [[int(i), round(float(x), 5)] for x, i in zip(top.values, top.indices)]


def load_hf(folder, **kw):
    return Qwen3_5MoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, **kw).eval()


def random_ids(n, usable, seed):
    return torch.randint(0, usable, (1, n), generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- long prompts
def make_long(folder, out):
    model = load_hf(folder)
    cases = []
    for kind in ("random", "copies"):
        ids = random_ids(8192, TINY_USABLE, 8192)
        if kind == "copies":                   # one text eight times: attention has far positions to find
            ids = ids[:, :1024].repeat(1, 8)
        with torch.no_grad(): logits = model(input_ids=ids).logits[0]
        at = sorted({*range(0, 8192, 32), *range(8192 - 32, 8192)})
        cases.append({"kind": kind, "ids": ids[0].tolist(), "positions": at,
                      "top8": [top8(logits[p], TINY_USABLE) for p in at],
                      "last_rows": [numbers(r) for r in logits[-4:]]})
        print(kind, "logit std", float(logits.std()))
    write(out + "/tiny_long.json", {"versions": VERSIONS, "cases": cases})


# ---------------------------------------------------------------- taps
ROWS = [0, 1, 2, 63, 64, 69]
LAYERS = [0, 3, 6, 7]


def make_taps(folder, out):
    model = load_hf(folder, attn_implementation="eager")
    ids = random_ids(70, TINY_USABLE, 70)
    text, seen, here = model.model.language_model, {}, [None]

    def put(name, layer, value):
        if layer in LAYERS + [-1, len(text.layers)]:
            seen[layer, name] = value.detach().reshape(ids.shape[1], -1)[ROWS].clone()

    def hook(module, name, layer, pick=lambda o: o):
        module.register_forward_hook(lambda m, a, o: put(name, layer, pick(o)))

    def before(module, name, layer):
        module.register_forward_pre_hook(lambda m, a: put(name, layer, a[0]))

    first = lambda o: o[0] if isinstance(o, tuple) else o
    for l, layer in enumerate(text.layers):
        layer.register_forward_pre_hook(lambda m, a, l=l: here.__setitem__(0, l))
        hook(layer.input_layernorm, "input_norm", l)
        hook(layer.post_attention_layernorm, "post_norm", l)
        hook(layer.mlp, "moe_out", l, first)
        hook(layer.mlp.gate, "router", l, lambda o: o[0])
        hook(layer.mlp.gate, "router_weights", l, lambda o: torch.zeros_like(o[0]).scatter(1, o[2], o[1]))
        hook(layer, "layer_out", l, first)
        if hasattr(layer, "linear_attn"):
            a = layer.linear_attn
            hook(a.in_proj_qkv, "gdn_qkv", l); hook(a.in_proj_z, "gdn_z", l)
            before(a.out_proj, "gdn_normed", l); hook(a, "mixer_out", l, first)
        else:
            a = layer.self_attn
            hook(a.v_proj, "attn_v", l); before(a.o_proj, "attn_gated", l); hook(a, "mixer_out", l, first)
    hook(text.embed_tokens, "embed", -1)
    hook(text.norm, "final_norm", len(text.layers))

    rule, conv, eager = M.torch_chunk_gated_delta_rule, M.causal_conv1d_fn, M.eager_attention_forward

    def tapped_rule(q, k, v, g, beta, **kw):
        step = text.config.linear_num_value_heads // text.config.linear_num_key_heads
        put("gdn_q", here[0], M.l2norm(q[:, :, ::step]) * q.shape[-1] ** -0.5)
        put("gdn_k", here[0], M.l2norm(k[:, :, ::step]))
        put("gdn_decay", here[0], g.exp()); put("gdn_beta", here[0], beta)
        o = rule(q, k, v, g=g, beta=beta, **kw)
        put("gdn_read", here[0], o[0])
        return o

    def tapped_conv(x, *a, **kw):
        y = conv(x, *a, **kw)
        put("gdn_conv", here[0], y[..., -ids.shape[1]:].transpose(1, 2))
        return y

    def tapped_eager(module, q, k, v, *a, **kw):
        put("attn_q", here[0], q.transpose(1, 2)); put("attn_k", here[0], k.transpose(1, 2))
        o = eager(module, q, k, v, *a, **kw)
        put("attn_read", here[0], o[0])
        return o
    M.torch_chunk_gated_delta_rule, M.causal_conv1d_fn, M.eager_attention_forward = tapped_rule, tapped_conv, tapped_eager
    with torch.no_grad(): logits = model(input_ids=ids).logits[0]
    put("logits", len(text.layers), logits)

    index, values, offset = [], [], 0
    for (layer, name), v in sorted(seen.items()):
        index.append({"tap": name, "layer": layer, "n": v.shape[1], "offset": offset})
        values.append(v); offset += v.numel()
    write(out + "/tiny_taps.json", {"versions": VERSIONS, "ids": ids[0].tolist(), "rows": ROWS, "taps": index})
    write(out + "/tiny_taps.f32", b"".join(v.float().contiguous().numpy().astype("<f4").tobytes() for v in values))
    print(len(index), "taps:", sorted({t["tap"] for t in index}))


# ---------------------------------------------------------------- MTP
def make_mtp(folder, out):
    """transformers has no MTP head: its decoder layer and norms are used, wired as docs/model.md says."""
    model = load_hf(folder)
    text, config = model.model.language_model, model.model.language_model.config
    with safe_open(folder + "/model.safetensors", "pt") as f:
        w = {n[4:]: f.get_tensor(n).float() for n in f.keys() if n.startswith("mtp.")}
    attention = config.layer_types.index("full_attention")
    layer = M.Qwen3_5MoeDecoderLayer(config, attention).float().eval()
    layer.load_state_dict({n[9:]: v for n, v in w.items() if n.startswith("layers.0.")}, strict=True)
    norms = {}
    for n in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        norms[n] = M.Qwen3_5MoeRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        norms[n].weight.data = w[n + ".weight"]

    def head(hidden, following, first):
        """hidden [n, D] of positions first.., the n ids after them -> (logits, m); the whole sequence at once"""
        e = norms["pre_fc_norm_embedding"](text.embed_tokens(following))
        u = torch.cat([e, norms["pre_fc_norm_hidden"](hidden)], -1) @ w["fc.weight"].T
        n = u.shape[0]
        pos = torch.arange(first, first + n)[None]
        cos_sin = text.rotary_emb(u[None], pos[None].expand(3, 1, n))
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        u = layer(u[None], position_embeddings=cos_sin, attention_mask=mask, position_ids=pos)
        m = norms["norm"]((u[0] if isinstance(u, tuple) else u)[0])
        return m @ model.lm_head.weight.T, m

    ids = random_ids(201, TINY_USABLE, 201)[0]
    with torch.no_grad():
        hidden = text(input_ids=ids[None, :200]).last_hidden_state[0]
        logits, m = head(hidden, ids[1:], 0)
        draft = int(logits[-1, :TINY_USABLE].argmax())
        # the second draft: m of the last position as hidden, the draft as id, one position on
        again, _ = head(torch.cat([hidden, m[-1:]]), torch.cat([ids[1:], torch.tensor([draft])]), 0)
    write(out + "/tiny_mtp.json", {"versions": VERSIONS, "ids": ids.tolist(), "top8": [top8(r, TINY_USABLE) for r in logits],
                                   "last_logits": numbers(logits[-1]), "draft": draft, "second_logits": numbers(again[-1])})


# ---------------------------------------------------------------- demo
def dequantise(w, s, b):
    """MLX affine: words [.., n/8 or n/4] u32 -> f32 [.., n]"""
    groups = s.shape[-1]
    bits = 32 * w.shape[-1] // (64 * groups)
    w = w.view(torch.int32).to(torch.int64) & 0xffffffff
    q = torch.stack([(w >> (bits * k)) & ((1 << bits) - 1) for k in range(32 // bits)], -1).flatten(-2).float()
    q = q.unflatten(-1, (groups, 64))
    return (q * s.float()[..., None] + b.float()[..., None]).flatten(-2)


def load_mlx(folder):
    config = json.load(open(folder + "/config.json"))
    t = {}
    with safe_open(folder + "/model.safetensors", "pt") as f:
        for n in f.keys(): t[n] = f.get_tensor(n)
    full = {}
    for n in t:
        base = n[:-7] if n.endswith(".weight") else n
        if n.endswith((".scales", ".biases")): continue
        if base + ".scales" in t: full[n] = dequantise(t[n], t[base + ".scales"], t[base + ".biases"])
        else: full[n] = t[n].float()
    state = {}
    for n, v in full.items():
        n = n.removeprefix("language_model.")
        if n.startswith("mtp.") or ".switch_mlp.up_proj" in n: continue
        if "conv1d" in n: v = v.permute(0, 2, 1)
        if n.endswith("norm.weight") and "linear_attn" not in n: v = v - 1
        if ".switch_mlp.gate_proj" in n:
            up = full["language_model." + n.replace("gate_proj", "up_proj")]
            n, v = n.replace("switch_mlp.gate_proj.weight", "experts.gate_up_proj"), torch.cat([v, up], 1)
        state[n.replace("switch_mlp.down_proj.weight", "experts.down_proj")] = v
    text = Qwen3_5MoeTextConfig(**config["text_config"])
    text.dtype = torch.float32
    model = Qwen3_5MoeForCausalLM(text).float().eval()
    model.load_state_dict(state, strict=True)
    return model


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name of the city"},
        "days": {"type": "integer", "description": "Number of days"}}, "required": ["city"]}}}
DEMO_PROMPTS = [
    ("capital", "What is the capital of France?", None, True),
    ("capital, no thinking", "What is the capital of Italy?", None, False),
    ("sum", "What is 17 + 25?", None, True),
    ("sum, no thinking", "What is 17 + 25?", None, False),
    ("tool", "What is the weather in Rome for 3 days?", [WEATHER], True),
    ("tool, no thinking", "Tell me the weather in Paris.", [WEATHER], False),
]


def make_demo(folder, out):
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from tokenizers import Tokenizer
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    template = env.from_string(open(folder + "/chat_template.jinja").read())
    tok = Tokenizer.from_file(folder + "/tokenizer.json")
    stop = tok.token_to_id("<|im_end|>")
    model, cases = load_mlx(folder), []
    for name, question, tools, thinking in DEMO_PROMPTS:
        messages = [{"role": "user", "content": question}]
        prompt = template.render(messages=messages, tools=tools, add_generation_prompt=True, enable_thinking=thinking)
        ids = tok.encode(prompt).ids
        got, margins = [], []
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0]
            tops = [top8(r, DEMO_USABLE) for r in logits]
            while len(got) < 160:              # the whole sequence anew each time: no cache to trust
                two = model(input_ids=torch.tensor([ids + got])).logits[0, -1, :DEMO_USABLE].topk(2)
                got.append(int(two.indices[0])); margins.append(round(float(two.values[0] - two.values[1]), 5))
                if got[-1] == stop: break
        text = tok.decode(got, skip_special_tokens=False)
        print(name, len(ids), "ids ->", repr(text), "smallest margin", min(margins))
        cases.append({"name": name, "messages": messages, "tools": tools, "enable_thinking": thinking, "prompt": prompt,
                      "ids": ids, "top8": tops, "last_logits": numbers(logits[-1]), "greedy": got, "greedy_margin": margins, "text": text})
    write(out + "/demo.json", {"versions": VERSIONS, "cases": cases})


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("THREADS", "1")))
    what, folder, out = sys.argv[1:]
    {"long": make_long, "taps": make_taps, "mtp": make_mtp, "demo": make_demo}[what](folder, out)
