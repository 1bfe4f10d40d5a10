#!/usr/bin/env python3
"""Builds and runs the fuzz targets (tests/fuzz/rules.mk says what a target consists of).

usage: run.py [--seconds N] [--planted] [NAME ...]

Each target runs for N seconds (60 unless given) from its seeds, as many at a time as there are cores; a finding fails it
and stays in build/fuzz/findings.  --planted instead applies planted/NAME.patch to a copy of the tree, builds the target
there and passes when it finds the fault in one of five runs of N seconds, each with its own seed.  Without
clang and its fuzzing runtime everything is skipped and counted so."""
import concurrent.futures, glob, os, re, shutil, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build", "fuzz")
SEED = 20260701
CODES = re.compile(r"ERROR: (AddressSanitizer|libFuzzer|LeakSanitizer)|runtime error:")

def find_clang():
    """A clang that links libFuzzer, or None."""
    for cc in ("clang-14", "clang"):
        if shutil.which(cc) is None: continue
        with tempfile.TemporaryDirectory() as d:
            src = os.path.join(d, "f.c")
            open(src, "w").write("int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n);\n"
                                 "int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n) { (void)p; (void)n; return 0; }\n")
            if subprocess.run([cc, "-fsanitize=fuzzer,address,undefined", src, "-o", src + ".out"], stderr=subprocess.DEVNULL).returncode == 0: return cc
    return None

def make(root, cc, goals):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}   # of an outer make
    r = subprocess.run(["make", "--no-print-directory", f"-j{os.cpu_count()}", "VARIANT=fuzz", f"CC={cc}", *goals], cwd=root, env=env,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if r.returncode != 0: print(r.stdout.decode("utf-8", "replace")[-4000:])
    return r.returncode == 0

def fuzz(root, name, seconds, seed):
    """Runs a target of the tree at root; (found something, its output)."""
    here, work = os.path.join(ROOT, "tests", "fuzz"), os.path.join(root, "build", "fuzz", "corpus", name)
    findings = os.path.join(BUILD, "findings") if root == ROOT else os.path.join(root, "build", "fuzz", "findings")
    os.makedirs(work, exist_ok=True)
    os.makedirs(findings, exist_ok=True)
    cmd = [os.path.join(root, "build", "fuzz", f"fuzz_{name}"), f"-max_total_time={seconds}", f"-seed={seed}", "-timeout=20", "-rss_limit_mb=3000",
           "-max_len=8192", "-print_final_stats=1", f"-artifact_prefix={findings}/{name}-", work, os.path.join(here, "corpus", name)]
    dictionary = os.path.join(here, f"fuzz_{name}.dict")
    if os.path.exists(dictionary): cmd.insert(1, f"-dict={dictionary}")
    r = subprocess.run(cmd, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return r.returncode != 0, r.stdout.decode("utf-8", "replace")

def run(name, seconds):
    found, out = fuzz(ROOT, name, seconds, SEED)
    n = re.search(r"number_of_executed_units: (\d+)", out)
    n_runs = int(n.group(1)) if n else 0
    if found or n_runs < 1000: return False, f"{name}: {n_runs} inputs\n{out[-5000:]}"
    return True, f"{name}: {n_runs} inputs, nothing found"

def run_planted(name, seconds, cc):
    tree = os.path.join(BUILD, "planted", name)
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(os.path.join(tree, "build"))
    for part in ("src", "include", "tests", "tools", "Makefile"):
        (shutil.copytree if os.path.isdir(os.path.join(ROOT, part)) else shutil.copy2)(os.path.join(ROOT, part), os.path.join(tree, part))
    # What is built keeps its time, so that only patched files are built anew.
    shutil.copytree(BUILD, os.path.join(tree, "build", "fuzz"), ignore=shutil.ignore_patterns("planted", "corpus", "findings"))
    try:
        with open(os.path.join(ROOT, "tests", "fuzz", "planted", f"{name}.patch")) as patch:
            p = subprocess.run(["patch", "-p1", "--no-backup-if-mismatch"], cwd=tree, stdin=patch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if p.returncode != 0: return False, f"{name}: the patch does not apply\n{p.stdout.decode()}"
        if not make(tree, cc, [f"build/fuzz/fuzz_{name}"]): return False, f"{name}: the patched tree does not build"
        begin = time.time()
        for k in range(5):
            found, out = fuzz(tree, name, seconds, SEED + k)
            said = CODES.search(out)
            if found and said: return True, f"{name}: the planted fault was found after {time.time() - begin:.0f} s ({said.group(0)})"
            if found: return False, f"{name}: ended without a finding\n{out[-3000:]}"
        return False, f"{name}: the planted fault was not found in {time.time() - begin:.0f} s"
    finally:
        shutil.rmtree(tree, ignore_errors=True)

def main():
    args, seconds, planted = sys.argv[1:], 60, False
    while args and args[0].startswith("--"):
        if args[0] == "--planted": planted = True; args = args[1:]
        else: seconds = int(args[1]); args = args[2:]
    pattern = "tests/fuzz/planted/*.patch" if planted else "tests/fuzz/fuzz_*.c"
    names = args or sorted(re.sub(r"^fuzz_|\.\w+$", "", os.path.basename(p)) for p in glob.glob(os.path.join(ROOT, pattern)))
    cc = find_clang()
    if cc is None:
        print(f"skipped: no clang that links libFuzzer (Debian 12: clang-14 and libclang-rt-14-dev)\n0 passed, 0 failed, {len(names)} skipped")
        return 0
    if planted and shutil.which("patch") is None:
        print(f"skipped: no patch program\n0 passed, 0 failed, {len(names)} skipped")
        return 0
    if not make(ROOT, cc, ["fuzz"]):
        print(f"0 passed, {len(names)} failed, 0 skipped")
        return 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda n: run_planted(n, seconds, cc) if planted else run(n, seconds), names))
    for ok, text in results: print(("" if ok else "FAIL ") + text)
    n_bad = sum(not ok for ok, _ in results)
    print(f"{len(names) - n_bad} passed, {n_bad} failed, 0 skipped")
    return 1 if n_bad else 0

if __name__ == "__main__": sys.exit(main())
