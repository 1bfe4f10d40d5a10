/* normalise_tools.c - which tools the model is told of.
 *
 * A tool is printed into the prompt as the client wrote it, key by key; only
 * cache_control goes, because it changes from turn to turn. */
#include <string.h>

#include "text/normalise_impl.h"

/* A copy of object without its cache_control; values are shared. */
static struct json_object *copy(struct normaliser *n, struct json_object *object) {
    struct json_object *out = json_object_new_object();
    if (out == NULL) return NULL;
    for (struct json_object_iterator i = json_object_iter_begin(object), end = json_object_iter_end(object);
         !json_object_iter_equal(&i, &end); json_object_iter_next(&i)) {
        const char *key = json_object_iter_peek_name(&i);
        if (strcmp(key, "cache_control") == 0) continue;
        if (json_object_object_add(out, key, json_object_get(json_object_iter_peek_value(&i))) != 0) n->no_memory = true;
    }
    return out;
}

/* {name, description, parameters | input_schema} as the Responses and Messages
 * APIs write a tool, in the form of chat completions. */
static struct json_object *wrap(struct normaliser *n, struct json_object *flat) {
    struct json_object *tool = json_object_new_object(), *function = json_object_new_object();
    if (tool == NULL || function == NULL) {
        json_object_put(tool);
        json_object_put(function);
        return NULL;
    }
    for (struct json_object_iterator i = json_object_iter_begin(flat), end = json_object_iter_end(flat);
         !json_object_iter_equal(&i, &end); json_object_iter_next(&i)) {
        const char *key = json_object_iter_peek_name(&i);
        if (strcmp(key, "type") == 0 || strcmp(key, "cache_control") == 0) continue;
        if (strcmp(key, "input_schema") == 0) key = "parameters";
        if (json_object_object_add(function, key, json_object_get(json_object_iter_peek_value(&i))) != 0) n->no_memory = true;
    }
    normalise_put_text(n, tool, "type", "function", 8);
    normalise_put(n, tool, "function", function);
    return tool;
}

static int check_function(struct normaliser *n, struct json_object *function, const char *path) {
    char member_path[NORMALISE_PATH_BYTES];
    struct json_object *name = normalise_get(function, "name"), *parameters = normalise_get(function, "parameters");
    if (!json_object_is_type(function, json_type_object)) return normalise_refuse(n, path, "must be an object with a name");
    if (!json_object_is_type(name, json_type_string) || json_object_get_string_len(name) == 0) {
        normalise_path(member_path, "%s.name", path);
        return normalise_refuse(n, member_path, "must be the function's name");
    }
    if (parameters != NULL && !json_object_is_type(parameters, json_type_object)) {
        normalise_path(member_path, "%s.parameters", path);
        return normalise_refuse(n, member_path, "must be a JSON schema, an object");
    }
    return 0;
}

static int add_tool(struct normaliser *n, struct json_object *in, size_t idx, struct json_object *tools) {
    char path[NORMALISE_PATH_BYTES], quoted[NORMALISE_KEY_BYTES + 4];
    struct json_object *type = normalise_get(in, "type"), *function = normalise_get(in, "function");
    normalise_path(path, "tools[%zu]", idx);
    if (!json_object_is_type(in, json_type_object)) return normalise_refuse(n, path, "must be an object");
    if (type != NULL && !json_object_is_type(type, json_type_string)) {
        normalise_path(path, "tools[%zu].type", idx);
        return normalise_refuse(n, path, "must be a string");
    }
    if (type != NULL && !normalise_is(type, "function")) {
        normalise_warn(n, "%s: tools of type '%s' are not supported; it was left out", path,
                       normalise_quote(quoted, json_object_get_string(type)));
        return 0;
    }
    if (function == NULL) {
        const int rc = check_function(n, in, path);
        if (rc == 0) normalise_append(n, tools, wrap(n, in));
        return rc;
    }
    normalise_path(path, "tools[%zu].function", idx);
    const int rc = check_function(n, function, path);
    if (rc != 0) return rc;
    struct json_object *tool = copy(n, in);
    if (tool != NULL) normalise_put(n, tool, "function", copy(n, function));
    normalise_append(n, tools, tool);
    return 0;
}

/* Whether the tools are offered. */
static int read_choice(struct normaliser *n, struct json_object *request, bool *offered) {
    char quoted[NORMALISE_KEY_BYTES + 4];
    struct json_object *choice = normalise_get(request, "tool_choice"), *word = choice;
    *offered = true;
    if (choice == NULL) return 0;
    if (json_object_is_type(choice, json_type_object)) word = normalise_get(choice, "type");
    if (!json_object_is_type(word, json_type_string))
        return normalise_refuse(n, "tool_choice", "must be auto or none");
    *offered = !normalise_is(word, "none");
    if (!*offered || normalise_is(word, "auto")) return 0;
    static const char *const forced[] = { "required", "any", "function", "tool", "allowed_tools", "custom" };
    for (size_t i = 0; i < sizeof forced / sizeof *forced; i++)
        if (normalise_is(word, forced[i]))
            return normalise_refuse(n, "tool_choice", "a forced call ('%s') is not supported yet; send auto or none", forced[i]);
    return normalise_refuse(n, "tool_choice", "'%s' is not known; send auto or none",
                            normalise_quote(quoted, json_object_get_string(word)));
}

int normalise_tools(struct normaliser *n, struct json_object *request) {
    struct json_object *in = normalise_get(request, "tools");
    bool offered;
    int rc = read_choice(n, request, &offered);
    if (rc != 0) return rc;
    if (normalise_get(request, "functions") != NULL) normalise_warn(n, "functions is not supported and was ignored; send tools");
    if (in == NULL) return 0;
    if (!json_object_is_type(in, json_type_array)) return normalise_refuse(n, "tools", "must be a list of tools or null");
    struct json_object *tools = json_object_new_array();
    if (tools == NULL) {
        n->no_memory = true;
        return 0;
    }
    for (size_t i = 0; i < json_object_array_length(in) && rc == 0; i++) rc = add_tool(n, json_object_array_get_idx(in, i), i, tools);
    if (rc == 0 && offered && json_object_array_length(tools) > 0) n->out->tools = tools;
    else json_object_put(tools);
    return rc;
}
