/* cpu.h - the CPU backend's table, for engine/backends.c. */
#ifndef CALLA_CPU_CPU_H
#define CALLA_CPU_CPU_H

#include "engine/backend.h"

extern const struct calla_backend_ops calla_cpu_backend;

#endif
