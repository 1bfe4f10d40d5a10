"""Strings of every kind, for copying: those trained on, and those that only the held-out set has."""
import json, os, sys, unicodedata

from world import EVERY_WORD, LIST, NAMES, below, number, pick, sentence

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "demo")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
KEYWORDS = "if else for while return int char struct def class import print len range None True False self const".split()
# blocks that no training text is drawn from as a block (single characters of them occur): the held-out set is
KEPT_BACK = [(0x10A0, 0x10FF), (0x531, 0x556), (0x13000, 0x1342E), (0xE01, 0xE30), (0x1F680, 0x1F6C5), (0xC95, 0xCB9)]
BLOCKS = [(0xC0, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA), (0x627, 0x64A), (0x905, 0x939), (0x3041, 0x3096),
          (0x30A1, 0x30FA), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0x2190, 0x21FF), (0x2600, 0x26FF), (0x1F300, 0x1F5FF),
          (0x1F600, 0x1F64F), (0x1D400, 0x1D4FF), (0xA1, 0xBF), (0x2200, 0x22FF), (0x20000, 0x2A6DF), (0x1200, 0x1248)]


def assigned():
    return [c for c in range(0xA1, sys.maxunicode + 1)
            if unicodedata.category(chr(c)) not in ("Cn", "Cc", "Cf", "Co", "Cs", "Zs", "Zl", "Zp")
            and unicodedata.is_normalized("NFC", chr(c))]


def pieces():
    """Every entry of the tokenizer that is whole text by itself; nothing before there is a tokenizer."""
    path = os.path.join(MODEL, "tokenizer.json")
    if not os.path.exists(path):
        return LIST
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(path)
    added = {a["id"] for a in json.load(open(path, encoding="utf-8"))["added_tokens"]}
    texts = [t.decode([i], skip_special_tokens=False) for i in range(t.get_vocab_size()) if i not in added]
    return [x for x in texts if x and "\ufffd" not in x]


ASSIGNED, PIECES = assigned(), pieces()


def cased(r, w):
    k = r.random()
    return w.upper() if k < .3 else w.capitalize() if k < .6 else "".join(pick(r, (c, c.upper())) for c in w)


def block(r, blocks, n):
    lo, hi = pick(r, blocks)
    out = []
    for _ in range(n):
        if r.random() < .08:
            lo, hi = pick(r, blocks)
        out.append(" " if r.random() < .1 else chr(lo + below(r, hi - lo + 1)))
    return "".join(c for c in out if unicodedata.category(c) not in ("Cn", "Cc", "Cf", "Co"))


def code_line(r):
    name = lambda: pick(r, LIST) + pick(r, ["", "_" + pick(r, LIST), str(below(r, 10)), "." + pick(r, LIST)])
    return pick(r, [lambda: f"{name()} = {name()}[{number(r)}] {pick(r, '+-*/%&|^')} {number(r)};",
                    lambda: f"{pick(r, KEYWORDS)} ({name()} {pick(r, ['==', '!=', '<=', '>=', '&&', '||'])} {number(r)}) {{",
                    lambda: f"{pick(r, KEYWORDS)} {name()}({name()}, {name()}):",
                    lambda: f"{name()}({pick(r, LIST)!r}, {number(r)}) # {pick(r, LIST)}",
                    lambda: f'"{name()}": [{number(r)}, {number(r)}],',
                    lambda: f"{{ {name()} -> {name()}({number(r)}) }}"])()


def repeats(r):
    few = [pick(r, LETTERS + "0123456789-=*.") for _ in range(1 + below(r, 3))]
    return "".join(pick(r, few) * (1 + below(r, 4)) for _ in range(2 + below(r, 6)))


def mixed(r, n):
    """One training distribution, by chance; about n tokens."""
    k, some = r.random(), lambda f: "".join(f() for _ in range(n))
    if k < .26:
        return some(lambda: pick(r, PIECES))
    if k < .36:
        return some(lambda: chr(pick(r, ASSIGNED)) if r.random() < .85 else " ")[:max(2, n // 3)]
    if k < .48:
        return block(r, BLOCKS, max(3, n // 2))
    if k < .60:
        return pick(r, [" ", " ", ", ", "-", ""]).join(cased(r, pick(r, EVERY_WORD)) for _ in range(max(1, n // 2)))
    if k < .70:
        return some(lambda: chr(33 + below(r, 94)))
    if k < .78:
        return some(lambda: pick(r, LETTERS + LETTERS.upper() + "0123456789 -_"))
    if k < .85:
        return pick(r, [" ", "\n", "\n    "]).join(code_line(r) for _ in range(max(1, n // 16)))
    if k < .90:
        return pick(r, [", ", " ", "", ".", "/"]).join(str(below(r, 10 ** (1 + below(r, 9)))) for _ in range(max(1, n // 4)))
    if k < .95:
        return "".join(pick(r, LIST) + " " * (1 + below(r, 5)) for _ in range(max(2, n // 3)))
    return repeats(r)


def easy(r, n):
    """Words and sentences of the world."""
    if r.random() < .5:
        return " ".join(pick(r, EVERY_WORD) for _ in range(max(1, n // 2)))
    return " ".join(sentence(r) for _ in range(max(1, n // 10)))


def unseen(r, n):
    """(name, text) of a distribution that no training text has."""
    hexa = lambda m: "".join(pick(r, "0123456789abcdef") for _ in range(m))
    kinds = {
        "base64": lambda: "".join(pick(r, LETTERS + LETTERS.upper() + "0123456789+/") for _ in range(n // 4 * 4)) + "==",
        "hex dump": lambda: " ".join(hexa(2) for _ in range(n // 2)),
        "identifier": lambda: hexa(8) + "-" + hexa(4) + "-" + hexa(4) + "-" + hexa(12),
        "camel case": lambda: "".join(pick(r, LIST).capitalize() for _ in range(max(2, n // 2))),
        "reversed": lambda: easy(r, n)[::-1],
        "kept-back blocks": lambda: block(r, KEPT_BACK, max(3, n // 3)),
        "alternating": lambda: "".join(pick(r, LIST) + block(r, KEPT_BACK, 2) for _ in range(max(2, n // 8))),
        "address": lambda: f"https://{pick(r, LIST)}.{pick(r, LIST)}.org/{hexa(3)}?{pick(r, LIST)}={number(r)}&{pick(r, NAMES)}=%{hexa(2)}",
        "settings": lambda: "; ".join(f"{pick(r, LIST)}:={pick(r, NAMES)}@{number(r)}" for _ in range(max(1, n // 8)))}
    name = pick(r, sorted(kinds))
    return name, kinds[name]()


def clean(s):
    """What a template leaves as it is: NFC, no mark-up, no blank at either end."""
    return unicodedata.normalize("NFC", s).strip()


def copyable(r, n, inline=False, source=mixed):
    while True:
        s = clean(source(r, n))
        if s and "<" not in s and "\r" not in s and not (inline and "\n" in s) and len(s) < 12 * n + 40:
            return s
