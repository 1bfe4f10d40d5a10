#!/usr/bin/env python3
"""The OpenAI SDK for Python against the server: what it parses, streams, raises and retries.

usage: test_openai.py BUILD [NAME ...]"""
import os, sys
try: import openai
except ImportError:
    sys.path.insert(0, "tools")
    from pyenv import python
    exe = python("build/venv-openai", ["openai"])
    os.execv(exe, [exe, *sys.argv])
import asyncio, time
from openai import OpenAI, AsyncOpenAI
from harness import *

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]

def client(s, **more): return OpenAI(base_url=s.url + "/v1", api_key=more.pop("api_key", "none"), **{"max_retries": 0, **more})

def test_models_and_whole_answers():
    with Server(script=["why\n</think>\n\nHello." + END, WEATHER_CALL]) as s:
        c = client(s)
        assert [m.id for m in c.models.list()] == ["demo"] and c.models.retrieve("demo").object == "model"
        r = c.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}])
        assert r.choices[0].message.content == "Hello." and r.choices[0].message.reasoning_content == "why" and r.choices[0].finish_reason == "stop"
        assert r.usage.completion_tokens_details.reasoning_tokens > 0 and r.usage.prompt_tokens_details.cached_tokens == 0 and r.timings["predicted_n"] == r.usage.completion_tokens
        r = c.chat.completions.create(model="any", messages=[{"role": "user", "content": "Weather?"}], tools=TOOLS)
        call = r.choices[0].message.tool_calls[0]
        assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Rome", "days": 3} and r.choices[0].finish_reason == "tool_calls"

def test_streams_and_the_helper_that_puts_them_together():
    with Server(script=["why\n</think>\n\nHello." + END, WEATHER_CALL, WEATHER_CALL]) as s:
        c = client(s)
        content = reasoning = ""
        for chunk in c.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}], stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                content += choice.delta.content or ""
                reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            usage = chunk.usage
        assert content == "Hello." and reasoning == "why" and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        with c.chat.completions.stream(model="any", messages=[{"role": "user", "content": "Weather?"}], tools=TOOLS) as stream:
            kinds = {e.type for e in stream}
            final = stream.get_final_completion()
        assert "tool_calls.function.arguments.done" in kinds and "chunk" in kinds
        call = final.choices[0].message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"city": "Rome", "days": 3} and final.choices[0].finish_reason == "tool_calls"
        # The answer goes back as it came.
        r = c.chat.completions.create(model="any", tools=TOOLS, messages=[{"role": "user", "content": "Weather?"}, final.choices[0].message.model_dump(exclude_none=True),
                                                                         {"role": "tool", "tool_call_id": call.id, "content": "sunny"}])
        assert r.choices[0].message.tool_calls

def test_errors_are_the_sdks_classes():
    with Server("--api-key", "k", ctx=256, wait=False) as s:
        bad = client(s, api_key="wrong")
        try: bad.models.list(); assert False
        except openai.AuthenticationError as e: assert e.status_code == 401 and e.body["code"] == "invalid_api_key"
        c = client(s, api_key="k", max_retries=20)     # 503 while loading is tried again
        c.models.list()
        ask = lambda **more: c.chat.completions.create(model="any", **{"messages": [{"role": "user", "content": "x"}], **more})
        try: ask(temperature=-1); assert False
        except openai.BadRequestError as e: assert e.body["param"] == "temperature" and e.body["type"] == "invalid_request_error"
        try: ask(messages=[{"role": "user", "content": "word " * 1000}]); assert False
        except openai.BadRequestError as e: assert e.body["code"] == "context_length_exceeded"
        try: c.models.retrieve("other"); assert False
        except openai.NotFoundError as e: assert e.body["code"] == "model_not_found"

def test_an_error_in_a_stream_is_raised():
    with Server(code=1, script=[{"text": "</think>\n\none two three four" + END, "fail_after": 4}]) as s:
        try:
            for _ in client(s).chat.completions.create(model="any", messages=[{"role": "user", "content": "x"}], stream=True): pass
            assert False
        except openai.APIError as e: assert "device" in e.message

def test_completions_and_logprobs():
    with Server() as s:
        c = client(s)
        r = c.completions.create(model="any", prompt=["The capital of", "17 + 25"], max_tokens=4, logprobs=2, echo=True, temperature=0)
        assert len(r.choices) == 2 and r.choices[0].text.startswith("The capital of") and r.choices[0].logprobs.token_logprobs[0] is None
        r = c.chat.completions.create(model="any", messages=[{"role": "user", "content": "x"}], logprobs=True, top_logprobs=2, max_tokens=3, n=2, seed=1)
        assert len(r.choices) == 2 and all(len(x.logprobs.content) == 3 and len(x.logprobs.content[0].top_logprobs) == 2 for x in r.choices)

def test_many_at_once_and_one_that_is_cancelled():
    async def main(s):
        c = AsyncOpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
        ask = lambda i: c.chat.completions.create(model="any", messages=[{"role": "user", "content": f"{i}"}], max_tokens=3)
        answers = await asyncio.gather(*(ask(i) for i in range(20)))
        assert all(a.usage.completion_tokens <= 3 for a in answers)
        stream = await c.chat.completions.create(model="any", messages=[{"role": "user", "content": "x"}], stream=True)
        async for chunk in stream: break
        await stream.close()
    with Server(script=["hi" + END] * 20 + [{"text": "word " * 500, "decode_delay_ms": 20}]) as s:
        asyncio.run(main(s))
        end = time.time() + 5
        while s.get("/health")[2]["n_running"]: assert time.time() < end

if __name__ == "__main__": run([v for k, v in list(globals().items()) if callable(v) and k.startswith("test_")])
