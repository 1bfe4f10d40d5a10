#!/usr/bin/env python3
"""calla run, chat, bench and logits as a person and a script meet them.  usage: commands.py BUILD TINY"""
import json, os, pty, re, select, shutil, signal, subprocess, sys, time

BUILD, TINY = sys.argv[1], sys.argv[2]
CALLA, DEMO = f"{BUILD}/calla", "models/demo"
TMP = f"{BUILD}/tests/engine/tmp"
results = []

def endless():
    """The random checkpoint with a stop id that is never sampled: only Ctrl-C ends its answers."""
    path = f"{TMP}/endless"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(TINY, path)
    with open(f"{path}/generation_config.json") as f: config = json.load(f)
    config["eos_token_id"] = [1087]
    with open(f"{path}/generation_config.json", "w") as f: json.dump(config, f)
    return path

def check(name, right, note=""):
    results.append(bool(right))
    print(("ok   " if right else "FAIL ") + name + (f"  {note}" if not right and note else ""), flush=True)

def calla(*args, stdin="", **kw):
    return subprocess.run([CALLA, *args], input=stdin, capture_output=True, text=True, timeout=120, **kw)

# ---- logits
def test_logits():
    ids = "[1, 5, 900, 17]\n[3]\n[]\n"
    a = calla("logits", "--model", TINY, "--top", "5", "--ctx", "256", stdin=ids)
    b = calla("logits", "--model", TINY, "--top", "5", "--ctx", "256", "--mode", "decode", stdin=ids)
    lines = [json.loads(l) for l in a.stdout.splitlines()]
    check("logits: a line a prompt, an entry a position", a.returncode == 0 and [len(l["top"]) for l in lines] == [4, 1, 0] == [len(l["lse"]) for l in lines])
    check("logits: K entries, best first, below the log-sum-exp",
          all(len(p) == 5 and all(x[1] >= y[1] for x, y in zip(p, p[1:])) and p[0][1] <= lse for l in lines for p, lse in zip(l["top"], l["lse"])))
    check("logits: decode prints what prefill prints", a.stdout == b.stdout and b.returncode == 0)
    for text, part in (("[1, 2\n", "line 1"), ("[1]\n[1, \"a\"]\n", "line 2"), ("[99999]\n", "99999"), ("{}\n", "array"),
                       ("[" + "1," * 300 + "1]\n", "256")):
        r = calla("logits", "--model", TINY, "--ctx", "256", stdin=text)
        check(f"logits: {text[:12].strip()!r} is refused with the reason", r.returncode == 1 and part in r.stderr.splitlines()[-1], r.stderr[-200:])
    r = calla("logits", "--model", TINY, "--mode", "both")
    check("logits: an unknown mode is bad usage", r.returncode == 2 and "both" in r.stderr)
    r = calla("logits", "--model", TINY, "--backend", "abacus")
    check("logits: an unknown backend is named with those that exist", r.returncode == 1 and "abacus" in r.stderr and "reference" in r.stderr)
    plan = [l for l in a.stderr.splitlines() if l.startswith("  ")]
    check("logits: the memory plan is printed", len(plan) == 5 and "context 256" in plan[-1], a.stderr)

# ---- run
def test_run():
    say = ("run", "--model", DEMO, "--ctx", "1024", "--prompt", "What is the capital of France?", "--greedy")
    r = calla(*say, "--json")
    o = json.loads(r.stdout)
    keys = ["prompt_ids", "ids", "text", "reasoning", "content", "tool_calls", "finish_reason", "usage", "timings"]
    check("run --json: the promised fields", list(o) == keys, list(o))
    check("run --json: the demo knows Paris", "Paris" in o["content"] and "think" not in o["content"] and o["reasoning"] and o["finish_reason"] == "stop", o)
    check("run --json: usage counts the ids", o["usage"]["prompt_tokens"] == len(o["prompt_ids"]) and o["usage"]["completion_tokens"] == len(o["ids"]))
    plain = calla(*say)
    check("run: the answer on stdout, thinking on stderr where there is no terminal",
          plain.stdout.strip() == o["content"].strip() and o["reasoning"].strip() in plain.stderr, plain.stdout)
    o2 = json.loads(calla(*say, "--json", "--no-think").stdout)
    check("run --no-think: no thinking", o2["reasoning"] == "" and "Paris" in o2["content"], o2)
    hot = ("run", "--model", DEMO, "--ctx", "1024", "--prompt", "The capital", "--raw", "--json", "--n", "16", "--temperature", "1.5", "--top-k", "0", "--top-p", "1")
    a, b, c = (json.loads(calla(*hot, "--seed", s).stdout) for s in ("7", "7", "8"))
    check("run --raw --seed: the same seed says the same, another does not", a["ids"] == b["ids"] != c["ids"] and len(a["ids"]) == 16, a["ids"])
    check("run --raw: cut by --n", a["finish_reason"] == "length" and a["content"] == a["text"])
    r = calla("run", "--model", DEMO, "--ctx", "64", "--prompt", "word " * 500)
    check("run: a prompt past the context is refused with both numbers", r.returncode == 1 and "64" in r.stderr.splitlines()[-1] and re.search(r"[5-9]\d\d|1\d\d\d", r.stderr.splitlines()[-1]), r.stderr[-300:])
    bare = f"{TMP}/no-tokenizer"
    shutil.rmtree(bare, ignore_errors=True)
    shutil.copytree(TINY, bare, ignore=shutil.ignore_patterns("tokenizer*"))
    r = calla("run", "--model", bare, "--prompt", "hi")
    check("run: without a tokenizer it says what needs one and what works", r.returncode == 1 and "tokenizer.json" in r.stderr and "logits" in r.stderr, r.stderr)
    check("logits: works on ids alone", calla("logits", "--model", bare, "--ctx", "64", stdin="[1]\n").returncode == 0)
    p = subprocess.Popen([CALLA, "run", "--model", endless(), "--prompt", "go on", "--raw", "--ctx", "65536"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    p.stdout.read(20)
    t = time.time()
    p.send_signal(signal.SIGINT)
    p.stdout.read()
    check("run: Ctrl-C stops the answer at once and exits 130", p.wait(30) == 130 and time.time() - t < 10)

# ---- chat, in a terminal
class Terminal:
    def __init__(self, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(CALLA, [CALLA, *args])
        self.seen = ""
    def until(self, text, limit_s=60):
        end = time.time() + limit_s
        while text not in self.seen and time.time() < end:
            if select.select([self.fd], [], [], 0.2)[0]:
                try: data = os.read(self.fd, 65536)
                except OSError: return False
                self.seen += data.decode("utf-8", "replace")
        found = text in self.seen
        if found: self.before, self.seen = self.seen.split(text, 1)
        return found
    def send(self, text): os.write(self.fd, text.encode())
    def leave(self):
        """Ctrl-D until it ends: the editor prints its prompt before it takes the terminal over, and what comes between is lost."""
        end = again = time.time() + 30
        while time.time() < end:
            if again - time.time() <= 0 or again == end:
                again = time.time() + 2
                self.send("\x04")
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid: return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.1)[0]:
                try: os.read(self.fd, 65536)
                except OSError: pass
        os.kill(self.pid, signal.SIGKILL)
        return None

def test_chat():
    t = Terminal("chat", "--model", DEMO, "--ctx", "2048", "--greedy")
    check("chat: greets and prompts", t.until("/help lists") and t.until("> "))
    t.send("What is the capital of France?\r")
    check("chat: thinking is dim, the answer is not", t.until("\x1b[2m") and t.until("\x1b[0m") and t.until("Paris"))
    check("chat: prompts again", t.until("> "))
    t.send("half a line")
    t.until("line")
    t.send("\x03")
    check("chat: Ctrl-C at the prompt drops the line only", t.until("> "))
    t.send("What is 2 plus 5?\r")
    check("chat: a second turn", t.until("7") and t.until("> "))
    t.send("/stats\r")
    check("chat: /stats counts what the cache gave", t.until("last answer:") and t.until("from the cache") and int(t.before.split(",")[-1].split()[0]) > 0, getattr(t, "before", ""))
    t.until("> ")
    t.send("\x1b[A")                                # arrow up: the line before
    check("chat: history", t.until("/stats"))
    t.send("\x15/think\r")
    check("chat: /think", t.until("thinking is off"))
    t.send("/reset\r/stats\r")
    check("chat: /reset", t.until("forgotten") and t.until("nothing was asked") and t.until("> "))
    check("chat: Ctrl-D ends it", t.leave() == 0)
    t = Terminal("chat", "--model", endless(), "--ctx", "65536")
    t.until("> ")
    t.send("héllo ✓\r")
    t.until("\r\n")
    time.sleep(1)
    t.send("\x03")
    check("chat: Ctrl-C stops the answer, not the program", t.until("(stopped)") and t.until("> "))
    t.send("/help\r")
    check("chat: and it goes on", t.until("Ctrl-D ends") and t.until("> "))
    check("chat: and ends", t.leave() == 0)

# ---- bench
def test_bench():
    args = ("bench", "--model", TINY, "-p", "32,64", "-n", "8", "-d", "0,128", "-b", "1,3", "-r", "2")
    r = calla(*args, "--jsonl")
    rows = [json.loads(l) for l in r.stdout.splitlines()]
    names = [x["test"] for x in rows]
    check("bench --jsonl: llama-bench's names", names == 2 * ["pp32", "pp64", "tg8", "pp32 @ d128", "pp64 @ d128", "tg8 @ d128"], names)
    need = {"test", "n_prompt", "n_gen", "n_depth", "avg_ts", "stddev_ts", "rows", "experts_per_layer", "machine", "backend", "model", "size", "params", "n_threads"}
    check("bench --jsonl: the promised fields", all(need <= set(x) for x in rows) and {"cpu", "cores", "features"} <= set(rows[0]["machine"]))
    check("bench: rates and experts make sense", all(x["avg_ts"] > 0 and x["stddev_ts"] >= 0 and 8 <= x["experts_per_layer"] <= 16 for x in rows))
    one, three = (x for x in rows if x["test"] == "tg8")
    check("bench: more sequences touch more experts", one["experts_per_layer"] == 8 < three["experts_per_layer"] and [one["rows"], three["rows"]] == [1, 3])
    r = calla(*args)
    check("bench: a Markdown table", r.returncode == 0 and len(re.findall(r"^\|", r.stdout, re.M)) == 2 + len(rows), r.stdout)
    r = calla("bench", "--model", TINY, "-p", "512", "-n", "0", "--ctx", "128", "-r", "1")
    check("bench: a test past the context is refused with the numbers", r.returncode == 1 and "512" in r.stderr and "128" in r.stderr)

which = sys.argv[3:]
if not which or "logits" in which: test_logits()
if not which or "run" in which: test_run()
if not which or "chat" in which: test_chat()
if not which or "bench" in which: test_bench()
print(f"{sum(results)} passed, {len(results) - sum(results)} failed, 0 skipped")
sys.exit(not all(results))
