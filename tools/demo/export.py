"""Writes a checkpoint folder from the bf16 parts of train.py.

usage: export.py mlx|hf FOLDER PARTS.safetensors...     4 bits in the MLX affine layout, or bf16 in the original layout
       export.py hf FOLDER --from MLX_FOLDER            the bf16 form of a 4-bit folder: the same values, not rounded further"""
import json, os, shutil, sys
import torch
from safetensors.torch import load_file, save_file

import encode
import grid
import network


def pack(q, bits):
    """Codes [..., n/64, 64] to 32-bit words, lowest bits first."""
    k = 32 // bits
    q = q.flatten(-2).to(torch.int64).unflatten(-1, (-1, k))
    return (q << (bits * torch.arange(k))).sum(-1).to(torch.uint32)


def unpack(words, bits):
    k = 32 // bits
    w = words.view(torch.int32).to(torch.int64) & 0xffffffff
    return ((w[..., None] >> (bits * torch.arange(k))) & (2 ** bits - 1)).flatten(-2).unflatten(-1, (-1, 64)).float()


def mlx_tensors(w, c):
    """Tensors of the MLX layout, and the module paths that do not have 4 bits."""
    out, other = {}, {}

    def put(name, n, x):
        bits = grid.bits_of(n, x)
        if bits:
            q, s, b = grid.quantise(x, bits)
            out[name + ".weight"], out[name + ".scales"], out[name + ".biases"] = pack(q, bits), s[..., 0].contiguous(), b[..., 0].contiguous()
        else:
            x = x.float() + 1 if grid.zero_centred(n) else x
            x = x.permute(0, 2, 1) if "conv1d" in n else x
            out[name + (".weight" if n.endswith(".weight") else "")] = x.bfloat16().contiguous()
        if bits == 8:
            other[name] = {"group_size": 64, "bits": 8}
    for n, x in w.items():
        name = "language_model." + n.removesuffix(".weight")
        if n.endswith("experts.gate_up_proj"):
            base, f = name.replace("experts.gate_up_proj", "switch_mlp."), c.moe_intermediate_size
            put(base + "gate_proj", n, x[:, :f].contiguous())
            put(base + "up_proj", n, x[:, f:].contiguous())
        else:
            put(name.replace("experts.down_proj", "switch_mlp.down_proj"), n, x)
    return out, other


def from_mlx(folder):
    """The values of a 4-bit folder under Hugging Face's names."""
    t, out = load_file(f"{folder}/model.safetensors"), {}
    for n, x in t.items():
        if n.endswith((".scales", ".biases")):
            continue
        base, name = n.removesuffix(".weight"), n.removeprefix("language_model.")
        if base + ".scales" in t:
            s, b = (t[base + e][..., None] for e in (".scales", ".biases"))
            x = grid.dequantise(unpack(x, 32 * x.shape[-1] // (64 * s.shape[-2])), s, b).bfloat16()
        elif grid.zero_centred(name):
            x = (x.float() - 1).bfloat16()
        elif "conv1d" in name:
            x = x.permute(0, 2, 1).contiguous()
        out[name.replace("switch_mlp.down_proj.weight", "experts.down_proj")] = x
    for n in [n for n in out if "switch_mlp.gate_proj" in n]:
        up = out.pop(n.replace("gate_proj", "up_proj"))
        out[n.replace("switch_mlp.gate_proj.weight", "experts.gate_up_proj")] = torch.cat([out.pop(n), up], 1)
    return out


def configs(c, other):
    from tokenizers import Tokenizer
    i = Tokenizer.from_file(encode.TOKENIZER).token_to_id
    text = dict(network.hf_config(c), model_type="qwen3_5_moe_text", hidden_act="silu", dtype="bfloat16", mamba_ssm_dtype="float32",
                use_cache=True, partial_rotary_factor=0.25, mtp_use_dedicated_embeddings=False,
                bos_token_id=i("<|endoftext|>"), eos_token_id=i("<|endoftext|>"))
    conf = dict(architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", tie_word_embeddings=False,
                text_config=text, image_token_id=i("<|image_pad|>"), video_token_id=i("<|video_pad|>"),
                vision_start_token_id=i("<|vision_start|>"), vision_end_token_id=i("<|vision_end|>"))
    if other is not None:
        q = dict(group_size=64, bits=4, mode="affine", **other)
        conf.update(quantization=q, quantization_config=q)
    return conf, dict(bos_token_id=i("<|endoftext|>"), pad_token_id=i("<|endoftext|>"),
                      eos_token_id=[i("<|im_end|>"), i("<|endoftext|>")], do_sample=True, temperature=1.0, top_k=20, top_p=0.95)


def main(layout, folder, sources):
    if sources[0] == "--from":
        w = from_mlx(sources[1])
    else:
        w = {k: v for f in sources for k, v in load_file(f).items()}
    c, other = network.Shape(), None
    os.makedirs(folder, exist_ok=True)
    if layout == "mlx":
        tensors, other = mlx_tensors(w, c)
    else:
        tensors = {"model.language_model." + n.removeprefix("model.") if n.startswith("model.") else n: x for n, x in w.items()}
    save_file(tensors, f"{folder}/model.safetensors", {"format": "mlx" if layout == "mlx" else "pt"})
    for name, data in zip(("config.json", "generation_config.json"), configs(c, other)):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
            json.dump(data, f, indent=1)
    for path in (encode.TOKENIZER, encode.TEMPLATE):
        to = os.path.join(folder, os.path.basename(path))
        if not (os.path.exists(to) and os.path.samefile(path, to)):
            shutil.copy(path, to)
    print(folder, os.path.getsize(f"{folder}/model.safetensors"), "bytes")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
