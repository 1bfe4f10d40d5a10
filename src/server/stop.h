/* stop.h - finds stop strings in text that streams.
 *
 * Holds back only what may still become a stop string, so that no part of one
 * is ever sent; the match that ends first ends the answer. */
#ifndef CALLA_SERVER_STOP_H
#define CALLA_SERVER_STOP_H

#include "base/buf.h"
#include "calla.h"

enum { SERVER_MAX_STOPS = 16, SERVER_MAX_STOP_BYTES = 1024 };

struct stop_strings { struct calla_buf v[SERVER_MAX_STOPS]; int n; };
void stop_strings_free(struct stop_strings *s);
/* Empty strings are ignored. */
int  stop_add(struct stop_strings *s, const char *text, size_t n, struct calla_err *err);

struct stop_matcher {
    const struct stop_strings *strings;  /* borrowed */
    struct calla_buf held;      /* text that may be the beginning of a match     */
    bool matched;
};
void stop_free(struct stop_matcher *m);
/* Takes text, appends to out what may be sent.  After a match nothing more is taken. */
void stop_feed(struct stop_matcher *m, const char *text, size_t n, struct calla_buf *out);
/* No more text comes: what was held back is ordinary text. */
void stop_finish(struct stop_matcher *m, struct calla_buf *out);

#endif
