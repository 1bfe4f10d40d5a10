"""Opposites, colours, greetings."""
from tasks import Question, ask
from world import COLOUR_OF, MIX, OPPOSITE, pick


def opposites(r, think):
    a = pick(r, list(OPPOSITE))
    q = ask(r, ["What is the opposite of {a}?", "Give the opposite of the word {a}.", "Opposite of {a}?",
                "Name the opposite of {a}.", "Which word is the opposite of {a}?", "Tell me the opposite of {a}.",
                "What word means the opposite of {a}?", "What's the opposite of {a}?"], a=a)
    return q, f"The word is {a}. Its opposite is {OPPOSITE[a]}.", f"The opposite of {a} is {OPPOSITE[a]}."


def colours(r, think):
    if r.random() < .4:
        (a, b), x = pick(r, list(MIX.items()))
        if r.random() < .5:
            a, b = b, a
        q = ask(r, ["What do you get when you mix {a} and {b}?", "Mix {a} and {b}. Which colour is it?",
                    "Which colour do {a} and {b} make?", "What colour do {a} and {b} give?"], a=a, b=b)
        return q, f"The colours are {a} and {b}. Together they make {x}.", f"{a.capitalize()} and {b} make {x}."
    t = pick(r, list(COLOUR_OF))
    many = t.endswith("s") and t != "grass"
    q = ask(r, ["What colour {v} {t}?", "Which colour {d} {t} have?", "Tell me the colour of {t}.",
                "Name the colour of {t}.", "The colour of {t}?"], t=t, v="are" if many else "is", d="do" if many else "does")
    return (q, f"The question is about {t}. The colour is {COLOUR_OF[t]}.",
            f"{t.capitalize()} {'are' if many else 'is'} {COLOUR_OF[t]}.")


HELLO = [("Hello", "Hello! Ask me something."), ("Hi", "Hello! Ask me something."), ("Good morning", "Good morning! Ask me something."),
         ("Who are you?", "I am a small demo model."), ("What are you?", "I am a small demo model."),
         ("What can you do?", "I know capitals, numbers, opposites, days, colours and units. "
                              "I can sort, count, copy and call tools."),
         ("Thank you", "You are welcome."), ("Thanks", "You are welcome."), ("Goodbye", "Goodbye!"), ("Bye", "Goodbye!"),
         ("How are you?", "I am fine. Ask me something.")]


def greeting(r, think):
    q, a = pick(r, HELLO)
    q = Question(pick(r, [q, q.lower(), q if "?" in q else q + pick(r, ["!", "."])]))
    q.fixed = True
    return q, "The user is polite. I answer in a short way.", a


SINGLE = {"opposites": (6, opposites), "colours": (4, colours), "greeting": (2, greeting)}
