#!/usr/bin/env python3
"""Runs the written cases of data/parser_cases.jsonl through `calla parse`: whole, split at every byte (also
inside characters), in pieces of 1 to 40 bytes; and through the rules of parser_rules.py.

usage: parser_cases.py BUILD"""
import json, subprocess, sys
import parser_rules

def main():
    cases = [json.loads(l) for l in open("tests/oracle/data/parser_cases.jsonl")]
    lines, owner = [], []
    for i, c in enumerate(cases):
        n = len(c["in"]["text"].encode())
        splits = [[]] + [[k] for k in range(n + 1)] + [list(range(s, n, s)) for s in range(1, 41)]
        lines += [json.dumps(dict(c["in"], split=s)) for s in splits]
        owner += [(i, s) for s in splits]
    p = subprocess.run([f"{sys.argv[1]}/calla", "parse", "--jsonl"], input="\n".join(lines) + "\n", capture_output=True, text=True)
    got = p.stdout.splitlines()
    if p.returncode or len(got) != len(lines):
        print(f"exit {p.returncode}, {len(got)} of {len(lines)} lines: {p.stderr[-500:]}\n0 passed, 1 failed, 0 skipped")
        return 1
    failed = set()
    for (i, split), line in zip(owner, got):
        if json.loads(line) == cases[i]["expect"]: continue
        if i not in failed: print(f"{cases[i]['name']}, split {split[:5]}\n  want {json.dumps(cases[i]['expect'])}\n  got  {line}")
        failed.add(i)
    for i, c in enumerate(cases):
        for call in c["expect"]["tool_calls"]: json.loads(call["arguments"])
        if parser_rules.whole(c["in"]) == c["expect"]: continue
        print(f"{c['name']}: the rules give {json.dumps(parser_rules.whole(c['in']))}\n  want {json.dumps(c['expect'])}")
        failed.add(i)
    print(f"{len(lines)} splits of {len(cases)} cases")
    print(f"{len(cases) - len(failed)} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0

if __name__ == "__main__": sys.exit(main())
