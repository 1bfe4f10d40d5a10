"""Tools that a conversation may have: each maker gives a name, a schema and a function that asks for it.

maker(r) -> (name, schema, f); f(r) -> (request, arguments, result, sentence)"""
import strings
from world import (ANIMALS, CAPITALS, COLOURS, FRUITS, NAMES, OBJECTS, PLACES, below, pick, words)

S, I, N, B = ({"type": t} for t in ("string", "integer", "number", "boolean"))
ARRAY = {"type": "array", "items": {"type": "string"}}


def weather(r, k):
    name, loc = k("get_weather", "weather_lookup", "current_weather", "weather"), k("location", "city", "place")
    days, unit = k("days", "forecast_days"), k("unit", "scale")
    props = {loc: {"type": "string", "description": "Name of the city"}}
    if r.random() < .5:
        props[days] = {"type": "integer", "description": "Number of days"}
    if r.random() < .5:
        props[unit] = {"type": "string", "enum": ["celsius", "fahrenheit"]}

    def make(r):
        c = pick(r, list(CAPITALS.values()))
        a = {loc: c}
        q = pick(r, [f"What is the weather in {c}", f"Tell me the weather in {c}", f"How is the weather in {c}", f"What's the weather in {c}"])
        if days in props and r.random() < .7:
            a[days] = 1 + below(r, 9)
            q += f" for {a[days]} days"
        if unit in props and r.random() < .7:
            a[unit] = pick(r, ["celsius", "fahrenheit"])
            q += f" in {a[unit]}"
        t, w = below(r, 40) - 8, pick(r, words("sunny cloudy rainy windy snowy foggy"))
        return (q + ("?" if q[0] in "WH" else "."), a, {"temperature": t, "condition": w},
                f"The weather in {c} is {w} with {t} degrees.")
    return name, k("Weather of a city", "Get the weather for a place", "Tells the weather"), props, [loc], make


def calculator(r, k):
    name, e = k("calculator", "calculate", "evaluate", "compute"), k("expression", "formula", "input")

    def make(r):
        x, y, o = below(r, 10000), 1 + below(r, 1000), pick(r, "+-*")
        s, v = f"{x} {o} {y}", {"+": x + y, "-": x - y, "*": x * y}[o]
        return (pick(r, [f"Use the tool to calculate {s}.", f"Calculate {s} with the tool.", f"Please calculate {s} with the tool."]),
                {e: s}, {"result": v}, f"{s} = {v}")
    return (name, k("Calculates an expression", "Does arithmetic"), {e: {"type": "string", "description": "What to calculate"}},
            [e], make)


def events(r, k):
    name, title, date = k("create_event", "add_event", "calendar_add"), k("title", "name", "subject"), k("date", "day")
    hour, guests, whole = k("hour", "start_hour"), k("guests", "attendees"), k("all_day", "whole_day")
    props = {title: S, date: {"type": "string", "description": "Date as YYYY-MM-DD"}}
    for key, kind, p in ((hour, I, .5), (guests, ARRAY, .4), (whole, B, .3)):
        if r.random() < p:
            props[key] = kind

    def make(r):
        t = pick(r, OBJECTS) + " " + pick(r, words("meeting lesson party review sale"))
        d = f"20{25 + below(r, 9)}-{1 + below(r, 12):02d}-{1 + below(r, 28):02d}"
        a, q = {title: t, date: d}, pick(r, [f"Add the {t} on {d}", f"Put the {t} into my calendar on {d}", f"Plan the {t} for {d}"])
        if hour in props and r.random() < .7:
            a[hour] = below(r, 24)
            q += f" at {a[hour]} o'clock"
        if guests in props and r.random() < .7:
            a[guests] = r.sample(NAMES, 1 + below(r, 3))
            q += " with " + ", ".join(a[guests])
        if whole in props and r.random() < .7:
            a[whole] = r.random() < .5
            q += ", all day" if a[whole] else ", not all day"
        return q + ".", a, {"status": "created"}, f"The {t} is in the calendar on {d}."
    return name, k("Adds an event to the calendar", "Create a calendar event"), props, [title, date], make


def files(r, k):
    name, query = k("search_files", "find_files", "file_search"), k("query", "pattern", "text")
    limit, folder, deep = k("limit", "max_results"), k("folder", "directory"), k("recursive", "subfolders")
    props = {query: {"type": "string", "description": "What to look for"}}
    for key, kind, p in ((limit, I, .5), (folder, S, .5), (deep, B, .3)):
        if r.random() < p:
            props[key] = kind

    def make(r):
        x = pick(r, [pick(r, OBJECTS), pick(r, OBJECTS) + " " + pick(r, FRUITS), "*." + pick(r, words("txt pdf csv md"))])
        a, q = {query: x}, pick(r, [f"Search for files with {x}", f"Find files about {x}", f"Look for the files {x}"])
        if folder in props and r.random() < .7:
            a[folder] = "/" + pick(r, PLACES) + ("/" + pick(r, ANIMALS) if r.random() < .5 else "")
            q += f" in {a[folder]}"
        if limit in props and r.random() < .7:
            a[limit] = 1 + below(r, 50)
            q += f", at most {a[limit]}"
        if deep in props and r.random() < .7:
            a[deep] = r.random() < .5
            q += ", with subfolders" if a[deep] else ", without subfolders"
        fs = [f"{pick(r, OBJECTS)}_{below(r, 100)}.txt" for _ in range(below(r, 4))]
        return q + ".", a, {"files": fs}, f"I found {len(fs)} file" + "s" * (len(fs) != 1) + (": " + ", ".join(fs) if fs else "") + "."
    return name, k("Searches files", "Find files on the disk"), props, [query], make


def timer(r, k):
    name, minutes, label = k("set_timer", "start_timer", "timer"), k("minutes", "duration"), k("label", "note")

    def make(r):
        m = 1 + below(r, 120)
        a, q = {minutes: m}, pick(r, [f"Set a timer for {m} minutes", f"Start a timer of {m} minutes"])
        if r.random() < .6:
            a[label] = pick(r, FRUITS)
            q += f" called {a[label]}"
        return q + ".", a, {"status": "running"}, f"The timer runs for {m} minutes."
    return name, k("Starts a timer", "Sets a timer in minutes"), {minutes: I, label: S}, [minutes], make


def money(r, k):
    name, amount = k("convert_money", "exchange", "currency_convert"), k("amount", "value")
    src, dst = k("from", "source"), k("to", "target")

    def make(r):
        x = pick(r, [below(r, 1000), round(r.random() * 1000, 1), round(r.random() * 100, 2)])
        f, t = r.sample(words("euro dollar pound yen franc krone peso rupee"), 2)
        y = round(r.random() * 1000, 2)
        return (pick(r, [f"Convert {x} {f} to {t}.", f"Exchange {x} {f} into {t}.", f"How much is {x} {f} in {t}?"]),
                {amount: x, src: f, dst: t}, {"amount": y}, f"{x} {f} is {y} {t}.")
    return name, k("Converts money", "Exchange one currency into another"), {amount: N, src: S, dst: S}, [amount, src, dst], make


def message(r, k):
    """Any text as an argument."""
    name, to, text = k("send_message", "write_message", "post_message"), k("to", "recipient", "person"), k("text", "message", "body")

    def make(r):
        n, s = pick(r, NAMES), strings.copyable(r, 2 + below(r, 24), inline=True)
        return (pick(r, [f"Send this message to {n}: {s}", f"Write to {n}: {s}", f"Tell {n} this: {s}"]), {to: n, text: s},
                {"status": "sent"}, f"The message to {n} is sent.")
    return name, k("Sends a message", "Writes a message to a person"), {to: S, text: S}, [to, text], make


DOING = words("paint count move clean open close hide sell lift test fill turn pack mark lock wash fold light push pull")
FIELDS = [("colour", S, lambda r: pick(r, COLOURS)), ("count", I, lambda r: 1 + below(r, 99)), ("place", S, lambda r: pick(r, PLACES)),
          ("gentle", B, lambda r: r.random() < .5), ("weight", N, lambda r: round(r.random() * 50, 1)), ("helper", S, lambda r: pick(r, NAMES)),
          ("label", S, lambda r: strings.copyable(r, 2 + below(r, 8), inline=True))]


def anything(r, k):
    """A tool for one action on one thing: 800 names, so that a list of 40 has 40 different ones."""
    verb, thing = pick(r, DOING), pick(r, OBJECTS)
    fields = r.sample(FIELDS, 1 + below(r, 3))
    fields.sort(key=lambda f: f[0] == "label")                      # any text stands last in the request

    def make(r):
        some = [f for f in fields if f is fields[0] or r.random() < .7]
        a = {f[0]: f[2](r) for f in some}
        told = ", ".join(f"{n} {str(v).lower() if isinstance(v, bool) else v}" for n, v in a.items())
        return f"{verb.capitalize()} the {thing}: {told}", a, {"status": "done"}, f"The {thing} is done."
    return f"{verb}_{thing}", f"{verb.capitalize()} the {thing}", {n: t for n, t, _ in fields}, [fields[0][0]], make


MAKERS = {"weather": weather, "calculator": calculator, "events": events, "files": files, "timer": timer, "money": money, "message": message}


def tool(r, maker):
    name, about, props, required, make = maker(r, lambda *xs: pick(r, xs))
    keys = list(props)
    if r.random() < .3:
        r.shuffle(keys)
    schema = {"type": "function", "function": {"name": name, "description": about, "parameters": {
        "type": "object", "properties": {x: props[x] for x in keys}, "required": required}}}

    def ordered(r):
        q, a, result, say = make(r)
        return q, {x: a[x] for x in keys if x in a}, result, say
    return name, schema, ordered


def toolbox(r, n):
    """n tools of different names: kind -> (name, schema, f)."""
    kinds = r.sample(sorted(MAKERS), min(n, 1 + below(r, len(MAKERS))))
    box = {k: tool(r, MAKERS[k]) for k in kinds}
    while len(box) < n:
        t = tool(r, anything)
        box.setdefault(t[0], t)
    items = list(box.items())
    r.shuffle(items)
    return dict(items)
