/* rng.h - Philox 4x32-10: random words as a pure function of key and counter.
 *
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3" (SC11).  No state, so any thread may compute any part of a stream. */
#ifndef CALLA_BASE_RNG_H
#define CALLA_BASE_RNG_H

#include <stdint.h>

void calla_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Block `index` of stream `stream` of a seed: key = the seed's low and high
 * word, counter = (index low, index high, stream low, stream high). */
void calla_rng_block(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t index);

/* In (0, 1), never an end: (word + 0.5) / 2^32. */
static inline double calla_rng_unit(uint32_t word) { return ((double)word + 0.5) * 0x1p-32; }

#endif
