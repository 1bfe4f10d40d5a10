/* utf8.h - UTF-8: decode, check, repair.
 *
 * What is not UTF-8 (overlong forms, surrogates, code points above U+10FFFF,
 * stray or missing bytes) is replaced as Unicode recommends and WHATWG and
 * Python's "replace" do: each maximal part that begins a character but cannot
 * end it becomes one U+FFFD. */
#ifndef CALLA_BASE_UTF8_H
#define CALLA_BASE_UTF8_H

#include <stdint.h>

#include "base/buf.h"

/* The character at s [n > 0]: its length 1 to 4 and *cp; or -k when the first
 * k bytes are a maximal invalid part (*cp is then U+FFFD). */
int calla_utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Bytes that cp needs, written to out; cp is not checked. */
int calla_utf8_encode(uint32_t cp, char out[4]);
/* Bytes of the longest valid prefix of s. */
size_t calla_utf8_valid_prefix(const char *s, size_t n);
/* Bytes at the end of s (0 to 3) that begin a character which more bytes could
 * complete. */
size_t calla_utf8_unfinished(const char *s, size_t n);
/* Appends s with every invalid part replaced. */
void calla_utf8_repair(struct calla_buf *out, const char *s, size_t n);

#endif
