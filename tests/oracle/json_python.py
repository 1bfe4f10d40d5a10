#!/usr/bin/env python3
"""calla's JSON against Python's: values print alike, and what one refuses the other refuses.

usage: json_python.py BUILD N [SEED]"""
import json, random, struct, subprocess, sys

def floats(rng, n):
    for e in range(-1074, 1024): yield from (2.0 ** e, -(2.0 ** e) * 1.5)   # a power of two has a nearer neighbour below
    for e in range(-324, 309): yield float(f"1e{e}")
    for _ in range(n):
        d, = struct.unpack("<d", rng.randbytes(8))
        if d == d: yield d
        yield rng.choice((rng.random(), rng.uniform(-1e6, 1e6), round(rng.uniform(-1000, 1000), rng.randrange(6)), float(rng.randrange(10 ** 17))))

def number_text(rng):
    digits = lambda n: "".join(rng.choice("0123456789") for _ in range(n))
    t = rng.choice(("", "", "-")) + rng.choice(("0", str(rng.randrange(1, 10)) + digits(rng.choice((0, 1, 5, 17, 18, 19, 20, 40, 400)))))
    if rng.random() < .6: t += "." + digits(rng.choice((1, 2, 8, 17, 30, 900)))
    if rng.random() < .5: t += rng.choice("eE") + rng.choice(("", "+", "-")) + digits(rng.choice((1, 2, 3)))
    return t

def string(rng):
    alphabet = ["a", "é", "ё", "中", "\U0001f600", '"', "\\", "/", "\n", "\t", "\r", "\b", "\f", "\0", "\x1f", "\x7f", "\u2028", "\ufeff", "\ufffd", " "]
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(12)))

def value(rng, depth=0):
    k = rng.randrange(9 if depth < 5 else 6)
    if k == 0: return rng.choice((None, True, False))
    if k == 1: return rng.choice((1, -1)) * rng.randrange(10 ** rng.choice((1, 5, 18, 19, 20, 50)))
    if k == 2: return rng.choice((rng.uniform(-100, 100), rng.uniform(-1, 1) * 10.0 ** rng.randrange(-300, 300)))
    if k < 6: return string(rng)
    if k < 8: return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {string(rng): value(rng, depth + 1) for _ in range(rng.randrange(5))}

def broken(rng, text):
    """One random edit of a JSON text; Python then says whether it still is one."""
    i = rng.randrange(len(text) + 1)
    edit = rng.choice(("", "", ",", ":", "]", "}", "[", "{", '"', "'", "0", "1", ".", "-", "e", "\\", "\\u", " ", "\x01", "null", "/**/"))
    return text[:i] + edit + text[i + rng.randrange(3):]

def expected(text):
    def refuse(word): raise ValueError(word)     # NaN and Infinity are no JSON
    try: w = json.dumps(json.loads(text, parse_constant=refuse), ensure_ascii=False)
    except ValueError: return "error"
    return "".join("\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in w)

def main():
    build, n, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 20261201
    rng = random.Random(seed)
    print(f"seed {seed}")
    texts = [repr(d) if abs(d) != float("inf") else "1e999" for d in floats(rng, n)]
    texts += [number_text(rng) for _ in range(n)]
    whole = [json.dumps(value(rng), ensure_ascii=rng.random() < .5, allow_nan=False) for _ in range(n)]
    texts += whole + [b for b in (broken(rng, t) for t in whole for _ in range(2)) if "\n" not in b]
    r = subprocess.run([f"{build}/tests/oracle/json_echo"], input="\n".join(texts).encode() + b"\n", stdout=subprocess.PIPE, check=True)
    got = r.stdout.decode().split("\n")[:-1]
    assert len(got) == len(texts), (len(got), len(texts))
    failed = refused = 0
    for t, g in zip(texts, got):
        w = expected(t)
        refused += w == "error"
        if g != w:
            failed += 1
            if failed <= 10: print(f"{t!r}: {g!r}, Python {w!r}")
    print(f"{len(texts)} texts, {refused} of them refused by both sides")
    print(f"{len(texts) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not refused else 0

if __name__ == "__main__": sys.exit(main())
