/* calla_test.h - hooks for tests; they exist only in builds with CALLA_TEST_HOOKS
 * (build/calla-test), never in the product. */
#ifndef CALLA_TEST_H
#define CALLA_TEST_H

#include "calla.h"

/* Each line of the file belongs to the next submitted request: a JSON array of
 * ids that are emitted in place of the sampled ones, or an object
 *     {"ids": [...], "prefill_delay_ms": 200, "decode_delay_ms": 50, "fail_after": 3}
 * with a pause before every step that reads the prompt or decodes, and an
 * engine that fails after so many ids.  When the ids end, the model's own are
 * taken again. */
int calla_engine_script(struct calla_engine *e, const char *path, struct calla_err *err);

#endif
