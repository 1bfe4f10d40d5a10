"""Days and months."""
from tasks import ask
from world import DAYS, MLEN, MONTHS, below


def calendar(r, think):
    k = r.random()
    if k < .45:
        return days(r)
    i = below(r, 12)
    if k < .6:
        step, w = (1, "after") if r.random() < .5 else (-1, "before")
        x = MONTHS[(i + step) % 12]
        q = ask(r, ["Which month comes {w} {m}?", "What month is {w} {m}?", "Name the month {w} {m}."], w=w, m=MONTHS[i])
        return q, f"{x} is the month {w} {MONTHS[i]}.", f"The month {w} {MONTHS[i]} is {x}."
    if k < .8:
        q = ask(r, ["How many days does {m} have?", "How many days are in {m}?", "How long is {m} in days?"], m=MONTHS[i])
        return q, f"{MONTHS[i]} is month {i + 1}. It has {MLEN[i]} days.", f"{MONTHS[i]} has {MLEN[i]} days."
    q = ask(r, ["Which month is number {n}?", "What is month number {n}?", "Name month {n} of the year."], n=i + 1)
    return (q, "Count the months: " + ", ".join(f"{j + 1} {MONTHS[j]}" for j in range(i + 1)) + ".",
            f"Month {i + 1} is {MONTHS[i]}.")


def days(r):
    i, n = below(r, 7), 1 + below(r, 10)
    m = f"{n} day" + "s" * (n > 1)
    if r.random() < .7:
        step, forms = 1, ["What day is {m} after {d}?", "Which day is {m} after {d}?", "Today is {d}. What day is it in {m}?"]
    else:
        step, forms = -1, ["What day is {m} before {d}?", "Which day is {m} before {d}?", "Today is {d}. What day was it {m} ago?"]
    t = ", ".join(f"{j} {DAYS[(i + step * j) % 7]}" for j in range(1, n + 1)) + "."
    return ask(r, forms, m=m, d=DAYS[i]), f"Start at {DAYS[i]}. Count {m}: {t}", f"It is {DAYS[(i + step * n) % 7]}."


SINGLE = {"calendar": (9, calendar)}
