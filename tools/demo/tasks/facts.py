"""Capitals and continents."""
from tasks import ask
from world import CAPITALS, CONTINENT, COUNTRIES, pick

CAPITAL_OF = ["What is the capital of {x}?", "Name the capital of {x}.", "Which city is the capital of {x}?",
              "Tell me the capital city of {x}.", "What is the capital city of {x}?", "Capital of {x}?",
              "Please tell me the capital of {x}.", "Do you know the capital of {x}?", "What's the capital of {x}?",
              "Which is the capital of {x}?", "{x}: which city is its capital?", "I am looking for the capital of {x}."]
COUNTRY_OF = ["Which country has the capital {x}?", "{x} is the capital of which country?",
              "Of which country is {x} the capital?", "Name the country whose capital is {x}.",
              "{x} is a capital. Which country is it?", "Which country does the capital {x} belong to?"]
CONTINENT_OF = ["On which continent is {x}?", "Where in the world is {x}?", "Which continent does {x} belong to?",
                "In which part of the world is {x}?", "Name the continent of {x}.", "{x} is on which continent?"]


def facts(r, think):
    c = pick(r, COUNTRIES)
    x, k = CAPITALS[c], r.random()
    if k < .5:
        return ask(r, CAPITAL_OF, x=c), f"The question is about {c}. Its capital is {x}.", f"The capital of {c} is {x}."
    if k < .8 or c not in CONTINENT:
        return ask(r, COUNTRY_OF, x=x), f"The question is about the city {x}. It lies in {c}.", f"{x} is the capital of {c}."
    return (ask(r, CONTINENT_OF, x=c), f"The question is about {c}. It is a country in {CONTINENT[c]}.",
            f"{c} is in {CONTINENT[c]}.")


SINGLE = {"facts": (11, facts)}
