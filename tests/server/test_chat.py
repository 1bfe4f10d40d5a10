#!/usr/bin/env python3
"""Chat completions: scripted answers through the HTTP API, whole and streamed.

usage: test_chat.py BUILD [NAME ...]"""
import json
from harness import *

def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}

def both(server, body):
    """The answer whole and streamed (the script has it twice); they must say the same (UR32)."""
    status, _, whole = server.chat(body)
    assert status == 200, whole
    chunks = server.stream({**body, "stream_options": {"include_usage": True}})
    a, b = parts(whole), list(together(chunks))
    if a[2] == "length" and len(b[1]) == len(a[1]) + 1: b[1].pop()      # a call that was cut: left out of a whole answer (UR30)
    assert a == tuple(b), (a, b)
    usage = [c["usage"] for c in chunks if "usage" in c]
    assert len(usage) == 1 and usage[0]["completion_tokens"] == whole["usage"]["completion_tokens"] and chunks[-1]["choices"] == []
    assert usage[0]["completion_tokens_details"] == whole["usage"]["completion_tokens_details"]
    assert usage[0]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    return whole, chunks

def UR32_stream_and_whole_say_the_same_for_every_parser_case():
    cases = [json.loads(l) for l in open("tests/oracle/data/parser_cases.jsonl")]
    cases = [c for c in cases if "<|im_" not in c["in"]["text"] and c["in"]["text"]]
    script, bodies = [], []
    for c in cases:
        i = c["in"]
        cut = i.get("finish") == "length"
        script += [i["text"] + ("" if cut else END)] * 2
        bodies.append(user("x", temperature=0, chat_template_kwargs={"enable_thinking": bool(i.get("thinking"))},
                           **({"tools": i["tools"]} if i.get("tools") else {})))
    for body, c, n in zip(bodies, cases, map(len, ids_of([c["in"]["text"] for c in cases]))):
        if c["in"].get("finish") == "length": body["max_tokens"] = n
    with Server(script=script) as s:
        for body, c in zip(bodies, cases):
            whole, _ = both(s, body)
            message, calls, finish, _ = parts(whole)
            want = c["expect"]
            got = {"reasoning": message.get("reasoning_content", ""), "content": message["content"], "tool_calls": calls, "finish_reason": finish}
            assert got == want, f"{c['name']}: {got} is not {want}"

def UR42_exactly_one_finish_for_every_ending():
    call = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
    endings = [("t\n</think>\n\nHi" + END, {}, "stop"), ("only thinking" + END, {}, "stop"), ("t\n</think>\n\n" + call + END, {"tools": [tool("f")]}, "tool_calls"),
               ("t\n</think>\n\none STOP two" + END, {"stop": "STOP"}, "stop"), ("t\n</think>\n\none two three", {"max_tokens": 6}, "length")]
    with Server(script=[e[0] for e in endings for _ in (0, 1)]) as s:
        for _, more, want in endings:
            whole, chunks = both(s, user("x", **more))
            assert whole["choices"][0]["finish_reason"] == want, (whole, want)

def UR45_stop_strings_are_matched_in_the_answer_only():
    text = "Observation: in thinking\n</think>\n\nAB Observation: x" + END
    stops = [(["Observation:"], "AB "), ("Observation:", "AB "), ([], "AB Observation: x"), (None, "AB Observation: x"),
             (["zzz", "on: x", "Observation: y", "q", "w"], "AB Observati"), ("x", "AB Observation: ")]
    with Server(script=[text] * 2 * len(stops)) as s:
        for stop, want in stops:
            whole, _ = both(s, user("x", stop=stop))
            message, _, finish, _ = parts(whole)
            assert message["content"] == want and finish == "stop" and message["reasoning_content"] == "Observation: in thinking", (stop, message)

def UR43_usage_only_when_asked_for():
    with Server(script=["t\n</think>\n\nHi" + END] * 4) as s:
        for options, want in ((None, 0), ({"include_usage": False}, 0), ({"include_usage": True}, 1), ({}, 0)):
            chunks = s.stream(user("x", stream_options=options))
            assert sum("usage" in c for c in chunks) == want, options
            assert sum(c["choices"] == [] for c in chunks) == want
            assert sum("timings" in c for c in chunks) == 1 and "timings" in chunks[-1]

def UR39_thinking_that_is_cut_stays_thinking():
    with Server(script=["one two three four five six seven"] * 2) as s:
        whole, _ = both(s, user("x", max_tokens=5))
        message, _, finish, _ = parts(whole)
        assert message["content"] == "" and message["reasoning_content"] and finish == "length"
        assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5 == whole["usage"]["completion_tokens"]

if __name__ == "__main__": run([v for k, v in list(globals().items()) if callable(v) and (k.startswith("UR") or k.startswith("test_"))])
