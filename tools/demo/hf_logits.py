"""Logits of Hugging Face transformers in fp32 for the texts of a held-out set, as calla eval --against reads them.

usage: hf_logits.py HELDOUT.jsonl OUT.jsonl N_TEXTS MLX_FOLDER            the values of a 4-bit folder
       hf_logits.py HELDOUT.jsonl OUT.jsonl N_TEXTS PARTS.safetensors...  the bf16 weights of train.py"""
import json, sys
import torch
from safetensors.torch import load_file
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

import evaluate
import export
import network

TOP = 512


def main(held, out, n, sources):
    w = export.from_mlx(sources[0]) if len(sources) == 1 else {k: v for f in sources for k, v in load_file(f).items()}
    net = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**network.hf_config(network.Shape()))).float().eval()
    missing = net.load_state_dict({k: v.float() for k, v in w.items() if not k.startswith("mtp.")}, strict=False)
    assert not missing.missing_keys and not missing.unexpected_keys, missing
    texts = evaluate.HeldOut(held).texts
    kinds = sorted({x["task"] for x in texts})
    with open(out, "w", encoding="utf-8") as f, torch.no_grad():
        for x in [x for k in kinds for x in [t for t in texts if t["task"] == k][:n]]:
            ids = x["p"] + x["w"]
            logits = net(torch.tensor([ids])).logits[0].double()
            top = logits.topk(TOP)
            rows = [[[i, round(v, 7)] for i, v in zip(*r)] for r in zip(top.indices.tolist(), top.values.tolist())]
            f.write(json.dumps({"ids": ids, "top": rows, "lse": logits.logsumexp(-1).tolist()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
