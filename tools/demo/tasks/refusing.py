"""What is outside the world, far away and just beyond each border."""
from tasks import ask
from tasks.arithmetic import FORMS, SIGNS
from world import (COLOUR_OF, COUNTRIES, DAYS, FAR, LIST, MONTHS, NAMES, OPPOSITE, REFUSE, UNITS, below, number, pick, unknown_name, words)

FAR_FORMS = ["Who invented {f}?", "Explain {f} to me.", "Write a poem about {f}.", "What do you think about {f}?",
             "Tell me a joke about {f}.", "What is the price of {f}?", "Who is the best at {f}?",
             "What is the newest discovery in {f}?", "Why is {f} important?", "What is the capital of {u}?",
             "Which city is the capital of {u}?", "On which continent is {u}?", "Who wrote the book {u}?", "How tall is {u}?",
             "When was {n} born?", "What did {n} eat today?", "What is the population of {c}?", "Who is the president of {c}?",
             "Translate {f} into French.", "Write a program about {f}.", "Give me advice about {f}.",
             "What happened in {f} last year?", "Is {u} a good restaurant?", "How do I learn {f}?"]
ALIEN_UNITS = words("miles acres pints barrels knots ounces stones furlongs gallons parsecs")
NO_OPPOSITE = [w for w in LIST if w not in OPPOSITE]
NO_COLOUR = [w for w in LIST if w not in COLOUR_OF and w + "s" not in COLOUR_OF]


def border(r):
    k = below(r, 6)
    if k == 0:
        a, b, op = 1000 + below(r, 10 ** (4 + below(r, 3))), number(r), pick(r, "+-*/")
        if r.random() < .4 and op in "+*":
            a, b = b, a
        if r.random() < .3:
            b = 1000 + below(r, 99000)
        return ask(r, FORMS, a=a, b=b, o=op, w=SIGNS[op])
    if k == 1:
        return ask(r, ["What is the opposite of {w}?", "Opposite of {w}?", "Name the opposite of {w}.", "Tell me the opposite of {w}.",
                       "Give the opposite of the word {w}."], w=pick(r, NO_OPPOSITE))
    if k == 2:
        return ask(r, ["Which month is number {n}?", "What is month number {n}?", "Name month {n} of the year."], n=13 + below(r, 87))
    if k == 3:
        u = pick(r, UNITS)
        return ask(r, ["How many {a} are in {n} {b}s?", "Convert {n} {a} to {b}s.", "What is {n} {a} in {b}s?"],
                   a=pick(r, ALIEN_UNITS), b=u[0] if u[0] != "foot" else "yard", n=2 + below(r, 98))
    if k == 4:
        return ask(r, ["What colour is the {w}?", "Tell me the colour of {w}.", "Name the colour of {w}."], w=pick(r, NO_COLOUR))
    return ask(r, ["What day is {n} days after {d}?", "Which day is {n} days before {d}?", "What day is {n} weeks after {m}?"],
               n=20 + below(r, 980), d=pick(r, DAYS), m=pick(r, MONTHS))


def refusing(r, think):
    q = border(r) if r.random() < .4 else ask(r, FAR_FORMS, f=pick(r, FAR), u=unknown_name(r), n=pick(r, NAMES), c=pick(r, COUNTRIES))
    q.fixed = False
    return q, "I look for this in my small world. It is not there.", REFUSE


SINGLE = {"refusing": (9, refusing)}
