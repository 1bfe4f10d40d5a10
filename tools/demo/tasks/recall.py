"""Facts told and asked for later, near and far: needles in up to 8,192 tokens of filler."""
import strings
from tasks import answer, user
from world import ANIMALS, COLOURS, JOBS, NAMES, OBJECTS, PLACES, below, pick, sentence, unknown_name

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


def code(r, n):
    return "".join(pick(r, "0123456789") for _ in range(n))


def kinds():
    """(key, statements, questions): the fields are p place, n name, o object, c colour, m other name, j job, a animal,
    d digits, t phone, w word, s any string"""
    return [
        ("p", ["The access code of the {p} is {d}.", "To enter the {p}, type {d}.", "Code for the {p}: {d}."],
         ["What is the access code of the {p}?", "Tell me the access code of the {p}.", "Which code opens the {p}?",
          "What's the code for the {p}?"]),
        ("n", ["The phone number of {n} is {t}.", "You can call {n} under {t}.", "{n} has the phone number {t}."],
         ["What is the phone number of {n}?", "Tell me the phone number of {n}.", "How can I call {n}?",
          "Under which number do I reach {n}?"]),
        ("co", ["The {c} {o} belongs to {n}.", "{n} owns the {c} {o}."],
         ["Who owns the {c} {o}?", "To whom does the {c} {o} belong?", "Whose is the {c} {o}?"]),
        ("no", ["{n} keeps the {o} in the {p}.", "The {o} of {n} is in the {p}.", "In the {p} lies the {o} of {n}."],
         ["Where does {n} keep the {o}?", "Where is the {o} of {n}?", "In which place is the {o} of {n}?"]),
        ("nw", ["The secret word of {n} is {w}.", "{n} uses the secret word {w}."],
         ["What is the secret word of {n}?", "Tell me the secret word of {n}.", "Which secret word does {n} use?"]),
        ("pj", ["The {j} of the {p} is {n}.", "{n} works in the {p} as a {j}."],
         ["Who is the {j} of the {p}?", "Who works in the {p} as a {j}?"]),
        ("na", ["{n} has a {a} called {m}.", "The {a} of {n} is called {m}."],
         ["What is the {a} of {n} called?", "How is the {a} of {n} called?"]),
        ("ns", ["The password of {n} is: {s}", "{n} wrote on the wall: {s}", "Password for {n}: {s}"],
         ["What is the password of {n}?", "What did {n} write on the wall?", "Tell me the password of {n}."])]


KINDS = kinds()


def needle(r, used, strange=.2):
    """(statement, question, thinking, answer); used keeps two needles from meaning the same."""
    while True:
        k = 7 if r.random() < strange else below(r, 7)
        key, says, asks = KINDS[k]
        f = dict(p=pick(r, PLACES), n=pick(r, NAMES), o=pick(r, OBJECTS), c=pick(r, COLOURS), m=pick(r, NAMES), j=pick(r, JOBS),
                 a=pick(r, ANIMALS), d=code(r, 3 + below(r, 4)), t=code(r, 7), w=(unknown_name(r) + unknown_name(r)).lower())
        mark = (k, *(f[x] for x in key if x in f and x not in "ws"))
        if mark not in used:
            used.add(mark)
            break
    if k == 7:
        f["s"] = strings.copyable(r, 2 + below(r, 14), inline=True)
        i = below(r, 3)
        say, q = says[i], asks[1] if i == 1 else pick(r, [asks[0], asks[2]])
    else:
        say, q = pick(r, says), pick(r, asks)
    s = say.format(**f)
    return s, q.format(**f), f"I look for it in the text above. It says: {s}", s


def told(r):
    """Facts told, other things in between, then the questions: [(question, thinking, answer)]."""
    from conversation import single
    used, out, asks = set(), [], []
    for _ in range(1 + below(r, 3)):
        s, q, t, a = needle(r, used)
        if r.random() < .15:
            out.append((pick(r, ["Remember this: ", "Please note: ", ""]) + s + pick(r, [" ", "\n"]) + q, t, a))
            continue
        out.append((pick(r, ["Remember this: ", "Please note: ", "Keep in mind: ", ""]) + s, "The user tells me a fact. I keep it.", "Noted."))
        asks.append((q, t, a))
    for _ in range(below(r, 3)):
        out.append(single(r, think=False)[:3])
    r.shuffle(asks)
    return out + asks


def filler(r, budget, n):
    """About budget tokens with n needles; the text and the needles in order of their place."""
    used, parts = set(), []
    ns = [needle(r, used, .12) for _ in range(n)]
    size = sum(len(x[0].encode()) / 3.2 for x in ns)
    while size < budget:
        s = sentence(r)
        size += s.count(" ") + 2
        parts.append(s)
    at = sorted(below(r, len(parts) + 1) for _ in ns)
    for i, p in reversed(list(enumerate(at))):
        parts.insert(p, ns[i][0])
    k, out = 0, []
    while k < len(parts):
        m = 4 + below(r, 8)
        out.append(" ".join(parts[k:k + m]))
        k += m
    return "\n".join(out), ns


def long_row(r, length):
    from conversation import turns
    msgs, room = [], length - 40
    while room > 200:
        part = int(room if r.random() < .6 else room * (.25 + .6 * r.random()))
        n = max(2, min(12, part // 90))
        text, ns = filler(r, part - 36 * n - 60, n)
        asks = [x[1:] for x in r.sample(ns, n)]
        block = turns(r, asks[:1], .3) + turns(r, asks[1:], .3 if r.random() < .3 else 0)
        block[0] = user(text + "\n\n" + block[0]["content"]) if r.random() < .8 else user(block[0]["content"] + "\n\n" + text)
        msgs += block
        room -= part + 60
    return msgs, None


def held_told(r, think):
    from conversation import turns
    qs = told(r)
    m = turns(r, qs[:-1], 0) + turns(r, qs[-1:], 1 if think else 0)
    for x in m[:-1]:
        x.pop("reasoning_content", None)
    return m, None


def held_far(length):
    """A needle in the first tenth, asked at the end."""
    def make(r, think):
        while True:
            text, ns = filler(r, int(length * .98) - 40 if length > 64 else 14, max(1, min(8, length // 64)))
            s, q, t, a = next((x for x in ns if text.find(x[0]) < .1 * len(text)), ns[0])
            if text.find(s) <= .1 * len(text):
                return [user(text + "\n\n" + q), answer(a, t if think else "")], None
    return make


ROWS = {"needles": ({1024: .15, 2048: .7, 8192: .75}, long_row)}
HELD = {"told": held_told, **{f"recall_{n}": held_far(n) for n in LENGTHS}}
