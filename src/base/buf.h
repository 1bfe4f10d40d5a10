/* buf.h - a growing byte buffer with a limit and a sticky failure.
 *
 * Appending to a buffer that has failed does nothing, so a long run of appends
 * is checked once, at its end.  The bytes are kept NUL-terminated. */
#ifndef CALLA_BASE_BUF_H
#define CALLA_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct calla_buf {
    char  *data;       /* NULL while empty; owned                            */
    size_t n, cap;     /* bytes used (without the NUL), bytes allocated      */
    size_t limit;      /* most bytes; 0: CALLA_BUF_LIMIT                     */
    bool   failed;     /* out of memory or past the limit                    */
};

#define CALLA_BUF_LIMIT ((size_t)1 << 32)

void calla_buf_free(struct calla_buf *b);                 /* leaves it empty */
void calla_buf_clear(struct calla_buf *b);                /* keeps the memory, clears failed */
bool calla_buf_reserve(struct calla_buf *b, size_t n_more);
void calla_buf_add(struct calla_buf *b, const void *bytes, size_t n);
void calla_buf_str(struct calla_buf *b, const char *s);
void calla_buf_char(struct calla_buf *b, char c);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void calla_buf_fmt(struct calla_buf *b, const char *fmt, ...);

#endif
