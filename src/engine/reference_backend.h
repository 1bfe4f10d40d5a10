/* reference_backend.h - the forward pass of model/reference.h behind the seam. */
#ifndef CALLA_ENGINE_REFERENCE_BACKEND_H
#define CALLA_ENGINE_REFERENCE_BACKEND_H

#include "engine/backend.h"

extern const struct calla_backend_ops calla_reference_backend;

#endif
