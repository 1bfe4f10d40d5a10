#include "server/params.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/json.h"

static void read_float(struct fields *f, const char *name, double min, double max, float *out) {
    double v;
    if (field_number(f, name, min, max, &v)) *out = (float)v;
}

static void read_int(struct fields *f, const char *name, int64_t min, int64_t max, int *out) {
    int64_t v;
    if (field_int(f, name, min, max, &v)) *out = (int)v;
}

static void read_bias(struct gen_params *p, struct fields *f, const struct server *s) {
    struct json_object *v = field_get(f, "logit_bias");
    if (v == NULL) return;
    if (!json_object_is_type(v, json_type_object)) {
        field_fail(f, "logit_bias", "an object of token ids and biases is expected");
        return;
    }
    const int n = json_object_object_length(v);
    if (n > 1024) {
        field_fail(f, "logit_bias", "%d entries; at most 1024 are taken", n);
        return;
    }
    p->bias = calloc((size_t)n + 1, sizeof *p->bias);
    if (p->bias == NULL) return;
    json_object_object_foreach(v, key, value) {
        char *end;
        errno = 0;
        const long id = strtol(key, &end, 10);
        const bool number = json_object_is_type(value, json_type_double) || json_object_is_type(value, json_type_int);
        const double bias = number ? json_object_get_double(value) : 0;
        if (*key == 0 || *end != 0 || errno != 0 || id < 0 || id >= s->info.n_usable_ids) {
            field_fail(f, "logit_bias", "'%.32s' is not a token id from 0 to %d", key, s->info.n_usable_ids - 1);
            return;
        }
        if (!number || !(bias >= -100 && bias <= 100)) {
            field_fail(f, "logit_bias", "the bias of id %ld is not a number from -100 to 100", id);
            return;
        }
        p->bias[p->sampling.n_bias++] = (struct calla_logit_bias){ (int32_t)id, (float)bias };
    }
    p->sampling.bias = p->bias;
}

static void add_stop(struct gen_params *p, struct fields *f, struct json_object *v) {
    struct calla_err err;
    if (!json_object_is_type(v, json_type_string)) {
        field_fail(f, "stop", "a string or a list of strings is expected");
        return;
    }
    if (stop_add(&p->stop, json_object_get_string(v), (size_t)json_object_get_string_len(v), &err) != 0)
        field_fail(f, "stop", "%s", err.message);
}

static void read_stop(struct gen_params *p, struct fields *f) {
    struct json_object *v = field_get(f, "stop");
    if (v == NULL) return;
    if (!json_object_is_type(v, json_type_array)) {
        add_stop(p, f, v);
        return;
    }
    const size_t n = json_object_array_length(v);
    if (n > SERVER_MAX_STOPS) field_fail(f, "stop", "%zu strings; at most %d are taken", n, SERVER_MAX_STOPS);
    for (size_t i = 0; i < n && f->rc == 0; i++) add_stop(p, f, json_object_array_get_idx(v, i));
}

static void read_stream(struct gen_params *p, struct fields *f) {
    field_bool(f, "stream", &p->stream);
    struct json_object *o = field_get(f, "stream_options"), *usage = NULL;
    if (o == NULL) return;
    if (!json_object_is_type(o, json_type_object)) {
        field_fail(f, "stream_options", "an object is expected");
        return;
    }
    if (!json_object_object_get_ex(o, "include_usage", &usage) || usage == NULL) return;
    if (!json_object_is_type(usage, json_type_boolean)) field_fail(f, "stream_options.include_usage", "true or false is expected");
    else p->include_usage = json_object_get_boolean(usage);
}

void params_read(struct gen_params *p, struct fields *f, const struct server *s) {
    int64_t seed;
    *p = (struct gen_params){ .sampling = s->info.sampling, .max_tokens = -1, .n = 1 };
    p->sampling.bias = NULL;
    p->sampling.n_bias = 0;
    read_float(f, "temperature", 0, 100, &p->sampling.temperature);
    read_float(f, "top_p", 0, 1, &p->sampling.top_p);
    read_float(f, "min_p", 0, 1, &p->sampling.min_p);
    read_int(f, "top_k", -1, 1000000000, &p->sampling.top_k);
    if (p->sampling.top_k < 0) p->sampling.top_k = 0;             /* vLLM's "off" */
    read_float(f, "presence_penalty", -2, 2, &p->sampling.presence_penalty);
    read_float(f, "frequency_penalty", -2, 2, &p->sampling.frequency_penalty);
    read_float(f, "repetition_penalty", 0.01, 100, &p->sampling.repetition_penalty);
    if (field_int(f, "seed", INT64_MIN, INT64_MAX, &seed)) p->sampling.seed = (uint64_t)seed;
    else if (getentropy(&p->sampling.seed, sizeof p->sampling.seed) != 0) p->sampling.seed = calla_now_ns();
    read_int(f, "max_tokens", 0, SERVER_MAX_TOKENS, &p->max_tokens);
    read_int(f, "max_completion_tokens", 0, SERVER_MAX_TOKENS, &p->max_tokens);
    read_int(f, "n", 1, SERVER_MAX_ANSWERS, &p->n);
    field_bool(f, "ignore_eos", &p->ignore_eos);
    read_bias(p, f, s);
    read_stop(p, f);
    read_stream(p, f);
}

void params_free(struct gen_params *p) {
    free(p->bias);
    p->bias = NULL;
    stop_strings_free(&p->stop);
}
