#!/usr/bin/env python3
"""synth and convert, judged by the bytes they write.

usage: test_synth.py BUILD"""
import json, os, shutil, struct, subprocess, sys, tempfile

BUILD = sys.argv[1]
DATA = "tests/golden/data/tiny"
passed = failed = 0

def check(name, ok, why=""):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    print(("ok    " if ok else "FAIL  ") + name + ("" if ok else f": {why}"))

def calla(*args): return subprocess.run([f"{BUILD}/calla", *args], capture_output=True, text=True)

def tensors(folder):
    """name -> (dtype, shape, bytes), over all shards."""
    out = {}
    for f in sorted(os.listdir(folder)):
        if not f.endswith(".safetensors"): continue
        raw = open(f"{folder}/{f}", "rb").read()
        n = struct.unpack("<Q", raw[:8])[0]
        for k, v in json.loads(raw[8:8 + n]).items():
            if k != "__metadata__": out[k] = (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
    return out

def differing(a, b): return [k for k in sorted(set(a) | set(b)) if a.get(k) != b.get(k)]

def main():
    tmp = tempfile.mkdtemp(dir=BUILD)
    try:
        at = lambda name: f"{tmp}/{name}"
        for name, extra in (("mlx", []), ("hf", ["--layout", "hf"]), ("again", ["--threads", "5"]), ("seed2", ["--seed", "2"]), ("cut", ["--layers", "4"])):
            r = calla("synth", "--shape", "tiny", "--out", at(name), *extra)
            check(f"synth {name} exits 0", r.returncode == 0, r.stderr)
        mlx = tensors(at("mlx"))
        check("the same seed gives the same bytes with other threads", mlx == tensors(at("again")))
        seed2 = tensors(at("seed2"))
        check("another seed gives other codes in every matrix", all(v != seed2[k] for k, v in mlx.items() if v[0] == "U32"))
        check("a cut in depth holds the first layers unchanged",
              all(mlx[k] == v for k, v in tensors(at("cut")).items()) and not any(".layers.4." in k for k in tensors(at("cut"))))

        r = calla("convert", "--in", at("hf"), "--out", at("conv"), "--bits", "4")
        conv = tensors(at("conv"))
        check("convert exits 0", r.returncode == 0, r.stderr)
        check("convert of the hf layout is the mlx layout, bit for bit",
              not differing(mlx, {k: v for k, v in conv.items() if ".mtp." not in k}), "differing tensors")
        check("convert keeps the MTP head", sum(".mtp." in k for k in conv) == 46, sum(".mtp." in k for k in conv))
        q = json.load(open(at("conv") + "/config.json"))["quantization"]
        check("config.json tells the bits", q["bits"] == 4 and q["language_model.model.layers.3.mlp.gate"]["bits"] == 8)

        # a checkpoint that a third party's converter wrote
        shutil.copytree(f"{DATA}/hf", at("third"))
        subprocess.run(["zstd", "-qd", "--rm", at("third/model.safetensors.zst")], check=True)
        r = calla("convert", "--in", at("third"), "--out", at("third-conv"))
        shutil.copytree(f"{DATA}/mlx", at("third-mlx"))
        for f in os.listdir(at("third-mlx")):
            if f.endswith(".zst"): subprocess.run(["zstd", "-qd", "--rm", at("third-mlx/" + f)], check=True)
        want = tensors(at("third-mlx"))
        got = {k: v for k, v in tensors(at("third-conv")).items() if ".mtp." not in k}
        check("convert makes the tensors of the published converter, bit for bit", len(want) == 357 and not differing(want, got),
              differing(want, got)[:5])

        # published shape of the third party's checkpoint: names, types, shapes
        third = {k: v[:2] for k, v in want.items()}
        check("synth writes the published names, types and shapes", {k: v[:2] for k, v in mlx.items()} == third)
        for name in ("mlx", "hf", "conv", "cut"):
            r = calla("inspect", "--model", at(name))
            check(f"inspect finds {name} sound", r.returncode == 0, r.stderr)

        for args, word in ((["synth", "--shape", "tiny", "--out", at("mlx")], "holds a checkpoint already"),
                           (["synth", "--shape", "huge", "--out", at("x")], "--shape"),
                           (["synth", "--shape", "tiny", "--out", at("x"), "--layers", "6"], "multiple of 4"),
                           (["convert", "--in", at("mlx"), "--out", at("x")], "quantised already"),
                           (["convert", "--in", at("nowhere"), "--out", at("x")], "nowhere"),
                           (["synth", "--shape", "tiny", "--out", "/proc/x"], "/proc/x")):
            r = calla(*args)
            check(f"{' '.join(args[:3])}: refused with a reason ({word})", r.returncode in (1, 2) and word in r.stderr, r.stderr)
    finally: shutil.rmtree(tmp)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0

if __name__ == "__main__": sys.exit(main())
