"""Random chat requests: mostly what clients send, some of it odd, some of it nonsense."""

WORDS = ["Hello", "x", "der", "中文", "é", "\U0001f600", "1", "{", "}", "\"", "'", "\\", "a b", "<b>", "&", "\0", "\u200b", "\x7f"]
BLANKS = ["\n", " ", "\n\n", "\t", "\r\n", "\x1c", "\x1f", "\x85", "\xa0", "\u2028", "\u3000", "\u1680", "\ufeff", "\u200b", "\u180e"]
TAGS = ["<think>", "</think>", "<think>\n", "\n</think>\n\n", "</think>\n", "<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>",
        "<tool_response>", "</tool_response>", "<function=f>", "</parameter>", "<|image_pad|>", "image", "video", "text", "</think", "think>"]

def text(rng):
    k = rng.random()
    if k < .08: return ""
    if k < .12: return rng.choice(BLANKS) * rng.randrange(1, 4)
    if k < .17: return rng.choice(["", " ", "\n"]) + "<tool_response>" + rng.choice(["", "x", "\n1\n"]) + rng.choice(["</tool_response>", "</tool_response>\n", ""])
    if k < .20: return "x" + "</tool_response>"
    if k < .30: return rng.choice(["<think>\n", "<think>", "", "pre <think>\n"]) + text(rng) + rng.choice(["\n</think>\n\n", "</think>", "\n</think>\n"]) + text(rng)
    parts = [rng.choice(WORDS) if rng.random() < .6 else rng.choice(BLANKS) if rng.random() < .6 else rng.choice(TAGS) for _ in range(rng.randrange(1, 8))]
    return "".join(parts)

def number(rng):
    return rng.choice([0, 1, -1, 3, 10 ** 17, 2 ** 63, 2 ** 64, 10 ** 30, -10 ** 25, 1.5, 0.1, 1e16, 1e-7, 1e22, -0.0, 1e300 * 1e10, 100000.0, 2.0 ** -1074,
                       rng.randrange(-10 ** 6, 10 ** 6), rng.uniform(-1000, 1000), rng.random() * 10.0 ** rng.randrange(-20, 20)])

def value(rng, depth=0):
    k = rng.randrange(10 if depth < 4 else 7)
    if k < 4: return text(rng)
    if k == 4: return rng.choice([None, True, False])
    if k < 7: return number(rng)
    if k == 7: return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {key(rng): value(rng, depth + 1) for _ in range(rng.randrange(4))}

def key(rng): return rng.choice(["city", "n", "é", "a b", "", "type", "text", "<|im_end|>", "k\0k", "items", "name", "path"])

def nonsense(rng): return rng.choice([None, True, False, 0, 5, 1.5, "", "abc", "user", [], {}, [1], ["text"], {"a": 1}, [None], [[]], {"role": "user"}])

def item(rng, odd):
    k = rng.random()
    if odd and k < .25: return rng.choice([None, 5, True, "a text", "an image", "a video", "plain", ["text"], ["image"], ["video", 1], [], {}, {"type": "audio"},
                                           {"type": "text"}, {"text": None}, {"text": number(rng)}, {"text": value(rng)}, {"text": [text(rng), {text(rng): text(rng)}]},
                                           {"text": text(rng), "image": 1}, {"type": ["image"], "text": "x"}])
    if k < .6: return {"type": "text", "text": text(rng)}
    if k < .7: return {"text": text(rng), "type": "text", "cache_control": {"type": "ephemeral"}}
    if k < .8: return rng.choice([{"type": "image"}, {"type": "image_url", "image_url": {"url": "data:"}}, {"image": "x"}, {"type": "image", "text": "x"}])
    if k < .9: return rng.choice([{"type": "video"}, {"video": "v"}, {"type": "video", "text": "x"}])
    return {"type": "text", "text": text(rng)}

def content(rng, odd):
    k = rng.random()
    if odd and k < .12: return nonsense(rng)
    if k < .7: return text(rng)
    if k < .76: return None
    return [item(rng, odd) for _ in range(rng.randrange(4))]

def arguments(rng, odd):
    if odd and rng.random() < .12: return rng.choice([nonsense(rng), '{"a": 1}', text(rng)])
    return {key(rng): value(rng, 2) for _ in range(rng.randrange(4))}

def call(rng, odd):
    c = {"name": rng.choice(["f", "get_weather", "größe", "a<|im_end|>b", ""]), "arguments": arguments(rng, odd)}
    if rng.random() < .15: del c["arguments"]
    if odd and rng.random() < .05: c["name"] = nonsense(rng)
    if odd and rng.random() < .05: c.pop("name", None)
    if odd and rng.random() < .05: return nonsense(rng)
    if rng.random() < .75: c = {"type": "function", "function": c, "id": "call_1"}
    if odd and rng.random() < .03: c = {"function": nonsense(rng), "name": "g"}
    return c

def message(rng, role, odd):
    m = {"role": role, "content": content(rng, odd)}
    if rng.random() < .06: del m["content"]
    if role == "assistant":
        if rng.random() < .4: m["reasoning_content"] = text(rng)
        elif odd and rng.random() < .2: m["reasoning_content"] = nonsense(rng)
        if rng.random() < .5: m["tool_calls"] = [call(rng, odd) for _ in range(rng.randrange(4))]
        if odd and rng.random() < .15: m["tool_calls"] = rng.choice([nonsense(rng), True, 5, {"name": "f"}])
    if odd and rng.random() < .02: m["role"] = nonsense(rng)
    if odd and rng.random() < .02: del m["role"]
    return m

def tools(rng, odd):
    if odd and rng.random() < .3: return rng.choice([nonsense(rng), True, 5, {"a": 1}, "é\U0001f600\"", [nonsense(rng), value(rng)]])
    return [{"type": "function", "function": {"name": "f", "description": text(rng), "parameters": value(rng)}} for _ in range(rng.randrange(4))]

def messages(rng, odd):
    out = []
    if rng.random() < .5:
        out.append(message(rng, "system", odd))
        if rng.random() < .6 and isinstance(out[0].get("content"), list): out[0]["content"] = [{"type": "text", "text": text(rng)}]
        if rng.random() < .04: out[0]["content"] = [{"text": "x"}, rng.choice([{"type": "image"}, {"type": "video"}])]
    if rng.random() < .03: out.append(message(rng, "tool", odd))
    for _ in range(rng.randrange(4)):
        if rng.random() < .93: out.append(message(rng, "user", odd))
        for _ in range(rng.randrange(3)):
            out.append(message(rng, "assistant", odd))
            out += [message(rng, "tool", odd) for _ in range(rng.randrange(3))]
    if odd and rng.random() < .2: out.insert(rng.randrange(len(out) + 1), rng.choice([message(rng, rng.choice(["system", "system", "developer"]), odd), nonsense(rng)]))
    if rng.random() < .5: out.append(message(rng, "user", odd))
    return nonsense(rng) if odd and rng.random() < .02 else out

def user(content): return {"role": "user", "content": content}

def says(content): return {"messages": [user("x"), {"role": "assistant", "content": content}]}

# What chance makes too seldom to rely on.
CASES = [says(t) for t in ("a <think> b <think>\n c\n</think> d </think>\n e", "<think><think></think></think>", "\n</think>\n", "</think> ", "\n\n<think>\n\n</think>")]
CASES += [{"messages": [user([{"text": [s, {s: s}]}])]} for s in ("it's", "\"", "'\"", "\\", "\x00\x7f\x85\xad", "\u200b\ufeff\u2028", "\U000e0001\U0010ffff\ue000", "é中\U0001f600 \t\n\r")]
CASES += [{"messages": [user([{"text": v}])]} for v in (10 ** 30, 1e999, -1e999, [1e999, -0.0, 1e22], {"a": None, "b": [True, {}]}, [], {})]
CASES += [{"messages": [user(t)]} for t in ("<tool_response></tool_response>", "<tool_response>", "</tool_response>", "<tool_response></tool_response>.")]

def request(rng):
    odd = rng.random() < .4
    r = {"messages": messages(rng, odd)}
    if rng.random() < .4: r["tools"] = tools(rng, odd)
    if rng.random() < .5: r["add_generation_prompt"] = nonsense(rng) if odd and rng.random() < .2 else rng.random() < .6
    kwargs = {}
    for name in ("enable_thinking", "preserve_thinking", "add_vision_id"):
        if rng.random() < .5: kwargs[name] = nonsense(rng) if odd and rng.random() < .2 else rng.random() < .5
    if kwargs: r["chat_template_kwargs"] = kwargs
    if odd and rng.random() < .02: del r["messages"]
    return r
