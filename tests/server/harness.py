"""What the server's tests share: a server with scripted answers, requests, streams put together, a runner."""
import http.client, json, os, re, signal, socket, subprocess, sys, tempfile, time

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
DEMO, TINY = "models/demo", "tests/golden/data/tiny/mlx"
END = "<|im_end|>"
WEATHER_CALL = "</think>\n\nI look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>" + END

def ids_of(texts, model=DEMO):
    """Ids of texts, control tokens recognised."""
    lines = "".join(json.dumps(t) + "\n" for t in texts)
    r = subprocess.run([f"{BUILD}/calla", "tokenize", "--model", model, "--jsonl"], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(l) for l in r.stdout.splitlines()]

class Server:
    """calla-test serve on a free port; script: for each request that will be submitted, a text, ids, or an object of calla_test.h."""
    def __init__(self, *args, model=DEMO, script=(), ctx=4096, wait=True, code=0):
        texts = [s["text"] if isinstance(s, dict) else s for s in script if isinstance(s, str) or (isinstance(s, dict) and "text" in s)]
        made = iter(ids_of(texts, model) if texts else [])
        self.file = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
        for s in script:
            if isinstance(s, str): s = next(made)
            elif isinstance(s, dict) and "text" in s: s = {**{k: v for k, v in s.items() if k != "text"}, "ids": next(made)}
            self.file.write(json.dumps(s) + "\n")
        self.file.flush()
        command = [f"{BUILD}/calla-test", "serve", "--model", model, "--port", "0", *(["--ctx", str(ctx)] if ctx else []), *args]
        self.err = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command + (["--script", self.file.name] if script else []), stdout=subprocess.PIPE, stderr=self.err, text=True)
        self.code = code                 # that it must end with
        line = self.process.stdout.readline()
        m = re.match(r"listening on http://(\S+):(\d+)$", line.strip())
        if not m: raise RuntimeError(f"the server said {line!r} and {self.stderr()!r}")
        self.host, self.port = m[1].strip("[]"), int(m[2])
        self.url = f"http://{m[1]}:{m[2]}"
        if wait: self.ready()
    def __enter__(self): return self
    def __exit__(self, *_):
        code = self.process.wait(30) if self.code else self.stop()
        if code != self.code and _[0] is None: raise AssertionError(f"the server ended with {code}: {self.stderr()[-3000:]}")
    def stderr(self):
        self.err.seek(0)
        return self.err.read()
    def stop(self, sig=signal.SIGTERM):
        if self.process.poll() is None: self.process.send_signal(sig)
        try: return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return -9
    def ready(self, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            if self.get("/readyz")[0] == 200: return
            if self.process.poll() is not None: break
            time.sleep(0.02)
        raise RuntimeError(f"the server is not ready: {self.stderr()[-2000:]}")
    def connect(self, timeout=60): return socket.create_connection((self.host, self.port), timeout)
    def request(self, method, path, body=None, headers=None, timeout=60):
        """Status, headers (lower case), body as JSON where it is."""
        c = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        h = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)): body = json.dumps(body)
        if body is not None: h.setdefault("Content-Type", "application/json")
        try:
            c.request(method, path, body.encode() if isinstance(body, str) else body, h)
            r = c.getresponse()
            data = r.read()
        finally: c.close()
        try: value = json.loads(data)
        except ValueError: value = data
        return r.status, {k.lower(): v for k, v in r.getheaders()}, value
    def get(self, path, **k): return self.request("GET", path, **k)
    def post(self, path, body, **k): return self.request("POST", path, body, **k)
    def chat(self, body, **k): return self.post("/v1/chat/completions", body, **k)
    def stream(self, body, path="/v1/chat/completions"):
        """The chunks of a stream, each checked to be an SSE event of valid JSON, and whether [DONE] ended it."""
        c = http.client.HTTPConnection(self.host, self.port, timeout=60)
        c.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200: raise AssertionError(f"{r.status}: {r.read()!r}")
        assert r.getheader("Content-Type", "").startswith("text/event-stream")
        text = r.read().decode("utf-8")
        c.close()
        assert text.endswith("\n\n")
        chunks = []
        for event in text[:-2].split("\n\n"):
            if event.startswith(":"): continue
            assert event.startswith("data: ") and "\n" not in event, event
            chunks.append(event[6:])
        assert chunks[-1] == "[DONE]" and chunks.count("[DONE]") == 1, chunks[-2:]
        return [json.loads(x) for x in chunks[:-1]]

def user(text, **more): return {"messages": [{"role": "user", "content": text}], **more}

def together(chunks, idx=0):
    """A stream as the choice of a whole answer: message, finish_reason, logprobs.  Checks the order that clients count on."""
    message, calls, finishes, entries = {"role": None, "content": ""}, {}, [], []
    for n, chunk in enumerate(chunks):
        for choice in chunk["choices"]:
            if choice["index"] != idx: continue
            d = choice["delta"]
            if n == 0: assert d.get("role") == "assistant", chunk
            assert not finishes, "a delta after the finish"
            message["role"] = d.get("role", message["role"])
            message["content"] += d.get("content") or ""
            if "reasoning_content" in d: message["reasoning_content"] = message.get("reasoning_content", "") + d["reasoning_content"]
            for call in d.get("tool_calls", []):
                slot = calls.setdefault(call["index"], None)
                if slot is None:
                    assert call["index"] == len(calls) - 1 and re.fullmatch(r"call_[0-9a-f]{24}", call["id"]) and call["type"] == "function"
                    calls[call["index"]] = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
                else:
                    assert "id" not in call and "name" not in call["function"]
                    slot["arguments"] += call["function"]["arguments"]
            if choice.get("logprobs"): entries += choice["logprobs"]["content"]
            if choice["finish_reason"] is not None: finishes.append(choice["finish_reason"])
    assert len(finishes) == 1, finishes
    return message, [calls[i] for i in sorted(calls)], finishes[0], entries

def parts(whole, idx=0):
    """The same of a whole answer."""
    c = whole["choices"][idx]
    m = c["message"]
    calls = [{"name": x["function"]["name"], "arguments": x["function"]["arguments"]} for x in m.get("tool_calls", [])]
    message = {k: m[k] for k in ("role", "content", "reasoning_content") if k in m}
    message["content"] = message["content"] or ""
    return message, calls, c["finish_reason"], (c["logprobs"] or {}).get("content", [])

def run(tests):
    """Calls test functions, prints the counts."""
    passed = failed = skipped = 0
    only = [a for a in sys.argv[2:] if a != "long"]
    for t in tests:
        if only and not any(o in t.__name__ for o in only): continue
        begin = time.time()
        try:
            why = t()
            took = time.time() - begin
            if os.environ.get("VERBOSE"): print(f"{t.__name__} {took:.1f} s")
            if isinstance(why, str) and why.startswith("skip"): skipped += 1; print(f"{t.__name__}: {why}")
            else: passed += 1
        except Exception as e:
            import traceback
            failed += 1
            print(f"{t.__name__} failed after {time.time() - begin:.1f} s")
            traceback.print_exc(limit=-3, file=sys.stdout)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
