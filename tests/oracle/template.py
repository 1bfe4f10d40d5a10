"""The shipped chat template under Hugging Face's settings, with a counter at every branch and condition."""
import json, os, re
from jinja2.sandbox import ImmutableSandboxedEnvironment

PATH = os.path.join(os.path.dirname(__file__), "data", "chat_template.jinja")

class Raised(Exception):
    """What the template itself raises, as against what Jinja or Python throws."""

def raise_exception(message): raise Raised(message)

def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.globals["raise_exception"] = raise_exception
    return env

def operands(condition):
    """The parts between top-level `and` and `or`, with what joins them."""
    parts, depth, quote, at = [""], 0, None, 0
    while at < len(condition):
        c = condition[at]
        if quote: quote = None if c == quote else quote
        elif c in "'\"": quote = c
        elif c in "([": depth += 1
        elif c in ")]": depth -= 1
        m = None if quote or depth else re.match(r" (and|or) ", condition[at:])
        if m: parts += [m.group(0), ""]; at += len(m.group(0)); continue
        parts[-1] += c; at += 1
    return parts

class Counted:
    """hits[name] counts a branch, or an operand's (name, outcome)."""
    def __init__(self):
        self.hits, self.text = {}, open(PATH, encoding="utf-8").read()
        env = environment()
        env.globals["hit"], env.globals["seen"] = self.hit, self.seen
        self.plain = environment().from_string(self.text)
        self.template = env.from_string(self.instrument())

    def hit(self, name): self.hits[name] += 1; return ""

    def seen(self, name, value): self.hits[name, bool(value)] += 1; return value

    def condition(self, text, line):
        out = []
        for i, part in enumerate(operands(text)):
            if i % 2: out.append(part); continue
            name = f"{line}: {part}"
            inner = part[1:-1] if part.startswith("(") and part.endswith(")") else part[4:-1] if part.startswith("not(") else None
            self.hits[name, True] = self.hits[name, False] = 0
            wrapped = part if inner is None else f"({self.condition(inner, line)})" if part[0] == "(" else f"not({self.condition(inner, line)})"
            out.append(f"seen({name!r}, {wrapped})")
        return "".join(out)

    def branch(self, line, what):
        name = f"{line}: {what}"
        assert name not in self.hits, name
        self.hits[name] = 0
        return "{{- hit(%r) }}" % name

    def instrument(self):
        out, at, stack = [], 0, []
        for m in re.finditer(r"\{%- (\w+)(.*?) %\}", self.text, re.S):
            line = self.text.count("\n", 0, m.start()) + 1
            word, rest, tag = m.group(1), m.group(2).strip(), m.group(0)
            out.append(self.text[at:m.start()]); at = m.end()
            if word in ("if", "elif"):
                tag = "{%%- %s %s %%}" % (word, self.condition(rest, line)) + self.branch(line, f"{word} {rest}")
                if word == "if": stack.append([line, False])
            elif word == "for":
                tag += self.branch(line, f"for {rest}"); stack.append(None)
            elif word == "else":
                stack[-1][1] = True
                tag += self.branch(line, f"else of {stack[-1][0]}")
            elif word == "endif":
                begun, has_else = stack.pop()
                if not has_else: tag = "{%- else %}" + self.branch(line, f"else of {begun}") + tag
            elif word == "endfor": stack.pop()
            elif word == "set" and " if " in rest:
                what, rest = rest.split(" = ", 1)
                yes, rest = rest.split(" if ")
                cond, no = rest.split(" else ")
                tag = "{%%- set %s = %s if %s else %s %%}" % (what, yes, self.condition(cond, line), no)
            out.append(tag)
        assert not stack
        return "".join(out) + self.text[at:]

    def render(self, variables):
        """The text, or (True, the template's sentence), or (False, what was thrown)."""
        try: return self.template.render(**variables)
        except Raised as e: return True, str(e)
        except Exception as e: return False, f"{type(e).__name__}: {e}"
