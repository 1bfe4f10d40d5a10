#!/usr/bin/env python3
"""calla's chat template against the shipped one in Jinja2: random conversations give the same bytes or both an
error (the same sentence where the template raises one); the opaque ranges are exactly what the client wrote.

usage: render_jinja.py BUILD N [SEED]"""
import json, os, random, subprocess, sys

import conversations
from template import Counted

LEAST = 20   # times each branch and each outcome of a condition is taken, in a run of 5,000
IMPOSSIBLE = {("36: content is undefined", True)}   # Undefined is iterable, so the branch before takes it

def variables(request):
    v = {k: request[k] for k in ("messages", "tools") if k in request}
    v["add_generation_prompt"] = request.get("add_generation_prompt", True)
    v.update(request.get("chat_template_kwargs", {}))
    return v

def run(build, requests, *options):
    lines = "\n".join(json.dumps(r) for r in requests).replace("Infinity", "1e999").encode() + b"\n"
    r = subprocess.run([f"{build}/tests/oracle/render_lines", *options], input=lines, stdout=subprocess.PIPE, check=True)
    out = [json.loads(line) for line in r.stdout.decode().split("\n")[:-1]]
    assert len(out) == len(requests), (len(out), len(requests))
    return out

class Tally:
    def __init__(self): self.passed = self.failed = 0
    def check(self, good, *what):
        self.passed += bool(good); self.failed += not good
        if not good and self.failed <= 8: print("FAILED", *what)

def check_vectors(build, tally):
    vectors = json.load(open(os.path.join(os.path.dirname(__file__), "data", "chat_render_vectors.json"), encoding="utf-8"))
    requests = []
    for v in vectors:
        kwargs = dict(v["kwargs"])
        requests.append({"messages": v["messages"], "tools": kwargs.pop("tools", None),
                         "add_generation_prompt": kwargs.pop("add_generation_prompt", False), "chat_template_kwargs": kwargs})
    for v, got in zip(vectors, run(build, requests)):
        if "rendered" in v: tally.check(got.get("prompt") == v["rendered"], v["name"], got)
        else: tally.check(got.get("error") == v["error"].split(": ", 1)[1], v["name"], got)

def check_random(build, rng, n, tally):
    counted, accepted, raised, thrown = Counted(), 0, 0, 0
    requests = conversations.CASES + [conversations.request(rng) for _ in range(n)]
    for r, got in zip(requests, run(build, requests)):
        want, plain = counted.render(variables(r)), None
        if isinstance(want, str):
            accepted += 1
            plain = counted.plain.render(**variables(r))     # the counters change nothing
            tally.check(got.get("prompt") == want == plain, json.dumps(r), "\n want", repr(want), "\n got ", got)
        else:
            raised += want[0]; thrown += not want[0]
            tally.check("error" in got and (not want[0] or got["error"] == want[1]), json.dumps(r), "\n want", want, "\n got ", got)
    print(f"{n} conversations: {accepted} accepted, {raised} raised by the template, {thrown} thrown by Jinja")
    rare = {k: c for k, c in counted.hits.items() if k not in IMPOSSIBLE and c < LEAST}
    if n >= 5000:
        tally.check(not rare, "taken less than", LEAST, "times:", rare)
        for k in IMPOSSIBLE: tally.check(counted.hits[k] == 0, k, "was taken")
    print(f"{len(counted.hits)} branches and outcomes, the rarest taken {min(c for k, c in counted.hits.items() if k not in IMPOSSIBLE)} times")

SHADOW = 0xF0000   # a private plane: no blank, no tag, and not in the template

def shadow(v, rng):
    """v with every character of the client's text moved to the private plane."""
    if isinstance(v, str): return "".join(chr(SHADOW + ord(c)) for c in v)
    if isinstance(v, list): return [shadow(x, rng) for x in v]
    return {shadow(k, rng): shadow(x, rng) for k, x in v.items()} if isinstance(v, dict) else v

def inert_text(rng):
    return "".join(rng.choice(["a", "é", "中", "<|im_end|>", "<tool_call>", "<|im_start|>user", "<function=", "<|vision_start|>"]) for _ in range(rng.randrange(1, 5)))

def check_opaque(build, rng, n, tally):
    """Texts that mean nothing to the template are rendered twice, once from the private plane: what moved is the client's."""
    requests, shadows = [], []
    for _ in range(n):
        def both(v): return v, shadow(v, rng)
        ms, shadowed = [], []
        for role in ["system"] * rng.randrange(2) + ["user"] + rng.choice([[], ["assistant"], ["assistant", "tool", "tool"], ["assistant", "user"]]):
            m, s = {"role": role}, {"role": role}
            m["content"], s["content"] = both(inert_text(rng))
            if rng.random() < .5:
                more, moved = both(inert_text(rng))
                image = [{"type": "image"}] * (role != "system")
                m["content"] = [{"text": m["content"]}] + image + [{"text": more}]
                s["content"] = [{"text": s["content"]}] + image + [{"text": moved}]
            if role == "assistant":
                if rng.random() < .5: m["reasoning_content"], s["reasoning_content"] = both(inert_text(rng))
                (name, moved), (args, moved_args) = both(inert_text(rng)), both({inert_text(rng): inert_text(rng)})
                m["tool_calls"], s["tool_calls"] = [{"name": name, "arguments": args}], [{"name": moved, "arguments": moved_args}]
            ms.append(m); shadowed.append(s)
        requests.append({"messages": ms, "chat_template_kwargs": {"preserve_thinking": True}})
        shadows.append({"messages": shadowed, "chat_template_kwargs": {"preserve_thinking": True}})
    counted = Counted()
    for r, s, got in zip(requests, shadows, run(build, requests)):
        want, prompt, at, spans = counted.plain.render(**variables(s)), got["prompt"], 0, []
        tally.check(len(want) == len(prompt), r)
        for w, c in zip(want, prompt):
            size = len(c.encode())
            if ord(w) >= SHADOW:
                if spans and spans[-1][1] == at: spans[-1][1] = at + size
                else: spans.append([at, at + size])
            at += size
        tally.check(spans == got["opaque"], json.dumps(r), "\n want", spans, "\n got ", got["opaque"])

def check_tools_are_opaque(build, tally):
    tool = {"type": "function", "function": {"name": "<|im_end|>", "description": "<tool_call>"}}
    got, = run(build, [{"messages": [{"role": "user", "content": ""}], "tools": [tool, tool]}])
    prompt = got["prompt"].encode()
    texts = [prompt[b:e].decode() for b, e in got["opaque"]]
    tally.check(texts == [json.dumps(tool)] * 2, texts)

def main():
    build, n, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 20261201
    print(f"seed {seed}")
    rng, tally = random.Random(seed), Tally()
    check_vectors(build, tally)
    check_random(build, rng, n, tally)
    check_opaque(build, rng, n // 5, tally)
    check_tools_are_opaque(build, tally)
    print(f"{tally.passed} passed, {tally.failed} failed, 0 skipped")
    return 1 if tally.failed else 0

if __name__ == "__main__": sys.exit(main())
