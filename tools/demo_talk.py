#!/usr/bin/env python3
"""make demo: starts the server, asks it a question and one that needs a tool, through the OpenAI SDK, and stops it.

usage: demo_talk.py CALLA MODEL_DIR [GOLDEN]
With GOLDEN (tests/golden/data/demo.json.zst) the answers and greedy ids must be those of Hugging Face."""
import json, os, re, signal, subprocess, sys, time

CALLA, MODEL = sys.argv[1], sys.argv[2]
GOLDEN = sys.argv[3] if len(sys.argv) > 3 else None
DIM, BOLD, OFF = ("\033[2m", "\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "", "")

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"},
                                     "days": {"type": "integer", "description": "Number of days"}}, "required": ["city"]}}}
ASKED = [("What is the capital of France?", None, lambda a, c: "Paris" in a and not c),
         ("What is 17 + 25?", None, lambda a, c: "42" in a and not c),
         ("What is the weather in Rome for 3 days?", [WEATHER],
          lambda a, c: c == [("get_weather", {"city": "Rome", "days": 3})])]

def start():
    server = subprocess.Popen([CALLA, "serve", "--model", MODEL, "--port", "0"], stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        m = re.search(r"http://[\d.]+:\d+", line)
        if m: return server, m.group(0)
    sys.exit(f"the server ended with {server.wait()}")

def ask(client, question, tools):
    print(f"\n{BOLD}> {question}{OFF}" + (f"   (tools: {', '.join(t['function']['name'] for t in tools)})" if tools else ""), flush=True)
    kind, text, calls, timings = None, "", {}, {}
    stream = client.chat.completions.create(model="calla", messages=[{"role": "user", "content": question}], temperature=0,
                                            stream=True, stream_options={"include_usage": True}, **({"tools": tools} if tools else {}))
    def show(new, piece, style=""):
        nonlocal kind
        if kind not in (None, new): print()
        kind = new
        print(f"{style}{piece}{OFF if style else ''}", end="", flush=True)
    for chunk in stream:
        timings = getattr(chunk, "timings", None) or timings
        for choice in chunk.choices:
            d = choice.delta
            if getattr(d, "reasoning_content", None): show("thinking", d.reasoning_content, DIM)
            if d.content: text += d.content; show("answer", d.content)
            for c in d.tool_calls or []:
                slot = calls.setdefault(c.index, ["", ""])
                if c.function.name: slot[0] += c.function.name; show("call", f"[call {c.function.name}] ")
                if c.function.arguments: slot[1] += c.function.arguments; show("call", c.function.arguments)
    print()
    if timings.get("predicted_per_second"):
        print(f"{DIM}{timings['prompt_n']} prompt tokens at {timings['prompt_per_second']:.0f}/s, "
              f"{timings['predicted_n']} tokens at {timings['predicted_per_second']:.0f}/s{OFF}")
    return text, [(n, json.loads(a)) for n, a in calls.values()]

def same_ids_as_golden():
    """Greedy ids of the program against Hugging Face's on the same weights."""
    cases = json.loads(subprocess.run(["zstd", "-dcq", GOLDEN], capture_output=True, check=True).stdout)["cases"]
    wrong = 0
    for case in cases:
        out = json.loads(subprocess.run([CALLA, "run", "--model", MODEL, "--raw", "--prompt", case["prompt"], "--greedy", "--json",
                                         "--n", str(len(case["greedy"]))], capture_output=True, check=True).stdout)
        same = out["prompt_ids"] == case["ids"] and out["ids"] == case["greedy"][:len(out["ids"])] and len(out["ids"]) > 5
        wrong += not same
        print(f"greedy ids of {case['name']!r}: {'equal to' if same else 'NOT'} Hugging Face's ({len(out['ids'])} ids)")
    return wrong

def main():
    from openai import OpenAI
    server, url = start()
    wrong = 0
    try:
        client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=30)
        for question, tools, right in ASKED:
            answer, calls = ask(client, question, tools)
            if GOLDEN and not right(answer, calls): wrong += 1; print("  this answer is wrong")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    if GOLDEN: wrong += same_ids_as_golden()
    return 1 if wrong else 0

if __name__ == "__main__":
    try: import openai
    except ImportError:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        from pyenv import python
        exe = python("build/venv-openai", ["openai"])
        os.execv(exe, [exe, *sys.argv])
    sys.exit(main())
