"""JSON that fits a schema, from a text; values may be any string."""
import json

import strings
from tasks import Question, answer, user
from world import ANIMALS, CAPITALS, COLOURS, HOBBIES, JOBS, MONTHS, NAMES, OBJECTS, PLACES, below, pick


def person(r):
    n, age, c = pick(r, NAMES), 18 + below(r, 70), pick(r, list(CAPITALS.values()))
    hobby, job, m = r.sample(HOBBIES, 1 + below(r, 3)), pick(r, JOBS), r.random() < .5
    pet, called = pick(r, ANIMALS), pick(r, NAMES)
    return [(["name", "first_name", "person"], "string", n, f"This is {n}."),
            (["age", "years", "age_in_years"], "integer", age, f"{n} is {age} years old."),
            (["city", "town", "home"], "string", c, f"{n} lives in {c}."),
            (["job", "profession", "work"], "string", job, f"{n} works as a {job}."),
            (["married", "is_married"], "boolean", m, f"{n} is {'' if m else 'not '}married."),
            (["hobbies", "interests"], "array", hobby, f"{n} likes {', '.join(hobby)}."),
            (["pet", "animal"], "object", {"kind": pet, "name": called}, f"{n} has a {pet} called {called}.")]


def ware(r):
    o, q, here, price = pick(r, OBJECTS), below(r, 500), r.random() < .5, round(r.random() * 100, 2)
    tags, n, c = r.sample(COLOURS, 1 + below(r, 3)), pick(r, NAMES), pick(r, list(CAPITALS.values()))
    return [(["item", "product", "article"], "string", o, f"We sell a {o}."),
            (["price", "cost", "amount"], "number", price, f"It costs {price} euros."),
            (["quantity", "count", "stock"], "integer", q, f"There are {q} pieces."),
            (["available", "in_stock"], "boolean", here, "It is available." if here else "It is not available."),
            (["colours", "tags"], "array", tags, f"It comes in {', '.join(tags)}."),
            (["seller", "owner"], "object", {"name": n, "city": c}, f"The seller is {n} from {c}.")]


def meeting(r):
    p, d, m, h = pick(r, PLACES), 1 + below(r, 28), pick(r, MONTHS), below(r, 24)
    who, public = r.sample(NAMES, 1 + below(r, 3)), r.random() < .5
    return [(["place", "location", "where"], "string", p, f"The meeting is in the {p}."),
            (["day", "date_day"], "integer", d, f"It is on day {d} of the month."),
            (["month", "in_month"], "string", m, f"The month is {m}."),
            (["hour", "start_hour"], "integer", h, f"It starts at {h} o'clock."),
            (["guests", "people"], "array", who, f"The guests are {', '.join(who)}."),
            (["public", "is_public"], "boolean", public, f"The meeting is {'' if public else 'not '}public.")]


def json_task(r, think):
    f = pick(r, [person, ware, meeting])(r)
    if r.random() < .35:
        s = strings.copyable(r, 2 + below(r, 14), inline=True)
        f.append((["note", "label", "text"], "string", s, f"The {pick(r, ['note', 'label', 'text'])} says: {s}"))
    order = r.sample(range(len(f)), len(f))
    use = order[:1 + below(r, min(5, len(f)))]
    if len(f[-1][0]) == 3 and f[-1][0][0] == "note" and len(f) - 1 not in use:
        use[-1] = len(f) - 1
    props, value = {}, {}
    for i in use:
        keys, kind, v, _ = f[i]
        key = pick(r, keys)
        props[key] = {"type": kind}
        if kind == "array":
            props[key]["items"] = {"type": "string"}
        if kind == "object":
            props[key]["properties"] = {x: {"type": "string"} for x in v}
        value[key] = v
    text = use + [i for i in order if i not in use and r.random() < .5]
    text = pick(r, [" ", "\n"]).join(f[i][3] for i in sorted(text))
    schema = json.dumps({"type": "object", "properties": props, "required": list(props)})
    q = pick(r, ["Read the text and answer with JSON that fits the schema.\nText: {t}\nSchema: {s}",
                 "Schema: {s}\nGive the JSON for this text: {t}", "Answer only with JSON for this schema: {s}\n{t}"])
    q = Question(schema.join(text.join(x.split("{t}")) for x in q.split("{s}")))
    return q, "The keys are " + ", ".join(f"{k} ({props[k]['type']})" for k in props) + ".", json.dumps(value, ensure_ascii=False)



SINGLE = {"json": (9, json_task)}
