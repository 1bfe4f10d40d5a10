/* script.h - scripted answers, for tests of what lies above the engine
 * (calla_test.h).  Its code is tests/engine/script.c, linked into build/calla-test. */
#ifndef CALLA_ENGINE_SCRIPT_H
#define CALLA_ENGINE_SCRIPT_H

#include "engine/request.h"

struct calla_script_line { int32_t *ids; int n_ids, prefill_delay_ms, decode_delay_ms, fail_after; };
struct calla_script { struct calla_script_line *lines; int n_lines, n_used; };

int  calla_script_read(struct calla_script *s, const char *path, int n_vocab, struct calla_err *err);
void calla_script_free(struct calla_script *s);
/* The next line for a request that is being submitted; NULL past the last. */
const struct calla_script_line *calla_script_next(struct calla_script *s);

int32_t calla_script_id(const struct calla_request *r, int32_t sampled);   /* in place of the sampled one */
void    calla_script_wait(const struct calla_request *r);                  /* before a step with its rows */
bool    calla_script_fails(const struct calla_request *r);

#endif
