#!/usr/bin/env python3
"""Bare completions: prompts of every form, echo and logprobs as evaluation harnesses read them, against `calla logits`.

usage: test_completions.py BUILD [NAME ...]"""
from concurrent.futures import ThreadPoolExecutor
from harness import *

def logits_of(prompts, top):
    """calla logits: for each prompt {"top": [[[id, logit], ...] per position], "lse": [...]}"""
    r = subprocess.run([f"{BUILD}/calla", "logits", "--model", DEMO, "--top", str(top), "--ctx", "4096"], input="".join(json.dumps(p) + "\n" for p in prompts),
                       capture_output=True, text=True, check=True)
    return [json.loads(l) for l in r.stdout.splitlines()]

def complete(s, prompt, **more):
    status, _, whole = s.post("/v1/completions", {"prompt": prompt, **more})
    assert status == 200, whole
    return whole

def test_prompts_of_every_form():
    texts = ["The capital of", "17 + 25", "<|im_start|>user\nHi<|im_end|>\n"]
    ids = ids_of(texts)
    with Server() as s:
        one = [complete(s, t, max_tokens=6, temperature=0) for t in texts]
        for o, p in zip(one, ids): assert o["usage"]["prompt_tokens"] == len(p) and o["object"] == "text_completion" and o["id"].startswith("cmpl-")
        want = [o["choices"][0]["text"] for o in one]
        for prompt in (texts, ids):
            many = complete(s, prompt, max_tokens=6, temperature=0)
            assert [c["text"] for c in many["choices"]] == want and [c["index"] for c in many["choices"]] == [0, 1, 2]
            assert many["usage"]["prompt_tokens"] == sum(map(len, ids)) and many["usage"]["completion_tokens"] == sum(o["usage"]["completion_tokens"] for o in one)
        assert complete(s, ids[0], max_tokens=6, temperature=0)["choices"][0]["text"] == want[0]
        assert complete(s, texts[0], temperature=0, ignore_eos=True)["usage"]["completion_tokens"] == 16
        many = complete(s, [texts[0]] * 40, max_tokens=2, temperature=0)       # more than the engine runs at once
        assert len({c["text"] for c in many["choices"]}) == 1 and len(many["choices"]) == 40

def test_echo_and_logprobs_are_those_of_calla_logits():
    texts = ["The capital of France is Paris.", "17 + 25 = 42", "caf\u00e9 \U0001F680 \u4e2d"]
    prompts = ids_of(texts)
    want = logits_of(prompts, 4096)
    with Server() as s:
        for n_top, max_tokens in ((0, 1), (1, 1), (5, 0)):
            whole = complete(s, prompts, echo=True, logprobs=n_top, max_tokens=max_tokens, temperature=0)
            for choice, ids, text, w in zip(whole["choices"], prompts, texts, want):
                l = choice["logprobs"]
                assert len(l["tokens"]) == len(l["token_logprobs"]) == len(l["top_logprobs"]) == len(l["text_offset"]) == len(ids) + max_tokens
                assert choice["text"].startswith(text) and l["token_logprobs"][0] is None and l["top_logprobs"][0] is None
                n_checked = 0
                for pos in range(1, len(ids)):
                    logits = dict(map(tuple, w["top"][pos - 1]))
                    if ids[pos] in logits:
                        n_checked += 1
                        assert abs(logits[ids[pos]] - w["lse"][pos - 1] - l["token_logprobs"][pos]) < 1e-5, pos
                    top = l["top_logprobs"][pos]
                    assert len(top) in (n_top, n_top + 1) and l["tokens"][pos] in top
                    if n_top: assert abs(w["top"][pos - 1][0][1] - w["lse"][pos - 1] - max(top.values())) < 1e-5
                assert n_checked > 0.8 * (len(ids) - 1)
                plain = [i for i, t in enumerate(l["tokens"][:len(ids)]) if not t.startswith("bytes:")]
                assert all(text[l["text_offset"][i]:].startswith(l["tokens"][i]) for i in plain), l
                if max_tokens == 0: assert choice["text"] == text and choice["finish_reason"] == "length"
                else: assert l["tokens"][-1] and l["token_logprobs"][-1] == max(list(l["top_logprobs"][-1].values()) or [l["token_logprobs"][-1]])

def test_loglikelihood_as_lm_evaluation_harness_reads_it():
    """Its local-completions model: token ids, max_tokens 1, echo, logprobs 1; the sum over the continuation, and whether greedy agrees."""
    context, continuation = "What is the capital of France?", " Paris"
    a, whole = ids_of([context, context + continuation])
    with Server() as s:
        out = complete(s, [whole], echo=True, logprobs=1, max_tokens=1, temperature=0, seed=1234)
        choice = sorted(out["choices"], key=lambda c: c["index"])[0]
        logprobs, tops = choice["logprobs"]["token_logprobs"][len(a):-1], choice["logprobs"]["top_logprobs"][len(a):-1]
        greedy = all(p == max(t.values()) for p, t in zip(logprobs, tops))
    w = logits_of([whole], 4096)[0]
    want = sum(dict(map(tuple, w["top"][i - 1])).get(whole[i], float("nan")) - w["lse"][i - 1] for i in range(len(a), len(whole)))
    assert len(logprobs) == len(whole) - len(a) and (want != want or abs(sum(logprobs) - want) < 1e-4)
    assert greedy == all(w["top"][i - 1][0][0] == whole[i] for i in range(len(a), len(whole)))

def test_streams_say_the_same():
    with Server() as s:
        for more in ({}, {"echo": True}, {"logprobs": 2}, {"echo": True, "logprobs": 2}, {"n": 2, "seed": 3, "temperature": 1}, {"stop": ["e"]}):
            body = {"prompt": ["The capital of", "17 + 25"], "max_tokens": 8, "temperature": 0, **more}
            whole = s.post("/v1/completions", body)[2]
            chunks = s.stream({**body, "stream_options": {"include_usage": True}}, path="/v1/completions")
            for i, c in enumerate(whole["choices"]):
                mine = [h for k in chunks for h in k["choices"] if h["index"] == i]
                assert "".join(h["text"] for h in mine) == c["text"], (more, c, mine)
                assert [h["finish_reason"] for h in mine if h["finish_reason"]] == [c["finish_reason"]] == [mine[-1]["finish_reason"]]
                if "logprobs" in more:
                    for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset"): assert sum((h["logprobs"][k] for h in mine), []) == c["logprobs"][k]
            assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"] | {"prompt_tokens_details": chunks[-1]["usage"]["prompt_tokens_details"]}

def UR45_stop_strings_of_a_completion():
    text = "one two Observation: three"
    with Server(script=[text + END] * 3) as s:
        for stop, want in ((["Observation:"], "one two "), ("two", "one "), (None, text)):
            c = complete(s, "x", stop=stop, max_tokens=100)["choices"][0]
            assert c["text"] == want and c["finish_reason"] == "stop", c

def UR49_requests_at_once_do_not_touch_each_other():
    words = ["ZEBRA-12", "apple", "What is 17 + 25?", "Rome", "a b c", "The weather", "x", "capital of France"]
    ask = lambda s, w: complete(s, f"<|im_start|>user\n{w}<|im_end|>\n<|im_start|>assistant\n", max_tokens=12, temperature=0, ignore_eos=True)["choices"][0]["text"]
    with Server() as s: alone = {w: ask(s, w) for w in words}
    with Server() as s:
        for k in (2, 3, 8):
            with ThreadPoolExecutor(k) as pool:
                for w, got in zip(words[:k], pool.map(lambda w: ask(s, w), words[:k])): assert got == alone[w], (k, w, got, alone[w])

def UR48_the_next_request_sees_nothing_of_the_last():
    with Server() as s: fresh = complete(s, "Hi", max_tokens=12, temperature=0, logprobs=3)["choices"]
    with Server() as s:
        complete(s, "Remember ZEBRA-12. ZEBRA-12 ZEBRA-12", max_tokens=20, temperature=0)
        assert complete(s, "Hi", max_tokens=12, temperature=0, logprobs=3)["choices"] == fresh

def UR57_penalties_count_the_answer_only():
    """A biased id wins by half a logit; presence_penalty 2 takes it away once it was said, not because the prompt has it."""
    words = [" Paris", " the", " is", ".", " question", " capital", " France"]
    base = ids_of(["The capital of France is Paris. The question about the capital is the question."])[0]
    ids = [i[0] for i in ids_of(words) if len(i) == 1]
    first, *second = logits_of([base] + [base + [i] for i in ids], 4096)
    n = 0
    with Server() as s:
        for i, w in zip(ids, second):
            gaps = [x["top"][-1][0][1] - dict(map(tuple, x["top"][-1])).get(i, -1e9) for x in (first, w)]
            bias = max(gaps) + 0.5
            if bias > 100 or bias - gaps[1] > 1.5: continue
            ask = lambda **more: complete(s, base, max_tokens=2, temperature=0, logit_bias={str(i): bias}, ignore_eos=True, logprobs=0, **more)["choices"][0]["logprobs"]["tokens"]
            free, held = ask(), ask(presence_penalty=2)
            assert free[0] == free[1] == held[0] != held[1], (free, held)
            n += 1
    assert n > 0

def UR57_defaults_are_the_checkpoints():
    d = json.load(open(f"{DEMO}/generation_config.json"))
    with Server() as s:
        got = [complete(s, "The", max_tokens=12, seed=9, ignore_eos=True, **more)["choices"][0]["text"]
               for more in ({}, {k: d[k] for k in ("temperature", "top_k", "top_p")}, {"temperature": None, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1})]
        assert got[0] == got[1] == got[2], got

if __name__ == "__main__": run([v for k, v in list(globals().items()) if callable(v) and k.startswith(("UR", "test_"))])
