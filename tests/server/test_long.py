#!/usr/bin/env python3
"""What takes time: clients that send or read too slowly, answers cut at the end, silence while waiting in the queue.

usage: test_long.py BUILD [NAME ...]"""
import threading
from harness import *
from test_http import leave_mid_stream, post_head, rss_mb

def closed_after(c, data, pause, most):
    """Sends byte by byte; seconds until the server closes."""
    begin = time.time()
    c.settimeout(pause)
    for i in range(10**6):
        if time.time() - begin > most: return most
        try:
            c.sendall(data[i % len(data):][:1])
            if c.recv(4096) == b"": break
        except socket.timeout: continue
        except ConnectionError: break
    return time.time() - begin

def UR67_one_byte_a_second_is_not_waited_for():
    body = json.dumps(user("x" * 200)).encode()
    with Server() as s:
        times = {}
        clients = {"headers": (s.connect(), b"GET /v1/models HTTP/1.1\r\nX-Very-Long-Header: " + b"a" * 1000), "body": (s.connect(), body), "lie": (s.connect(), b"x")}
        clients["body"][0].sendall(post_head(len(body)))
        clients["lie"][0].sendall(post_head(10**10))
        threads = [threading.Thread(target=lambda k=k, c=c, d=d: times.update({k: closed_after(c, d, 1, 60)})) for k, (c, d) in clients.items()]
        for t in threads: t.start()
        waits = []
        while any(t.is_alive() for t in threads):
            begin = time.time()
            assert s.get("/health")[0] == 200
            waits.append(time.time() - begin)
            time.sleep(0.5)
        print({k: f"closed after {v:.1f} s" for k, v in times.items()}, f"slowest other answer {max(waits) * 1e3:.0f} ms")
        assert all(28 < t < 40 for t in times.values()), times

def deaf(s, path, body):
    """A client that asks and never reads."""
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.connect((s.host, s.port))
    body = json.dumps(body).encode()
    c.sendall(post_head(len(body), path) + body)
    return c

def seconds_of_work(s, most):
    begin = time.time()
    time.sleep(1)
    while s.get("/health")[2]["n_running"]:
        assert time.time() - begin < most, "it still runs"
        time.sleep(0.2)
    return time.time() - begin

def echoing(n_bytes):
    """A stream that begins with so many bytes, the prompts, and goes on for minutes."""
    word = ids_of([" question"])[0]
    assert len(word) == 1
    return {"prompt": [word * 1000] * (n_bytes // 9000), "echo": True, "max_tokens": 1000, "ignore_eos": True, "temperature": 0}

def UR46_a_client_that_never_reads_is_ended():
    """Less than the limit waits for it, but nothing is taken for 30 s."""
    with Server(script=[{"ids": [5] * 1000, "decode_delay_ms": 100}] * 8) as s:
        before = rss_mb(s)
        c = deaf(s, "/v1/completions", {**echoing(3_800_000), "stream": True})
        took = seconds_of_work(s, 120)
        print(f"ended after {took:.0f} s; memory {before:.0f} to {rss_mb(s):.0f} MB")
        assert 28 < took
        c.close()

def UR46_what_waits_for_a_client_is_bounded():
    """More than the limit in one chunk: taken whole by a client that reads, the last one for one that does not."""
    with Server() as s:
        chunks = s.stream({**echoing(16_000_000), "max_tokens": 0}, path="/v1/completions")
        size = sum(len(h["text"]) for c in chunks for h in c["choices"])
        assert size > 15_000_000, size
        c = deaf(s, "/v1/completions", {**echoing(16_000_000), "stream": True})
        took = seconds_of_work(s, 25)
        print(f"{size / 1e6:.1f} MB; ended after {took:.1f} s")
        c.close()

def test_an_answer_longer_than_the_drain_is_cut():
    with Server(script=[{"text": "word " * 2000, "decode_delay_ms": 50}]) as s:
        c = leave_mid_stream(s)
        begin = time.time()
        s.process.send_signal(signal.SIGTERM)
        text = b""
        while True:
            got = c.recv(65536)
            if not got: break
            text += got
        assert s.process.wait(10) == 0 and 9 < time.time() - begin < 20 and b'"error"' in text

def UR47_a_stream_that_waits_in_the_queue_is_not_silent():
    slow = {"text": "word " * 300, "decode_delay_ms": 40}
    with Server(script=[slow] * 8 + ["</think>\n\nhi" + END]) as s:
        clients = [leave_mid_stream(s) for _ in range(8)]
        body = json.dumps(user("x", stream=True)).encode()
        c = s.connect(30)
        c.sendall(post_head(len(body)) + body)
        times, text = [time.time()], b""
        while b"[DONE]" not in text:
            text += c.recv(65536)
            times.append(time.time())
            if text.count(b"\n: ") == 2:
                for x in clients: x.close()
        gaps = [b - a for a, b in zip(times, times[1:])]
        assert max(gaps) < 5 and gaps[0] < 1 and text.count(b"\n: ") >= 2, gaps

def test_a_big_prompt_does_not_hold_up_others():
    """600 KB and 8 MB of text are read beside the loop: others are answered meanwhile."""
    for size in (600_000, 8_000_000):
        with Server() as s:
            body = json.dumps(user("The quick brown fox. " * (size // 21)))
            done, waits = [], []
            t = threading.Thread(target=lambda: done.append(s.chat(body)))
            t.start()
            begin = time.time()
            while not done:
                b = time.time()
                assert s.get("/livez")[0] == 200
                waits.append(time.time() - b)
            t.join()
            assert done[0][0] == 400 and done[0][2]["error"]["code"] == "context_length_exceeded"
            waits.sort()
            print(f"{size} bytes: refused after {time.time() - begin:.2f} s; {len(waits)} others meanwhile, the slowest {waits[-1] * 1e3:.0f} ms")
            assert waits[-1] < 1

if __name__ == "__main__": run([v for k, v in list(globals().items()) if callable(v) and k.startswith(("UR", "test_"))])
