"""Prints samples of the training text.  usage: show.py [LENGTH] [SEED]"""
import random, sys

import conversation, encode
from tasks import uncertain

length, seed = (int(x) for x in (sys.argv[1:] + ["256", "1"][len(sys.argv) - 1:]))
r, t = random.Random(seed), encode.Template()
for i in range(4):
    msgs = conversation.conversation(r, length) if i else uncertain.row(r, length // 4)
    print(t(*msgs, preserve_thinking=True), "\n" + "=" * 60)
