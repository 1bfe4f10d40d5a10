/* parser.c - the answer parser: a state machine over the lexer's pieces.
 *
 * Owns the text that is not decided yet, the open call and the open value.  The
 * numbers in the comments (A2) are those of the rules in docs/model.md, "Answers".
 * One thread at a time.
 *
 * A question about what follows ("does a call begin here?") has three answers:
 * YES, NO and MAYBE, when the text so far does not tell.  At MAYBE the head
 * waits.  When the text has ended there is no MAYBE.  Every question looks at a
 * bounded number of pieces, so an answer is read in time linear in its size. */
#include "text/parser.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "text/parser_lex.h"
#include "text/parser_types.h"

enum answer { NO, YES, MAYBE };

enum state {
    IN_REASONING,       /* the think block is open                                       */
    IN_CONTENT,         /* text before the first call                                    */
    AFTER_CALL,         /* a call has ended and nothing but blanks has followed          */
    IN_LATER_CONTENT,   /* text after a call                                             */
    IN_CALL,            /* between <function=NAME> and its end, no value open            */
    IN_VALUE            /* between <parameter=KEY> and its end                           */
};

enum { TAGS_OF_CALL_END = TAG_PARAMETER_END | TAG_FUNCTION_END | TAG_CALL_END };

struct calla_parser {
    struct calla_parser_options opt;
    struct json_object *declared;    /* function name -> its properties, or null; owned    */
    struct calla_lexer lexer;
    enum state state;
    bool finished, failed;

    /* Text. */
    bool may_think;                  /* a leading <think> would be a stray one             */
    bool leading;                    /* no reasoning has been handed out yet               */
    bool fence;                      /* inside a code fence                                */
    int  n_backquotes;               /* in a row, up to here                               */
    bool fresh;                      /* the think tag before the head was dropped: the head
                                      * stands at the start of the answer                  */
    bool skip_newlines;              /* right after </think>                               */
    bool late_think_end;             /* a call ended the reasoning: its </think> may come  */

    /* The open call. */
    struct json_object *properties;  /* borrowed from opt.tools; NULL when not declared    */
    struct json_object *given;       /* keys that have a value or are getting it; owned    */
    int  n_begun, n_complete, n_args;

    /* The open value. */
    struct json_object *schema;      /* borrowed; NULL when not in the schema              */
    enum calla_value_mode mode;
    bool dropped;                    /* its key had a value already                        */
    bool begun;                      /* its first byte has been seen                       */
    bool newline;                    /* a newline is held: the last one is no part of it   */
    int  n_nested;                   /* open <parameter=KEY> that are text                 */
    struct calla_buf value;          /* what is not printed yet                            */

    struct calla_buf out, scratch;   /* out: pieces of one kind, handed out together       */
    enum calla_delta_kind out_kind;
};

/* ---- handing out ----------------------------------------------------------- */

static void hand_out(struct calla_parser *p, enum calla_delta_kind kind, const char *text, size_t n) {
    const bool of_call = kind >= CALLA_DELTA_CALL;
    const struct calla_delta d = { .kind = kind, .call_idx = of_call ? p->n_begun - 1 : -1, .text = text, .n = n };
    p->opt.on_delta(p->opt.user, &d);
}

static void flush(struct calla_parser *p) {
    if (p->out.n > 0) hand_out(p, p->out_kind, p->out.data, p->out.n);
    p->failed |= p->out.failed;
    calla_buf_clear(&p->out);
}

static void put(struct calla_parser *p, enum calla_delta_kind kind, const char *text, size_t n) {
    if (p->out_kind != kind) flush(p);
    p->out_kind = kind;
    calla_buf_add(&p->out, text, n);
}

static void put_args(struct calla_parser *p, const char *text) { put(p, CALLA_DELTA_ARGUMENTS, text, strlen(text)); }

/* The inside of a JSON string. */
static void put_string(struct calla_parser *p, const char *text, size_t n) {
    calla_buf_clear(&p->scratch);
    calla_json_print_string(&p->scratch, text, n);
    p->failed |= p->scratch.failed;
    if (p->scratch.n > 2) put(p, CALLA_DELTA_ARGUMENTS, p->scratch.data + 1, p->scratch.n - 2);
}

/* ---- a value --------------------------------------------------------------- */

static bool begins_null(const struct calla_buf *b) { return b->n <= 4 && memcmp("null", b->data, b->n) == 0; }

static void value_put(struct calla_parser *p, const char *text, size_t n) {
    if (p->mode == VALUE_STRING) {
        put_string(p, text, n);
        return;
    }
    calla_buf_add(&p->value, text, n);
    p->failed |= p->value.failed;
    if (p->failed || p->mode != VALUE_STRING_OR_NULL || begins_null(&p->value)) return;
    p->mode = VALUE_STRING;
    put_args(p, "\"");
    put_string(p, p->value.data, p->value.n);
    calla_buf_clear(&p->value);
}

/* A4: one newline at the beginning and one at the end are no part of it. */
static void value_text(struct calla_parser *p, const char *text, size_t n) {
    if (p->dropped || n == 0) return;
    if (!p->begun && text[0] == '\n') text++, n--;
    p->begun = true;
    if (n == 0) return;
    if (p->newline) value_put(p, "\n", 1);
    p->newline = text[n - 1] == '\n';
    if (n > p->newline) value_put(p, text, n - p->newline);
}

static void value_begin(struct calla_parser *p, const char *key, size_t n) {
    p->begun = p->newline = false;
    p->n_nested = 0;
    p->state = IN_VALUE;
    calla_buf_clear(&p->value);
    calla_buf_clear(&p->scratch);
    calla_buf_add(&p->scratch, key, n);
    p->failed |= p->scratch.failed;
    if (p->failed) return;
    p->dropped = json_object_object_get_ex(p->given, p->scratch.data, NULL);
    if (p->dropped) return;          /* A5: a second value for the same KEY */
    if (json_object_object_add(p->given, p->scratch.data, NULL) != 0) p->failed = true;
    p->schema = NULL;
    const bool known = json_object_object_get_ex(p->properties, p->scratch.data, &p->schema);
    p->mode = known ? calla_value_mode(p->schema) : VALUE_STRING;
    put_args(p, p->n_args++ == 0 ? "{\"" : ", \"");
    put_string(p, key, n);
    put_args(p, p->mode == VALUE_STRING ? "\": \"" : "\": ");
}

static void value_end(struct calla_parser *p) {
    p->state = IN_CALL;
    if (p->dropped) return;
    if (p->mode == VALUE_STRING) {
        put_args(p, "\"");
        return;
    }
    calla_buf_clear(&p->scratch);
    calla_value_print(&p->scratch, p->schema, p->value.data != NULL ? p->value.data : "", p->value.n);
    p->failed |= p->scratch.failed;
    put(p, CALLA_DELTA_ARGUMENTS, p->scratch.data, p->scratch.n);
}

/* ---- a call ---------------------------------------------------------------- */

static void call_begin(struct calla_parser *p, const char *name, size_t n) {
    flush(p);
    p->late_think_end |= p->state == IN_REASONING;
    p->state = IN_CALL;
    p->n_begun++;
    p->n_args = 0;
    json_object_put(p->given);
    p->given = json_object_new_object();
    calla_buf_clear(&p->scratch);
    calla_buf_add(&p->scratch, name, n);
    p->failed |= p->given == NULL || p->scratch.failed;
    if (p->failed) return;
    p->properties = NULL;
    json_object_object_get_ex(p->declared, p->scratch.data, &p->properties);
    hand_out(p, CALLA_DELTA_CALL, name, n);
}

static void call_end(struct calla_parser *p) {
    put_args(p, p->n_args == 0 ? "{}" : "}");
    flush(p);
    hand_out(p, CALLA_DELTA_CALL_END, "", 0);
    p->n_complete++;
    p->state = AFTER_CALL;
}

/* ---- questions about what follows ------------------------------------------ */

static const struct calla_lexeme *look(struct calla_parser *p, int i) { return calla_lexer_get(&p->lexer, i); }

static enum answer any(enum answer a, enum answer b) {
    return a == YES || b == YES ? YES : a == MAYBE || b == MAYBE ? MAYBE : NO;
}

static enum answer is_tag(struct calla_parser *p, int i, unsigned tags) {
    const struct calla_lexeme *l = look(p, i);
    if (l == NULL) return p->lexer.ended ? NO : MAYBE;
    if (!(l->tags & tags)) return NO;
    return l->kind == LEX_TAG ? YES : MAYBE;
}

static enum answer is_end(struct calla_parser *p, int i) {
    return look(p, i) != NULL ? NO : p->lexer.ended ? YES : MAYBE;
}

static enum answer begins_parameter(struct calla_parser *p, int i) {
    const struct calla_lexeme *l = look(p, i);
    return l != NULL && l->parameter ? YES : is_tag(p, i, TAG_PARAMETER) == NO ? NO : MAYBE;
}

/* The place after blanks at i, if there are any. */
static int past_blanks(struct calla_parser *p, int i) {
    const struct calla_lexeme *l = look(p, i);
    return l != NULL && l->kind == LEX_BLANKS ? i + 1 : i;
}

static bool has_name(struct calla_parser *p, int i, struct json_object *names) {
    size_t n;
    const struct calla_lexeme *l = look(p, i);
    const char *name = calla_lexer_name(&p->lexer, l, &n);
    char key[CALLA_TAG_NAME_BYTES + 1];
    memcpy(key, name, n);
    key[n] = 0;
    return json_object_object_get_ex(names, key, NULL);
}

static bool at_line_start(struct calla_parser *p, int i) { return look(p, i)->line_start || (i == 0 && p->fresh); }

/* A2, A3: does a call begin at i, and at which tag is its name? */
static enum answer begins_call(struct calla_parser *p, int i, int *name_at) {
    const struct calla_lexeme *l = look(p, i);
    if (p->declared == NULL) return NO;
    if (l == NULL) return p->lexer.ended ? NO : MAYBE;
    const bool strict = p->state == IN_REASONING, line = at_line_start(p, i);
    if (strict && (!line || p->fence)) return NO;                                    /* A3 */
    if (l->kind == LEX_PARTIAL) return l->tags & (TAG_CALL | (line ? TAG_FUNCTION : 0)) ? MAYBE : NO;
    if (l->kind != LEX_TAG) return NO;
    if (l->tags == TAG_CALL) {                                                       /* A2: wrapped */
        *name_at = past_blanks(p, i + 1);
        const enum answer a = is_tag(p, *name_at, TAG_FUNCTION);
        return a == YES && strict && !has_name(p, *name_at, p->declared) ? NO : a;   /* A3 */
    }
    if (l->tags != TAG_FUNCTION || !line || !has_name(p, i, p->declared)) return NO; /* A2: bare */
    *name_at = i;
    const int next = past_blanks(p, i + 1);
    return any(begins_parameter(p, next), is_tag(p, next, TAG_FUNCTION_END));
}

/* A4b: is at i a parameter that ends the open value? */
static enum answer is_next_parameter(struct calla_parser *p, int i) {
    const enum answer a = is_tag(p, i, TAG_PARAMETER);
    const struct calla_lexeme *l = look(p, i);
    if (a == NO || (l != NULL && !l->line_start)) return NO;
    if (a == MAYBE) return MAYBE;
    return p->properties != NULL && has_name(p, i, p->properties) && !has_name(p, i, p->given) ? YES : NO;
}

/* A4c: does the call end at i, whatever is open? */
static enum answer ends_call(struct calla_parser *p, int i) {
    enum answer a = is_tag(p, i, TAG_FUNCTION_END);
    if (a != YES) return a;
    i = past_blanks(p, i + 1);
    if ((a = is_tag(p, i, TAG_CALL_END)) != YES) return a;
    i = past_blanks(p, i + 1);
    return any(is_end(p, i), is_tag(p, i, TAG_CALL));
}

/* Is the </parameter> at the head the open value's? */
static enum answer is_value_end(struct calla_parser *p) {
    const int i = past_blanks(p, 1);
    if (p->n_nested > 0) return any(is_next_parameter(p, i), ends_call(p, i));                      /* A4b, A4c */
    return any(begins_parameter(p, i), any(is_tag(p, i, TAG_FUNCTION_END | TAG_CALL_END), is_end(p, i)));   /* A4a */
}

/* ---- one step -------------------------------------------------------------- */

static void take(struct calla_parser *p, size_t n_bytes) {
    p->fresh = p->skip_newlines = false;
    calla_lexer_take(&p->lexer, n_bytes);
}

static void take_head(struct calla_parser *p) { take(p, look(p, 0)->n); }

/* The head as text of the present state. */
static void take_as_text(struct calla_parser *p) {
    const struct calla_lexeme *l = look(p, 0);
    const char *s = calla_lexer_text(&p->lexer, l);
    if (p->state == IN_VALUE) value_text(p, s, l->n);
    else if (p->state == IN_REASONING) {
        for (size_t i = 0; i < l->n; i++) {   /* A3: code fences */
            p->n_backquotes = s[i] == '`' ? p->n_backquotes + 1 : 0;
            if (p->n_backquotes < 3) continue;
            p->fence = !p->fence;
            p->n_backquotes = 0;
        }
        p->leading = p->may_think = false;
        put(p, CALLA_DELTA_REASONING, s, l->n);
    } else if (p->state != IN_CALL) {
        if (p->state == AFTER_CALL) p->state = IN_LATER_CONTENT;
        put(p, CALLA_DELTA_CONTENT, s, l->n);
    }
    take_head(p);
}

/* Takes the head up to and with the tag at name_at. */
static void take_call(struct calla_parser *p, int name_at) {
    for (; name_at > 0; name_at--) take_head(p);
    size_t n;
    const char *name = calla_lexer_name(&p->lexer, look(p, 0), &n);
    call_begin(p, name, n);
    take_head(p);
}

/* The tags that would mean something at the head. */
static unsigned meaningful_tags(struct calla_parser *p) {
    const bool line = at_line_start(p, 0);
    unsigned tags = 0;
    if (p->state == IN_VALUE) return TAG_PARAMETER | TAG_PARAMETER_END | TAG_FUNCTION_END;
    if (p->state == IN_REASONING) tags |= TAG_THINK_END | (p->may_think ? TAG_THINK : 0);
    else if (p->late_think_end) tags |= TAG_THINK_END;
    if (p->state == IN_CALL) tags |= TAG_PARAMETER | TAGS_OF_CALL_END;
    if (p->state == AFTER_CALL) tags |= TAGS_OF_CALL_END;
    if (p->declared == NULL || (p->state == IN_REASONING && (!line || p->fence))) return tags;
    return tags | TAG_CALL | (line ? TAG_FUNCTION : 0);
}

/* What the blanks at the head are followed by decides about them. */
static bool step_blanks(struct calla_parser *p) {
    const struct calla_lexeme *l = look(p, 0);
    int name_at;
    if (p->state == IN_CALL || (p->state == IN_REASONING && p->leading)) {
        take_head(p);
        return true;
    }
    if (p->skip_newlines) {                                                          /* A6 */
        size_t n = 0;
        while (n < l->n && calla_lexer_text(&p->lexer, l)[n] == '\n') n++;
        const bool all = n == l->n;
        if (n > 0) take(p, n);
        p->skip_newlines = all;
        if (n > 0) return true;
    }
    enum answer gone = NO;
    if (p->state == IN_REASONING || p->state == AFTER_CALL) {
        gone = any(gone, is_end(p, 1));                                              /* A1, A6 */
        if (p->state == IN_REASONING || p->late_think_end) gone = any(gone, is_tag(p, 1, TAG_THINK_END));
        if (p->state == AFTER_CALL) gone = any(gone, is_tag(p, 1, TAGS_OF_CALL_END)); /* A5 */
    }
    if (p->state != IN_VALUE && p->state != IN_LATER_CONTENT) gone = any(gone, begins_call(p, 1, &name_at));   /* A6 */
    if (gone == MAYBE) return false;
    if (gone == YES) take_head(p);
    else take_as_text(p);
    return true;
}

static void step_think_end(struct calla_parser *p) {
    if (p->state == IN_REASONING) {
        flush(p);
        p->state = IN_CONTENT;
    } else {
        p->late_think_end = false;                                                   /* A3: dropped */
    }
    take_head(p);
    p->skip_newlines = p->fresh = true;                                              /* A6 */
}

/* A whole tag at the head, no value open. */
static bool step_tag(struct calla_parser *p) {
    const unsigned tag = look(p, 0)->tags;
    int name_at = 0;
    const enum answer call = begins_call(p, 0, &name_at);
    if (call == MAYBE) return false;
    if (call == YES) {
        if (p->state == IN_CALL) call_end(p);   /* the next call begins, this one's end was forgotten */
        take_call(p, name_at);
        return true;
    }
    if (tag == TAG_THINK_END && (p->state == IN_REASONING || (p->late_think_end && p->state != IN_CALL))) {
        step_think_end(p);
        return true;
    }
    if (tag == TAG_THINK && p->state == IN_REASONING && p->may_think) {              /* A1: stray */
        take_head(p);
        p->may_think = false;
        p->fresh = true;
        return true;
    }
    if (p->state == IN_CALL && tag == TAG_PARAMETER) {
        size_t n;
        const char *key = calla_lexer_name(&p->lexer, look(p, 0), &n);
        value_begin(p, key, n);
        take_head(p);
        return true;
    }
    if (p->state == IN_CALL && (tag == TAG_FUNCTION_END || tag == TAG_CALL_END)) {
        call_end(p);
        take_head(p);
        return true;
    }
    if (p->state == AFTER_CALL && tag & TAGS_OF_CALL_END) {                          /* A5: stray */
        take_head(p);
        return true;
    }
    take_as_text(p);                    /* A2: all else is text; inside a call it is skipped */
    return true;
}

/* A whole tag at the head, inside a value. */
static bool step_tag_in_value(struct calla_parser *p) {
    const unsigned tag = look(p, 0)->tags;
    enum answer ends = NO;
    if (tag == TAG_PARAMETER) ends = is_next_parameter(p, 0);                        /* A4b */
    if (tag == TAG_PARAMETER_END) ends = is_value_end(p);                            /* A4a to A4c */
    if (tag == TAG_FUNCTION_END) ends = ends_call(p, 0);                             /* A4c */
    if (ends == MAYBE) return false;
    if (ends == YES) {
        value_end(p);
        if (tag == TAG_PARAMETER_END) take_head(p);
        return true;
    }
    if (tag == TAG_PARAMETER) p->n_nested++;                                         /* A4b */
    if (tag == TAG_PARAMETER_END && p->n_nested > 0) p->n_nested--;
    take_as_text(p);
    return true;
}

/* Decides about the head; false when more text is needed, or none is left. */
static bool step(struct calla_parser *p) {
    const struct calla_lexeme *l = look(p, 0);
    if (l == NULL || p->failed) return false;
    if (l->kind == LEX_PARTIAL) {
        if (l->tags & meaningful_tags(p)) return false;
        calla_lexer_demote(&p->lexer);
        return true;
    }
    if (l->kind == LEX_BLANKS && p->state != IN_VALUE) return step_blanks(p);
    if (l->kind == LEX_TAG) return p->state == IN_VALUE ? step_tag_in_value(p) : step_tag(p);
    take_as_text(p);
    return true;
}

/* ---- the interface --------------------------------------------------------- */

/* The tool's function, whether wrapped ({"type": "function", "function": {...}}) or not. */
static int declare(struct calla_parser *p, struct json_object *tool) {
    struct json_object *f = tool, *name = NULL, *parameters = NULL, *properties = NULL;
    if (!json_object_is_type(tool, json_type_object)) return 0;
    if (json_object_object_get_ex(tool, "function", &f) && !json_object_is_type(f, json_type_object)) return 0;
    if (f == NULL) f = tool;
    if (!json_object_object_get_ex(f, "name", &name) || !json_object_is_type(name, json_type_string)) return 0;
    if (json_object_object_get_ex(p->declared, json_object_get_string(name), NULL)) return 0;   /* the first counts */
    if (json_object_object_get_ex(f, "parameters", &parameters) && json_object_is_type(parameters, json_type_object) &&
        json_object_object_get_ex(parameters, "properties", &properties) && !json_object_is_type(properties, json_type_object))
        properties = NULL;
    json_object_get(properties);
    if (json_object_object_add(p->declared, json_object_get_string(name), properties) == 0) return 0;
    json_object_put(properties);
    return -1;
}

int calla_parser_new(struct calla_parser **out, const struct calla_parser_options *opt, struct calla_err *err) {
    struct calla_parser *p = calloc(1, sizeof *p);
    *out = p;
    if (p == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "answer parser: out of memory");
    p->opt = *opt;
    p->state = opt->thinking ? IN_REASONING : IN_CONTENT;
    p->may_think = p->leading = opt->thinking;
    calla_lexer_init(&p->lexer);
    p->failed = p->lexer.held.failed;
    const bool tools = json_object_is_type(opt->tools, json_type_array) && json_object_array_length(opt->tools) > 0;
    if (tools && (p->declared = json_object_new_object()) == NULL) p->failed = true;
    for (size_t i = 0; tools && !p->failed && i < json_object_array_length(opt->tools); i++)
        p->failed = declare(p, json_object_array_get_idx(opt->tools, i)) != 0;
    if (!p->failed) return 0;
    calla_parser_free(out);
    return calla_fail(err, CALLA_ERR_MEMORY, "answer parser: out of memory");
}

void calla_parser_free(struct calla_parser **p) {
    if (*p == NULL) return;
    json_object_put((*p)->declared);
    json_object_put((*p)->given);
    calla_lexer_free(&(*p)->lexer);
    calla_buf_free(&(*p)->value);
    calla_buf_free(&(*p)->out);
    calla_buf_free(&(*p)->scratch);
    free(*p);
    *p = NULL;
}

static int run(struct calla_parser *p, struct calla_err *err) {
    while (step(p)) {}
    return p->failed || p->lexer.held.failed ? calla_fail(err, CALLA_ERR_MEMORY, "answer parser: out of memory") : 0;
}

int calla_parser_feed(struct calla_parser *p, const char *text, size_t n, struct calla_err *err) {
    if (p->finished) return calla_fail(err, CALLA_ERR_ARGUMENT, "answer parser: %zu bytes after the end of the answer", n);
    calla_lexer_add(&p->lexer, text, n);
    const int rc = run(p, err);
    flush(p);
    return rc;
}

int calla_parser_finish(struct calla_parser *p, bool cut, struct calla_err *err) {
    if (p->finished) return calla_fail(err, CALLA_ERR_ARGUMENT, "answer parser: the answer has ended already");
    p->finished = p->lexer.ended = true;
    const int rc = run(p, err);
    if (rc != 0) return rc;
    assert(look(p, 0) == NULL);
    if (!cut && p->state == IN_VALUE) value_end(p);   /* A7 */
    if (!cut && p->state == IN_CALL) call_end(p);
    flush(p);
    return p->failed ? calla_fail(err, CALLA_ERR_MEMORY, "answer parser: out of memory") : 0;
}

bool calla_parser_in_reasoning(const struct calla_parser *p) { return p->state == IN_REASONING; }

int calla_parser_n_calls(const struct calla_parser *p) { return p->n_complete; }
