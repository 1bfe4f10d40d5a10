/* tokenizer_scan.h - a cursor over JSON text that builds no tree.
 *
 * For tokenizer.json alone: half a million small strings, of which a json-c
 * tree takes 0.27 to 0.36 s to make and free, where loading may take 0.5 s.  Strict JSON, depth at most 64, nothing
 * allocated but the buffer of one string.  All functions return 0 or a
 * negative status with a message that names the file and the byte. */
#ifndef CALLA_TEXT_TOKENIZER_SCAN_H
#define CALLA_TEXT_TOKENIZER_SCAN_H

#include "base/buf.h"
#include "calla.h"

struct calla_scan {
    const char *text;        /* [n], valid UTF-8, borrowed                       */
    size_t n, at;            /* at: next byte                                    */
    const char *file;        /* for messages, borrowed                           */
    struct calla_buf string; /* what the last string was; owned by the cursor    */
    struct calla_err *err;
};

/* The value of a known key of an object; at is 0 where the key is absent. */
struct calla_scan_field { const char *name; size_t at; };

int  calla_scan_begin(struct calla_scan *s);               /* the text is UTF-8  */
int  calla_scan_end(struct calla_scan *s);                 /* nothing follows    */
/* Next character that is not blank, not consumed; 0 at the end. */
char calla_scan_peek(struct calla_scan *s);
int  calla_scan_skip(struct calla_scan *s);
int  calla_scan_string(struct calla_scan *s);              /* into s->string     */
int  calla_scan_int(struct calla_scan *s, int64_t *v);
int  calla_scan_bool(struct calla_scan *s, bool *v);
/* Consumes the opening character of an object or array. */
int  calla_scan_open(struct calla_scan *s, char open);
/* Moves to the next element; *more is false when `close` was consumed.  first:
 * no element was read yet.  In an object the key is then in s->string and the
 * cursor at its value. */
int  calla_scan_next(struct calla_scan *s, char close, bool first, bool *more);
/* Reads an object and notes where the values of the n fields are; a field that
 * comes twice is an error, keys that are not asked for are skipped. */
int  calla_scan_fields(struct calla_scan *s, struct calla_scan_field *fields, int n);
bool calla_scan_is(const struct calla_scan *s, const char *text);  /* s->string  */

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int  calla_scan_fail(struct calla_scan *s, const char *fmt, ...);  /* CALLA_ERR_FORMAT */

#endif
