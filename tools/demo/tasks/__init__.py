"""One file a task family. A file may define

  SINGLE = {name: (weight, f)}      f(r, think) -> (question, thinking, answer): one question, one answer
  ROWS   = {name: ({length: weight}, f)}   f(r, length) -> (messages, tools): what fills a row of training text
  HELD   = {name: f}                f(r, think) -> (messages, tools): a held-out item, its last message is wanted

and is found here by being in this folder. r is a random.Random; nothing else decides what is written."""
import importlib, pkgutil, zlib

from world import pick


class Question(str):
    """A question; fixed if it may never be held out (its first word is a name that no other form puts there)."""
    fixed = False


def ask(r, forms, **fill):
    form = pick(r, forms)
    q = Question(form.format(**fill))
    q.fixed = form.startswith("{")
    return q


def held(question):
    """One question in twelve is never trained on."""
    return not getattr(question, "fixed", False) and zlib.crc32(question.encode()) % 12 == 0


def answer(content, thinking="", calls=None):
    m = {"role": "assistant", "content": content, "reasoning_content": thinking}
    if calls:
        m["tool_calls"] = [{"function": {"name": n, "arguments": a}} for n, a in calls]
    return m


def user(content):
    return {"role": "user", "content": str(content)}


def modules():
    """Every task file, by name, so that the order never depends on the file system."""
    return [importlib.import_module("tasks." + m.name) for m in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name)]


def gather(what):
    out = {}
    for m in modules():
        out.update(getattr(m, what, {}))
    return out
