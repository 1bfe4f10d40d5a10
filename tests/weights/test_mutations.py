#!/usr/bin/env python3
"""A checkpoint with one random fault is refused with a reason, or means exactly what it meant.

usage: test_mutations.py BUILD COUNT [--seed N] [--layout mlx|hf] [--only N]

Each mutation changes one thing of header, offsets, dtypes, shapes, index, config or tokenizer of the tiny checkpoint
in three shards.  `calla inspect` then ends with 1 and a sentence that names the file, the tensor or the key; or with 0,
and then every value of the network, the logits and the ids of the texts below are what they were.  Values that no reader
can check (another eos id, another sampling default) change neither.  With --only that one is made, and its folder kept."""
import argparse, concurrent.futures, json, os, random, shutil, struct, sys, tempfile
import checkpoint as C

INDEX = "model.safetensors.index.json"
TEXTS = ["Hello, how are you?", "<|im_start|>user\nhi<|im_end|>\n", "  blanks   and\ttabs\n\n", "x = [i**2 for i in range(10)]", "Grüße, naïve café",
         "日本語 text 한국어", "1234567890 3.14", "I'll don't we've", "<think>\n\n</think>\n\n<tool_call>", "😀👍🏽", "ThE qUiCk BrOwN", "the of and in to a"]
IDS = [1, 17, 300, 1023, 5, 993]

class Base:
    """The sound checkpoint: shards as (header, data), side files as bytes."""
    def __init__(self, path):
        self.path, self.files = path, {n: open(f"{path}/{n}", "rb").read() for n in sorted(os.listdir(path))}
        self.shards = [n for n in self.files if n.endswith(".safetensors")]
    def split(self, name):
        raw = self.files[name]
        n = struct.unpack("<Q", raw[:8])[0]
        return json.loads(raw[8:8 + n]), raw[8 + n:]

def join(head, data, length=None):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data

def random_bytes_change(rng, raw):
    b = bytearray(raw)
    at = rng.randrange(len(b))
    how = rng.randrange(5)
    if how == 0: b[at] ^= 1 << rng.randrange(8)
    elif how == 1: b[at] = rng.randrange(256)
    elif how == 2: del b[at:at + rng.choice((1, 1, 2, 17))]
    elif how == 3: b[at:at] = bytes([rng.choice(b'"{}[],:0123456789 aeE.-\\\x00\xff')])
    else: b[at:at + 1] = rng.choice((b"null", b"-1", b"1e3", b'"', b"}", b"18446744073709551616"))
    return bytes(b)

def numbers(rng, v): return rng.choice((v + 1, v - 1, 0, -1, -v, v * 2, 2**31, 2**32 + v, 2**63, 2**64 - 1, 2**64, 10**30, v + 0.5, float(v), str(v), None, True, [v], {}))

# ---- one mutation of a kind: returns (file, new bytes or None to delete, what was done) ------

def header_bytes(rng, base):
    name = rng.choice(base.shards)
    raw = base.files[name]
    n = struct.unpack("<Q", raw[:8])[0]
    return name, join(random_bytes_change(rng, raw[8:8 + n]), raw[8 + n:]), "bytes of the header"

def header_length(rng, base):
    name = rng.choice(base.shards)
    raw = base.files[name]
    n = struct.unpack("<Q", raw[:8])[0]
    v = rng.choice((n - 1, n + 1, 0, 1, n // 2, n * 2, len(raw), len(raw) - 8, len(raw) - 7, 100 << 20, 2**31, 2**32 + n, 2**63, 2**64 - 1, rng.getrandbits(64)))
    return name, struct.pack("<Q", v) + raw[8:], f"length of the header {n} -> {v}"

def tensor_of(rng, base):
    name = rng.choice(base.shards)
    head, data = base.split(name)
    return name, head, data, rng.choice([t for t in head if t != "__metadata__"])

def dtype(rng, base):
    name, head, data, t = tensor_of(rng, base)
    old = head[t]["dtype"]
    new = rng.choice([d for d in ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "F4", "",
                                  "bf16", "F32 ", 3, None) if d != old])
    head[t]["dtype"] = new
    return name, join(head, data), f"dtype of {t} {old} -> {new}"

def shape(rng, base):
    name, head, data, t = tensor_of(rng, base)
    s = head[t]["shape"]
    old, i, how = list(s), rng.randrange(len(s)), rng.randrange(7)
    if how == 0: s[i] = numbers(rng, s[i])
    elif how == 1: s.append(1)
    elif how == 2: s.insert(0, 1)
    elif how == 3: s.pop(i)
    elif how == 4 and len(set(s)) > 1: s.reverse()
    elif how == 5: s[i] *= 2; s[-1 if i == 0 else 0] //= 2
    else: head[t]["shape"] = rng.choice(([], [2**32, 2**32], "x", None, [2**63, 2], [0]))
    if head[t]["shape"] == old: s.append(2)
    return name, join(head, data), f"shape of {t} {old} -> {head[t]['shape']}"

def offsets(rng, base):
    name, head, data, t = tensor_of(rng, base)
    o = head[t]["data_offsets"]
    old, how = list(o), rng.randrange(6)
    if how == 0: o[rng.randrange(2)] = numbers(rng, o[1])
    elif how == 1: o.reverse()
    elif how == 2: d = rng.choice((-2, -1, 1, 2, 64, 2**62)); head[t]["data_offsets"] = [o[0] + d, o[1] + d]
    elif how == 3: head[t]["data_offsets"] = rng.choice(([], [o[0]], o + [0], None, "x", {}, [[o[0], o[1]]]))
    elif how == 4:
        size = lambda u: head[u]["data_offsets"][1] - head[u]["data_offsets"][0]   # of one size: the format can't tell
        other = rng.choice([u for u in head if u != "__metadata__" and size(u) != size(t)])
        head[t]["data_offsets"], head[other]["data_offsets"] = head[other]["data_offsets"], head[t]["data_offsets"]
    else: head[t]["data_offsets"] = [0, o[1] - o[0]] if o[0] else [1, o[1] + 1]
    return name, join(head, data), f"data_offsets of {t} {old} -> {head[t].get('data_offsets')}"

def names(rng, base):
    name, head, data, t = tensor_of(rng, base)
    how = rng.randrange(6)
    if how == 0: del head[t]
    elif how == 1: head[t[:-1]] = head.pop(t)
    elif how == 2: head[t + rng.choice(("x", ".", " ", "\n", "\0", "é"))] = head.pop(t)
    elif how == 3:
        text = json.dumps(head)
        text = text[:-1] + ", " + json.dumps(t) + ": " + json.dumps(head[t]) + "}"
        return name, join(text.encode(), data), f"{t} twice in the header"
    elif how == 4: del head[t][rng.choice(("dtype", "shape", "data_offsets"))]
    else: head[t] = rng.choice((None, [], 3, "x", {}))
    return name, join(head, data), f"name or entry of {t}"

def file_end(rng, base):
    name = rng.choice(base.shards)
    raw = base.files[name]
    how = rng.randrange(4)
    if how == 0: return name, raw[:rng.randrange(len(raw))], "cut"
    if how == 1: return name, raw + bytes(rng.randrange(1, 5000)), "made longer"
    if how == 2: return name, None, "deleted"
    return name, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "an LFS pointer"

def value_at(rng, root):
    """A random place in a JSON value: (container, key)"""
    places = []
    def walk(v):
        for k in (v if isinstance(v, dict) else range(len(v)) if isinstance(v, list) else ()):
            places.append((v, k))
            walk(v[k])
    walk(root)
    return rng.choice(places) if places else (None, None)

def json_value(rng, root):
    at, key = value_at(rng, root)
    old, how = at[key], rng.randrange(4)
    if how == 0: del at[key]
    elif isinstance(old, (int, float)) and not isinstance(old, bool) and how < 3: at[key] = numbers(rng, old)
    elif isinstance(old, bool) and how < 3: at[key] = not old
    else: at[key] = rng.choice((None, [], {}, "x", 0, -1, 1e300, True, [old], {"x": old}, "x" * 300))
    return f"{key}: {str(old)[:60]} -> {str(at[key])[:60] if how else 'deleted'}"

def json_file(name):
    def change(rng, base):
        raw = base.files[name]
        if rng.randrange(3) == 0: return name, random_bytes_change(rng, raw), f"bytes of {name}"
        root = json.loads(raw)
        what = json_value(rng, root)
        return name, json.dumps(root).encode(), f"{name}: {what}"
    return change

def index(rng, base):
    root = json.loads(base.files[INDEX])
    m = root["weight_map"]
    t, how = rng.choice(list(m)), rng.randrange(6)
    if how == 0: m[t] = rng.choice([s for s in base.shards if s != m[t]])
    elif how == 1: m[t] = rng.choice(("", ".", "..", "/etc/passwd", "../x.safetensors", "x", "config.json", "nobody.safetensors", 3, None, [], "a" * 300 + ".safetensors"))
    elif how == 2: m[t + "x"] = m[t]
    elif how == 3: del m[t]
    elif how == 4: root["weight_map"] = rng.choice((None, [], {}, "x", 3))
    else: return INDEX, random_bytes_change(rng, base.files[INDEX]), "bytes of the index"
    return INDEX, json.dumps(root).encode(), f"index of {t}"

def tokenizer(rng, base):
    """Structure, ids and types; the text of a token or merge is data like a weight, which no reader can judge."""
    name = "tokenizer.json"
    root = json.loads(base.files[name])
    how = rng.randrange(9)
    vocab, merges, added = root["model"]["vocab"], root["model"]["merges"], root["added_tokens"]
    if how == 0: t = rng.choice(list(vocab)); vocab[t] = numbers(rng, vocab[t]); what = f"id of {t!r}"
    elif how == 1: t = rng.choice(list(vocab)); del vocab[t]; what = f"vocab without {t!r}"
    elif how == 2: i = rng.randrange(len(merges)); merges[i] = rng.choice((["\u4e00", "x"], "nothing", [], ["a"], ["a", "b", "c"], None, 3, "a b c")); what = f"merge {i}"
    elif how == 3: a = rng.choice(added); k = rng.choice(list(a)); v = a[k]; a[k] = rng.choice((None, [], 3.5, {}, -1)); what = f"added token {a.get('content')!r}: {k} {v!r} -> {a[k]!r}"
    elif how == 4: k = rng.choice(list(root)); del root[k]; what = f"without {k}"
    elif how == 5: k = rng.choice(list(root["model"])); del root["model"][k]; what = f"model without {k}"
    elif how == 6: raw = base.files[name]; return name, raw[:rng.randrange(len(raw))], "tokenizer.json cut"
    elif how == 7:
        k = rng.choice(("pre_tokenizer", "normalizer", "model", "decoder", "added_tokens"))
        root[k] = rng.choice((None, [], {}, "x", 3, {"type": "X"}))
        what = f"{k} replaced by {root[k]!r}"
    else: a = rng.choice(added); a["id"] = numbers(rng, a["id"]); what = f"id of added {a['content']!r} -> {a['id']!r}"
    return name, json.dumps(root, ensure_ascii=False).encode(), f"{name}: {what}"

KINDS = [header_bytes, header_bytes, header_length, dtype, dtype, shape, shape, offsets, offsets, names, file_end, index, index, json_file("config.json"),
         json_file("config.json"), json_file("config.json"), json_file("generation_config.json"), tokenizer, tokenizer,
         json_file("tokenizer_config.json")]

class Judge:
    def __init__(self, build, tmp, base, seed, keep):
        self.r, self.tmp, self.base, self.seed, self.keep = C.Readers(build), tmp, base, seed, keep
        self.want = self.state(base.path)
        self.names = [t for s in base.shards for t in base.split(s)[0]] + [k for n in ("config.json", "generation_config.json") for k in keys(json.loads(base.files[n]))]

    def state(self, path):
        rc, meaning, err = self.r.meaning(path)
        if rc != 0: return "meaning", rc, err
        rc, logits, err = self.r.logits(path, IDS)
        if rc != 0: return "logits", rc, err
        rc, ids, err = self.r.tokenize(path, TEXTS)
        if rc != 0: return "tokenize", rc, err
        return meaning, usable(logits), ids

    def one(self, i):
        rng = random.Random(f"{self.seed}/{i}")
        kind = KINDS[i % len(KINDS)]
        name, content, what = kind(rng, self.base)
        path = f"{self.tmp}/m{i}"
        os.mkdir(path)
        for n in self.base.files:
            if n != name: os.symlink(f"{self.base.path}/{n}", f"{path}/{n}")
        if content is not None: open(f"{path}/{name}", "wb").write(content)
        rc, out, err = self.r.inspect(path)
        fault, outcome = None, "refused"
        last = err.strip().splitlines()[-1] if err.strip() else ""
        if rc == 1:
            if not self.names_it(last, path): fault = f"the message names nothing: {last!r}"
        elif rc == 0:
            outcome = "same"
            if content == self.base.files[name]: outcome = "unchanged"
            elif (got := self.state(path)) != self.want: fault = f"accepted, but not the same: {[str(a)[:120] for a, b in zip(got, self.want) if a != b]}"
        else: fault = f"exit {rc}: {err.strip()[-300:]}"
        if not self.keep: shutil.rmtree(path)
        return i, outcome, fault, what, last

    def names_it(self, message, path):
        if not message.startswith("calla: ") or len(message) < 20: return False
        return any(n in message for n in (path, *self.base.files, *self.names))

def usable(logits):
    """Logits without what is stated of the run itself."""
    return json.dumps(json.loads(logits)["top"])

def keys(v):
    if isinstance(v, dict):
        for k in v: yield k; yield from keys(v[k])

def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("count", type=int)
    p.add_argument("--seed", type=int, default=20240607)
    p.add_argument("--layout", choices=["mlx", "hf"], default="mlx")
    p.add_argument("--only", type=int)
    a = p.parse_args()
    build, count, seed, only = a.build, a.count, a.seed, a.only
    print(f"seed {seed}")
    tmp = tempfile.mkdtemp()
    try:
        C.unpack(tmp)
        C.folder(f"{tmp}/base", f"{tmp}/{a.layout}", C.read_safetensors(f"{tmp}/{a.layout}/model.safetensors"), shards=3)
        judge = Judge(build, tmp, Base(f"{tmp}/base"), seed, only is not None)
        if len(judge.want) != 3 or not isinstance(judge.want[1], str): sys.exit(f"the sound checkpoint is refused: {judge.want}")
        failed, tally = 0, {}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for i, outcome, fault, what, last in pool.map(judge.one, range(count) if only is None else [only]):
                tally[outcome] = tally.get(outcome, 0) + 1
                if fault: failed += 1; print(f"FAILED {i}: {what}: {fault}")
                if only is not None: print(what, "->", outcome, last, f"{tmp}/m{i}")
        print(", ".join(f"{n} {k}" for k, n in sorted(tally.items())))
        print(f"{count - failed} passed, {failed} failed, 0 skipped")
        return 1 if failed else 0
    finally:
        if only is None: shutil.rmtree(tmp)

if __name__ == "__main__": sys.exit(main())
