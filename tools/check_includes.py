#!/usr/bin/env python3
"""Checks who may include whom (docs/architecture.md, "Who may include whom")."""
import glob, re, sys

RULES = {   # folder: what its files may include, as prefixes; calla.h is free for all
    "base": ["base/"],
    "text": ["base/", "text/"],
    "model": ["base/", "model/"],
    "engine": ["base/", "model/", "engine/"],
    "cpu": ["base/", "model/", "cpu/", "engine/backend.h", "engine/sampler.h"],
    "server": ["base/", "text/", "server/"],
    "cli": ["base/", "text/", "server/", "model/", "cli/"],
}
EXTRA = {"src/engine/backends.c": ["cpu/cpu.h"]}
MODEL_COMMANDS = {"inspect", "synth", "convert"}   # only these commands read checkpoints themselves

def main():
    n, bad = 0, []
    for path in sorted(glob.glob("src/*/*.[chm]") + glob.glob("src/*/*.cu")):
        folder, stem = path.split("/")[1], path.split("/")[2].split(".")[0]
        allowed = RULES[folder] + EXTRA.get(path, [])
        if folder == "cli" and stem not in MODEL_COMMANDS: allowed = [a for a in allowed if a != "model/"]
        n += 1
        for inc in re.findall(r'^\s*#\s*include\s+"([^"]+)"', open(path).read(), re.M):
            if inc not in ("calla.h", "calla_test.h") and not any(inc.startswith(a) for a in allowed):
                bad.append(f"{path}: a file of {folder}/ may not include {inc}")
    print("\n".join(bad))
    print(f"{n - len({b.split(':')[0] for b in bad})} passed, {len({b.split(':')[0] for b in bad})} failed, 0 skipped")
    return 1 if bad else 0

if __name__ == "__main__": sys.exit(main())
