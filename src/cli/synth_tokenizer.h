/* synth_tokenizer.h - the tokenizer of the tiny shape, for synth. */
#ifndef CALLA_CLI_SYNTH_TOKENIZER_H
#define CALLA_CLI_SYNTH_TOKENIZER_H

#include "base/buf.h"

/* tokenizer.json with 1,024 ids: 256 bytes, the first 735 merges of the model's own tokenizer (Qwen3.6, Apache-2.0)
 * and its 33 added tokens. */
void cli_tiny_tokenizer(struct calla_buf *out);

enum { CLI_TINY_END_OF_TEXT = 991, CLI_TINY_END_OF_TURN = 993 };

#endif
