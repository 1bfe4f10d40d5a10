"""Writes tokenizer.json: byte-level BPE in the real model's form, trained on our own text.

usage: make_tokenizer.py [SIZE]"""
import os, random, re, sys

import strings
from world import EVERY_WORD, LIST, words

strings.PIECES = LIST                              # the text must not depend on an older tokenizer
import conversation, encode
from tasks import uncertain

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
ADDED = words("<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
              "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> <tool_call> "
              "</tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> "
              "</tool_response> <think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> "
              "<tts_text_bos_single> <|audio_pad|>")
NOT_SPECIAL = {a for a in ADDED if not a.startswith("<|") and "tts" not in a or "fim" in a or a in ("<|repo_name|>", "<|file_sep|>")}


def text():
    r, template, out = random.Random(7), encode.Template(), []
    for i in range(12000):
        m, tools = uncertain.row(r, 256) if i % 8 == 0 else conversation.conversation(r, 1024 if i % 3 else 256)
        out.append(template(m, tools, preserve_thinking=True))
    every = [" ".join(EVERY_WORD), " " + "  ".join(w[0].upper() + w[1:] for w in EVERY_WORD)]
    cut = re.compile("|".join(map(re.escape, sorted(ADDED, key=len, reverse=True))))
    return [p for x in out + every * 40 for p in cut.split(x) if p]


def main(size):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    t, byte = Tokenizer(models.BPE()), dict(add_prefix_space=False, trim_offsets=False, use_regex=False)
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(**byte)])
    t.decoder, t.post_processor = decoders.ByteLevel(**byte), processors.ByteLevel(**byte)
    t.train_from_iterator(text(), trainers.BpeTrainer(vocab_size=size - len(ADDED), show_progress=False,
                                                      initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    assert t.get_vocab_size() == size - len(ADDED), "too little text for so many entries"
    for a in ADDED:
        token = AddedToken(a, normalized=False, special=a not in NOT_SPECIAL)
        (t.add_tokens if a in NOT_SPECIAL else t.add_special_tokens)([token])
    t.save(encode.TOKENIZER)
    print("vocabulary", t.get_vocab_size(), "last id", t.token_to_id(ADDED[-1]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4096)
