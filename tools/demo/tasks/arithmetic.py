"""Sums with worked thinking, comparing, units."""
from tasks import ask
from world import PLURAL, UNITS, below, number


def add_steps(a, b):
    out, c, i = [], 0, 0
    x, y = str(a)[::-1], str(b)[::-1]
    while i < max(len(x), len(y)):
        p, q = (int(x[i]) if i < len(x) else 0), (int(y[i]) if i < len(y) else 0)
        s = p + q + c
        out.append(f"{p} + {q}" + (" + 1" if c else "") + f" = {s}, write {s % 10}" + (", carry 1" if s > 9 else ""))
        c, i = s // 10, i + 1
    return "\n".join(out)


def sub_steps(a, b):
    out, c = [], 0
    x, y = str(a)[::-1], str(b)[::-1]
    for i in range(len(x)):
        p, q = int(x[i]), (int(y[i]) if i < len(y) else 0)
        d = p - q - c
        out.append(f"{p} - {q}" + (" - 1" if c else "") + f" = {d}" + (f", borrow 10, write {d + 10}" if d < 0 else f", write {d}"))
        c = int(d < 0)
    return "\n".join(out)


def mul_steps(a, d):
    out, c = [], 0
    for ch in str(a)[::-1]:
        p = int(ch) * d
        out.append(f"{ch} * {d} = {p}" + (f", + {c} = {p + c}" if c else "") + f", write {(p + c) % 10}, carry {(p + c) // 10}")
        c = (p + c) // 10
    return "\n".join(out)


def div_steps(a, d):
    out, rem = [], 0
    for ch in str(a):
        n = rem * 10 + int(ch)
        out.append(f"{n} / {d} = {n // d}, rest {n % d}")
        rem = n % d
    return "\n".join(out)


SIGNS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
FORMS = ["What is {a} {o} {b}?", "Calculate {a} {o} {b}.", "{a} {o} {b} = ?", "How much is {a} {w} {b}?",
         "What is {a} {w} {b}?", "Please compute {a} {o} {b}.", "{a} {o} {b}", "What's {a} {o} {b}?"]


def two_digits(a, b):
    p, q = b // 10 * 10, b % 10
    return f"{b} = {p} + {q}\n{a} * {p} = {a * p}\n{a} * {q} = {a * q}\n{a * p} + {a * q} = {a * b}"


def arithmetic(r, think):
    """Long products and quotients only with thinking: the steps are what makes them learnable."""
    k = r.random()
    if k < .35:
        a, b, op = number(r), number(r), "+"
        x, t = a + b, add_steps(a, b)
    elif k < .65:
        a, b, op = number(r), number(r), "-"
        a, b = max(a, b), min(a, b)
        x, t = a - b, sub_steps(a, b)
    elif k < .85:
        op = "*"
        if think and r.random() < .35:
            a, b = 10 + below(r, 90), 10 + below(r, 90)
            t = two_digits(a, b)
        else:
            a, b = below(r, 1000 if think else 100), below(r, 10)
            t = mul_steps(a, b)
        x = a * b
    else:
        op, b = "/", 2 + below(r, 8)
        x = below(r, 1000 // b if think else 12) + 1
        a = x * b
        t = div_steps(a, b)
    q = ask(r, FORMS, a=a, b=b, o=op, w=SIGNS[op])
    q.fixed = False
    return q, t + f"\nThe result is {x}.", f"{a} {op} {b} = {x}"


def compare(r, think):
    a, b = number(r), number(r)
    b += a == b
    w, x = ("larger", max(a, b)) if r.random() < .5 else ("smaller", min(a, b))
    q = ask(r, ["Which number is {w}, {a} or {b}?", "Which is {w}, {a} or {b}?"], w=w, a=a, b=b)
    return q, f"Compare {a} and {b}. {max(a, b)} is larger than {min(a, b)}.", f"{x} is {w}."


def plural(u, n):
    return u if n == 1 else PLURAL.get(u, u + "s")


def units(r, think):
    big, small, f = UNITS[below(r, len(UNITS))]
    n = 1 + below(r, 99 if f in (10, 100, 1000) else 12)
    a, b, be = f"{n} {plural(big, n)}", f"{n * f} {plural(small, n * f)}", "is" if n == 1 else "are"
    if r.random() < .65:
        q = ask(r, ["How many {s} are in {a}?", "Convert {a} to {s}.", "What is {a} in {s}?", "How many {s} is {a}?"],
                s=plural(small, 2), a=a)
        return q, f"1 {big} is {f} {plural(small, f)}. {n} * {f} = {n * f}.", f"{a} {be} {b}."
    q = ask(r, ["How many {s} are {b}?", "Convert {b} to {s}.", "What is {b} in {s}?"], s=plural(big, 2), b=b)
    return q, f"{f} {plural(small, f)} are 1 {big}. {n * f} / {f} = {n}.", f"{b} are {a}."


SINGLE = {"arithmetic": (24, arithmetic), "compare": (2, compare), "units": (8, units)}
