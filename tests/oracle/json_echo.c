/* json_echo.c - a line of JSON in, the same value printed out, or "error". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    struct calla_buf out = { 0 };
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        struct json_object *v;
        struct calla_err err;
        if (line[n - 1] == '\n') n--;
        calla_buf_clear(&out);
        if (calla_json_parse(line, (size_t)n, &v, &err) != 0) calla_buf_str(&out, "error");
        else calla_json_print(&out, v);
        calla_buf_char(&out, '\n');
        if (out.failed) return 1;
        fwrite(out.data, 1, out.n, stdout);
        json_object_put(v);
    }
    calla_buf_free(&out);
    free(line);
    return 0;
}
