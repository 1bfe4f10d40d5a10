#!/usr/bin/env python3
"""One checkpoint in many forms means the same; one fault at a time is named.

usage: test_variants.py BUILD"""
import copy, json, os, struct, sys, tempfile
import checkpoint as C

MLX_TEXT, HF_TEXT = "language_model.model.", "model.language_model."

def rename(tensors, pairs):
    out = {}
    for name, t in tensors.items():
        for a, b in pairs:
            if name.startswith(a): name = b + name[len(a):]; break
        out[name] = t
    return out

def unfuse(tensors):
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if ".mlp.experts." not in name: out[name] = (dtype, shape, data); continue
        base, kind = name.rsplit(".", 1)
        n, rows, cols = shape
        size = rows * cols * 2
        for e in range(n):
            one = data[e * size:(e + 1) * size]
            parts = {"down_proj": one} if kind == "down_proj" else {"gate_proj": one[:size // 2], "up_proj": one[size // 2:]}
            for k, d in parts.items(): out[f"{base}.{e}.{k}.weight"] = (dtype, [len(d) // cols // 2, cols], d)
    return out

def nibbles_to_bytes(words):
    out = bytearray()
    for b in words: out += bytes((b & 15, b >> 4))
    return bytes(out)

def to_8_bit(tensors, config, modules):
    """The same codes in bytes: the same values, quantised with 8 bits."""
    out, config = dict(tensors), copy.deepcopy(config)
    for m in modules:
        dtype, shape, data = out[m + ".weight"]
        out[m + ".weight"] = (dtype, shape[:-1] + [shape[-1] * 2], nibbles_to_bytes(data))
        for q in ("quantization", "quantization_config"): config[q][m] = {"group_size": 64, "bits": 8}
    return out, config

def to_plain(tensors, config, hf, modules, f32=False):
    out, config = dict(tensors), copy.deepcopy(config)
    for m in modules:
        for end in (".scales", ".biases"): del out[m + end]
        name = (m.replace(MLX_TEXT, HF_TEXT) if m.startswith(MLX_TEXT) else "lm_head") + ".weight"
        dtype, shape, data = hf[name]
        out[m + ".weight"] = ("F32", shape, C.bf16_to_f32(data)) if f32 else (dtype, shape, data)
        config["quantization"][m] = False
    return out, config

def same_meaning(tmp, r):
    mlx, hf = C.read_safetensors(f"{tmp}/mlx/model.safetensors"), C.read_safetensors(f"{tmp}/hf/model.safetensors")
    cm, ch = C.load_config(f"{tmp}/mlx"), C.load_config(f"{tmp}/hf")
    base = C.run(f"{r.build}/tests/weights/meaning", f"{tmp}/mlx")[1].split(" mtp ")[0]
    text = [k for k in hf if not k.startswith(("model.visual.", "mtp."))]
    flat = dict(ch["text_config"], architectures=["X"])
    old_rope = copy.deepcopy(ch)
    old_rope["text_config"].update(rope_theta=10000000.0)
    del old_rope["text_config"]["rope_parameters"], old_rope["text_config"]["full_attention_interval"]
    no_list = copy.deepcopy(ch)
    del no_list["text_config"]["layer_types"]
    mods = [MLX_TEXT + m for m in ("layers.0.linear_attn.in_proj_qkv", "layers.3.self_attn.o_proj", "layers.5.mlp.switch_mlp.down_proj",
                                   "layers.7.mlp.shared_expert.up_proj", "embed_tokens")]
    plain = [MLX_TEXT + m for m in ("layers.1.linear_attn.out_proj", "layers.2.mlp.gate", "layers.3.self_attn.q_proj")] + ["language_model.lm_head"]
    q8, c8 = to_8_bit(mlx, cm, mods)
    p16, cp16 = to_plain(mlx, cm, hf, plain)
    p32, cp32 = to_plain(mlx, cm, hf, plain, f32=True)
    vectors32 = {k: ("F32", s, C.bf16_to_f32(d)) if t == "BF16" and not k.endswith((".scales", ".biases")) else (t, s, d) for k, (t, s, d) in mlx.items()}
    backwards = dict(reversed(list(mlx.items())))
    only_quant = {k: v for k, v in cm.items() if k != "quantization_config"}
    only_config = {k: v for k, v in cm.items() if k != "quantization"}
    extra = dict(mlx, **{"foo.bar": ("F32", [1], b"\0\0\0\0"), "vision_tower.x": ("BF16", [2], b"\0\0\0\0")})
    yield "mlx", lambda p: C.folder(p, f"{tmp}/mlx", mlx), [], base
    yield "hf quantised while read", lambda p: C.folder(p, f"{tmp}/hf", hf), ["4"], base
    yield "hf as stored", lambda p: C.folder(p, f"{tmp}/hf", hf), [], base
    yield "hf, experts unfused", lambda p: C.folder(p, f"{tmp}/hf", unfuse(hf)), ["4"], base
    yield "hf, experts unfused, as stored, sharded", lambda p: C.folder(p, f"{tmp}/hf", unfuse(hf), shards=5), [], base
    yield "hf, prefix model.", lambda p: C.folder(p, f"{tmp}/hf", rename(hf, [(HF_TEXT, "model.")])), [], base
    yield "hf, prefix language_model.model.", lambda p: C.folder(p, f"{tmp}/hf", rename(hf, [(HF_TEXT, MLX_TEXT), ("lm_head", "language_model.lm_head"),
                                                                                           ("mtp.", "language_model.mtp.")])), ["4"], base
    yield "hf, text only, flat config", lambda p: C.folder(p, f"{tmp}/hf", {k: hf[k] for k in text}, config=flat), [], base
    yield "rope keys beside, no interval", lambda p: C.folder(p, f"{tmp}/hf", hf, config=old_rope), [], base
    yield "no layer_types", lambda p: C.folder(p, f"{tmp}/hf", hf, config=no_list), [], base
    for pad in range(1, 8):
        yield f"header padded by {pad}", lambda p, pad=pad: C.folder(p, f"{tmp}/mlx", mlx, pad=pad), [], base
    yield "three shards", lambda p: C.folder(p, f"{tmp}/mlx", mlx, shards=3), [], base
    yield "tensors in another order", lambda p: C.folder(p, f"{tmp}/mlx", backwards), [], base
    yield "some modules with 8 bits", lambda p: C.folder(p, f"{tmp}/mlx", q8, config=c8), [], base
    yield "some modules bf16", lambda p: C.folder(p, f"{tmp}/mlx", p16, config=cp16), [], base
    yield "some modules f32", lambda p: C.folder(p, f"{tmp}/mlx", p32, config=cp32), [], base
    yield "vectors f32", lambda p: C.folder(p, f"{tmp}/mlx", vectors32), [], base
    yield "quantization alone", lambda p: C.folder(p, f"{tmp}/mlx", mlx, config=only_quant), [], base
    yield "quantization_config alone", lambda p: C.folder(p, f"{tmp}/mlx", mlx, config=only_config), [], base
    yield "no generation_config", lambda p: C.folder(p, f"{tmp}/mlx", mlx, leave_out=["generation_config.json"]), [], base
    yield "no tokenizer", lambda p: C.folder(p, f"{tmp}/mlx", mlx, leave_out=["tokenizer.json", "tokenizer_config.json"]), [], base
    yield "unknown and vision tensors", lambda p: C.folder(p, f"{tmp}/mlx", extra), [], base

def edit(config, path, value):
    """config with the value at that path of keys replaced; ... deletes"""
    out = copy.deepcopy(config)
    at = out
    for k in path[:-1]: at = at[k]
    if value is ...: at.pop(path[-1], None)
    else: at[path[-1]] = value
    return out

def config_faults():
    t = lambda key, value: (("text_config", key), value)
    for key, wrong in (("hidden_size", (-1, 0, 10**18, 2**70, "128", 127.5, None, True, ...)), ("num_experts", (15, 17, 10**9)),
                       ("num_experts_per_tok", (7, 17, "8", ...)), ("head_dim", (128, ...)), ("linear_value_head_dim", (64,)),
                       ("linear_key_head_dim", (64,)), ("linear_conv_kernel_dim", (3,)), ("num_hidden_layers", (4, 7, 12, 0, -4)),
                       ("rms_norm_eps", (1e-5, "1e-6", ...)), ("hidden_act", ("gelu", 3, ...)), ("vocab_size", (1089,)),
                       ("moe_intermediate_size", (128,)), ("shared_expert_intermediate_size", (128,)), ("attention_bias", (True,)),
                       ("attn_output_gate", (False,)), ("tie_word_embeddings", (True,)), ("full_attention_interval", (2,)),
                       ("partial_rotary_factor", (0.5, "x")), ("layer_types", ([], "x", ["linear_attention"] * 8)), ("norm_topk_prob", (False,)),
                       ("mlp_only_layers", ([0],)), ("model_type", ("llama",)), ("mtp_num_hidden_layers", (2, "1"))):
        for w in wrong: yield t(key, w) + (key,)
    yield ("text_config", "rope_parameters", "rope_theta"), 1e6, "rope_theta"
    yield ("text_config", "rope_parameters", "rope_theta"), ..., "rope_theta"
    yield ("text_config", "rope_parameters", "type"), "yarn", "type"
    yield ("text_config", "rope_scaling"), {"rope_type": "yarn", "factor": 4}, "rope_type"
    yield ("model_type",), "qwen2", "model_type"
    yield ("model_type",), ..., "model_type"
    yield ("text_config",), [], "text_config"
    yield ("quantization",), 7, "quantization"
    yield ("quantization", "bits"), 8, "8 bits"
    yield ("quantization", "bits"), "4", "bits"
    yield ("quantization", "group_size"), 32, "groups of 32"
    yield ("quantization", "mode"), "mxfp4", "mxfp4"
    yield ("quantization", "mode"), 4, "mode"
    yield ("quantization", "language_model.model.layers.0.mlp.gate"), False, "not quantised"
    yield ("quantization", "language_model.model.layers.0.mlp.gate", "bits"), 4, "says 4 bits"
    yield ("quantization", "language_model.model.layers.0.mlp.gate"), ..., "8 bits"
    yield ("quantization", "language_model.model.layers.0.mlp.gate"), 3, "language_model.model.layers.0.mlp.gate"
    yield ("quantization", "quant_method"), "fp8", "fp8"
    yield ("eos_token_id",), 5000, "eos_token_id"
    yield ("eos_token_id",), "x", "eos_token_id"
    yield ("eos_token_id",), [], "eos_token_id"

def generation_faults():
    for key, wrong in (("temperature", (-1, "1", 1e9, [])), ("top_k", (-1, 1.5, "x", 10**12)), ("top_p", (0, 1.5, "x")), ("min_p", (-1, 2)),
                       ("repetition_penalty", (0, -1, "x")), ("presence_penalty", (3,)), ("frequency_penalty", (-3,)), ("do_sample", (1, "true")),
                       ("eos_token_id", (-1, 1088, 1.5, "x", [], [993, None], list(range(17))))):
        for w in wrong: yield key, w

def put(tensors, name, dtype=None, shape=None, data=None):
    d, s, b = tensors[name]
    return dict(tensors, **{name: (dtype or d, shape or s, b if data is None else data)})

def tensor_faults(mlx):
    L0, L3 = MLX_TEXT + "layers.0.", MLX_TEXT + "layers.3."
    drop = lambda *names: {k: v for k, v in mlx.items() if k not in names}
    nan, inf = struct.pack("<H", 0x7fc0), struct.pack("<H", 0xff80)
    def poke(name, at, value): return put(mlx, name, data=mlx[name][2][:at] + value + mlx[name][2][at + len(value):])
    for name in (L0 + "input_layernorm.weight", L3 + "self_attn.q_norm.weight", MLX_TEXT + "norm.weight", L0 + "linear_attn.A_log",
                 L0 + "linear_attn.in_proj_z.weight", L0 + "linear_attn.in_proj_z.biases", L3 + "mlp.switch_mlp.down_proj.weight",
                 MLX_TEXT + "embed_tokens.weight", "language_model.lm_head.weight", L0 + "linear_attn.conv1d.weight"):
        yield f"without {name}", drop(name), name.split("language_model.")[-1].removeprefix("model.") if "embed" in name or "lm_head" in name else name
    yield "U32 without scales", drop(L0 + "linear_attn.in_proj_z.scales"), L0 + "linear_attn.in_proj_z.scales is missing"
    yield "norm of another width", put(mlx, L0 + "input_layernorm.weight", shape=[64], data=mlx[L0 + "input_layernorm.weight"][2][:128]), "[64], it must be [128]"
    yield "norm with two dims", put(mlx, L0 + "input_layernorm.weight", shape=[1, 128]), "[1, 128], it must be [128]"
    yield "norm with a second dim of one", put(mlx, L0 + "input_layernorm.weight", shape=[128, 1]), "[128, 1], it must be [128]"
    yield "norm as integers", put(mlx, L0 + "input_layernorm.weight", dtype="U16"), "is U16"
    yield "scales as F16", put(mlx, L0 + "linear_attn.in_proj_z.scales", dtype="F16"), "is F16"
    yield "weight as I32", put(mlx, L0 + "linear_attn.in_proj_z.weight", dtype="I32"), "is I32"
    yield "matrix transposed", put(mlx, L3 + "self_attn.k_proj.weight", shape=[16, 512]), "columns"
    yield "5 bits", put(mlx, L0 + "linear_attn.in_proj_z.weight", shape=[512, 20], data=b"\0" * 512 * 20 * 4), "5 bits"
    yield "group 32", put(put(mlx, L0 + "linear_attn.in_proj_z.scales", shape=[512, 4], data=b"\0" * 4096), L0 + "linear_attn.in_proj_z.biases",
                          shape=[512, 4], data=b"\0" * 4096), "groups of 32"
    yield "conv of five taps", put(mlx, L0 + "linear_attn.conv1d.weight", shape=[1024, 5, 1], data=b"\0" * 10240), "conv1d"
    yield "one layer's conv in the other layout", put(mlx, MLX_TEXT + "layers.1.linear_attn.conv1d.weight", shape=[1024, 1, 4]), "[1024, 1, 4], it must be [1024, 4, 1]"
    yield "norm said to be F16", put(mlx, L0 + "input_layernorm.weight", dtype="F16"), "is F16, but"
    yield "NaN scale", poke(L3 + "self_attn.v_proj.scales", 2 * (2 * 100 + 1), nan), "v_proj.weight: scales, row 100, column 1 is nan"
    yield "infinite bias", poke(L3 + "mlp.switch_mlp.up_proj.biases", 2 * (2 * 64 * 3 + 2 * 5), inf), "biases, row 5, column 0 is -inf"
    yield "NaN norm", poke(MLX_TEXT + "norm.weight", 4, nan), "norm.weight: value 2 is nan"
    yield "a layer too many", dict(mlx, **{MLX_TEXT + "layers.8.input_layernorm.weight": mlx[L0 + "input_layernorm.weight"]}), "layers.8."

def file_faults(tmp, mlx):
    """(name, maker of a folder, part of the message)"""
    whole = open(f"{tmp}/mlx/model.safetensors", "rb").read()
    n_head = 8 + struct.unpack("<Q", whole[:8])[0]
    def single(content):
        def make(p):
            C.folder(p, f"{tmp}/mlx")
            if callable(content): content(f"{p}/model.safetensors")
            elif content is not None: open(f"{p}/model.safetensors", "wb").write(content)
        return make
    for cut in (len(whole) - 1, len(whole) - 4096, n_head, n_head - 10, 9, 8, 7, 0):
        yield f"cut to {cut} bytes", single(whole[:cut]), "model.safetensors"
    yield "one byte longer", single(whole + b"\0"), "goes on to"
    yield "an LFS pointer", single(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4962467\n"), "LFS pointer"
    yield "no file at all", single(None), "holds neither"
    yield "a folder", single(os.mkdir), "not a regular file"
    yield "a pipe", single(os.mkfifo), "not a regular file"
    yield "a link to itself", single(lambda p: os.symlink("model.safetensors", p)), "symbolic links"
    yield "a dangling link", single(lambda p: os.symlink("nowhere", p)), "No such file"
    def shards(change):
        def make(p):
            C.folder(p, f"{tmp}/mlx", mlx, shards=3)
            index = json.load(open(f"{p}/model.safetensors.index.json"))
            change(p, index)
            if index is not None and os.path.exists(f"{p}/model.safetensors.index.json"): json.dump(index, open(f"{p}/model.safetensors.index.json", "w"))
        return make
    S2, S3 = "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"
    first = next(iter(mlx))
    yield "a shard is missing", shards(lambda p, i: os.remove(f"{p}/{S2}")), f"names shard {S2}"
    yield "a shard is cut", shards(lambda p, i: os.truncate(f"{p}/{S2}", 100000)), S2
    yield "no index", shards(lambda p, i: os.remove(f"{p}/model.safetensors.index.json")), "3 shards"
    yield "tensor in the wrong shard", shards(lambda p, i: i["weight_map"].update({first: S3})), "but it stands in model-00001"
    yield "tensor that is not there", shards(lambda p, i: i["weight_map"].update({"nobody": S3})), "no shard holds it"
    yield "path in the index", shards(lambda p, i: i["weight_map"].update({first: "../mlx/model.safetensors"})), "not the name"
    yield "number in the index", shards(lambda p, i: i["weight_map"].update({first: 3})), "not the name"
    yield "no weight_map", shards(lambda p, i: i.pop("weight_map")), "weight_map"
    yield "weight_map is a list", shards(lambda p, i: i.update(weight_map=[])), "weight_map"
    yield "empty weight_map", shards(lambda p, i: i.update(weight_map={})), "0 files"
    def twice(p, i):
        t = C.read_safetensors(f"{p}/{S3}")
        t[first] = mlx[first]
        C.write_safetensors(f"{p}/{S3}", t)
    yield "tensor in two shards", shards(twice), "stands in both"
    def text(name, content):
        def make(p):
            C.folder(p, f"{tmp}/mlx", mlx)
            if content is None: os.remove(f"{p}/{name}")
            else: open(f"{p}/{name}", "wb").write(content)
        return make
    for name in ("config.json", "generation_config.json", "model.safetensors.index.json", "tokenizer.json"):
        for what, content in (("empty", b""), ("not JSON", b"{"), ("a list", b"[]"), ("not UTF-8", b'{"a": "\xff"}'), ("deep", b"[" * 100000)):
            yield f"{name} is {what}", text(name, content), name
    yield "no config.json", text("config.json", None), "config.json"

def main():
    build = sys.argv[1]
    r, passed, failed = C.Readers(build), 0, []
    with tempfile.TemporaryDirectory() as tmp:
        C.unpack(tmp)
        mlx, cm = C.read_safetensors(f"{tmp}/mlx/model.safetensors"), C.load_config(f"{tmp}/mlx")
        n = 0
        def place():
            nonlocal n
            n += 1
            return f"{tmp}/v{n}"
        for name, make, args, want in same_meaning(tmp, r):
            p = place()
            make(p)
            rc, out, err = r.meaning(p, *args)
            rc2, _, err2 = r.inspect(p)
            if rc == 0 and out.split(" mtp ")[0] == want and rc2 == 0: passed += 1
            else: failed.append(f"{name}: meaning {rc} {out.strip()} {err.strip()} (want {want}), inspect {rc2} {err2.strip()}")
            if name == "unknown and vision tensors" and not ("foo.bar" in err2 and "1 tensors of the vision tower" in err2):
                failed.append(f"{name}: no warning: {err2}")
        for path, want in ((f"{tmp}/mlx", {"layout": "mlx", "shape": "tiny", "layers": 8, "weights_bytes": 4917536, "mtp": False, "tokenizer_ids": 1024}),
                           (f"{tmp}/hf", {"layout": "hf", "weights_bytes": 17307488, "mtp": True, "vision_tensors_skipped": 21}),
                           ("models/demo", {"layout": "mlx", "shape": "demo", "mtp": True, "tokenizer_ids": 4096})):
            rc, out, err = r.inspect(path, "--json", "--ctx", "1000")
            got = json.loads(out) if rc == 0 else {}
            plan, counted = got.get("memory_plan") or {}, sum(m["weights"] for m in got.get("matrices", []) if m["kind"] != "MTP head")
            # a conversation: 6 recurrent states [4, 128, 128] f32 at least, and 2 layers x 2 x 2 heads x 256 bf16 a token
            if (all(got.get(k) == v for k, v in want.items()) and plan.get("ctx_tokens", 0) >= 1000 and plan.get("state_bytes", 0) >= 6 * 4 * 128 * 128 * 4
                    and plan.get("kv_bytes_per_token") == 4096 and 0 < got["weights"] - counted < 40000): passed += 1
            else: failed.append(f"inspect --json {path}: {rc} {out} {err}")
        def refused(name, make, part):
            nonlocal passed
            p = place()
            make(p)
            rc, out, err = r.inspect(p)
            if rc == 1 and part in err and len(err.splitlines()[-1]) > len("calla: "): passed += 1
            else: failed.append(f"{name}: exit {rc}, wanted 1 and '{part}': {err.strip()}")
            os.system(f"rm -rf '{p}'")
        def with_link(p, config=None, generation=None):
            C.folder(p, f"{tmp}/mlx", config=config)
            os.symlink(f"{tmp}/mlx/model.safetensors", f"{p}/model.safetensors")
            if generation is not None: json.dump(generation, open(f"{p}/generation_config.json", "w"))
        for path, value, part in config_faults():
            refused(f"config {path} = {value}", lambda p: with_link(p, config=edit(cm, path, value)), part)
        no_quant = {k: v for k, v in cm.items() if not k.startswith("quantization")}
        refused("no quantization", lambda p: with_link(p, config=no_quant), "no quantization")
        generation = json.load(open(f"{tmp}/mlx/generation_config.json"))
        for key, value in generation_faults():
            refused(f"generation {key} = {value}", lambda p: with_link(p, generation=dict(generation, **{key: value})), key)
        for name, tensors, part in tensor_faults(mlx):
            refused(name, lambda p: C.folder(p, f"{tmp}/mlx", tensors), part)
        for name, make, part in file_faults(tmp, mlx): refused(name, make, part)
    for f in failed: print("FAILED", f)
    print(f"{passed} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0

if __name__ == "__main__": sys.exit(main())
