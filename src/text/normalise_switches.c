/* normalise_switches.c - thinking on or off, and the template's other switches,
 * under every name that clients use for them.
 *
 * Of two that disagree the one that says more exactly what it means wins: what
 * is in chat_template_kwargs, then enable_thinking, think, thinking, reasoning,
 * reasoning_effort.  null is the same as absent. */
#include <ctype.h>
#include <string.h>

#include "text/normalise_impl.h"

enum { UNSET = -1 };

struct switches { int thinking, preserve, vision_ids, generation; };

typedef int read_switch(struct normaliser *n, struct json_object *value, const char *path, int *out);

static int read_bool(struct normaliser *n, struct json_object *value, const char *path, int *out) {
    if (!json_object_is_type(value, json_type_boolean)) return normalise_refuse(n, path, "must be true, false or null");
    *out = json_object_get_boolean(value);
    return 0;
}

static int read_effort(struct normaliser *n, struct json_object *value, const char *path, int *out) {
    static const char *const efforts[] = { "none", "minimal", "low", "medium", "high", "xhigh", "max", "auto", "default" };
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (normalise_is(value, efforts[i])) {
            *out = i > 0;
            return 0;
        }
    return normalise_refuse(n, path, "must be none (no thinking), minimal, low, medium, high, xhigh, max, auto or default");
}

/* true, false, or Ollama's levels. */
static int read_think(struct normaliser *n, struct json_object *value, const char *path, int *out) {
    return json_object_is_type(value, json_type_string) ? read_effort(n, value, path, out) : read_bool(n, value, path, out);
}

/* true, false, or {"type": "enabled" | "disabled" | ...}. */
static int read_thinking(struct normaliser *n, struct json_object *value, const char *path, int *out) {
    char type_path[NORMALISE_PATH_BYTES];
    if (!json_object_is_type(value, json_type_object)) return read_bool(n, value, path, out);
    struct json_object *type = normalise_get(value, "type");
    *out = normalise_is(type, "enabled") || normalise_is(type, "adaptive") || normalise_is(type, "auto");
    if (*out || normalise_is(type, "disabled")) return 0;
    normalise_path(type_path, "%s.type", path);
    return normalise_refuse(n, type_path, "must be enabled, disabled, adaptive or auto");
}

/* true, false, or {"effort": ..., "enabled": ...}. */
static int read_reasoning(struct normaliser *n, struct json_object *value, const char *path, int *out) {
    char member_path[NORMALISE_PATH_BYTES];
    struct json_object *v;
    int rc = 0;
    if (!json_object_is_type(value, json_type_object)) return read_bool(n, value, path, out);
    if ((v = normalise_get(value, "effort")) != NULL) {
        normalise_path(member_path, "%s.effort", path);
        rc = read_effort(n, v, member_path, out);
    }
    if (rc == 0 && (v = normalise_get(value, "enabled")) != NULL) {
        normalise_path(member_path, "%s.enabled", path);
        rc = read_bool(n, v, member_path, out);
    }
    return rc;
}

/* In rising order of precedence. */
static const struct { const char *name; read_switch *read; size_t offset; } SWITCHES[] = {
    { "reasoning_effort", read_effort, offsetof(struct switches, thinking) },
    { "reasoning", read_reasoning, offsetof(struct switches, thinking) },
    { "thinking", read_thinking, offsetof(struct switches, thinking) },
    { "think", read_think, offsetof(struct switches, thinking) },
    { "enable_thinking", read_bool, offsetof(struct switches, thinking) },
    { "preserve_thinking", read_bool, offsetof(struct switches, preserve) },
    { "add_vision_id", read_bool, offsetof(struct switches, vision_ids) },
    { "add_generation_prompt", read_bool, offsetof(struct switches, generation) },
};
enum { N_SWITCHES = sizeof SWITCHES / sizeof *SWITCHES };

/* a and b but for case, '_' and '-'. */
static bool alike(const char *a, const char *b) {
    for (;; a++, b++) {
        while (*a == '_' || *a == '-') a++;
        while (*b == '_' || *b == '-') b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (*a == 0) return true;
    }
}

static bool mentions(const char *key, const char *word) {
    const size_t n = strlen(word);
    for (; *key != 0; key++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)key[i]) == word[i]) i++;
        if (i == n) return true;
    }
    return false;
}

/* Names what is no switch but looks like one; in kwargs, what is none. */
static void warn_of_unknown(struct normaliser *n, struct json_object *from, const char *prefix, bool kwargs) {
    char quoted[NORMALISE_KEY_BYTES + 4];
    for (struct json_object_iterator i = json_object_iter_begin(from), end = json_object_iter_end(from);
         !json_object_iter_equal(&i, &end); json_object_iter_next(&i)) {
        const char *key = json_object_iter_peek_name(&i), *known = NULL;
        for (int s = 0; s < N_SWITCHES && known == NULL; s++)
            if (alike(key, SWITCHES[s].name)) known = SWITCHES[s].name;
        if (known == NULL && alike(key, "chat_template_kwargs") && !kwargs) known = "chat_template_kwargs";
        if (known != NULL) {
            if (strcmp(key, known) != 0)
                normalise_warn(n, "%s%s was taken as %s", prefix, normalise_quote(quoted, key), known);
        } else if (kwargs || mentions(key, "think") || mentions(key, "reason"))
            normalise_warn(n, "%s%s is not supported and was ignored", prefix, normalise_quote(quoted, key));
    }
}

/* from.name or its look-alike; *key is what it is called there. */
static struct json_object *lookup(struct json_object *from, const char *name, const char **key) {
    struct json_object *v = normalise_get(from, name);
    *key = name;
    if (v != NULL) return v;
    for (struct json_object_iterator i = json_object_iter_begin(from), end = json_object_iter_end(from);
         !json_object_iter_equal(&i, &end); json_object_iter_next(&i)) {
        *key = json_object_iter_peek_name(&i);
        if ((v = json_object_iter_peek_value(&i)) != NULL && alike(*key, name)) return v;
    }
    return NULL;
}

static int scan(struct normaliser *n, struct json_object *from, const char *prefix, bool kwargs, struct switches *out) {
    char path[NORMALISE_PATH_BYTES], inner[NORMALISE_PATH_BYTES], quoted[NORMALISE_KEY_BYTES + 4];
    const char *key;
    struct json_object *v;
    int rc = 0;
    for (int i = 0; i < N_SWITCHES && rc == 0; i++) {
        if ((v = lookup(from, SWITCHES[i].name, &key)) == NULL) continue;
        normalise_path(path, "%s%s", prefix, normalise_quote(quoted, key));
        rc = SWITCHES[i].read(n, v, path, (int *)((char *)out + SWITCHES[i].offset));
    }
    if (rc != 0) return rc;
    warn_of_unknown(n, from, prefix, kwargs);
    if (kwargs || (v = lookup(from, "chat_template_kwargs", &key)) == NULL) return 0;
    normalise_path(path, "%s%s", prefix, normalise_quote(quoted, key));
    if (!json_object_is_type(v, json_type_object)) return normalise_refuse(n, path, "must be an object or null");
    normalise_path(inner, "%s.", path);
    return scan(n, v, inner, true, out);
}

int normalise_switches(struct normaliser *n, struct json_object *request) {
    struct switches s = { UNSET, UNSET, UNSET, UNSET };
    struct calla_render_input *render = &n->out->render;
    /* A field of the OpenAI SDK for Python, which merges it into the body; people
     * who write the body themselves copy it. */
    struct json_object *extra = normalise_get(request, "extra_body");
    int rc = 0;
    if (json_object_is_type(extra, json_type_object)) {
        normalise_warn(n, "extra_body: only the switches of the chat template were read; send its fields in the body itself");
        rc = scan(n, extra, "extra_body.", false, &s);
    }
    if (rc == 0) rc = scan(n, request, "", false, &s);
    render->thinking = s.thinking != 0;
    render->preserve_thinking = s.preserve == 1;
    render->add_vision_id = s.vision_ids == 1;
    render->add_generation_prompt = s.generation != 0;
    return rc;
}
