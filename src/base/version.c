#include "calla.h"

const char *calla_version(void) { return "0.1.0"; }
