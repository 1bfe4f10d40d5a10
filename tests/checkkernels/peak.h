/* peak.h - the two walls of this machine: reading memory and int8 arithmetic. */
#ifndef CHECKKERNELS_PEAK_H
#define CHECKKERNELS_PEAK_H

#include <stddef.h>
#include <stdint.h>

uint64_t peak_read(const unsigned char *p, size_t n_bytes);   /* reads all of it; n a multiple of 4096 */
double   peak_int8(long n);         /* runs n rounds on registers; returns operations (multiply + add = 2) */
const char *peak_int8_name(void);   /* the instruction */

/* One per instruction set, in files that carry its flags. */
uint64_t peak_read_avx512vnni(const unsigned char *p, size_t n_bytes);
double   peak_int8_avx512vnni(long n);
double   peak_int8_avx2(long n);
double   peak_int8_neon(long n);

#endif
