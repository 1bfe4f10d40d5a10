"""Checkpoints for tests: reads and writes safetensors, makes variants of the tiny one, runs the readers."""
import json, os, re, shutil, struct, subprocess

DATA = "tests/golden/data/tiny"
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "U32": 4, "U8": 1, "I32": 4, "I64": 8, "BOOL": 1}

def read_safetensors(path):
    """{name: (dtype, shape, bytes)}, in file order"""
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    out = {}
    for name, t in sorted(head.items(), key=lambda i: i[1]["data_offsets"]):
        a, b = t["data_offsets"]
        out[name] = (t["dtype"], t["shape"], raw[8 + n + a:8 + n + b])
    return out

def header(tensors, metadata={"format": "mlx"}):
    head, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return head

def write_raw(path, head_bytes, data):
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head_bytes)) + head_bytes)
        for d in data: f.write(d)

def write_safetensors(path, tensors, pad=0):
    head = json.dumps(header(tensors)).encode()
    write_raw(path, head + b" " * pad, [t[2] for t in tensors.values()])

def unpack(to):
    """to/mlx and to/hf: the tiny checkpoint, uncompressed"""
    for layout in ("mlx", "hf"):
        d = f"{to}/{layout}"
        shutil.copytree(f"{DATA}/{layout}", d)
        subprocess.run(["zstd", "-dqf", "--rm", f"{d}/model.safetensors.zst"], check=True)

SIDE_FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]

def folder(path, base, tensors=None, config=None, shards=0, pad=0, leave_out=()):
    """A checkpoint: side files of base (config replaced if given), tensors in one file or in shards with an index."""
    os.makedirs(path)
    for name in SIDE_FILES:
        if name in leave_out: continue
        if name == "config.json" and config is not None: json.dump(config, open(f"{path}/{name}", "w"), indent=1)
        elif os.path.exists(f"{base}/{name}"): shutil.copy(f"{base}/{name}", path)
    if tensors is None: return path
    if not shards:
        write_safetensors(f"{path}/model.safetensors", tensors, pad)
        return path
    names, weight_map = list(tensors), {}
    for i in range(shards):
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        write_safetensors(f"{path}/{file}", {n: tensors[n] for n in part}, pad)
        weight_map.update({n: file for n in part})
    total = sum(len(t[2]) for t in tensors.values())
    json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, open(f"{path}/model.safetensors.index.json", "w"), indent=1)
    return path

def load_config(base): return json.load(open(f"{base}/config.json"))

def run(*argv, stdin=None, timeout=60):
    """(exit code, negative for a signal; stdout; stderr)"""
    r = subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)
    return r.returncode, r.stdout.decode("utf-8", "replace"), r.stderr.decode("utf-8", "replace")

class Readers:
    def __init__(self, build): self.build = build
    def inspect(self, path, *more): return run(f"{self.build}/calla", "inspect", "--model", path, *more)
    def meaning(self, path, *more): return run(f"{self.build}/tests/weights/meaning", path, *more)
    def tokenize(self, path, texts):
        lines = "".join(json.dumps(t) + "\n" for t in texts).encode()
        return run(f"{self.build}/calla", "tokenize", "--model", path, "--jsonl", stdin=lines)
    def logits(self, path, ids):
        return run(f"{self.build}/calla", "logits", "--model", path, "--backend", "reference", "--ctx", "256", "--top", "1088",
                   stdin=(json.dumps(ids) + "\n").encode())

def bf16_to_f32(data): return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
