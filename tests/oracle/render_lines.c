/* render_lines.c - a chat request a line in; {"prompt", "opaque"} or {"error"}
 * out.  With --served the request is normalised first, and "warnings" and
 * "field" are printed too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/normalise.h"
#include "text/render.h"

static void print_error(struct calla_buf *out, const struct calla_err *err, const char *field) {
    calla_buf_str(out, "{\"error\": ");
    calla_json_print_string(out, err->message, strlen(err->message));
    calla_buf_fmt(out, ", \"code\": %d, \"field\": ", err->code);
    calla_json_print_string(out, field, strlen(field));
    calla_buf_str(out, "}\n");
}

static void print_prompt(struct calla_buf *out, const struct calla_prompt *p, struct json_object *warnings) {
    calla_buf_str(out, "{\"prompt\": ");
    calla_json_print_string(out, p->text.data != NULL ? p->text.data : "", p->text.n);
    calla_buf_str(out, ", \"opaque\": [");
    for (size_t i = 0; i < p->n_opaque; i++)
        calla_buf_fmt(out, "%s[%zu, %zu]", i > 0 ? ", " : "", p->opaque[i].begin, p->opaque[i].end);
    calla_buf_str(out, "], \"warnings\": ");
    calla_json_print(out, warnings);
    calla_buf_str(out, "}\n");
}

int main(int argc, char **argv) {
    const bool served = argc > 1 && strcmp(argv[1], "--served") == 0;
    char *line = NULL;
    size_t cap = 0;
    struct calla_buf out = { 0 };
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        struct json_object *request;
        struct calla_normalised normalised = { 0 };
        struct calla_render_input in;
        struct calla_prompt prompt = { 0 };
        struct calla_err err = { 0 };
        char field[128] = "";
        int rc = calla_json_parse(line, (size_t)n, &request, &err);
        calla_buf_clear(&out);
        if (rc == 0 && served) {
            rc = calla_normalise(&normalised, request, field, sizeof field, &err);
            in = normalised.render;
        } else if (rc == 0) calla_render_input_of(&in, request);
        if (rc == 0) rc = calla_render(&prompt, &in, &err);
        if (rc != 0) print_error(&out, &err, field);
        else print_prompt(&out, &prompt, normalised.warnings);
        if (out.failed) return 1;
        fwrite(out.data, 1, out.n, stdout);
        calla_prompt_free(&prompt);
        calla_normalised_free(&normalised);
        json_object_put(request);
    }
    calla_buf_free(&out);
    free(line);
    return 0;
}
