"""Answers of up to a thousand tokens that are certain: counting on, copying long texts, many words."""
import strings
from tasks import answer, user
from world import below, pick


def count_on(r, n):
    a = below(r, 900)
    b, down = a + n, r.random() < .2
    if down:
        a, b = b, a
    q = pick(r, ["Count from {a} to {b}.", "Write the numbers from {a} to {b}.", "List all numbers from {a} to {b}."]).format(a=a, b=b)
    return q, "I go on by one each time.", ", ".join(map(str, range(a, b + (-1 if down else 1), -1 if down else 1)))


def copy_long(r, n):
    parts, size = [], 0
    while size < n:
        parts.append(strings.copyable(r, 10 + below(r, 40), source=strings.mixed if r.random() < .6 else strings.easy))
        size += len(parts[-1].encode()) / 2.5
    s = "\n".join(parts)
    return pick(r, ["Repeat exactly: {}", "Copy this text: {}", "Write this text again:\n{}"]).replace("{}", s), "I copy the text as it is.", s


def row(r, length):
    from conversation import size, turns
    msgs = []
    while size(msgs) < length * .8:
        n = 60 + below(r, min(1000, length - 100) - 60)
        msgs += turns(r, [count_on(r, n // 5) if r.random() < .4 else copy_long(r, n // 2 if n > length - 300 else n)], .2)
    return msgs, None


def held_long(r, think):
    q, t, a = count_on(r, 60 + below(r, 140)) if r.random() < .5 else copy_long(r, 100 + below(r, 300))
    return [user(q), answer(a, t if think else "")], None


ROWS = {"long_answers": ({1024: .1, 2048: .15, 8192: .05}, row)}
HELD = {"long_answer": held_long}
