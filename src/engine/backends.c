/* backends.c - the backends of this build, best first.  The only file of the
 * engine that knows their names. */
#include <string.h>

#include "base/err.h"
#include "cpu/cpu.h"
#include "engine/backend.h"
#include "engine/reference_backend.h"

static const struct calla_backend_ops *const backends[] = { &calla_cpu_backend, &calla_reference_backend };
enum { N_BACKENDS = sizeof backends / sizeof *backends };

const struct calla_backend_ops *calla_backend_at(int i) { return i >= 0 && i < N_BACKENDS ? backends[i] : NULL; }

const struct calla_backend_ops *calla_backend_named(const char *name, struct calla_err *err) {
    const bool any = name == NULL || strcmp(name, "auto") == 0;
    char what[256], names[256] = "";
    for (int i = 0; i < N_BACKENDS; i++) {
        if (any || strcmp(name, backends[i]->name) == 0) {
            if (backends[i]->probe(what, sizeof what)) return backends[i];
            if (!any) {
                calla_fail(err, CALLA_ERR_UNSUPPORTED, "backend %s: %s", name, what);
                return NULL;
            }
        }
        strcat(strcat(names, i ? ", " : ""), backends[i]->name);
    }
    if (any) calla_fail(err, CALLA_ERR_UNSUPPORTED, "none of the backends %s runs here", names);
    else calla_fail(err, CALLA_ERR_ARGUMENT, "backend '%s' is not in this build, which has auto, %s", name, names);
    return NULL;
}
