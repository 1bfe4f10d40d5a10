#!/usr/bin/env python3
"""Compares `calla parse` with the rules in parser_rules.py over generated answers.

usage: parser_generated.py BUILD N [SEED]

Answers come from a grammar of well-formed calls and are then broken: tags dropped, doubled, cut, moved; blanks
changed; values that hold tags.  Each is parsed whole and in random pieces."""
import json, random, subprocess, sys
import parser_rules

TOOLS = [
    {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
        "path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "a": {"type": ["string", "null"]}, "b": {"type": "array"}, "c": {"type": "number"}, "d": {"type": "boolean"},
        "e": {"enum": ["x", "1", 1, None, 2.5]}, "g": {"anyOf": [{"type": "null"}, {"type": "object"}]}, "h": {},
        "i": {"type": ["integer", "boolean"]}, "j": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}},
    {"type": "function", "function": {"name": "ping"}},
]
FUNCTIONS = ["write", "f", "ping", "unknown"]
KEYS = ["path", "content", "mode", "a", "b", "c", "d", "e", "g", "h", "i", "j", "zzz"]
BLANKS = ["", "\n", "\n", "\n", " ", "\n\n", " \n", "\n  ", "\t"]
TAGS = ["<tool_call>", "</tool_call>", "<function=f>", "<function=write>", "<function=unknown>", "</function>",
        "<parameter=a>", "<parameter=content>", "<parameter=path>", "<parameter=zzz>", "</parameter>", "<think>", "</think>",
        "<parameter=", "<function=", "<parameter=\n>", "<tool_call", "</param", "`<tool_call>`", "```", "<", ">", "<|im_end|>"]
VALUES = ["null", "true", "False", "None", "5", "-07", "+3", "1.0", "1.50", "-0.0", "1e22", "1e999", "9007199254740993", ".5", "x", "1",
          "2.5", '"x"', "[1, true, null]", "[1, True, None]", "{'a': (1, 2), \"b\": 'it\\'s'}", '{"a": [{"b": 1e2}]}', "[", "{'a': 1,}",
          "  x = 1\n", "\n\n", "", "null\n", "nul", "nullx", "héllo 🎉", "a\\b\"c", "2031-02-03T04:05:06Z", "}", "\t", "12345678901234567890123"]
WORDS = ["Let me look", "ok", " ", "\n", "\n\n", "a < b", "`code`", "```\n", "émoji 🎉", "x", "<b>", "1", ".", "I'll call it.\n"]

def text(r, n=4): return "".join(r.choice(WORDS + TAGS[r.randrange(len(TAGS)):][:1] * (r.random() < 0.2)) for _ in range(r.randrange(n)))

def value(r):
    v = r.choice(VALUES)
    if r.random() < 0.3: v = r.choice(BLANKS).join(r.choice(TAGS + WORDS) for _ in range(r.randrange(1, 6)))
    if r.random() < 0.1: v = call(r, True)
    return v

def call(r, nested=False):
    b = lambda: "\n" if r.random() < 0.7 else r.choice(BLANKS)
    name = r.choice(FUNCTIONS)
    keys = [k for k in KEYS if r.random() < 0.2]
    for t in TOOLS:
        if t["function"]["name"] == name and r.random() < 0.8:
            keys = [k for k in t["function"].get("parameters", {}).get("properties", {}) if r.random() < 0.5]
    if keys and r.random() < 0.1: keys.append(keys[0])
    parts = ["<tool_call>", b(), f"<function={name}>", b()]
    for k in keys: parts += [f"<parameter={k}>", b(), r.choice(VALUES) if nested else value(r), b(), "</parameter>", b()]
    parts += ["</function>", b(), "</tool_call>"]
    while r.random() < 0.35:
        i = r.randrange(len(parts))
        what = r.random()
        if what < 0.5: del parts[i]
        elif what < 0.7: parts.insert(i, r.choice(TAGS + BLANKS + WORDS))
        elif what < 0.8: parts.insert(i, parts[r.randrange(len(parts))])
        else: parts[i] = parts[i][:r.randrange(len(parts[i]) + 1)]
        if not parts: break
    return "".join(parts)

def answer(r):
    thinking = r.random() < 0.5
    out = ""
    if thinking:
        if r.random() < 0.1: out += r.choice(["<think>", "\n<think>\n"])
        out += text(r, 6)
        if r.random() < 0.75: out += r.choice(["\n</think>\n\n", "</think>", "</think>\n"])
    out += text(r)
    for _ in range(r.choice([0, 1, 1, 1, 2, 2, 3])):
        out += r.choice(["", "\n", "\n", "\n\n", " ", text(r)]) + call(r)
    out += r.choice(["", "", "", "\n", text(r)])
    if thinking and r.random() < 0.1: out += "\n</think>\n\n" + text(r)
    if r.random() < 0.2: out = out[:r.randrange(len(out) + 1)]
    job = {"text": out, "tools": r.choice([TOOLS, TOOLS, TOOLS, TOOLS[:1], []]), "thinking": thinking,
           "finish": r.choice(["stop", "stop", "length"])}
    return job

def pieces(r, n):
    size = r.choice([1, 1, 2, 3, 5, 8, 13, 40])
    return list(range(size, n, size)) if r.random() < 0.6 else sorted(r.randrange(n + 1) for _ in range(r.randrange(1, 12)))

def main():
    build, n = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 20261201
    r = random.Random(seed)
    jobs = [answer(r) for _ in range(n)]
    lines = []
    for j in jobs:
        lines.append(json.dumps(j))
        lines.append(json.dumps(dict(j, split=pieces(r, len(j["text"].encode())))))
    p = subprocess.run([f"{build}/calla", "parse", "--jsonl"], input="\n".join(lines) + "\n", capture_output=True, text=True)
    got = p.stdout.splitlines()
    print(f"seed {seed}, exit {p.returncode}, {len(got)} of {len(lines)} lines {p.stderr[-300:]}")
    failed, seen = 0, {"call": 0, "unfinished": 0, "reasoning call": 0, "text after a call": 0, "plain": 0}
    for i, j in enumerate(jobs):
        want = parser_rules.whole(j)
        a = [json.loads(l) for l in got[2 * i:2 * i + 2]]
        seen["call"] += bool(want["tool_calls"])
        seen["unfinished"] += j["finish"] == "length" and "<function=" in j["text"] and not want["tool_calls"]
        seen["reasoning call"] += j["thinking"] and bool(want["tool_calls"]) and "</think>" not in j["text"]
        seen["text after a call"] += bool(want["tool_calls"]) and bool(want["content"])
        seen["plain"] += not want["tool_calls"]
        if len(a) == 2 and a[0] == want and a[1] == want: continue
        failed += 1
        if failed <= 5: print(f"answer {i}: {json.dumps(dict(j, tools=len(j['tools'])))}\n  rules: {want}\n  whole: {a[:1]}\n  split: {a[1:]}")
    print(", ".join(f"{k}: {v}" for k, v in seen.items()))
    if min(seen.values()) < n // 200: failed += 1; print("the generator does not reach a branch")
    print(f"{n - min(n, failed)} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0

if __name__ == "__main__": sys.exit(main())
