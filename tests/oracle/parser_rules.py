"""The rules of docs/model.md, "Answers", over a whole answer at once: regular expressions with lookahead and
string methods, no state machine.  The oracle for src/text/parser*.c, which decides the same while it streams."""
import ast, json, math, re

BLANKS = rb"[ \t\n\v\f\r]*"
NAME = rb"([^<>\x00-\x1f]{1,256})"
WRAPPED = re.compile(rb"<tool_call>" + BLANKS + rb"<function=" + NAME + rb">")
BARE = re.compile(rb"<function=" + NAME + rb">(?=" + BLANKS + rb"(?:<parameter=|</function>))")
OPENING = re.compile(rb"<tool_call>|<function=")
PARAMETER = re.compile(rb"<parameter=" + NAME + rb">")
STRAYS = re.compile(rb"(?:" + BLANKS + rb"</(?:parameter|function|tool_call)>)*")
VALUE_TAG = re.compile(rb"<parameter=" + NAME + rb">|</parameter>|</function>")
CLOSED_BY_GRAMMAR = re.compile(rb"</parameter>" + BLANKS + rb"(?:<parameter=|</function>|</tool_call>|\Z)")
CALL_OVER = re.compile(rb"(?:</parameter>" + BLANKS + rb")?</function>" + BLANKS + rb"</tool_call>" + BLANKS + rb"(?:<tool_call>|\Z)")
CLOSE_THEN_PARAMETER = re.compile(rb"</parameter>" + BLANKS + rb"(?=<parameter=)")
BLANK_BYTES = b" \t\n\v\f\r"

class Answer:
    def __init__(self, text, tools, thinking):
        self.text, self.thinking = text, thinking
        self.tools = None
        if tools:
            self.tools = {}
            for t in tools:
                f = t.get("function", t)
                props = f.get("parameters", {}).get("properties", {})
                self.tools.setdefault(f["name"].encode(), {k.encode(): v for k, v in props.items()})

    def line_start(self, at, origin):
        return at == 0 or at == origin or self.text[at - 1:at] == b"\n"

    def opening_at(self, at, origin):
        """(position after the opening, NAME) of the call that begins at `at`, or None.  A2."""
        m = WRAPPED.match(self.text, at)
        if m: return m.end(), m[1]
        m = BARE.match(self.text, at)
        if m and m[1] in self.tools and self.line_start(at, origin): return m.end(), m[1]
        return None

    def openings(self, begin, origin):
        if self.tools is None: return
        for m in OPENING.finditer(self.text, begin):
            o = self.opening_at(m.start(), origin)
            if o: yield (m.start(),) + o

    # -- A1 and A3
    def split_reasoning(self):
        """(reasoning, position where the rest begins, is it a call there?)"""
        stray = re.match(BLANKS + rb"<think>", self.text)
        begin = stray.end() if stray else 0
        end = self.text.find(b"</think>", begin)
        limit = end if end >= 0 else len(self.text)
        for at, _, name in self.openings(begin, begin if stray else 0):
            if at >= limit: break
            before = self.text[begin:at]
            if name in self.tools and self.line_start(at, begin if stray else 0) and before.count(b"```") % 2 == 0:
                return before.strip(BLANK_BYTES), at, True
        return self.text[begin:limit].strip(BLANK_BYTES), limit + (8 if end >= 0 else 0), False

    # -- A4
    def value(self, begin, props, given):
        """(raw VALUE, position after it or None when the answer ends in it)"""
        nested = 0
        def new_parameter(at):
            m = PARAMETER.match(self.text, at)
            return m and self.text[at - 1:at] == b"\n" and m[1] in props and m[1] not in given
        for m in VALUE_TAG.finditer(self.text, begin):
            at, tag = m.start(), m[0]
            if tag == b"</function>":
                if CALL_OVER.match(self.text, at): return self.text[begin:at], at
            elif tag == b"</parameter>":
                close = CLOSE_THEN_PARAMETER.match(self.text, at)
                if close and new_parameter(close.end()): return self.text[begin:at], m.end()
                if CALL_OVER.match(self.text, at): return self.text[begin:at], m.end()
                if nested == 0 and CLOSED_BY_GRAMMAR.match(self.text, at): return self.text[begin:at], m.end()
                nested = max(0, nested - 1)
            elif new_parameter(at): return self.text[begin:at], at
            else: nested += 1
        return self.text[begin:], None

    # -- A5 and A7
    def call(self, at, name):
        """(arguments as (KEY, raw VALUE), position after the call or None, was it closed?)"""
        props, args, given = self.tools.get(name, {}), [], set()
        inside = re.compile(rb"<parameter=" + NAME + rb">|</function>|</tool_call>|<tool_call>|<function=")
        while True:
            m = inside.search(self.text, at)
            if not m: return args, None, False
            if m[0].startswith(b"</"): return args, m.end(), True
            if m[0] in (b"<tool_call>", b"<function="):
                if self.opening_at(m.start(), -1): return args, m.start(), True
                at = m.start() + 1
                continue
            key = m[1]
            raw, at = self.value(m.end(), props, given | {key})
            if key not in given: args.append((key, raw))
            given.add(key)
            if at is None: return args, None, False

    # -- A6
    def parse(self, cut):
        text, reasoning, content, calls = self.text, b"", b"", []
        at, late_think, origin, in_call = 0, False, 0, False
        if self.thinking:
            reasoning, at, in_call = self.split_reasoning()
            late_think = in_call
            origin = -1 if in_call else at
        first = next(self.openings(at, origin), None)
        if not in_call:
            segment = text[at:first[0] if first else len(text)]
            if self.thinking: segment = segment.lstrip(b"\n")
            content = segment.rstrip(BLANK_BYTES) if first else segment
        nxt = first
        while nxt:
            args, end, closed = self.call(nxt[1], nxt[2])
            if closed or not cut: calls.append((nxt[2], args))
            if end is None: break
            at = STRAYS.match(text, end).end()
            nxt = next(self.openings(at, -1), None)
            limit, blank = nxt[0] if nxt else len(text), True
            think = text.find(b"</think>", at, limit) if late_think else -1
            if think >= 0:
                late_think = False
                before = text[at:think]
                blank = not before.strip(BLANK_BYTES)
                if not blank: content += before
                at = think + 8
                nxt = next(self.openings(at, at), None)
                limit = nxt[0] if nxt else len(text)
                while at < limit and text[at:at + 1] == b"\n": at += 1
                if blank: at = max(at, STRAYS.match(text, at, limit).end())
            segment = text[at:limit]
            if not blank or segment.strip(BLANK_BYTES): content += segment
        return reasoning, content, calls

# ---- A8 ---------------------------------------------------------------------------------------------------

class Failed(Exception): pass

def depth(v):
    if isinstance(v, (list, tuple)): return 1 + max(map(depth, v), default=0)
    if isinstance(v, dict): return 1 + max(map(depth, v.values()), default=0)
    return 0

def finite(v):
    if isinstance(v, float): return math.isfinite(v)
    if isinstance(v, (list, tuple)): return all(map(finite, v))
    if isinstance(v, dict): return all(map(finite, v.values()))
    return True

def no_constant(name): raise ValueError(name)

def structure(text):
    for read in (lambda t: json.loads(t, parse_constant=no_constant), ast.literal_eval):
        try:
            v = read(text)
            if depth(v) <= 128 and finite(v):
                json.dumps(v)
                return v
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError): pass
    raise Failed

def convert(kind, text, strict):
    t = text.strip(" \t\n\v\f\r")
    if t == "null": return None
    if kind.startswith("int"):
        if re.fullmatch(r"[+-]?[0-9]+", t): return int(t)
    elif kind in ("number", "float"):
        if re.fullmatch(r"[+-]?[0-9]+", t): return int(t)
        if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", t):
            v = float(t)
            if math.isfinite(v): return int(v) if v == int(v) else v
    elif kind.startswith("bool"):
        if not strict or t.lower() in ("true", "false"): return t.lower() == "true"
    elif kind in ("object", "array"): return structure(t)
    raise Failed

def typed(schema, text):
    if not isinstance(schema, dict): return text
    if isinstance(schema.get("enum"), list):
        for v in schema["enum"]:
            if isinstance(v, str) and v == text: return v
        for v in schema["enum"]:
            if json.dumps(v, ensure_ascii=False) == text: return v
    kind = schema.get("type")
    if isinstance(kind, str):
        if kind == "string": return text
        try: return convert(kind, text, False)
        except Failed: return text
    if isinstance(kind, list):
        if "string" in kind: return None if text == "null" and "null" in kind else text
        for k in kind:
            try: return convert(k, text, True)
            except Failed: pass
        return text
    branches = schema.get("anyOf") or schema.get("oneOf") or []
    null = [b for b in branches if isinstance(b, dict) and b.get("type") == "null"]
    if null and text == "null": return None
    other = [b for b in branches if b not in null]
    return typed(other[0], text) if other else text

def whole(job):
    """The message of one line of `calla parse --jsonl`."""
    text = job["text"].encode()
    text = re.split(rb"<\|im_end\|>|<\|endoftext\|>", text)[0]
    cut = job.get("finish", "stop") == "length"
    a = Answer(text, job.get("tools"), job.get("thinking", True))
    reasoning, content, calls = a.parse(cut)
    out = []
    for name, args in calls:
        props, values = (a.tools or {}).get(name, {}), {}
        for key, raw in args:
            if raw.startswith(b"\n"): raw = raw[1:]
            if raw.endswith(b"\n"): raw = raw[:-1]
            values[key.decode()] = typed(props[key], raw.decode()) if key in props else raw.decode()
        out.append({"name": name.decode(), "arguments": json.dumps(values, ensure_ascii=False)})
    return {"reasoning": reasoning.decode(), "content": content.decode(), "tool_calls": out,
            "finish_reason": "length" if cut else "tool_calls" if out else "stop"}
