"""Writes the held-out set as JSON lines: the same file every time.

usage: make_heldout.py FILE [--n 48]
A line of a task: task, think, prompt (rendered), want (all that should be written, thinking and end included), answer (what is
judged).  A line of text of known entropy: task, prompt, text, log_p (nats)."""
import argparse, json, random

import conversation, encode, tasks
from tasks import answer, uncertain, user

FEW = {"recall_2048": 2, "recall_4096": 4, "recall_8192": 6, "tool_of_many": 2, "long_answer": 2}     # one n-th of the items
NO_THINKING = ("recall_", "long_answer")


def single_item(name):
    def make(r, think):
        q, t, a, _ = conversation.single(r, name, think)
        return [user(q), answer(a, t if think else "")], None
    return make


def items(n):
    """(task, think, messages, tools), as even over the tasks as they come."""
    r, makers = random.Random(4242), {name: single_item(name) for name in conversation.SINGLE}
    makers.update(tasks.gather("HELD"))
    for name, make in makers.items():
        for think in (False, True):
            if think and name.startswith(NO_THINKING):
                continue
            for _ in range(60 * n):
                m = make(r, think)
                if m and (yield name, think, *m) == "enough":
                    break


def write(path, n):
    conversation.HELD = True
    e, seen, have, out = encode.Encoder(), set(), {}, []
    gen, verdict = items(n), None
    while True:
        try:
            name, think, msgs, tools = gen.send(verdict)
        except StopIteration:
            break
        prompt = e.template(msgs[:-1], tools, add_generation_prompt=True, enable_thinking=think)
        full = e.template(msgs, tools)
        assert full.startswith(prompt), (full, prompt)
        want = full[len(prompt):].removesuffix("\n")
        limit = int(name[7:]) if name.startswith("recall_") else 8192
        verdict = None
        if full in seen or len(e.encode(full)) > max(limit, 112):
            continue
        seen.add(full)
        judged = want.split("</think>\n\n")[-1].removesuffix("<|im_end|>")
        out.append(dict(task=name, think=think, prompt=prompt, want=want, answer=judged))
        have[name, think] = have.get((name, think), 0) + 1
        if have[name, think] >= max(1, n // FEW.get(name, 1)):
            verdict = "enough"
    r = random.Random(4343)
    for name, make in uncertain.TEXTS.items():
        for _ in range(max(2, n // 4)):
            msgs, log_p = make(name, r)
            prompt = e.template(msgs[:-1], add_generation_prompt=True, enable_thinking=False)
            out.append(dict(task=name, prompt=prompt, text=msgs[-1]["content"], log_p=round(log_p, 4)))
    with open(path, "w", encoding="utf-8") as f:
        for x in out:
            f.write(json.dumps(x, ensure_ascii=False) + "\n")
    print(len(out), "held-out lines", {k[0] + "+t" * k[1]: v for k, v in have.items()})


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("file")
    p.add_argument("--n", type=int, default=48)
    a = p.parse_args()
    write(a.file, a.n)
