"""Text whose true probability is known: stories and logs of a stochastic grammar.

Every choice is drawn through Chance, which adds up the logarithms of its probabilities; no text has two derivations,
so that the sum is the logarithm of the text's true probability given all that stands before. What is true of a person or a
machine is drawn when it is first told and mostly kept to afterwards: to foresee a text one must remember all of it."""
import math

from tasks import answer, user
from world import ADJ, ADVERBS, ANIMALS, COLOURS, NAMES, OBJECTS, PLACES, PREPS, VERBS, pick, words

KEPT = .92                                  # a told fact is told the same way again
ENDS = 1 / 120                              # after each sentence
CAST, FEWEST, NEW = 10, 2, .15
HELD_BYTES = {"story": 4500, "log": 3200}    # about 900 tokens each
TAKING = words("took lost found cleaned painted carried")
MEETING = words("met saw called visited followed")
FEEDING = words("fed chased trained washed")
MEASURES = words("level speed heat power weight")
STATES = words("ok slow hot stopped loud open")
STORY, LOG = ["Tell me a story.", "Write a long story.", "A story, please."], ["Show me the log.", "Print the log of the machines.", "The log, please."]


class Chance:
    def __init__(self, r):
        self.r, self.log_p = r, 0.0

    def of(self, xs):
        self.log_p -= math.log(len(xs))
        return pick(self.r, xs)

    def yes(self, p):
        hit = self.r.random() < p
        self.log_p += math.log(p if hit else 1 - p)
        return hit

    def weighted(self, pairs):
        total, k = sum(w for _, w in pairs), self.r.random()
        for x, w in pairs:
            k -= w / total
            if k < 0:
                break
        self.log_p += math.log(w / total)
        return x

    def fact(self, known, key, xs):
        """Drawn evenly when first told, then kept with probability KEPT, else any other."""
        if key not in known:
            known[key] = self.of(xs)
            return known[key]
        return known[key] if self.yes(KEPT) else self.of([x for x in xs if x != known[key]])

    def member(self, known, most, xs, fewest=FEWEST):
        """One of those met before, or a new one."""
        if len(known) < fewest or (len(known) < most and self.yes(NEW)):
            known.append(self.of([x for x in xs if x not in known]))
            return known[-1]
        return self.of(known)


def story_sentence(c, cast, facts):
    n = c.member(cast, CAST, NAMES)
    kind = c.weighted([("place", 3), ("thing", 3), ("friend", 2), ("animal", 2), ("mood", 1)])
    f = lambda what, xs: c.fact(facts, (n, what), xs)
    if kind == "place":
        return f"{n} {c.of(VERBS)} {c.of(PREPS)} the {f('place', PLACES)}."
    if kind == "thing":
        return f"{n} {c.of(TAKING)} the {f('colour', COLOURS)} {f('thing', OBJECTS)}."
    if kind == "friend":
        return f"{n} {c.of(MEETING)} {f('friend', [x for x in NAMES if x != n])} {c.of(ADVERBS)}."
    if kind == "animal":
        return f"{n} {c.of(FEEDING)} the {f('look', ADJ)} {f('animal', ANIMALS)}."
    return f"{n} was {c.of(ADJ)}."


def log_line(c, machines, facts):
    m = c.member(machines, CAST, OBJECTS)
    what = facts[m, "what"] if (m, "what") in facts else facts.setdefault((m, "what"), c.of(MEASURES))
    if (m, "value") in facts:
        v = c.of([x for x in range(facts[m, "value"] - 9, facts[m, "value"] + 10) if 10 <= x <= 99])
    else:
        v = c.of(range(10, 100))
    old = facts.get((m, "state"))
    state = old if old and c.yes(.6) else c.of([s for s in STATES if s != old])
    facts[m, "value"], facts[m, "state"] = v, state
    return f"{m} {what} {v} {state} {c.of(NAMES)}"


def text(r, kind, most_bytes):
    """(text, log probability, ended): sentences until the grammar ends the text or it is long enough."""
    c, known, facts, out, size = Chance(r), [], {}, [], 0
    while True:
        out.append(story_sentence(c, known, facts) if kind == "story" else log_line(c, known, facts))
        size += len(out[-1]) + 1
        if size > most_bytes:
            return (" " if kind == "story" else "\n").join(out), c.log_p, False
        if c.yes(ENDS):
            return (" " if kind == "story" else "\n").join(out), c.log_p, True


def row(r, length):
    """A whole row; the text may be cut off by its end."""
    kind = "story" if r.random() < .65 else "log"
    msgs = []
    while sum(len(m["content"]) for m in msgs) < 4.4 * length:
        msgs += [user(pick(r, STORY if kind == "story" else LOG)), answer(text(r, kind, 6 * length)[0])]
    return msgs, None


def held_text(kind, r):
    """A question, a text that the grammar has not ended, and its log probability."""
    while True:
        t, log_p, ended = text(r, kind, HELD_BYTES[kind])
        if not ended:
            return [user(pick(r, STORY if kind == "story" else LOG)), answer(t)], log_p


TEXTS = {"story": held_text, "log": held_text}
