#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "text/parser.h"

static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"w\", \"parameters\": {\"properties\": {\"content\": {\"type\": \"string\"},"
    " \"path\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"opt\": {\"type\": [\"string\", \"null\"]}}}}}]";

/* What a parser has handed out, as a trace: "R<text>", "C<text>", "[0 name", "0{args", "]0". */
struct trace { struct calla_buf text; struct calla_message message; int n_args, n_content, n_content_after_call; };

static void on_delta(void *user, const struct calla_delta *d) {
    struct trace *t = user;
    const char *mark[] = { "R", "C", "[", "=", "]" };
    calla_buf_str(&t->text, mark[d->kind]);
    if (d->kind >= CALLA_DELTA_CALL) calla_buf_fmt(&t->text, "%d ", d->call_idx);
    calla_buf_add(&t->text, d->text, d->n);
    calla_message_add(&t->message, d);
    t->n_args += d->kind == CALLA_DELTA_ARGUMENTS;
    t->n_content += d->kind == CALLA_DELTA_CONTENT;
    t->n_content_after_call += d->kind == CALLA_DELTA_CONTENT && t->message.n_calls > 0;
}

static struct calla_parser *open_parser(struct trace *t, bool thinking, struct json_object **tools) {
    struct calla_parser *p = NULL;
    memset(t, 0, sizeof *t);
    assert_int_equal(calla_json_parse(tools_json, strlen(tools_json), tools, NULL), 0);
    const struct calla_parser_options opt = { .tools = *tools, .thinking = thinking, .on_delta = on_delta, .user = t };
    assert_int_equal(calla_parser_new(&p, &opt, NULL), 0);
    return p;
}

static void close_parser(struct calla_parser *p, struct trace *t, struct json_object *tools) {
    calla_parser_free(&p);
    assert_null(p);
    calla_buf_free(&t->text);
    calla_message_free(&t->message);
    json_object_put(tools);
}

/* Feeds text a byte at a time and checks what has been handed out by then. */
static void check_shown(const char *text, bool thinking, const char *shown) {
    struct trace t;
    struct json_object *tools;
    struct calla_buf joined = { 0 };
    struct calla_parser *p = open_parser(&t, thinking, &tools);
    for (const char *s = text; *s != 0; s++) assert_int_equal(calla_parser_feed(p, s, 1, NULL), 0);
    calla_buf_add(&joined, t.message.reasoning.data, t.message.reasoning.n);
    calla_buf_char(&joined, '|');
    calla_buf_add(&joined, t.message.content.data, t.message.content.n);
    for (int i = 0; i < t.message.n_begun; i++) {
        calla_buf_char(&joined, '|');
        calla_buf_add(&joined, t.message.calls[i].arguments.data, t.message.calls[i].arguments.n);
    }
    assert_string_equal(joined.data, shown);
    calla_buf_free(&joined);
    close_parser(p, &t, tools);
}

static void test_only_candidate_tags_and_their_blanks_are_held_back(void **unused) {
    (void)unused;
    check_shown("abc", false, "|abc");
    check_shown("abc \n", false, "|abc");                       /* a call may follow */
    check_shown("abc \nd", false, "|abc \nd");
    check_shown("abc <", false, "|abc");
    check_shown("abc <t", false, "|abc");
    check_shown("abc <th", false, "|abc <th");                  /* <think> means nothing here */
    check_shown("abc <tool_call> ", false, "|abc");
    check_shown("abc <tool_call> x", false, "|abc <tool_call> x");
    check_shown("abc <f", false, "|abc <f");                    /* a bare function begins a line */
    check_shown("abc\n<f", false, "|abc");
    check_shown("abc\n<function=nope>", false, "|abc\n<function=nope>");
    check_shown("abc\n<function=w>\n", false, "|abc");
    check_shown("abc\n<function=w>\nx", false, "|abc\n<function=w>\nx");
    check_shown("</think", false, "|</think");
    check_shown("a </thin", true, "a|");
    check_shown("a <tool", true, "a <tool|");                   /* a call in reasoning begins a line */
    check_shown("a\n<tool", true, "a|");
    check_shown("a\n```\n<tool", true, "a\n```\n<tool|");       /* and stands in no code fence */
    check_shown("a</think>\n\n", true, "a|");
    check_shown("a</think>\n\nb", true, "a|b");
#define VALUE "<tool_call><function=w><parameter=content>"
    check_shown(VALUE "a b", false, "||{\"content\": \"a b");
    check_shown(VALUE "\na b\n", false, "||{\"content\": \"a b");
    check_shown(VALUE "a  ", false, "||{\"content\": \"a  ");
    check_shown(VALUE "a\n\n", false, "||{\"content\": \"a\\n");
    check_shown(VALUE "a</", false, "||{\"content\": \"a");
    check_shown(VALUE "a</x", false, "||{\"content\": \"a</x");
    check_shown(VALUE "a<tool_call", false, "||{\"content\": \"a<tool_call");
    check_shown(VALUE "a</tool_call> <think>", false, "||{\"content\": \"a</tool_call> <think>");
    check_shown(VALUE "a</parameter> \n", false, "||{\"content\": \"a");
    check_shown(VALUE "a</parameter> \nx", false, "||{\"content\": \"a</parameter> \\nx");
    check_shown(VALUE "a</parameter></function>", false, "||{\"content\": \"a\"}");
    check_shown(VALUE "a</function> </tool_call> ", false, "||{\"content\": \"a");
    check_shown("<tool_call><function=w><parameter=n>12", false, "||{\"n\": ");          /* waits for its close */
    check_shown("<tool_call><function=w><parameter=opt>nul", false, "||{\"opt\": ");     /* may be null          */
    check_shown("<tool_call><function=w><parameter=opt>nulx", false, "||{\"opt\": \"nulx");
#undef VALUE
}

static void test_deltas_are_in_order_and_numbered(void **unused) {
    (void)unused;
    static const char text[] = "Hm.</think>\n\nHi\n<tool_call>\n<function=w>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>\n"
                               "<tool_call>\n<function=ping>\n</function>\n</tool_call>";
    struct trace t;
    struct json_object *tools;
    struct calla_parser *p = open_parser(&t, true, &tools);
    assert_true(calla_parser_in_reasoning(p));
    assert_int_equal(calla_parser_feed(p, text, strlen(text), NULL), 0);
    assert_false(calla_parser_in_reasoning(p));
    assert_int_equal(calla_parser_finish(p, false, NULL), 0);
    assert_int_equal(calla_parser_n_calls(p), 2);
    assert_string_equal(t.text.data, "RHm.CHi[0 w=0 {\"n\": 5}]0 [1 ping=1 {}]1 ");
    assert_int_equal(calla_parser_feed(p, "x", 1, NULL), CALLA_ERR_ARGUMENT);
    assert_int_equal(calla_parser_finish(p, false, NULL), CALLA_ERR_ARGUMENT);
    close_parser(p, &t, tools);
}

static void test_a_cut_call_has_no_end_and_is_not_counted(void **unused) {
    (void)unused;
    static const char text[] = "<tool_call>\n<function=w>\n</function>\n<tool_call>\n<function=w>\n<parameter=content>\nab";
    struct trace t;
    struct json_object *tools;
    struct calla_parser *p = open_parser(&t, false, &tools);
    assert_int_equal(calla_parser_feed(p, text, strlen(text), NULL), 0);
    assert_int_equal(calla_parser_finish(p, true, NULL), 0);
    assert_string_equal(t.text.data, "[0 w=0 {}]0 [1 w=1 {\"content\": \"ab");
    assert_int_equal(calla_parser_n_calls(p), 1);
    assert_int_equal(t.message.n_calls, 1);
    assert_int_equal(t.message.n_begun, 2);
    close_parser(p, &t, tools);
}

static void test_a_long_string_streams(void **unused) {
    (void)unused;
    struct calla_buf text = { 0 };
    struct trace t;
    struct json_object *tools, *args = NULL, *content = NULL;
    struct calla_parser *p = open_parser(&t, false, &tools);
    calla_buf_str(&text, "<tool_call>\n<function=w>\n<parameter=content>\n");
    const size_t begin = text.n;
    for (int i = 0; i < 5000; i++) calla_buf_char(&text, "line of a file\n\"<b>\"\t"[i % 21]);
    const size_t end = text.n;
    calla_buf_str(&text, "\n</parameter>\n</function>\n</tool_call>\n");
    for (size_t i = 0; i < text.n; i++) {
        assert_int_equal(calla_parser_feed(p, text.data + i, 1, NULL), 0);
        /* Never more than a tag and a newline behind. */
        if (i == end - 1) assert_true(t.message.calls[0].arguments.n > 5000 - 16);
    }
    assert_int_equal(calla_parser_finish(p, false, NULL), 0);
    assert_true(t.n_args > 50);
    assert_int_equal(t.n_content, 0);
    assert_int_equal(t.n_content_after_call, 0);
    assert_int_equal(calla_json_parse(t.message.calls[0].arguments.data, t.message.calls[0].arguments.n, &args, NULL), 0);
    assert_true(json_object_object_get_ex(args, "content", &content));
    assert_int_equal(json_object_get_string_len(content), 5000);
    assert_memory_equal(json_object_get_string(content), text.data + begin, 5000);
    json_object_put(args);
    calla_buf_free(&text);
    close_parser(p, &t, tools);
}

/* ---- linear time ----------------------------------------------------------- */

struct hard { const char *begin, *repeat; bool thinking; };
static const struct hard hard[] = {
    { "", "<", false }, { "", "<tool_call>", false }, { "", "<tool_call>\n", true }, { "", "\n<function=w>", false }, { "", " ", false },
    { "a\n<tool_call>", "\n", true }, { "a", "\n", false }, { "", "\n<function=w>\n<function=wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww", true },
    { "", "`", true }, { "", "</think", true }, { "", "<tool_call><function=w></function></tool_call>", false },
    { "<tool_call><function=w><parameter=content>", "</parameter>", false },
    { "<tool_call><function=w><parameter=content>", "</parameter>\n", false },
    { "<tool_call><function=w><parameter=content>", "</function>\n</tool_call>\n", false },
    { "<tool_call><function=w><parameter=content>", "\n<parameter=path>", false },
    { "<tool_call><function=w><parameter=content>", "</parameter></function> </tool_call> <parameter=x>", false },
    { "<tool_call><function=w><parameter=content></parameter></function>", " ", false },
    { "<tool_call><function=w><parameter=n>", "[", false }, { "<tool_call><function=w><parameter=opt>", "null\n", false },
    { "<tool_call><function=w><parameter=", "k", false }, { "<tool_call><function=w>", "<parameter=%d></parameter>", false },
    { "<tool_call><function=w></function>", "</parameter></function>\n", false },
};

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void count_only(void *user, const struct calla_delta *d) { *(size_t *)user += d->n; }

static double time_of(const struct hard *h, size_t n_bytes, size_t piece, struct json_object *tools) {
    struct calla_buf text = { 0 };
    calla_buf_str(&text, h->begin);
    for (int i = 0; text.n < n_bytes; i++) {
        const char *mark = strchr(h->repeat, '%');
        if (mark == NULL) calla_buf_str(&text, h->repeat);
        else calla_buf_fmt(&text, "%.*s%d%s", (int)(mark - h->repeat), h->repeat, i, mark + 2);
    }
    struct calla_parser *p;
    size_t n_out = 0;
    const struct calla_parser_options opt = { .tools = tools, .thinking = h->thinking, .on_delta = count_only, .user = &n_out };
    const double begin = cpu_seconds();
    assert_int_equal(calla_parser_new(&p, &opt, NULL), 0);
    for (size_t i = 0; i < text.n; i += piece)
        assert_int_equal(calla_parser_feed(p, text.data + i, piece < text.n - i ? piece : text.n - i, NULL), 0);
    assert_int_equal(calla_parser_finish(p, false, NULL), 0);
    calla_parser_free(&p);
    const double seconds = cpu_seconds() - begin;
    calla_buf_free(&text);
    return seconds;
}

static void test_hard_answers_take_linear_time(void **unused) {
    (void)unused;
    struct json_object *tools;
    assert_int_equal(calla_json_parse(tools_json, strlen(tools_json), &tools, NULL), 0);
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++)
        for (size_t piece = 3; piece < 1u << 23; piece <<= 20) {
            /* Twice the text, twice the time; 3.2 lies between that and the 4 of a
             * quadratic cost.  The floor of 2 ms is the clock's noise. */
            double one = 0, two = 0;
            for (int tries = 0; tries < 5; tries++) {
                one = time_of(&hard[i], 1u << 20, piece, tools);
                two = time_of(&hard[i], 2u << 20, piece, tools);
                if (two < 3.2 * one + 0.002) break;
            }
            if (two >= 3.2 * one + 0.002)
                fail_msg("\"%s\" in pieces of %zu: %.1f ms for 1 MiB, %.1f ms for 2 MiB", hard[i].repeat, piece, 1e3 * one, 1e3 * two);
        }
    json_object_put(tools);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_candidate_tags_and_their_blanks_are_held_back),
        cmocka_unit_test(test_deltas_are_in_order_and_numbered),
        cmocka_unit_test(test_a_cut_call_has_no_end_and_is_not_counted),
        cmocka_unit_test(test_a_long_string_streams),
        cmocka_unit_test(test_hard_answers_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
