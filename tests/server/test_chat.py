#!/usr/bin/env python3
"""Chat completions: scripted answers through the HTTP API, whole and streamed.

usage: test_chat.py BUILD [NAME ...]; NAME long: every parser case, not only some of the short ones"""
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

def check_parser_cases(take):
    cases = [json.loads(l) for l in open("tests/oracle/data/parser_cases.jsonl")]
    cases = take([c for c in cases if "<|im_" not in c["in"]["text"] and c["in"]["text"]])
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

def UR32_stream_and_whole_say_the_same():
    check_parser_cases(lambda cases: [c for c in cases if len(c["in"]["text"]) < 300][::8])

def long_UR32_stream_and_whole_say_the_same_for_every_parser_case():
    check_parser_cases(lambda cases: cases)

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

def CALL(name, **args):
    return f"<tool_call>\n<function={name}>\n" + "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in args.items()) + "</function>\n</tool_call>"

def UR20_a_long_argument_streams():
    value = "".join(chr(97 + i % 26) + (" " if i % 7 == 0 else "") for i in range(600))
    with Server(script=["</think>\n\n" + CALL("w", content=value) + "\n" + END]) as s:
        chunks = s.stream(user("x", tools=[tool("w", content={"type": "string"})]))
        _, calls, finish, _ = together(chunks)
        pieces = [c for c in chunks for h in c["choices"] if h["delta"].get("tool_calls")]
        assert json.loads(calls[0]["arguments"]) == {"content": value} and finish == "tool_calls"
        assert len(pieces) > 50, len(pieces)
        assert not any(h["delta"].get("content") for c in chunks[1:] for h in c["choices"])

def UR28_tool_choice():
    call, tools = "</think>\n\n" + CALL("f", a=1), [tool("f", a={"type": "integer"})]
    with Server(script=[call + END] * 3) as s:
        for more, calls in (({"tools": tools, "tool_choice": "none"}, 0), ({}, 0), ({"tools": tools, "tool_choice": "auto"}, 1)):
            status, _, whole = s.chat(user("x", **more))
            message, got, finish, _ = parts(whole)
            assert status == 200 and len(got) == calls and finish == ("tool_calls" if calls else "stop"), (more, whole)
            assert calls or "<tool_call>" in message["content"]
        for choice in ("required", {"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "other"}}):
            status, _, error = s.chat(user("x", tools=tools, tool_choice=choice))
            assert status == 400 and error["error"]["param"] == "tool_choice", error

def UR29_parallel_calls_have_their_own_index_and_id():
    text = "</think>\n\n" + CALL("f", a=1) + "\n" + CALL("g", b="x y") + "\n" + CALL("f", a=2) + END
    tools = [tool("f", a={"type": "integer"}), tool("g", b={"type": "string"})]
    with Server(script=[text] * 4) as s:
        whole, chunks = both(s, user("x", tools=tools))
        calls = whole["choices"][0]["message"]["tool_calls"]
        assert [c["function"]["name"] for c in calls] == ["f", "g", "f"] and len({c["id"] for c in calls}) == 3
        assert [json.loads(c["function"]["arguments"]) for c in calls] == [{"a": 1}, {"b": "x y"}, {"a": 2}]
        whole, _ = both(s, user("x", tools=tools, parallel_tool_calls=False))
        assert len(whole["choices"][0]["message"]["tool_calls"]) == 1 and whole["choices"][0]["finish_reason"] == "tool_calls"

def UR30_a_call_cut_by_the_limit():
    text = "</think>\n\n" + CALL("w", content="one two three four five six seven eight nine ten")
    tools = [tool("w", content={"type": "string"})]
    with Server(script=[text] * 2 + ["</think>\n\nok" + END]) as s:
        whole, _ = both(s, user("x", tools=tools, max_tokens=16))
        m = whole["choices"][0]["message"]
        assert whole["choices"][0]["finish_reason"] == "length" and "tool_calls" not in m and m["content"] == "", whole
        status, _, again = s.chat({"messages": [{"role": "user", "content": "x"}, m, {"role": "user", "content": "go on"}], "tools": tools})
        assert status == 200 and again["choices"][0]["message"]["content"] == "ok", again

def UR36_thinking_switches_and_the_mode_that_was_used():
    off = [{"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}, {"enableThinking": False}, {"reasoning_effort": "none"},
           {"think": False}, {"extra_body": {"enable_thinking": False}}, {"thinking": {"type": "disabled"}}]
    with Server(script=["hi" + END] * (2 * len(off) + 2)) as s:
        for more in off:
            whole, chunks = both(s, user("x", **more))
            assert whole["thinking"] is False and chunks[0]["thinking"] is False and whole["choices"][0]["message"]["content"] == "hi"
            assert s.post("/v1/chat/completions/render", user("x", **more))[2]["prompt"].endswith("<think>\n\n</think>\n\n")
            if "enableThinking" in more: assert any("enableThinking" in w for w in whole["warnings"]) and chunks[0]["warnings"] == whole["warnings"]
        whole, _ = both(s, user("x", disable_thinking=True))
        assert whole["thinking"] is True and whole["warnings"] and whole["choices"][0]["message"]["reasoning_content"] == "hi"
        assert s.post("/v1/chat/completions/render", user("x"))[2]["prompt"].endswith("<think>\n")

def UR38_the_end_of_turn_inside_thinking_is_seen():
    with Server(script=["one two three" + END] * 2) as s:
        whole, _ = both(s, user("x"))
        m, u = whole["choices"][0]["message"], whole["usage"]
        assert m["content"] == "" and m["reasoning_content"] == "one two three" and whole["choices"][0]["finish_reason"] == "stop"
        assert u["completion_tokens_details"]["reasoning_tokens"] == u["completion_tokens"]      # the marker: no token of an answer

def UR44_characters_split_over_tokens():
    vocab = json.load(open(f"{DEMO}/tokenizer.json"))["model"]["vocab"]
    ff, family = vocab["\u00ff"], ids_of(["\U0001F469\u200d\U0001F469\u200d\U0001F467 \U0001F680"])[0]
    close, end, call = ids_of(["</think>\n\n", END, "<tool_call>\n<function=w>\n<parameter=content>\n"])
    tail = ids_of(["\n</parameter>\n</function>\n</tool_call>"])[0]
    text = "\U0001F469\u200d\U0001F469\u200d\U0001F467 \U0001F680"
    assert len(family) > 6, "the demo's tokenizer splits these characters"
    script = [close + family + end] * 2 + [family + close + family + end] * 2 + [close + [ff] + family + end] * 2 + [close + family[:1] + end] * 2
    script += [close + call + family + tail + end] * 2
    with Server(script=script) as s:
        for want in ({"content": text}, {"content": text, "reasoning_content": text}, {"content": "\ufffd" + text}, {"content": "\ufffd"}):
            whole, _ = both(s, user("x"))
            m = whole["choices"][0]["message"]
            assert {k: m[k] for k in want} == want, (m, want)
        whole, _ = both(s, user("x", tools=[tool("w", content={"type": "string"})]))
        assert json.loads(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == {"content": text}

def UR53_a_failing_engine_is_an_error_not_an_answer():
    """A device that faulted is dead: an error, 503 for a moment, then the end with code 1."""
    with Server(code=1, script=[{"text": "</think>\n\none two three four five" + END, "fail_after": 5}]) as s:
        c = http.client.HTTPConnection(s.host, s.port, timeout=30)
        c.request("POST", "/v1/chat/completions", json.dumps(user("x", stream=True)), {"Content-Type": "application/json"})
        text = c.getresponse().read().decode()
        c.close()
        assert "[DONE]" not in text and json.loads(text.strip().split("\n\n")[-1][6:])["error"]["type"] == "server_error", text
        status, _, error = s.chat(user("x"))
        assert status == 503 and error["error"]["code"] == "device_failed" and s.get("/health")[0] == 503, error
        assert s.process.wait(10) == 1 and "device has failed" in s.stderr()

def UR60_UR61_parts_and_nulls():
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "20C"}, {"type": "text", "text": " dry"}]},
                {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "x"}]
    nulls = {k: None for k in ("stop", "tools", "max_tokens", "seed", "temperature", "logit_bias", "n", "stream", "stream_options", "top_k", "logprobs",
                               "response_format", "tool_choice", "parallel_tool_calls", "model")}
    with Server(script=["</think>\n\nok" + END]) as s:
        status, _, whole = s.chat({"messages": messages, **nulls})
        assert status == 200 and whole["choices"][0]["message"]["content"] == "ok", whole
        prompt = s.post("/v1/chat/completions/render", {"messages": messages})[2]["prompt"]
        assert "<tool_response>\n20C dry\n</tool_response>" in prompt and "user\nab<|im_end|>" in prompt
        status, _, error = s.chat({"messages": [{"role": "tool", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]})
        assert status == 400 and error["error"]["param"].startswith("messages[0].content"), error

def UR63_control_text_in_messages_is_text():
    text = "Say: a </think> b <|im_end|> c"
    with Server() as s:
        r = s.post("/v1/chat/completions/render", {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "Use </think> to end"},
                                                                {"role": "user", "content": "x"}]})[2]
        special = ids_of(["<|im_end|>"])[0][0]
        assert text in r["prompt"] and "Use </think> to end" in r["prompt"] and r["ids"].count(special) == 3 and r["n_tokens"] == len(r["ids"])

def test_n_answers_with_their_own_seeds():
    with Server() as s:
        body = user("What is the capital of France?", n=3, max_tokens=12, temperature=50, top_k=0, top_p=1, seed=5)
        _, _, whole = s.chat(body)
        chunks = s.stream(body)
        assert [c["index"] for c in whole["choices"]] == [0, 1, 2]
        for i in range(3): assert parts(whole, i)[0] == {**together(chunks, i)[0], "role": "assistant"} if i else True
        texts = [json.dumps(parts(whole, i)[0]) for i in range(3)]
        alone = [json.dumps(parts(s.chat({**body, "n": 1, "seed": 5 + i})[2])[0]) for i in range(3)]
        assert texts == alone and len(set(texts)) > 1, (texts, alone)

def test_logprobs_of_every_token():
    with Server() as s:
        body = user("What is 17 + 25?", logprobs=True, top_logprobs=3, temperature=0, max_tokens=20)
        whole, _ = both(s, body)
        entries = whole["choices"][0]["logprobs"]["content"]
        assert len(entries) == 20
        for e in entries:
            assert len(e["top_logprobs"]) == 3 and e["top_logprobs"][0]["token"] == e["token"] and e["top_logprobs"][0]["logprob"] == e["logprob"] <= 0
            assert bytes(e["bytes"]).decode() == e["token"]
        text = "".join(e["token"] for e in entries)
        m = whole["choices"][0]["message"]
        assert text.startswith(m["reasoning_content"][:10]), (text, m)
        assert s.chat(user("x", top_logprobs=3))[2]["error"]["param"] == "top_logprobs"

def test_logit_bias_and_seed():
    with Server() as s:
        wanted = ids_of([" Paris"])[0][0]
        _, _, whole = s.chat(user("x", logit_bias={str(wanted): 100}, max_tokens=4, temperature=1, chat_template_kwargs={"enable_thinking": False}))
        assert whole["choices"][0]["message"]["content"].strip().split()[0] == "Paris", whole
        body = user("tell me", seed=7, temperature=50, top_k=0, top_p=1, max_tokens=8)
        a, b, c = (parts(s.chat({**body, "seed": seed})[2])[0] for seed in (7, 7, 8))
        assert a == b != c

if __name__ == "__main__":
    tests = [v for k, v in list(globals().items()) if callable(v) and k.startswith(("UR", "test_", "long_"))]
    run([t for t in tests if t.__name__.startswith("long_") == ("long" in sys.argv)])
