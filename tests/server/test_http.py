#!/usr/bin/env python3
"""HTTP itself: who may ask, what is refused, clients that leave, loading, ending.

usage: test_http.py BUILD [NAME ...]"""
import threading
from harness import *

def raw(server, data, timeout=20, pause=0):
    """Sends bytes as they are; what comes back until the server closes or the time is over."""
    out = b""
    with server.connect(timeout) as c:
        try:
            for piece in data if isinstance(data, list) else [data]:
                c.sendall(piece)
                if pause: time.sleep(pause)
            while True:
                got = c.recv(65536)
                if not got: break
                out += got
                if b"Connection: close" not in out and out.endswith(b"}") and out.count(b"\r\n\r\n") == 1: break
        except (ConnectionError, socket.timeout): pass
    return out

def status_of(reply): return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.") else 0

def post_head(length, path="/v1/chat/completions", more=""):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n".encode()

def error_of(reply, status, param=None, code=None):
    got, _, body = reply
    assert got == status and set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}, reply
    assert param is None or body["error"]["param"] == param, (param, body)
    assert code is None or body["error"]["code"] == code, (code, body)
    return body["error"]["message"]

def rss_mb(server):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{server.process.pid}/status").read())[1]) / 1024

# ---- routes -------------------------------------------------------------------

def test_routes():
    with Server() as s:
        for prefix in ("", "/v1"):
            for path in ("/models", "/models/", "/models?limit=1000", "/models?a=b&c"):
                status, h, body = s.get(prefix + path)
                m = body["data"][0]
                assert status == 200 and m["id"] == "demo" and m["context_length"] == m["max_model_len"] == m["meta"]["n_ctx"] == 4096
                assert h["content-type"] == "application/json"
            assert s.get(prefix + "/models/demo")[2]["id"] == "demo"
            error_of(s.get(prefix + "/models/other"), 404, code="model_not_found")
            error_of(s.get(prefix + "/nothing"), 404)
            error_of(s.get(prefix + "/chat/completions"), 405)
            error_of(s.post(prefix + "/models", {}), 405)
        for path in ("/health", "/livez", "/readyz"): assert s.get(path)[0] == 200
        status, h, body = s.request("HEAD", "/v1/models")
        assert status == 200 and body == b""
        assert s.get("/health", headers={"X-Request-Id": "abc-1"})[1]["x-request-id"] == "abc-1"
        assert "access-control-allow-origin" not in s.get("/health", headers={"Origin": "http://localhost:3000"})[1]
        for method in ("DELETE", "PUT"): error_of(s.request(method, "/v1/models"), 405)

# ---- security -------------------------------------------------------------------

def UR66_pages_of_other_sites_are_refused():
    with Server("--cors", "http://good.test,http://other.test:81") as s:
        body = user("x", max_tokens=1)
        for host in ("evil.test", "evil.test:8080", "127.0.0.1.evil.test", "localhost.evil.test", "127.evil.test"):
            error_of(s.chat(body, headers={"Host": host}), 403, code="host_not_allowed")
            error_of(s.get("/v1/models", headers={"Host": host}), 403)
        for host in ("localhost", "127.0.0.1:99", "[::1]:5", "LOCALHOST:1"): assert s.get("/v1/models", headers={"Host": host})[0] == 200
        for origin in ("http://evil.test", "http://localhost.evil.test", "null", "http://good.test.evil.test"):
            reply = s.chat(body, headers={"Origin": origin})
            error_of(reply, 403, code="origin_not_allowed")
            assert "access-control-allow-origin" not in reply[1]
            pre = s.request("OPTIONS", "/v1/chat/completions", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
            assert pre[0] == 204 and not any(k.startswith("access-control") for k in pre[1])
        for origin in ("http://good.test", "http://other.test:81"):
            pre = s.request("OPTIONS", "/v1/chat/completions", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
            assert pre[0] == 204 and pre[1]["access-control-allow-origin"] == origin and "content-type" in pre[1]["access-control-allow-headers"]
            reply = s.chat(body, headers={"Origin": origin})
            assert reply[0] == 200 and reply[1]["access-control-allow-origin"] == origin
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""):
            error_of(s.chat(body, headers={"Content-Type": kind}), 415)
        assert s.chat(body, headers={"Content-Type": "application/json; charset=utf-8"})[0] == 200

def UR66_api_key():
    with Server("--api-key", "secret-1", wait=False) as s:
        for path in ("/v1/models", "/models/demo", "/nothing"):
            for h in ({}, {"Authorization": "Bearer secret-2"}, {"Authorization": "Bearer secret-11"}, {"Authorization": "secret"}, {"X-Api-Key": ""}):
                error_of(s.get(path, headers=h), 401, code="invalid_api_key")
        for path in ("/v1/chat/completions", "/v1/completions", "/chat/completions/render"): error_of(s.post(path, {}), 401)
        s.ready()
        for h in ({"Authorization": "Bearer secret-1"}, {"X-Api-Key": "secret-1"}, {"authorization": "bearer secret-1"}):
            assert s.get("/v1/models", headers={**h, "Host": "any.test"})[0] == 200

def UR66_other_machines_need_a_key_or_a_word():
    r = subprocess.run([f"{BUILD}/calla-test", "serve", "--model", DEMO, "--host", "0.0.0.0", "--port", "0"], capture_output=True, text=True, timeout=20)
    assert r.returncode == 1 and "--api-key" in r.stderr and r.stdout == "", r
    with Server("--host", "0.0.0.0", "--no-key", wait=False) as s:
        s.host = "127.0.0.1"
        s.ready()
        assert "WARNING" in s.stderr()

def UR76_faults_are_said_before_loading():
    with Server(wait=False) as s:
        for args in (["--port", str(s.port)], ["--host", "no.such.host.invalid"], ["--host", "999.1.1.1"], ["--ctx", "0"], ["--port", "70000"], ["--port"], ["--nonsense"],
                     ["--api-key", ""]):
            begin = time.time()
            r = subprocess.run([f"{BUILD}/calla-test", "serve", "--model", DEMO, *args], capture_output=True, text=True, timeout=20)
            assert r.returncode in (1, 2) and r.stderr.count("\n") == 1 and r.stdout == "" and time.time() - begin < 10, (args, r)
    r = subprocess.run([f"{BUILD}/calla-test", "serve"], capture_output=True, text=True, timeout=20)
    assert r.returncode == 2 and "--model" in r.stderr

# ---- sizes ------------------------------------------------------------------------

def UR65_deep_nesting_is_refused():
    with Server() as s:
        for depth, status in ((100, 200), (5000, 400), (100000, 400)):
            deep = "[" * depth + "]" * depth
            messages = '"messages":[{"role":"user","content":"x"}],"max_tokens":1'
            for body in (f'{{{messages},"ignored":{deep}}}', f'{{{messages},"tools":[{{"type":"function","function":{{"name":"f","parameters":{{"x":{deep}}}}}}}]}}'):
                got = s.chat(body)
                assert got[0] == status, (depth, got)
            got = s.chat(f'{{{messages},"response_format":{deep}}}')
            assert got[0] == 400
            arguments = json.dumps('{"a":' + deep + "}")
            got = s.chat(f'{{"messages":[{{"role":"user","content":"x"}},{{"role":"assistant","content":null,"tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":{arguments}}}}}]}},'
                         f'{{"role":"tool","tool_call_id":"c","content":"x"}}],"max_tokens":1}}')
            assert got[0] in (200, 400), got
        assert s.get("/health")[0] == 200

def UR67_lengths_that_lie():
    with Server() as s:
        before = rss_mb(s)
        good = json.dumps(user("x", max_tokens=1)).encode()
        assert status_of(raw(s, post_head(-1))) in (0, 400)
        assert status_of(raw(s, post_head("5\r\nContent-Length: 6"), timeout=3)) in (0, 400)
        assert status_of(raw(s, post_head(5) + b'{"a":1}', timeout=5)) == 400
        assert status_of(raw(s, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n")) == 400
        assert status_of(raw(s, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n")) in (0, 400, 413, 431)
        assert status_of(raw(s, b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n")) in (0, 400, 404, 413, 414)
        megabyte = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert status_of(raw(s, [head] + [megabyte] * 300)) in (0, 413)
        assert status_of(raw(s, [post_head(400 << 20)] + [b"x" * (1 << 20)] * 400)) in (0, 413)
        chunked = head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(good), good)
        assert status_of(raw(s, chunked)) == 200
        assert rss_mb(s) - before < (300 if BUILD == "build" else 1200), f"{before:.0f} MB became {rss_mb(s):.0f}"
        assert s.chat(good.decode())[0] == 200

def test_garbage_is_refused_and_harmless():
    import random
    seed = random.Random(7)
    with Server() as s:
        for data in (b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
                     b"GET http://evil.test/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /%00%ff/.. HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     *(bytes(seed.randrange(256) for _ in range(200)) + b"\r\n\r\n" for _ in range(20))):
            raw(s, data, timeout=0.3)
        for body, status in ((b"", 400), (b"null", 400), (b"[]", 400), (b"{", 400), (b'{"messages":[{"role":"user","content":"\xff\xfe"}]}', 400), (b"{}\0", 400),
                             (b'{"messages":[{"role":"user","content":"\\ud800 lone"}],"max_tokens":1}', 200)):
            got = s.chat(body)
            assert got[0] == status, (body, got)
        two = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2
        with s.connect(5) as c:
            c.sendall(two)
            out = b""
            while out.count(b"200 OK") < 2: out += c.recv(4096) or sys.exit("a pipelined request was lost")
        assert s.get("/health")[0] == 200

def test_every_field_checks_its_type_and_range():
    number, text, array, flag, obj = 1, "x", [1], True, {"a": 1}
    chat = {"temperature": [text, flag, array, obj, -0.1, 101], "top_p": [text, flag, -0.1, 1.1], "min_p": [text, -1, 2], "top_k": [text, 1.5, -2, flag],
            "presence_penalty": [text, -2.1, 2.1], "frequency_penalty": [text, -3, 3], "repetition_penalty": [text, 0, 101], "seed": [text, 1.5, 1e30],
            "max_tokens": [text, -1, 1.5, 1 << 40], "max_completion_tokens": [text, -1], "n": [text, 0, 17, 1.5], "stop": [number, obj, [1], ["a"] * 17, "x" * 2000],
            "stream": [text, number], "stream_options": [text, number, array, {"include_usage": "yes"}], "logit_bias": [text, array, {"x": 1}, {"-1": 1}, {"999999": 1}, {"1": "a"}, {"1": 101}],
            "logprobs": [text, number], "top_logprobs": [text, -1, 21], "response_format": [text, array, {}, {"type": 1}, {"type": "json_object"}, {"type": "nonsense"}],
            "parallel_tool_calls": [text, number], "model": [number, array], "messages": [text, number, obj, [], [1], [{"role": "nobody", "content": "x"}], [{"role": "user", "content": 7}], [{"content": "x"}]],
            "tools": [text, number, [1], [{"type": "function"}], [{"type": "function", "function": {"name": 1}}]], "tool_choice": [number, "sometimes"],
            "chat_template_kwargs": [text, number], "enable_thinking": ["maybe", obj], "reasoning_effort": ["enormous", number], "ignore_eos": [text, number]}
    completions = {"prompt": [number, obj, [], "", [[]], [-1], [1, "a"], [1 << 40], [1.5], [["a"]], flag], "logprobs": [text, flag, 21, -1], "echo": [text, number],
                   "suffix": ["x", number], "best_of": [text, 2, 0]}
    with Server() as s:
        n = 0
        for path, good, table in (("/v1/chat/completions", user("x", max_tokens=1), chat), ("/v1/completions", {"prompt": "x", "max_tokens": 1}, completions)):
            for field, values in table.items():
                for value in values:
                    got = s.post(path, {**good, field: value})
                    assert got[0] == 400 and (got[2]["error"]["param"] or "").startswith(field), (field, value, got)
                    assert got[2]["error"]["type"] == "invalid_request_error" and got[2]["error"]["message"]
                    n += 1
            assert s.post(path, {**good, "unknown": {"deep": [1]}, "user": "me", "metadata": {}, "store": False, "service_tier": "auto"})[0] == 200
        assert n > 100

def UR62_context_overflow_is_said_before_queueing():
    with Server(ctx=256, script=[[5] * 300] * 3) as s:
        for n, status in ((255, 200), (256, 400), (257, 400), (5000, 400)):
            got = s.post("/v1/completions", {"prompt": [5] * n, "max_tokens": 1000})
            if status == 200: assert got[0] == 200 and got[2]["choices"][0]["finish_reason"] == "length" and got[2]["usage"]["completion_tokens"] == 1
            else: assert "256 tokens" in error_of(got, 400, "prompt", "context_length_exceeded") and f"{n} tokens" in got[2]["error"]["message"]
        for stream in (False, True):
            message = error_of(s.chat(user("word " * 1000, stream=stream)), 400, "messages", "context_length_exceeded")
            assert "maximum context length is 256 tokens" in message and re.search(r"resulted in \d+ tokens", message), message
        got = s.chat(user("x", max_tokens=100000))
        assert got[0] == 200 and got[2]["choices"][0]["finish_reason"] == "length" and got[2]["usage"]["total_tokens"] == 256

# ---- clients that leave ---------------------------------------------------------------

def idle(s, seconds):
    """Seconds until nothing runs."""
    begin = time.time()
    while time.time() - begin < seconds:
        if s.get("/health")[2]["n_running"] == 0: return time.time() - begin
        time.sleep(0.005)
    raise AssertionError(f"still running after {seconds} s")

def leave_mid_stream(s, n_bytes=400, stream=True):
    c = s.connect()
    body = json.dumps(user("x", stream=stream)).encode()
    c.sendall(post_head(len(body)) + body)
    got = b""
    while stream and (len(got) < n_bytes or got.count(b"data:") < 3): got += c.recv(4096)
    return c

def UR46_a_client_that_leaves_ends_its_answer():
    slow = {"text": "word " * 1000, "decode_delay_ms": 20}
    with Server(script=[slow] * 38 + ["</think>\n\nhere" + END]) as s:
        times = []
        for stream in (True, False):
            c = leave_mid_stream(s, stream=stream)
            while s.get("/health")[2]["n_running"] == 0: time.sleep(0.005)
            c.close()
            times.append(idle(s, 5))
        clients = [leave_mid_stream(s) for _ in range(8)] + [leave_mid_stream(s, stream=False) for _ in range(22)]
        while s.get("/health")[2]["n_queued"] < 22: time.sleep(0.005)
        for c in clients: c.close()
        begin = time.time()
        while sum(s.get("/health")[2][k] for k in ("n_running", "n_queued")): time.sleep(0.005)
        gone = time.time() - begin
        begin = time.time()
        # The scripts of those that left in the queue are used up: they were submitted.
        while True:
            status, _, whole = s.chat(user("x", max_tokens=4))
            assert status == 200
            if whole["choices"][0]["message"]["content"] == "here": break
            if time.time() - begin > 20: raise AssertionError(whole)
        print(f"idle {times[0] * 1e3:.0f} ms after a stream's client left, {times[1] * 1e3:.0f} ms after a silent one; 30 that left: idle after {gone * 1e3:.0f} ms, "
              f"next answer {(time.time() - begin) * 1e3:.0f} ms")
        assert max(times) < 2 and gone < 5

def UR47_bytes_come_at_once_and_at_least_every_5_s():
    with Server(script=[{"text": "</think>\n\nhi" + END, "prefill_delay_ms": 4500}]) as s:
        body = json.dumps(user("x", stream=True)).encode()
        with s.connect(30) as c:
            times = [time.time()]
            c.sendall(post_head(len(body), more="Connection: close\r\n") + body)
            text = b""
            while True:
                got = c.recv(65536)
                if not got: break
                text += got
                times.append(time.time())
        gaps = [b - a for a, b in zip(times, times[1:])]
        print(f"first byte after {gaps[0] * 1e3:.1f} ms, longest silence {max(gaps):.1f} s")
        assert gaps[0] < 1 and max(gaps) < 5 and text.count(b"\n: ") >= 1 and b"[DONE]" in text

def UR75_a_short_answer_does_not_wait_for_a_long_one():
    slow = {"text": "word " * 200, "decode_delay_ms": 30}
    with Server(script=[slow, "</think>\n\nhi" + END]) as s:
        c = leave_mid_stream(s)
        begin = time.time()
        assert s.chat(user("x"))[2]["choices"][0]["message"]["content"] == "hi"
        print(f"answered in {time.time() - begin:.2f} s beside one that takes over 6 s")
        assert s.get("/health")[2]["n_running"] == 1
        c.close()

def test_a_full_queue_is_429():
    slow = {"text": "word " * 100, "decode_delay_ms": 100}
    with Server("--queue", "1", script=[slow] * 9) as s:
        clients = [leave_mid_stream(s, stream=False) for _ in range(9)]
        while s.get("/health")[2]["n_queued"] < 1: time.sleep(0.01)
        reply = s.chat(user("x"))
        error_of(reply, 429, code="queue_full")
        assert reply[1]["retry-after"] == "1"
        for c in clients: c.close()

# ---- loading and ending -------------------------------------------------------------------

def test_503_while_loading_and_an_end_while_loading():
    with tempfile.TemporaryDirectory() as d:
        for name in os.listdir(DEMO): os.symlink(os.path.abspath(f"{DEMO}/{name}"), f"{d}/{name}")
        os.remove(f"{d}/tokenizer.json")
        os.mkfifo(f"{d}/tokenizer.json")          # opening it waits for a writer
        with Server(model=d, wait=False) as s:
            assert s.get("/livez")[0] == 200
            for reply in (s.get("/health"), s.get("/readyz"), s.get("/v1/models"), s.chat(user("x")), s.post("/v1/completions", {"prompt": "x"})):
                error_of(reply, 503, code="model_loading")
                assert reply[1]["retry-after"] == "1"

def test_a_checkpoint_without_a_tokenizer_is_refused():
    with tempfile.TemporaryDirectory() as d:
        for name in os.listdir(DEMO): os.symlink(os.path.abspath(f"{DEMO}/{name}"), f"{d}/{name}")
        os.remove(f"{d}/tokenizer.json")
        r = subprocess.run([f"{BUILD}/calla-test", "serve", "--model", d, "--port", "0"], capture_output=True, text=True, timeout=20)
        assert r.returncode == 1 and "tokenizer.json" in r.stderr and r.stderr.count("\n") == 1, r

def test_SIGTERM_lets_answers_end():
    with Server(script=[{"text": "</think>\n\none two three four five six" + END, "decode_delay_ms": 150}]) as s:
        got = {}
        t = threading.Thread(target=lambda: got.update(chunks=s.stream(user("x"))))
        t.start()
        while s.get("/health")[2]["n_running"] == 0: time.sleep(0.01)
        s.process.send_signal(signal.SIGTERM)
        t.join()
        assert together(got["chunks"])[0]["content"] == "one two three four five six"
        assert s.process.wait(10) == 0

def test_a_second_signal_cuts_answers():
    with Server(script=[{"text": "word " * 1000, "decode_delay_ms": 50}]) as s:
        c = leave_mid_stream(s)
        for sig in (signal.SIGINT, signal.SIGINT):
            s.process.send_signal(sig)
            time.sleep(0.2)
        text = b""
        while True:
            got = c.recv(65536)
            if not got: break
            text += got
        assert b'"error"' in text and b"[DONE]" not in text and s.process.wait(10) == 0

def test_nothing_of_a_request_is_logged():
    with Server(script=["</think>\n\nthe-answer" + END]) as s:
        s.chat(user("the-secret"), headers={"X-Request-Id": "the-id"})
        s.chat({"messages": "the-fault"})
        log = s.stderr()
        assert not any(w in log for w in ("the-secret", "the-answer", "the-id", "the-fault"))

if __name__ == "__main__": run([v for k, v in list(globals().items()) if callable(v) and k.startswith(("UR", "test_"))])
