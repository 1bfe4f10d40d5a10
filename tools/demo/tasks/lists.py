"""Sorting and counting."""
from tasks import ask
from world import LIST, below, number, pick


def sorting(r, think):
    n = 3 + below(r, 4)
    if r.random() < .6:
        xs = r.sample(LIST, n)
        ys = sorted(xs)
        q = ask(r, ["Sort these words: {x}.", "Put these words in alphabetical order: {x}.", "Sort alphabetically: {x}.",
                    "Arrange these words from a to z: {x}."], x=", ".join(xs))
        t = ("The first letters are " + ", ".join(f"{w[0]} for {w}" for w in xs) + ".\nIn order: "
             + ", ".join(f"{w[0]} {w}" for w in ys) + ".")
        return q, t, ", ".join(ys)
    xs = [number(r) for _ in range(n)]
    up = r.random() < .7
    ys = ", ".join(map(str, sorted(xs, reverse=not up)))
    q = ask(r, ["Sort these numbers from {d}: {x}.", "Put these numbers in order from {d}: {x}.", "Order from {d}: {x}."],
            d="small to large" if up else "large to small", x=", ".join(map(str, xs)))
    return q, "The lengths are " + ", ".join(f"{len(str(x))} for {x}" for x in xs) + f".\nIn order: {ys}.", ys


def counting(r, think):
    if r.random() < .6:
        n = 1 + below(r, 12)
        xs = [pick(r, LIST) for _ in range(n)]
        q = ask(r, ["How many words are in this list: {x}?", "Count the words: {x}.", "How many words do you see here: {x}?",
                    "Count these words: {x}."], x=pick(r, [", ", " "]).join(xs))
        t = ", ".join(f"{i + 1} {x}" for i, x in enumerate(xs)) + "."
        return q, t, f"There are {n} words." if n > 1 else "There is 1 word."
    w = pick(r, LIST)
    xs = [w] * below(r, 6) + [pick(r, LIST) for _ in range(1 + below(r, 6))]
    r.shuffle(xs)
    n = xs.count(w)
    q = ask(r, ["How many times does the word {w} occur here: {x}?", "How often is {w} in this list: {x}?",
                "Count the word {w} in: {x}."], w=w, x=", ".join(xs))
    i, t = 0, []
    for x in xs:
        i += x == w
        t.append(f"{x} {i}")
    return q, ", ".join(t) + ".", f"The word {w} occurs {n} time" + "s" * (n != 1) + "."


SINGLE = {"sorting": (10, sorting), "counting": (9, counting)}
