"""Tool calls: one, two, none, and the turn after the result; lists of 1 to 40 tools."""
import json

import toolkit
from tasks import answer, user
from world import NO_TOOL, below, pick

NEEDS_NO_TOOL = ("facts", "opposites", "calendar", "colours", "sorting", "counting", "greeting", "refusing")


def tool_block(r, box, mode, think):
    """One request with its calls, results and answer."""
    from conversation import single
    th = lambda t: t if think else ""
    if mode == "none":
        if r.random() < .5:
            other = [k for k in toolkit.MAKERS if k not in box]
            other = toolkit.MAKERS[pick(r, other)] if other and r.random() < .7 else toolkit.anything
            name, _, f = toolkit.tool(r, other)
            if name not in box:
                return [user(f(r)[0]), answer(NO_TOOL, th("No tool fits this request."))]
        q, t, a, _ = single(r, pick(r, NEEDS_NO_TOOL))
        return [user(q), answer(a, th("I need no tool. " + t))]
    made = [(name, *f(r)) for name, _, f in (box[pick(r, list(box))] for _ in range(2 if mode == "two" else 1))]
    if len(made) > 1 and made[0][1][-1] not in ".?":
        made[0] = (made[0][0], made[0][1] + "\n", *made[0][2:])
    why = "The user wants " + ("one thing" if len(made) == 1 else "two things") + ". The tool is " + " and ".join(m[0] for m in made) + "."
    out = [user("".join(m[1] if m[1].endswith("\n") else m[1] + " " for m in made).strip()), answer("", th(why), [(m[0], m[2]) for m in made])]
    if mode != "open":
        out += [{"role": "tool", "content": json.dumps(m[3])} for m in made]
        out.append(answer(" ".join(m[4] for m in made), th("The tool has answered. I say the result.")))
    return out


def row(r, length):
    """A tool list, then requests until the row is full."""
    from conversation import size
    most = {1024: 7, 2048: 16}.get(length, 40)
    n = 1 + below(r, 4) if r.random() < (.75 if length <= 1024 else .1) else 1 + below(r, most)
    box = toolkit.toolbox(r, n)
    msgs, room = [], length - 150 - 75 * n
    while size(msgs) < room or len(msgs) < 2:
        msgs += tool_block(r, box, pick(r, ["one", "one", "one", "two", "two", "none"]), r.random() < .5)
    if r.random() < .3:
        msgs += tool_block(r, box, pick(r, ["open", "none"]), r.random() < .5)
    return msgs, [t[1] for t in box.values()]


def held_tools(mode, low, high):
    def make(r, think):
        box = toolkit.toolbox(r, low + below(r, high - low + 1))
        m = tool_block(r, box, pick(r, ["one", "two"]) if mode == "result" else mode, think)
        return m[:2] if mode in ("one", "two") else m, [t[1] for t in box.values()]
    return make


ROWS = {"tools": ({1024: .45, 2048: .15, 8192: .2}, row)}
HELD = {**{f"tool_{m}": held_tools(m, 1, 4) for m in ("one", "two", "none", "result")}, "tool_of_many": held_tools("one", 8, 40)}
