"""Conversations that fill a row of training text."""
import bisect, itertools

import tasks
from tasks import answer, held, user
from world import pick

SYSTEMS = ["You are a helpful assistant.", "Answer in a short way.", "You are the demo model.", "Be brief and exact."]
POLITE = ("facts", "opposites", "calendar", "colours", "units")
QUESTION_WORDS = ("What", "Which", "How", "Where", "Name", "Tell", "Give", "On", "In", "Of", "Convert")
HELD = False                                                        # True while the held-out set is made


def tables():
    single, rows = tasks.gather("SINGLE"), tasks.gather("ROWS")
    return single, list(single), list(itertools.accumulate(w for w, _ in single.values())), rows


SINGLE, NAMES, SUMS, ROWS = tables()


def polite(r, q):
    """Some questions get a word before or after them."""
    if r.random() < .75:
        return q
    first = q.split(" ")[0]
    if first in QUESTION_WORDS and r.random() < .5:
        low = q[0].lower() + q[1:]
        return pick(r, ["Please, {}", "Hey, {}", "Can you help me? {}", "A question: {}", "Now {}"]).format(low)
    return q[:-1] + ", please" + q[-1] if q[-1] in ".?" else q + ", please"


def single(r, task=None, think=None):
    """(question, thinking, answer, task) from the right side of the split."""
    while True:
        name = task or NAMES[bisect.bisect(SUMS, r.random() * SUMS[-1])]
        th = r.random() < .5 if think is None else think
        q, t, a = SINGLE[name][1](r, th)
        never_held = getattr(q, "fixed", False) and name != "greeting"
        if name == "greeting" or (held(q) == HELD and not (HELD and never_held)):
            return polite(r, q) if name in POLITE else str(q), t, a, name


def turns(r, qs, think_p=.5):
    out = []
    for q, t, a in qs:
        out += [user(q), answer(a, t if r.random() < think_p else "")]
    return out


def size(msgs):
    """About how many tokens."""
    return 1.15 * sum(len(m["content"].encode()) / 3.4 + len(m.get("reasoning_content") or "") / 2.6 + 14 for m in msgs)


def mixed(r, length):
    from tasks.recall import told
    msgs = []
    while True:
        if r.random() < .12:
            msgs += turns(r, told(r), .4)
        else:
            th = r.random() < .5
            q, t, a, _ = single(r, think=th)
            msgs += [user(q), answer(a, t if th else "")]
        if size(msgs) > 1.25 * length or r.random() < (.1 if length <= 256 else .01):
            return msgs, None


def conversation(r, length):
    """(messages, tools) of about length tokens; the encoder cuts what is too much."""
    k, make = r.random(), mixed
    for weights, f in ROWS.values():
        k -= weights.get(length, 0)
        if k < 0:
            make = f
            break
    msgs, tools = make(r, length)
    if r.random() < .25:
        msgs.insert(0, {"role": "system", "content": pick(r, SYSTEMS)})
    return msgs, tools
