"""Conversations to rows of token ids and loss weights."""
import json, os
import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment

import conversation
from tasks import uncertain

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "demo")
TEMPLATE, TOKENIZER = (os.path.join(MODEL, x) for x in ("chat_template.jinja", "tokenizer.json"))
UNCERTAIN = 1024                                   # row length of the text of known entropy


class Template:
    def __init__(self):
        def fail(m):
            raise ValueError(m)
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
        env.globals["raise_exception"] = fail
        with open(TEMPLATE, encoding="utf-8") as f:
            self.t = env.from_string(f.read())

    def __call__(self, messages, tools=None, **kw):
        return self.t.render(messages=messages, tools=tools, **kw)


class Encoder:
    def __init__(self):
        from tokenizers import Tokenizer
        self.tok = Tokenizer.from_file(TOKENIZER)
        self.id = {t: self.tok.token_to_id(t) for t in ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|endoftext|>")}
        assistant, nl, nn = (self.tok.encode(x).ids for x in ("assistant\n", "\n", "\n\n"))
        assert len(assistant) == 2 and len(nl) == 1 and len(nn) == 1
        self.head = [self.id["<|im_start|>"]] + assistant
        self.on, self.off = [self.id["<think>"]] + nl, [self.id["<think>"]] + nn + [self.id["</think>"]] + nn
        self.template = Template()

    def encode(self, text):
        return self.tok.encode(text, add_special_tokens=False).ids

    def weights(self, ids):
        """2 on what the model must write, 1 on answers in old turns without a thinking block, 0 elsewhere."""
        w, i, n = np.zeros(len(ids), np.uint8), 0, len(ids)
        start, end = self.head[0], self.id["<|im_end|>"]
        while i < n:
            try:
                i = ids.index(start, i)
            except ValueError:
                break
            if ids[i:i + 3] != self.head:
                i += 1
                continue
            i, v = i + 3, 1
            for p in (self.off, self.on):
                if ids[i:i + len(p)] == p:
                    i, v = i + len(p), 2
                    break
            try:
                stop = ids.index(end, i) + 1
            except ValueError:
                stop = n
            w[i:stop] = v
            i = stop
        return w

    def padded(self, ids, length):
        w, pad = self.weights(ids), length - len(ids)
        return np.array(ids + [self.id["<|endoftext|>"]] * pad, np.uint16), np.pad(w, (0, pad))

    def row(self, r, length):
        """Whole turns of one conversation; most short ones keep the thinking of old turns."""
        while True:
            msgs, tools = conversation.conversation(r, length)
            ids = self.encode(self.template(msgs, tools, preserve_thinking=length >= 2048 or r.random() < .8))
            if len(ids) > length:
                cut = length
                while cut and ids[cut - 1] != self.id["<|im_end|>"]:
                    cut -= 1
                ids = ids[:cut]
            ids, w = self.padded(ids, length)
            if w.sum() >= 4:
                return ids, w

    def uncertain_row(self, r):
        ids = self.encode(self.template(*uncertain.row(r, UNCERTAIN), preserve_thinking=True))
        return self.padded(ids[:UNCERTAIN], UNCERTAIN)
