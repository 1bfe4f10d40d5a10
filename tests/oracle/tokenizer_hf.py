#!/usr/bin/env python3
"""Token ids against Hugging Face `tokenizers`.

usage: tokenizer_hf.py BUILD N_STRINGS [SEED]

The strings are drawn from the code points that both sides' Unicode versions know: those that Unicode 14 assigns
(data/assigned_14.txt; PCRE2 10.42 and Oniguruma 6.9.8 know that version, utf8proc 2.8 version 15), less those that the
oracle's NFC does not know.  Which these are is asked of the oracle itself, with Python's unicodedata as the judge, never
of calla.  Beside code points the strings hold what the split pattern and the added tokens turn on."""
import json, os, random, subprocess, sys, tempfile, unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "data")
TINY = os.path.join(HERE, "..", "golden", "data", "tiny")
DEMO = os.path.join(HERE, "..", "..", "models", "demo")
PACKAGE = "tokenizers==0.23.1"

def oracle_python(build):
    """The interpreter of a virtual environment that has the oracle, made once; None where it cannot be made."""
    venv = os.path.join(os.path.dirname(build) if os.path.basename(build) in ("asan", "tsan", "fuzz") else build, "venv-tokenizers")
    python = os.path.join(venv, "bin", "python")
    probe = [python, "-c", "import tokenizers"]
    if os.path.exists(python) and subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0: return python
    for cmd in ([sys.executable, "-m", "venv", venv], [python, "-m", "pip", "install", "-q", "--no-deps", PACKAGE], probe):
        if subprocess.run(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0: return None
    return python

# ---- strings ----------------------------------------------------------------

WHITE = [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0x180E, 0x200B, 0xFEFF]
PIECES = ["'s", "'S", "'t", "'RE", "'ve", "'M", "'Ll", "'d", "'\u017f", "'", "\u2019s", "\r\n", "\n\n", "\r", " \n", "    ", "\t\t", "  a", "...", "!=",
          "<", "<|", "|>", "</", "<think", "e\u0301", "\u212b", "A\u030a", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0344", "\u0958", "\u304b\u3099", "\U0001F469\u200d\U0001F4BB",
          "def f(x):\n    return x\n", "The quick brown fox", "\u4f60\u597d\uff0c\u4e16\u754c", "1234567", "\u0664\u0665", "\u216b", "\u00bd", "a\u0316\u0301\u0316"]

def unknown_to(nfc):
    """Code points whose class or composition nfc has not heard of."""
    unknown = set()
    for c in range(0x80, 0x110000):
        x = chr(c)
        if not unicodedata.combining(x) and not unicodedata.decomposition(x): continue
        parts = unicodedata.normalize("NFD", x)
        for probe in (x, parts, "a" + x + "\u0334", "a\u0345" + x):
            if nfc(probe) != unicodedata.normalize("NFC", probe): unknown |= {c, ord(parts[-1])}
    return unknown

def pools(unknown):
    cps = []
    for line in open(os.path.join(DATA, "assigned_14.txt")):
        a, b = (int(x, 16) for x in line.split())
        cps += (c for c in range(a, b + 1) if c not in unknown)
    known = set(cps)
    cat = {}
    for c in cps: cat.setdefault(unicodedata.category(chr(c))[0], []).append(c)
    composing = [c for c in cps if unicodedata.combining(chr(c)) or unicodedata.decomposition(chr(c))]
    near = [c for a, b in ((0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x600, 0x700), (0x900, 0xA00), (0x1100, 0x1200), (0x3040, 0x3100)) for c in range(a, b) if c in known]
    return [(3, cat["L"]), (3, cat["M"]), (2, cat["N"]), (2, cat["P"]), (2, cat["S"]), (3, WHITE), (1, cat["C"]), (3, composing), (4, near),
            (4, list(range(0x20, 0x7F))), (2, list(range(0x4E00, 0x9FFF))), (1, list(range(0xAC00, 0xD7A4))), (1, list(range(0x1F300, 0x1F650)))]

class Strings:
    def __init__(self, seed, unknown, words, added):
        self.r, self.words, self.added = random.Random(seed), words, added
        p = pools(unknown)
        self.weights, self.pools = [w for w, _ in p], [c for _, c in p]
    def piece(self, pool):
        r, k = self.r, self.r.random()
        if k < 0.08: return r.choice(PIECES)
        if k < 0.12: return r.choice(self.added)
        if k < 0.14: t = r.choice(self.added); return t[:r.randrange(1, len(t))]
        if k < 0.30: return r.choice(self.words)
        if k < 0.34: return chr(r.choice(pool)) * r.randrange(1, 40)
        if k < 0.80: return "".join(chr(r.choice(pool)) for _ in range(r.randrange(1, 12)))
        return "".join(chr(r.choice(r.choices(self.pools, self.weights)[0])) for _ in range(r.randrange(1, 8)))
    def one(self):
        pool = self.r.choices(self.pools, self.weights)[0]
        return "".join(self.piece(pool) for _ in range(self.r.randrange(1, self.r.choice((3, 6, 25)))))

# ---- comparing --------------------------------------------------------------

class Count:
    passed = failed = skipped = 0
    def check(self, ok, what):
        if ok: self.passed += 1
        else:
            self.failed += 1
            if self.failed <= 20: print("FAIL " + what)

def calla(build, where, texts):
    out = subprocess.run([f"{build}/calla", "tokenize", "--jsonl", *where], input="".join(json.dumps(t) + "\n" for t in texts).encode(), stdout=subprocess.PIPE)
    return [json.loads(l) for l in out.stdout.splitlines()]

def echo(build, path, requests):
    out = subprocess.run([f"{build}/tests/oracle/tokenizer_echo", path], input="".join(json.dumps(q) + "\n" for q in requests).encode(), stdout=subprocess.PIPE)
    return [json.loads(l) for l in out.stdout.splitlines()]

def compare(count, name, got, want, texts):
    count.check(len(got) == len(want), f"{name}: {len(got)} lines, wanted {len(want)}")
    for g, w, t in zip(got, want, texts): count.check(g == w, f"{name}: {t!a}: {g} is not {w}")

def recognised(text, added, opaque):
    """(begin, end, token) in bytes: leftmost longest added tokens that touch no opaque byte."""
    raw, at, found = text.encode(), 0, []
    closed = bytearray(len(raw))
    for a, b in opaque: closed[a:b] = b"\1" * (b - a)
    by_length = sorted((t.encode() for t in added), key=len, reverse=True)
    while at < len(raw):
        hit = next((t for t in by_length if raw.startswith(t, at) and not any(closed[at:at + len(t)])), None) if raw[at] in b"<" else None
        if hit: found.append((at, at + len(hit), hit.decode()))
        at += len(hit) if hit else 1
    return found

def opaque_case(r, text):
    """Spans between characters, so that the oracle can cut there too."""
    edges = [0]
    for c in text: edges.append(edges[-1] + len(c.encode()))
    marks = sorted(r.choice(edges) for _ in range(2 * r.randrange(1, 4)))
    return [(a, b) for a, b in zip(marks[::2], marks[1::2])]

def check_opaque(count, build, name, path, plain, added, strings, n):
    texts = [strings.one() for _ in range(n)]
    spans = [opaque_case(strings.r, t) for t in texts]
    got = echo(build, path, [{"text": t, "opaque": [x for s in o for x in s], "cut": 1 + i % 7} for i, (t, o) in enumerate(zip(texts, spans))])
    n_closed = 0
    for t, o, g in zip(texts, spans, got):
        raw, at, want, back = t.encode(), 0, [], ""
        found = recognised(t, added, o)
        n_closed += len(found) != len(recognised(t, added, []))
        for a, b, token in found + [(len(raw), len(raw), None)]:
            gap = raw[at:a].decode()
            want += plain.encode(gap).ids if gap else []
            back += unicodedata.normalize("NFC", gap)
            if token is not None: want.append(added[token]); back += token
            at = b
        count.check(g["ids"] == want, f"{name} opaque {o}: {t!a}: {g['ids']} is not {want}")
        count.check(g["text"] == back, f"{name} detokenized: {t!a}: {g['text']!a}")
    count.check(len(got) == n and (n < 100 or n_closed > n // 20),   # a score of strings may hold none by chance
                f"{name}: {len(got)} of {n} answers, spans decided {n_closed}")

def load(path):
    if path.endswith(".zst"): return subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout.decode()
    return open(path, encoding="utf-8").read()

def byte_text(tokens):
    """Vocabulary words as text, where they are whole characters."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    byte = {chr(b): b for b in keep} | {chr(256 + i): b for i, b in enumerate(rest)}
    for t in tokens:
        try: yield bytes(byte[c] for c in t).decode()
        except UnicodeDecodeError: pass

def vectors(count, build):
    v = json.load(open(f"{DATA}/tokenizer_vectors.json"))
    texts, want = [x["text"] for x in v["vectors"]], [x["ids"] for x in v["vectors"]]
    alone = calla(build, ["--tokenizer", f"{DATA}/tokenizer.json.zst"], texts)
    wrong = [t for t, g, w in zip(texts, alone, want) if g != w]
    count.check(len(alone) == 34 and len(wrong) == 1 and "<|audio_start|>" in wrong[0], f"tokenizer.json alone: wrong are {wrong}")
    with tempfile.TemporaryDirectory() as d:
        os.symlink(f"{DATA}/tokenizer.json.zst", f"{d}/tokenizer.json.zst")
        flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        audio = {str(i): dict(content=t, **flags) for t, i in v["added_tokens"].items() if i >= 248070}
        json.dump({"added_tokens_decoder": audio}, open(f"{d}/tokenizer_config.json", "w"))
        compare(count, "vectors", calla(build, ["--model", d], texts), want, texts)

def main():
    build, n, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 20260701
    python = oracle_python(build)
    count = Count()
    if python is None:
        vectors(count, build)
        print(f"skipped: {PACKAGE} cannot be installed here\n{count.passed} passed, {count.failed} failed, 1 skipped")
        return 1 if count.failed else 0
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(python))):
        return subprocess.run([python, *sys.argv]).returncode
    from tokenizers import Tokenizer, normalizers
    unknown = unknown_to(normalizers.NFC().normalize_str)
    print(f"seed {seed}; {len(unknown)} code points left out that the oracle's NFC does not know")
    count.check(len(unknown) < 200, f"the oracle's NFC does not know {len(unknown)} code points")
    vectors(count, build)
    real = f"{DATA}/tokenizer.json.zst"
    for name, path, where, same in (("real", real, "--tokenizer", None), ("tiny", f"{TINY}/hf/tokenizer.json", "--tokenizer", f"{TINY}/mlx"), ("demo", DEMO, "--model", None)):
        file = path if path != DEMO else f"{DEMO}/tokenizer.json"
        parsed = json.loads(load(file))
        added = {a["content"]: a["id"] for a in parsed["added_tokens"]}
        hf = Tokenizer.from_str(load(file))
        parsed["added_tokens"] = []
        plain = Tokenizer.from_str(json.dumps(parsed))
        strings = Strings(seed, unknown, list(byte_text(list(parsed["model"]["vocab"])[-20000:])), list(added))
        n_here = n // 10 if name == "demo" else n
        texts = [strings.one() for _ in range(n_here)]
        got = calla(build, [where, path], texts)
        compare(count, name, got, [e.ids for e in hf.encode_batch(texts)], texts)
        if same: compare(count, "merges as pairs", calla(build, ["--model", same], texts), got, texts)
        check_opaque(count, build, name, path, plain, added, strings, n_here // 5)
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    return 1 if count.failed else 0

if __name__ == "__main__": sys.exit(main())
