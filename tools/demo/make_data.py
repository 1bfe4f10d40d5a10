"""Writes shards of training rows, in order and in parallel; the same seed writes the same shards.

usage: make_data.py DIR [--plan 2048:50,8192:80] [--seed 1] [--workers N]
A shard holds --steps steps of four parts: a rows of 256, b of 1,024, c of the length that the plan says, d of text of known
entropy.  The plan says how many shards of each length follow each other."""
import argparse, os, random
from multiprocessing import Pool
import numpy as np

import encode

TOKENS = {"a": 32768, "b": 32768, "c": 32768, "d": 16384}


def shard(job):
    path, seed, length, steps = job
    if os.path.exists(path):
        return
    r, e, out = random.Random(seed), encode.Encoder(), {}
    for part, tokens in TOKENS.items():
        n = {"a": 256, "b": 1024, "c": length, "d": encode.UNCERTAIN}[part]
        rows = [e.uncertain_row(r) if part == "d" else e.row(r, n) for _ in range(tokens // n * steps)]
        out[part + "_ids"], out[part + "_w"] = np.stack([x[0] for x in rows]), np.stack([x[1] for x in rows])
    np.savez(path + ".tmp.npz", **out)
    os.rename(path + ".tmp.npz", path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("--plan", default="2048:50,8192:80,2048:20,8192:400")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--first", type=int, default=0, help="the first shard to write")
    p.add_argument("--workers", type=int, default=os.cpu_count())
    a = p.parse_args()
    os.makedirs(a.dir, exist_ok=True)
    lengths = [int(x.split(":")[0]) for x in a.plan.split(",") for _ in range(int(x.split(":")[1]))]
    jobs = [(f"{a.dir}/{i:05d}.npz", a.seed * 100003 + i, n, a.steps) for i, n in enumerate(lengths)][a.first:]
    with Pool(a.workers) as pool:
        for _ in pool.imap(shard, jobs):
            pass


if __name__ == "__main__":
    main()
