"""The rules of docs/server.md, "Normalise", a second time: requests of clients and what becomes of them.

normalise(request) is the independent reading; EXTENDED is the shipped template with the four extensions written into it."""
import json, re

import conversations
from template import PATH, environment

def extended():
    text = open(PATH, encoding="utf-8").read()
    def swap(old, new):
        nonlocal text
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    swap("{{- raise_exception('System message must be at the beginning.') }}", "{{- '<|im_start|>system\\n' + content + '<|im_end|>\\n' }}")
    swap("{{- raise_exception('No user query found in messages.') }}", "{%- set ns.last_query_index = -1 %}")
    swap("{%- if tool_call.arguments is defined %}", "{%- if tool_call.arguments is string %}{{- tool_call.arguments + '\\n' }}{%- elif tool_call.arguments is defined %}")
    return environment().from_string(text)

def joined(content, system=False):
    if content is None: return ""
    parts = [content] if isinstance(content, str) else [p["text"] for p in content]
    if system: parts = [re.sub(r"\Ax-anthropic-billing-header:[^\n]*\n?", "", p) for p in parts]
    return "".join(parts)

def assistant(m):
    out = {"role": "assistant", "content": joined(m.get("content"))}
    reasoning = m.get("reasoning_content") or m.get("reasoning")
    if reasoning is None: reasoning = m.get("reasoning_content")
    if reasoning is not None: out["reasoning_content"] = reasoning
    elif "</think>" in out["content"]:
        text = out["content"]
        begins = text.strip().startswith("<think>")
        if not begins and "</think>\n" not in text: out["reasoning_content"] = ""
        elif text.count("</think>") > 1:
            close = "</think>" if begins else "</think>\n"
            thought, answer = text.split(close, 1)
            out["reasoning_content"] = thought.lstrip().removeprefix("<think>") if begins else thought
            out["content"] = answer
    for c in m.get("tool_calls") or []:
        f = c.get("function", c)
        args = f.get("arguments")
        if isinstance(args, str):
            if not args.strip(): args = {}
            else:
                try: parsed = json.loads(args, parse_constant=int)     # NaN is no JSON, and no int
                except ValueError: parsed = None
                args = parsed if isinstance(parsed, dict) else args
        out.setdefault("tool_calls", []).append({"name": f["name"], "arguments": args or {}})
    return out

def normalise(request):
    """What the template gets, and whether the last turn stays open."""
    out, lead = [], []
    for m in request["messages"]:
        role = {"developer": "system"}.get(m["role"], m["role"])
        if role == "system" and not out: lead.append(joined(m.get("content"), True).strip()); continue
        if lead and not out: out.append({"role": "system", "content": "\n".join(t for t in lead if t)})
        out.append(assistant(m) if role == "assistant" else {"role": role, "content": joined(m.get("content"), role == "system")})
    if lead and not out: out.append({"role": "system", "content": "\n".join(t for t in lead if t)})
    while out and out[-1]["role"] == "assistant" and not (out[-1]["content"].strip() or out[-1].get("reasoning_content", "").strip() or out[-1].get("tool_calls")):
        out.pop()
    tools = [{k: v for k, v in t.items() if k != "cache_control"} for t in request.get("tools") or [] if t["type"] == "function"]
    v = {"messages": out, "tools": tools if request.get("tool_choice") != "none" else None, "add_generation_prompt": True}
    v.update({k: b for k, b in (request.get("chat_template_kwargs") or {}).items() if b is not None})
    return v, bool(out) and out[-1]["role"] == "assistant"

def render(template, request):
    variables, is_open = normalise(request)
    if not is_open: return template.render(**variables)
    variables["add_generation_prompt"] = False
    return template.render(**variables).removesuffix("<|im_end|>\n")

# ---- requests ---------------------------------------------------------------------------------------------------------

def content(rng, optional=True):
    k = rng.random()
    if optional and k < .08: return None
    if k < .6: return conversations.text(rng)
    return [{"type": rng.choice(["text", "input_text", "output_text"]), "text": conversations.text(rng), **rng.choice([{}, {"cache_control": {"type": "ephemeral"}}])}
            for _ in range(rng.randrange(4))]

def arguments(rng):
    k, a = rng.random(), {conversations.key(rng): conversations.value(rng, 2) for _ in range(rng.randrange(4))}
    if k < .3: return a
    if k < .7: return json.dumps(a, ensure_ascii=rng.random() < .5, indent=rng.choice([None, 2])).replace("Infinity", "1e999")
    return rng.choice(["", " \n", "{}", "{bad", "null", "[1]", "\"x\"", "{\"a\": 1}x", "{\"a\": NaN}", conversations.text(rng), None])

def message(rng, role):
    m = {"role": role, "content": content(rng)}
    if m["content"] is None and rng.random() < .5: del m["content"]
    if role in ("system", "developer") and rng.random() < .1: m["content"] = "x-anthropic-billing-header: v=1;" + rng.choice(["", "\n"]) + conversations.text(rng)
    if role == "assistant":
        for name in ("reasoning_content", "reasoning"):
            if rng.random() < .25: m[name] = rng.choice([None, "", conversations.text(rng)])
        if rng.random() < .4:
            m["tool_calls"] = [rng.choice([lambda f: {"type": "function", "id": "1", "function": f}, lambda f: f])({"name": rng.choice(["f", "größe"]), "arguments": arguments(rng)})
                               for _ in range(rng.randrange(3))]
    return m

def request(rng):
    roles = rng.choice([[], ["system"], ["developer"], ["system", "developer"], ["system", "system", "system"]]) + rng.choice([[], ["user"], ["user"]])
    for _ in range(rng.randrange(5)): roles += rng.choice([["user"], ["assistant"], ["assistant", "tool", "tool"], ["assistant", "user"], ["system"], ["developer", "user"]])
    r = {"model": "m", "messages": [message(rng, role) for role in roles or ["user"]]}
    if rng.random() < .4:
        r["tools"] = [rng.choice([{"type": "function", "function": {"name": "f", "description": conversations.text(rng), "parameters": {"type": "object", "properties": {}}}},
                                  {"type": "web_search"}, {"cache_control": {"type": "ephemeral"}, "type": "function", "function": {"name": "g"}}]) for _ in range(rng.randrange(4))]
        if rng.random() < .3: r["tool_choice"] = rng.choice(["auto", "none", None])
    if rng.random() < .5: r["chat_template_kwargs"] = {k: rng.choice([True, False, None]) for k in ("enable_thinking", "preserve_thinking", "add_vision_id") if rng.random() < .6}
    return r

# ---- recorded clients ---------------------------------------------------------------------------------------------------

def tool(kind, i):
    if kind == "-": return {"name": f"t{i}", "description": "d", "input_schema": {"type": "object", "properties": {}}}
    if kind == "function": return {"type": "function", "function": {"name": f"t{i}", "parameters": {"type": "object"}}}
    return {"type": kind, "name": f"t{i}", "tools": []}

def recorded(shape):
    """A chat request of a recorded shape.  Items of the Responses and Messages APIs become the messages that stand for them."""
    r = {k: shape["values"].get(k, "x") for k in shape["body_keys"] if k not in ("input", "system", "tools", "messages")}
    items = list(shape["last_items"])
    for role in shape["roles"][: len(shape["roles"]) - len(items)][::-1]: items.insert(0, {"role": role, "type": None, "content": ["input_text"]})
    r["messages"] = [{"role": "system", "content": [{"type": "text", "text": t} for t in ("x-anthropic-billing-header: v=1; cch=aa1;", "S1", "S2")]}] if "system" in shape["body_keys"] else []
    for i in items or [{"role": "user", "type": None, "content": "string"}]:
        kinds, m = i["content"], {"role": i["role"], "content": "a text"}
        if i["type"] == "reasoning": m = {"role": "assistant", "reasoning": "R1"}
        elif i["type"] == "function_call": m = {"role": "assistant", "tool_calls": [{"function": {"name": "t0", "arguments": "{\"a\":1}"}}]}
        elif i["type"] == "function_call_output" or kinds == ["tool_result"]: m = {"role": "tool", "content": [{"type": "text", "text": "a result"}]}
        elif kinds == "null": m["content"] = None
        elif isinstance(kinds, list):
            m["content"] = [{"type": "thinking", "thinking": "R1", "signature": ""} if k == "thinking" else {"type": k if k != "more" else "text", "text": "a text"} for k in kinds if k != "tool_use"]
            if "tool_use" in kinds: m["tool_calls"] = [{"function": {"name": "t0", "arguments": {"a": 1}}}]
        for name in ("reasoning", "reasoning_content"):
            if name in i.get("keys", ()): m[name] = "R1"
        if "tool_calls" in i.get("keys", ()): m["tool_calls"] = [{"id": "1", "type": "function", "function": {"name": "t0", "arguments": "{\"a\":1}"}}]
        r["messages"].append(m)
    if "tools" in shape["body_keys"]: r["tools"] = [tool((shape["tool_types"] or ["function"])[i % len(shape["tool_types"] or [1])], i) for i in range(shape["tool_count"] or 1)]
    return r
