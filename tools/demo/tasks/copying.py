"""Copying anything: half of the texts from random ids of the vocabulary, all of Unicode, cased words, code, numbers, blanks."""
import strings
from tasks import Question, answer, user
from world import below, pick

FORMS = ["Repeat exactly: {}", "Copy this text: {}", "Say this: {}", "Echo: {}", "Repeat after me: {}", "Copy: {}",
         "Write this text again:\n{}", "Repeat the next line.\n{}", "Repeat this, character by character:\n{}"]
THOUGHT = "I copy the text as it is."


def copying(r, think):
    n = 3 + below(r, 40) if r.random() < .8 else 20 + below(r, 60)
    s = strings.copyable(r, n, source=strings.mixed if r.random() < .8 else strings.easy)
    return Question(pick(r, FORMS).replace("{}", s)), THOUGHT, s


def unseen(r, think):
    s = strings.copyable(r, 6 + below(r, 24), source=lambda r, n: strings.unseen(r, n)[1])
    return [user(pick(r, FORMS).replace("{}", s)), answer(s, THOUGHT if think else "")], None


SINGLE = {"copying": (22, copying)}
HELD = {"copying_unseen": unseen}
