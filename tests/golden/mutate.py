#!/usr/bin/env python3
"""Shows that the golden tests see mistakes: each single one must break them.

usage: mutate.py BUILD reference|cpu [NAME ...]

A copy of the tree is built and passes `golden quick`; then, for each entry of src/model/reference.mutations or
src/cpu/cpu.mutations, the change is made in the copy (its old text must occur exactly once), the program is built,
and `golden quick --stop` must end with a check that failed.  A change that does not apply, does not compile or breaks
nothing is a failure of this test: who moves the code moves the entry."""
import os, re, shutil, subprocess, sys

LISTS = {"reference": "src/model/reference.mutations", "cpu": "src/cpu/cpu.mutations"}


def read_list(path):
    """[(name, [(file, old, new), ...]), ...]"""
    out, part = [], None
    for no, line in enumerate(open(path), 1):
        line = line.rstrip("\n")
        if line.startswith("== "): out.append((line[3:], []))
        elif line.startswith("@@ "): part = [line[3:], [], []]; out[-1][1].append(part)
        elif line[:2] in ("- ", "-"): part[1].append(line[2:])
        elif line[:2] in ("+ ", "+"): part[2].append(line[2:])
        elif line and not line.startswith("#"): sys.exit(f"{path}:{no}: {line}")
    return [(name, [(f, "\n".join(old), "\n".join(new)) for f, old, new in parts]) for name, parts in out]


def copy_tree(build, copy):
    shutil.rmtree(copy, ignore_errors=True)
    for d in ("src", "include", "tests", "models"):
        shutil.copytree(d, f"{copy}/{d}", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2("Makefile", copy)
    for d in ("src", "tests/golden"):       # what is built already, with its times: only what changes is compiled
        if build == "build" and os.path.isdir(f"{build}/{d}"): shutil.copytree(f"{build}/{d}", f"{copy}/build/{d}")


def make(copy):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VARIANT")}
    return subprocess.run(["make", "-s", "-C", copy, "build/tests/golden/golden"], env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def golden(copy, backend, work):
    r = subprocess.run(["build/tests/golden/golden", "quick", "--backend", backend, "--stop", "--work", work], cwd=copy,
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800)
    broke = re.findall(r"^FAIL (.*)$", r.stdout, re.M)
    return r.returncode, broke[0] if broke else "", r.stdout


def main():
    build, backend, only = sys.argv[1], sys.argv[2], sys.argv[3:]
    copy, work = f"{build}/mutate/{backend}", os.path.abspath(f"{build}/golden")
    entries = [e for e in read_list(LISTS[backend]) if not only or any(o in e[0] for o in only)]
    copy_tree(build, copy)
    r = make(copy)
    if r.returncode: sys.exit(f"the unchanged tree does not build\n{r.stdout[-1500:]}\n0 passed, 1 failed, 0 skipped")
    rc, broke, out = golden(copy, backend, work)
    if rc: sys.exit(f"the unchanged tree fails\n{out[-2000:]}\n0 passed, 1 failed, 0 skipped")
    passed, failed = 1, 0
    for name, parts in entries:
        kept, why = {}, ""
        for f, old, new in parts:
            text = open(f"{copy}/{f}").read()
            kept.setdefault(f, text)
            if text.count(old) != 1:
                why = f"its old text occurs {text.count(old)} times in {f}: {old.splitlines()[0]}"
                break
            open(f"{copy}/{f}", "w").write(text.replace(old, new))
        if not why:
            r = make(copy)
            if r.returncode: why = "does not compile:\n" + r.stdout[-1500:]
        if not why:
            rc, broke, out = golden(copy, backend, work)
            if not broke: why = f"broke nothing (status {rc}): {out[-300:]}"
        for f, text in kept.items(): open(f"{copy}/{f}", "w").write(text)
        print(f"FAIL {name}: {why}" if why else f"ok   {name}: breaks {broke}", flush=True)
        passed, failed = passed + (not why), failed + bool(why)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__": sys.exit(main())
