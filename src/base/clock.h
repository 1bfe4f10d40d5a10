/* clock.h - the monotonic clock. */
#ifndef CALLA_BASE_CLOCK_H
#define CALLA_BASE_CLOCK_H

#include <stdint.h>

uint64_t calla_now_ns(void);

#endif
