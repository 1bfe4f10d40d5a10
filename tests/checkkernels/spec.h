/* spec.h - shared by spec.c and spec_heads.c. */
#ifndef CHECKKERNELS_SPEC_H
#define CHECKKERNELS_SPEC_H

#include <float.h>

#include "check.h"

#define U 0x1p-24

void near(struct check *x, const char *what, int i, double want, float got, double bound);

void spec_gdn_scan(struct check *x);
void spec_gdn_long(struct check *x);
void spec_attention(struct check *x);

#endif
