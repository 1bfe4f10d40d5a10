#!/usr/bin/env python3
"""What a client sends always becomes a prompt or a refusal that names the field: random requests against an independent
reading of the rules and the template with its extensions in Jinja2, requests of recorded clients, and calla render itself.

usage: render_served.py BUILD N [SEED]"""
import json, os, random, re, subprocess, sys

import conversations, served
from render_jinja import Tally, run
from template import PATH

HERE = os.path.dirname(os.path.abspath(__file__))

def check_rules(build, rng, n, tally):
    template, requests, refused = served.extended(), [served.request(rng) for _ in range(n)], 0
    for r, got in zip(requests, run(build, requests, "--served")):
        if all(m["role"] == "assistant" for m in r["messages"]) and "error" in got:
            refused += 1
            tally.check("only empty assistant" in got["error"] and not served.normalise(r)[0]["messages"], json.dumps(r), got)
            continue
        want = served.render(template, r)
        tally.check(got.get("prompt") == want, json.dumps(r), "\n want", repr(want), "\n got ", got)
    print(f"{n} requests of clients, {refused} of them refused as empty")

def check_no_template_error(build, rng, n, tally):
    """Nonsense of every kind: no sentence of the template reaches a client, and each refusal names a field."""
    text = open(PATH, encoding="utf-8").read()
    sentences = set(re.findall(r"raise_exception\('([^']*)'\)", text)) | {"Can only get item pairs from a mapping."}
    assert len(sentences) == 9, sentences
    requests, refused = [conversations.request(rng) for _ in range(n)], 0
    for r, got in zip(requests, run(build, requests, "--served")):
        refused += "error" in got
        tally.check("prompt" in got or (got["field"] and got["error"].startswith(got["field"] + ": ") and not any(s in got["error"] for s in sentences)), json.dumps(r), got)
    print(f"{n} requests of nonsense, {refused} refused")

def check_recorded_clients(build, tally):
    shapes = json.load(open(os.path.join(HERE, "data", "client_shapes.json"), encoding="utf-8"))
    named = [(f"{name} {i}", served.recorded(s)) for name, all_of in shapes.items() for i, s in enumerate(all_of)]
    for (name, r), got in zip(named, run(build, [r for _, r in named], "--served")):
        prompt = got.get("prompt", "")
        tally.check("prompt" in got and "a text" in prompt and "billing" not in prompt, name, json.dumps(r), got)
        tally.check(all("tools of type" in w for w in got.get("warnings") or []), name, got.get("warnings"))
        says = [m for m in r["messages"] if m["role"] == "assistant"]
        tally.check(prompt.count("R1") == sum("R1" in json.dumps(m) for m in says), name, "thinking is not there once", prompt)
    print(f"{len(named)} requests of recorded clients")

def check_refused_vectors(build, tally):
    """The table of docs/server.md: the six conversations that the template refuses."""
    vectors = {v["name"]: v for v in json.load(open(os.path.join(HERE, "data", "chat_render_vectors.json"), encoding="utf-8")) if "error" in v}
    turn = lambda role, text: f"<|im_start|>{role}\n{text}<|im_end|>\n"
    call = "<think>\n\n</think>\n\n<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
    want = {"err_nomsg": None, "err_nouser": turn("system", "x"), "err_sys_late": turn("user", "a") + turn("system", "x"),
            "err_role": turn("user", "a") + turn("system", "x"), "err_toolresp_only": turn("user", "<tool_response>x</tool_response>"),
            "args_string": turn("user", "a") + turn("assistant", call).removesuffix("<|im_end|>\n")}
    tally.check(set(want) == set(vectors), vectors.keys())
    for name, got in zip(vectors, run(build, [{"messages": v["messages"]} for v in vectors.values()], "--served")):
        if want[name] is None: tally.check(got.get("field") == "messages", name, got)
        else: tally.check(got.get("prompt") == want[name] + "<|im_start|>assistant\n<think>\n" * (name != "args_string"), name, got)

def calla(build, text, *options):
    r = subprocess.run([f"{build}/calla", "render", "--tokenizer", os.path.join(HERE, "data", "tokenizer.json.zst"), *options],
                       input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return r.returncode, [json.loads(line) for line in r.stdout.decode().split("\n")[:-1]]

def tokenize(build, texts):
    r = subprocess.run([f"{build}/calla", "tokenize", "--jsonl", "--tokenizer", os.path.join(HERE, "data", "tokenizer.json.zst")],
                       input="\n".join(map(json.dumps, texts)).encode() + b"\n", stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in r.stdout.decode().split("\n")[:-1]]

def check_command(build, tally):
    user = lambda text: {"messages": [{"role": "user", "content": text}]}
    plain = [user("Hello, world!"), {**user("w?"), "tools": [{"type": "function", "function": {"name": "f", "description": "größe"}}]},
             {**user("x"), "chat_template_kwargs": {"enable_thinking": False}}, {**user("x"), "add_generation_prompt": False}]
    code, out = calla(build, "\n".join(map(json.dumps, plain)), "--jsonl")
    tally.check(code == 0 and [set(o) for o in out] == [{"prompt", "ids"}] * 4, code, out)
    tally.check([o["ids"] for o in out] == tokenize(build, [o["prompt"] for o in out]), out)
    tally.check(out[3]["prompt"] == "<|im_start|>user\nx<|im_end|>\n" and out[0]["prompt"].endswith("<|im_start|>assistant\n<think>\n"), out)
    code, one = calla(build, json.dumps(plain[0], indent=1))
    tally.check(code == 0 and one == out[:1], one)
    # Control tokens in a client's text are text.
    code, out = calla(build, json.dumps(user("Say: a </think> b <|im_end|> c <tool_call>")))
    ids = out[0]["ids"]
    tally.check(ids.count(248046) == 1 and 248069 not in ids and 248058 not in ids and ids.count(248045) == 2, ids)
    late = {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "C"}]}
    lines = [late, user([{"type": "image_url", "image_url": {}}])]
    code, out = calla(build, "\n".join([*map(json.dumps, lines), "{bad", "5", ""]), "--jsonl")
    tally.check(code == 0 and out[0] == {"error": "System message must be at the beginning."} and "<|image_pad|>" in out[1]["prompt"]
                and "byte 1" in out[2]["error"] and out[3] == {"error": "No messages provided."} and len(out) == 4, out)
    code, out = calla(build, "\n".join(map(json.dumps, lines + [{**user("x"), "enableThinking": False}])), "--jsonl", "--served")
    tally.check(code == 0 and "<|im_start|>system\nC" in out[0]["prompt"] and "images are not supported" in out[1]["error"]
                and out[2]["warnings"] == ["enableThinking was taken as enable_thinking"], out)
    tally.check(calla(build, "")[1][0]["error"].startswith("JSON ends at byte 0"))
    code = subprocess.run([f"{build}/calla", "render"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE).returncode
    tally.check(code == 2, code)

def main():
    build, n, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 20261201
    print(f"seed {seed}")
    rng, tally = random.Random(seed), Tally()
    check_rules(build, rng, n, tally)
    check_no_template_error(build, rng, n, tally)
    check_recorded_clients(build, tally)
    check_refused_vectors(build, tally)
    check_command(build, tally)
    print(f"{tally.passed} passed, {tally.failed} failed, 0 skipped")
    return 1 if tally.failed else 0

if __name__ == "__main__": sys.exit(main())
