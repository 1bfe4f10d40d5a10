/* config.h - config.json and generation_config.json of a checkpoint.
 *
 * Private to src/model and the commands about checkpoints.  Every value that
 * the network depends on is checked: a missing or wrong one is an error with
 * the key and both numbers.  Keys that nothing depends on are not looked at. */
#ifndef CALLA_MODEL_CONFIG_H
#define CALLA_MODEL_CONFIG_H

#include "model/safetensors.h"
#include "model/weights.h"

struct json_object;

struct calla_config {
    const struct calla_shape *shape;
    int  n_layers;
    char *path;                    /* of config.json, for messages; owned                   */
    struct json_object *root;      /* owned                                                 */
    struct json_object *quant;     /* `quantization`, borrowed; NULL where there is none    */
    bool says_half;                /* dtype is bfloat16 or float16, ...                     */
    enum calla_dtype half;         /* ... and this is what 16-bit tensors must be           */
};

int  calla_config_open(struct calla_config *out, const char *dir, struct calla_err *err);
void calla_config_close(struct calla_config *c);

/* What config.json says of a module ("language_model.lm_head"): an entry of
 * that name before the defaults. */
struct calla_quant_rule {
    bool known;                    /* there is a `quantization` at all                      */
    bool quantised;                /* false: an entry `false`                               */
    bool named;                    /* an entry of its own                                   */
    int  bits, group;              /* 0: not said                                           */
    char mode[24];                 /* "affine" where it is missing                          */
};
int calla_config_rule(const struct calla_config *c, const char *module, struct calla_quant_rule *out,
                      struct calla_err *err);

/* Reads generation_config.json, or says in one line that there is none. */
int calla_generation_read(struct calla_generation *out, const char *dir, const struct calla_config *c,
                          const struct calla_weights_options *opt, struct calla_err *err);

/* One line to opt->log, if there is one. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void calla_weights_log(const struct calla_weights_options *opt, const char *fmt, ...);

/* dir/name, owned by the caller. */
char *calla_path_join(const char *dir, const char *name);
/* A JSON file of at most 64 MiB whose value is an object; the caller puts *out. */
int calla_json_file(struct json_object **out, const char *path, struct calla_err *err);

#endif
