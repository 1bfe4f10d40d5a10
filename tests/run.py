#!/usr/bin/env python3
"""Runs the tests and adds up what they say.

usage: run.py --build DIR quick|all [NAME ...]

A test is a unit program (cmocka, quick) or a line of tests/*/list.txt: `level name command`.  quick is what a newcomer
waits for (make test), all is the long rest (make test-all); NAMEs choose by part of the name.  Each ends with a line `N passed, N failed, N skipped`, or cmocka's own closing lines; a test that exits
non-zero without a failed count is one failure more.  {build} and {python} are replaced in commands."""
import glob, os, re, subprocess, sys, time

def counts(out):
    m = re.findall(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", out, re.M)
    if m: return sum(int(a) for a, _, _ in m), sum(int(b) for _, b, _ in m), sum(int(c or 0) for _, _, c in m)
    p = sum(int(n) for n in re.findall(r"^\[  PASSED  \] (\d+) test", out, re.M))
    f = sum(int(n) for n in re.findall(r"^\[  FAILED  \] \S*: (\d+) test", out, re.M)) or len(re.findall(r"^ (\d+) FAILED TEST", out, re.M))
    s = len(re.findall(r"^\[  SKIPPED \] \w+$", out, re.M))
    return p, f, s

def tests(build, level):
    for path in sorted(glob.glob(f"{build}/tests/unit/test_*")) if level == "quick" else []:
        if "." not in os.path.basename(path): yield "unit/" + os.path.basename(path)[5:], [path]
    for path in sorted(glob.glob("tests/*/list.txt")):
        for line in open(path):
            if not line.strip() or line.startswith("#"): continue
            lv, name, command = line.split(None, 2)
            if lv == level:
                command = command.strip().format(build=build, python=sys.executable)
                yield name, ["bash", "-c", command]

def main():
    build, level, only = sys.argv[2], sys.argv[3], sys.argv[4:]
    total = [0, 0, 0]
    for name, command in tests(build, level):
        if only and not any(o in name for o in only): continue
        t = time.time()
        r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        out = r.stdout.decode("utf-8", "replace")
        p, f, s = counts(out)
        if r.returncode != 0 and f == 0: f = 1
        if p + f + s == 0: f = 1; out += "\n(no test was counted)\n"
        total = [a + b for a, b in zip(total, (p, f, s))]
        print(f"{name:<36} {p:>5} passed {f:>3} failed {s:>3} skipped  {time.time() - t:6.1f} s", flush=True)
        if f: print(out[-8000:], flush=True)
        elif s: print("\n".join("    " + l for l in out.splitlines() if "skip" in l.lower())[:2000], flush=True)
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0

if __name__ == "__main__": sys.exit(main())
