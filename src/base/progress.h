/* progress.h - how far a long read or write has come, for people.
 *
 * On a terminal one line that is drawn over; elsewhere a plain line every few
 * seconds, and none at all for what is quick.  One thread at a time. */
#ifndef CALLA_BASE_PROGRESS_H
#define CALLA_BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct calla_progress {
    int      fd;              /* 2: stderr                                          */
    bool     is_terminal;
    char     what[64];        /* what runs now; empty before the first call         */
    uint64_t start_ns, shown_ns;  /* of what runs now                               */
    uint64_t start_bytes;     /* done when it was first heard of: not in the rate   */
    bool     drawn;           /* the terminal's line holds text                     */
};

void calla_progress_init(struct calla_progress *p, int fd);
/* user: a struct calla_progress; the signature of the progress hooks of calla.h. */
void calla_progress_put(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes);
/* Ends the terminal's line; call before anything else is printed there. */
void calla_progress_end(struct calla_progress *p);

/* "loading  [####......]  41 %  8.0 of 19.5 GB  1.3 GB/s  0:09 left"; the bar is left out where bar is false. */
void calla_progress_text(char *out, size_t cap, const char *what, uint64_t done_bytes, uint64_t total_bytes,
                         double bytes_per_s, bool bar);

#endif
