#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "text/normalise.h"

struct result {
    int rc;
    struct calla_prompt prompt;
    struct calla_normalised n;
    struct json_object *request;
    struct calla_err err;
    char field[128];
};

static struct result run(const char *text) {
    struct result r = { 0 };
    if (calla_json_parse(text, strlen(text), &r.request, &r.err) != 0) fail_msg("%s: %s", text, r.err.message);
    r.rc = calla_normalise(&r.n, r.request, r.field, sizeof r.field, &r.err);
    if (r.rc == 0) {
        r.rc = calla_render(&r.prompt, &r.n.render, &r.err);
        if (r.rc != 0) fail_msg("%s: normalised, but the template says: %s", text, r.err.message);
    }
    return r;
}

static void done(struct result *r) {
    calla_prompt_free(&r->prompt);
    calla_normalised_free(&r->n);
    json_object_put(r->request);
}

/* want: the whole prompt without its generation prompt. */
static void gives(const char *messages, const char *want) {
    struct calla_buf text = { 0 };
    calla_buf_fmt(&text, "{\"add_generation_prompt\": false, \"messages\": [%s]}", messages);
    struct result r = run(text.data);
    if (r.rc != 0) fail_msg("%s: %s", messages, r.err.message);
    if (strcmp(r.prompt.text.data, want) != 0) fail_msg("%s gives\n%s\nnot\n%s", messages, r.prompt.text.data, want);
    assert_null(r.n.warnings);
    done(&r);
    calla_buf_free(&text);
}

static void refuses(const char *request, const char *field, const char *sentence) {
    struct result r = run(request);
    if (r.rc != CALLA_ERR_ARGUMENT) fail_msg("%s: status %d", request, r.rc);
    if (strcmp(r.field, field) != 0) fail_msg("%s: field '%s', not '%s'", request, r.field, field);
    if (strncmp(r.err.message, field, strlen(field)) != 0 || strstr(r.err.message, sentence) == NULL)
        fail_msg("%s: '%s' does not say '%s'", request, r.err.message, sentence);
    assert_null(r.n.messages);
    done(&r);
}

#define SYS(text) "{\"role\": \"system\", \"content\": \"" text "\"}"
#define USER(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define SAYS(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define IM(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"

static void test_leading_system_and_developer_messages_are_one(void **unused) {
    (void)unused;
    gives(SYS("A") "," "{\"role\": \"developer\", \"content\": \" B \"}" "," SYS("C") "," USER("x"), IM("system", "A\nB\nC") IM("user", "x"));
    gives(SYS("") "," SYS("A") "," SYS(" ") "," USER("x"), IM("system", "A") IM("user", "x"));
    gives(SYS("") "," USER("x"), IM("system", "") IM("user", "x"));
}

static void test_a_later_system_message_stays_at_its_place(void **unused) {
    (void)unused;
    gives(USER("a") "," SAYS("b") "," SYS("C") "," USER("d"),
          IM("user", "a") IM("assistant", "b") IM("system", "C") IM("user", "d"));
    gives(USER("a") ",{\"role\": \"developer\", \"content\": \"C\"}", IM("user", "a") IM("system", "C"));
}

static void test_a_later_system_message_is_no_query(void **unused) {
    (void)unused;
    gives(USER("a") ",{\"role\": \"assistant\", \"content\": \"b\", \"reasoning_content\": \"r\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]},"
          "{\"role\": \"tool\", \"content\": \"1\"}," SYS("C"),
          IM("user", "a") IM("assistant", "<think>\nr\n</think>\n\nb\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>")
          IM("user", "<tool_response>\n1\n</tool_response>") IM("system", "C"));
}

static void test_without_a_user_message_thinking_is_kept(void **unused) {
    (void)unused;
    gives(SYS("s"), IM("system", "s"));
    gives(SYS("s") ",{\"role\": \"assistant\", \"content\": \"\", \"reasoning\": \"r\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]},"
          "{\"role\": \"tool\", \"content\": \"1\"}",
          IM("system", "s") IM("assistant", "<think>\nr\n</think>\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>")
          IM("user", "<tool_response>\n1\n</tool_response>"));
    gives(USER("<tool_response>x</tool_response>"), IM("user", "<tool_response>x</tool_response>"));
    gives(USER(""), IM("user", ""));
}

static void test_reasoning_has_two_names_and_is_used_once(void **unused) {
    (void)unused;
    static const char *const fields[] = { "\"reasoning\": \"R1\"", "\"reasoning_content\": \"R1\"", "\"reasoning\": \"R1\", \"reasoning_content\": \"R1\"", "\"reasoning\": \"R2\", \"reasoning_content\": \"R1\"",
                                          "\"reasoning\": \"R1\", \"reasoning_content\": \"\"", "\"reasoning_content\": \"R1\", \"reasoning\": null" };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char text[256];
        snprintf(text, sizeof text, USER("x") ",{\"role\": \"assistant\", \"content\": \"y\", %s}, {\"role\": \"tool\", \"content\": \"z\"}", fields[i]);
        gives(text, IM("user", "x") IM("assistant", "<think>\nR1\n</think>\n\ny") IM("user", "<tool_response>\nz\n</tool_response>"));
    }
    gives(USER("x") ",{\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": \"R1\"}, {\"type\": \"redacted_thinking\", \"data\": \"\"},"
          "{\"type\": \"text\", \"text\": \"y\"}]}, {\"role\": \"tool\", \"content\": \"z\"}",
          IM("user", "x") IM("assistant", "<think>\nR1\n</think>\n\ny") IM("user", "<tool_response>\nz\n</tool_response>"));
}

static void call_gives(const char *arguments, const char *want) {
    char text[512], all[512];
    snprintf(text, sizeof text, USER("x") ",{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\","
             "\"function\": {\"name\": \"f\"%s}}]}, {\"role\": \"tool\", \"content\": \"z\"}", arguments);
    snprintf(all, sizeof all, IM("user", "x") IM("assistant", "<think>\n\n</think>\n\n<tool_call>\n<function=f>\n%s</function>\n</tool_call>")
             IM("user", "<tool_response>\nz\n</tool_response>"), want);
    gives(text, all);
}

static void test_arguments_are_parsed_and_broken_ones_stay_text(void **unused) {
    (void)unused;
    call_gives("", "");
    call_gives(", \"arguments\": null", "");
    call_gives(", \"arguments\": \"\"", "");
    call_gives(", \"arguments\": \" \\n\"", "");
    call_gives(", \"arguments\": \"{}\"", "");
    call_gives(", \"arguments\": {\"b\": 1, \"a\": \"s\"}", "<parameter=b>\n1\n</parameter>\n<parameter=a>\ns\n</parameter>\n");
    call_gives(", \"arguments\": \"{\\\"b\\\":1e5,\\\"a\\\":[true]}\"", "<parameter=b>\n100000.0\n</parameter>\n<parameter=a>\n[true]\n</parameter>\n");
    call_gives(", \"arguments\": \"{bad\"", "{bad\n");
    call_gives(", \"arguments\": \"[1, 2]\"", "[1, 2]\n");
    call_gives(", \"arguments\": \"null\"", "null\n");
    call_gives(", \"arguments\": [1, {\"a\": 2}]", "[1, {\"a\": 2}]\n");
}

static void test_arguments_nested_too_deep_stay_text(void **unused) {
    (void)unused;
    struct calla_buf text = { 0 };
    calla_buf_str(&text, "{\"messages\": [" USER("x") ",{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\":");
    for (int i = 0; i < 10000; i++) calla_buf_char(&text, '[');
    calla_buf_str(&text, "\"}}]}," USER("y") "]}");
    struct result r = run(text.data);
    assert_int_equal(r.rc, 0);
    assert_non_null(strstr(r.prompt.text.data, "<function=f>\n{\"a\":[[["));
    done(&r);
    calla_buf_free(&text);
}

static void test_legacy_function_calls_are_tool_calls(void **unused) {
    (void)unused;
    gives(USER("x") ",{\"role\": \"assistant\", \"content\": null, \"function_call\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}},"
          "{\"role\": \"function\", \"name\": \"f\", \"content\": \"z\"}",
          IM("user", "x") IM("assistant", "<think>\n\n</think>\n\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>")
          IM("user", "<tool_response>\nz\n</tool_response>"));
}

static void test_a_trailing_assistant_message_stays_open_and_an_empty_one_goes(void **unused) {
    (void)unused;
    struct result r = run("{\"messages\": [" USER("x") "," SAYS("The answer is ") "]}");
    assert_string_equal(r.prompt.text.data, IM("user", "x") "<|im_start|>assistant\n<think>\n\n</think>\n\nThe answer is");
    assert_true(r.n.render.open_last);
    done(&r);
    r = run("{\"messages\": [" USER("x") ",{\"role\": \"assistant\", \"reasoning_content\": \"r\"}]}");
    assert_string_equal(r.prompt.text.data, IM("user", "x") "<|im_start|>assistant\n<think>\nr\n</think>\n\n");
    done(&r);
    static const char *const empty[] = { SAYS(""), SAYS(" \\n"), "{\"role\": \"assistant\"}", "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": []}",
                                         SAYS("") "," SAYS("") };
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"messages\": [" USER("x") ",%s]}", empty[i]);
        r = run(text);
        assert_string_equal(r.prompt.text.data, IM("user", "x") "<|im_start|>assistant\n<think>\n");
        assert_false(r.n.render.open_last);
        done(&r);
    }
    refuses("{\"messages\": [" SAYS("") "]}", "messages", "only empty assistant");
}

static void assistant_gives(const char *content, const char *want) {
    char text[512], all[512];
    snprintf(text, sizeof text, USER("x") ",{\"role\": \"assistant\", \"content\": \"%s\"}, {\"role\": \"tool\", \"content\": \"z\"}", content);
    snprintf(all, sizeof all, IM("user", "x") IM("assistant", "<think>\n%s") IM("user", "<tool_response>\nz\n</tool_response>"), want);
    gives(text, all);
}

static void test_a_think_tag_in_a_text_loses_nothing(void **unused) {
    (void)unused;
    assistant_gives("Use </think> to end", "\n</think>\n\nUse </think> to end");
    assistant_gives("ends in </think>", "\n</think>\n\nends in </think>");
    assistant_gives("a <think> b </think> c", "\n</think>\n\na <think> b </think> c");
    assistant_gives("<think>\\nr\\n</think>\\n\\nb", "r\n</think>\n\nb");
    assistant_gives("<think>r</think>b", "r\n</think>\n\nb");
    assistant_gives("r\\n</think>\\n\\nb", "r\n</think>\n\nb");
    assistant_gives("<think>\\nr\\n</think>\\n\\nUse </think> to end", "r\n</think>\n\nUse </think> to end");
    assistant_gives("r\\n</think>\\n\\nUse </think> to end", "r\n</think>\n\nUse </think> to end");
    assistant_gives("say </think> now\\n</think>\\nb", "say </think> now\n</think>\n\nb");
    assistant_gives("one </think> two </think> three", "\n</think>\n\none </think> two </think> three");
    gives(USER("Say: a </think> b <|im_end|> c"), IM("user", "Say: a </think> b <|im_end|> c"));
}

static void test_text_parts_are_joined_for_every_role(void **unused) {
    (void)unused;
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };
    static const char parts[] = "[{\"type\": \"text\", \"text\": \"20C\", \"cache_control\": {\"type\": \"ephemeral\"}},"
                                "{\"type\": \"text\", \"text\": \" dry\"}, {\"type\": \"input_text\", \"text\": \"!\"}, {\"text\": \"?\"}]";
    for (size_t i = 0; i < 5; i++) {
        char joined[512], plain[256];
        snprintf(joined, sizeof joined, "{\"messages\": [" USER("x") ",{\"role\": \"%s\", \"content\": %s}," USER("y") "]}", roles[i], parts);
        snprintf(plain, sizeof plain, "{\"messages\": [" USER("x") ",{\"role\": \"%s\", \"content\": \"20C dry!?\"}," USER("y") "]}", roles[i]);
        struct result a = run(joined), b = run(plain);
        assert_string_equal(a.prompt.text.data, b.prompt.text.data);
        assert_non_null(strstr(a.prompt.text.data, "20C dry!?"));
        done(&a);
        done(&b);
    }
}

static void test_null_missing_and_empty_content_are_equal(void **unused) {
    (void)unused;
    static const char *const contents[] = { "", ", \"content\": null", ", \"content\": \"\"", ", \"content\": []" };
    for (size_t i = 0; i < 4; i++) {
        char text[256];
        snprintf(text, sizeof text, USER("x") ",{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]%s}," USER("y"), contents[i]);
        gives(text, IM("user", "x") IM("assistant", "<tool_call>\n<function=f>\n</function>\n</tool_call>") IM("user", "y"));
    }
}

static void test_the_billing_line_goes(void **unused) {
    (void)unused;
    gives(SYS("x-anthropic-billing-header: cc_version=1; cch=aa1;\\nS") "," USER("x"), IM("system", "S") IM("user", "x"));
    gives("{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": \"x-anthropic-billing-header: v=1; cch=bb2;\"}, {\"type\": \"text\", \"text\": \"S\"}]},"
          USER("x"), IM("system", "S") IM("user", "x"));
    gives(USER("x-anthropic-billing-header: mine"), IM("user", "x-anthropic-billing-header: mine"));
}

static void test_null_is_the_default_everywhere(void **unused) {
    (void)unused;
    struct result r = run("{\"messages\": [{\"role\": \"user\", \"content\": \"x\", \"tool_calls\": null}], \"tools\": null, \"tool_choice\": null,"
                          "\"chat_template_kwargs\": null, \"enable_thinking\": null, \"think\": null, \"thinking\": null, \"reasoning\": null,"
                          "\"reasoning_effort\": null, \"add_generation_prompt\": null, \"stop\": null, \"seed\": null, \"functions\": null}");
    assert_int_equal(r.rc, 0);
    assert_null(r.n.warnings);
    assert_null(r.n.tools);
    assert_string_equal(r.prompt.text.data, IM("user", "x") "<|im_start|>assistant\n<think>\n");
    done(&r);
}

static void switch_gives(const char *fields, bool thinking, const char *warning) {
    char text[512];
    snprintf(text, sizeof text, "{\"messages\": [" USER("x") "], %s}", fields);
    struct result r = run(text);
    if (r.rc != 0) fail_msg("%s: %s", fields, r.err.message);
    const char *want = thinking ? IM("user", "x") "<|im_start|>assistant\n<think>\n" : IM("user", "x") "<|im_start|>assistant\n<think>\n\n</think>\n\n";
    if (strcmp(r.prompt.text.data, want) != 0) fail_msg("%s gives %s", fields, r.prompt.text.data);
    if ((warning != NULL) != (r.n.warnings != NULL)) fail_msg("%s: warnings %s", fields, json_object_to_json_string(r.n.warnings));
    if (warning != NULL && strstr(json_object_to_json_string(r.n.warnings), warning) == NULL)
        fail_msg("%s: '%s' is not in %s", fields, warning, json_object_to_json_string(r.n.warnings));
    done(&r);
}

static void test_every_spelling_of_the_thinking_switch(void **unused) {
    (void)unused;
    static const char *const off[] = {
        "\"enable_thinking\": false", "\"chat_template_kwargs\": {\"enable_thinking\": false}", "\"reasoning_effort\": \"none\"", "\"think\": false",
        "\"think\": \"none\"", "\"thinking\": {\"type\": \"disabled\"}", "\"thinking\": false", "\"reasoning\": {\"effort\": \"none\"}",
        "\"reasoning\": {\"enabled\": false}", "\"reasoning\": false", "\"chat_template_kwargs\": {\"thinking\": false}" };
    static const char *const on[] = {
        "\"enable_thinking\": true", "\"chat_template_kwargs\": {\"enable_thinking\": true}", "\"reasoning_effort\": \"medium\"", "\"think\": true",
        "\"think\": \"high\"", "\"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 9}", "\"thinking\": {\"type\": \"adaptive\", \"display\": \"omitted\"}",
        "\"reasoning\": {\"effort\": \"low\"}", "\"reasoning\": {\"summary\": \"auto\"}", "\"model\": \"m\"", "\"chat_template_kwargs\": {}",
        "\"enable_thinking\": true, \"reasoning_effort\": \"none\"", "\"enable_thinking\": false, \"chat_template_kwargs\": {\"enable_thinking\": true}" };
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) switch_gives(off[i], false, NULL);
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) switch_gives(on[i], true, NULL);
}

static void test_look_alikes_are_taken_or_named(void **unused) {
    (void)unused;
    switch_gives("\"enableThinking\": false", false, "enableThinking was taken as enable_thinking");
    switch_gives("\"chat_template_kwargs\": {\"enable-thinking\": false}", false, "chat_template_kwargs.enable-thinking was taken as enable_thinking");
    switch_gives("\"chatTemplateKwargs\": {\"enable_thinking\": false}", false, "chatTemplateKwargs was taken as chat_template_kwargs");
    switch_gives("\"reasoningEffort\": \"none\"", false, "reasoningEffort was taken as reasoning_effort");
    switch_gives("\"extra_body\": {\"chat_template_kwargs\": {\"enable_thinking\": false}}", false, "extra_body");
    switch_gives("\"disable_thinking\": true", true, "disable_thinking is not supported and was ignored");
    switch_gives("\"chat_template_kwargs\": {\"foo\": 1}", true, "chat_template_kwargs.foo is not supported and was ignored");
    switch_gives("\"metadata\": {\"think\": 1}, \"top_k\": 3", true, NULL);
}

static void test_warnings_are_bounded(void **unused) {
    (void)unused;
    struct calla_buf text = { 0 };
    calla_buf_str(&text, "{\"messages\": [" USER("x") "]");
    for (int i = 0; i < 1000; i++) calla_buf_fmt(&text, ", \"think%d\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80"
                                                        "\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80\": 1", i);
    calla_buf_char(&text, '}');
    struct result r = run(text.data);
    assert_int_equal(json_object_array_length(r.n.warnings), 16);
    assert_true(json_object_get_string_len(json_object_array_get_idx(r.n.warnings, 0)) < 120);
    struct json_object *again;
    struct calla_buf printed = { 0 };
    calla_json_print(&printed, r.n.warnings);
    assert_int_equal(calla_json_parse(printed.data, printed.n, &again, NULL), 0);   /* no half character */
    json_object_put(again);
    calla_buf_free(&printed);
    done(&r);
    calla_buf_free(&text);
}

static void test_other_switches_reach_the_template(void **unused) {
    (void)unused;
    struct result r = run("{\"messages\": [" USER("x") "], \"chat_template_kwargs\": {\"preserve_thinking\": true, \"add_vision_id\": true}, \"add_generation_prompt\": false}");
    assert_true(r.n.render.preserve_thinking && r.n.render.add_vision_id && !r.n.render.add_generation_prompt);
    assert_string_equal(r.prompt.text.data, IM("user", "x"));
    done(&r);
}

static void tools_give(const char *fields, const char *want, const char *warning) {
    char text[1024];
    snprintf(text, sizeof text, "{\"messages\": [" USER("x") "], %s}", fields);
    struct result r = run(text);
    struct calla_buf got = { 0 };
    if (r.rc != 0) fail_msg("%s: %s", fields, r.err.message);
    if (r.n.tools != NULL) calla_json_print(&got, r.n.tools);
    if (strcmp(got.data != NULL ? got.data : "", want) != 0) fail_msg("%s gives %s, not %s", fields, got.data, want);
    assert_int_equal(strstr(r.prompt.text.data, "# Tools") != NULL, *want != 0);
    assert_int_equal(r.n.warnings != NULL, warning != NULL);
    if (warning != NULL && strstr(json_object_to_json_string_ext(r.n.warnings, JSON_C_TO_STRING_NOSLASHESCAPE), warning) == NULL)
        fail_msg("%s: '%s' is not in %s", fields, warning, json_object_to_json_string(r.n.warnings));
    calla_buf_free(&got);
    done(&r);
}

#define F "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}"

static void test_tools_are_printed_as_sent_but_for_cache_control(void **unused) {
    (void)unused;
    tools_give("\"tools\": []", "", NULL);
    tools_give("\"tools\": [" F "]", "[" F "]", NULL);
    tools_give("\"tools\": [{\"function\": {\"strict\": true, \"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"cache_control\": {}}}, \"x\": 1e5}}]",
               "[{\"function\": {\"strict\": true, \"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"cache_control\": {}}}, \"x\": 100000.0}}]", NULL);
    tools_give("\"tools\": [{\"cache_control\": {\"type\": \"ephemeral\"}, \"type\": \"function\", \"function\": {\"cache_control\": null, \"name\": \"f\"}}]", "[" F "]", NULL);
    tools_give("\"tools\": [{\"type\": \"function\", \"name\": \"f\"}]", "[" F "]", NULL);
    tools_give("\"tools\": [{\"name\": \"f\", \"description\": \"d\", \"input_schema\": {\"type\": \"object\"}}]",
               "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", \"parameters\": {\"type\": \"object\"}}}]", NULL);
}

static void test_unknown_tool_types_are_left_out_with_a_warning(void **unused) {
    (void)unused;
    tools_give("\"tools\": [{\"type\": \"web_search\"}, " F ", {\"type\": \"namespace\", \"tools\": []}]", "[" F "]", "tools[0]: tools of type 'web_search'");
    tools_give("\"tools\": [{\"type\": \"web_search\"}]", "", "web_search");
}

static void test_tool_choice(void **unused) {
    (void)unused;
    tools_give("\"tools\": [" F "], \"tool_choice\": \"auto\"", "[" F "]", NULL);
    tools_give("\"tools\": [" F "], \"tool_choice\": {\"type\": \"auto\"}", "[" F "]", NULL);
    tools_give("\"tools\": [" F "], \"tool_choice\": \"none\"", "", NULL);
    tools_give("\"tools\": [" F "], \"tool_choice\": {\"type\": \"none\"}", "", NULL);
    refuses("{\"messages\": [" USER("x") "], \"tools\": [" F "], \"tool_choice\": \"required\"}", "tool_choice", "not supported yet");
    refuses("{\"messages\": [" USER("x") "], \"tools\": [" F "], \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}}", "tool_choice", "not supported yet");
    refuses("{\"messages\": [" USER("x") "], \"tool_choice\": \"sometimes\"}", "tool_choice", "'sometimes' is not known");
    refuses("{\"messages\": [" USER("x") "], \"tool_choice\": 5}", "tool_choice", "auto or none");
}

static void test_what_is_refused_names_its_field(void **unused) {
    (void)unused;
    static const char *const cases[][3] = {
        { "{}", "messages", "is missing" },
        { "{\"messages\": null}", "messages", "is missing" },
        { "{\"messages\": \"x\"}", "messages", "list" },
        { "{\"messages\": []}", "messages", "is empty" },
        { "{\"messages\": [5]}", "messages[0]", "object" },
        { "{\"messages\": [" USER("x") ", null]}", "messages[1]", "object" },
        { "{\"messages\": [{\"content\": \"x\"}]}", "messages[0].role", "must be" },
        { "{\"messages\": [{\"role\": 5}]}", "messages[0].role", "must be" },
        { "{\"messages\": [{\"role\": \"robot\", \"content\": \"x\"}]}", "messages[0].role", "'robot' is not known" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", "messages[0].content", "must be a string" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": {\"type\": \"text\", \"text\": \"x\"}}]}", "messages[0].content", "list of text parts" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [\"x\"]}]}", "messages[0].content[0]", "object" },
        { "{\"messages\": [{\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": \"x\"}, {\"type\": \"text\", \"text\": 5}]}]}",
          "messages[0].content[1].text", "must be a string" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}", "messages[0].content[0].text", "must be a string" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": 1}]}]}", "messages[0].content[0]", "type" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {}}]}]}", "messages[0].content[0]", "images are not supported" },
        { "{\"messages\": [{\"role\": \"system\", \"content\": [{\"type\": \"image\"}]}]}", "messages[0].content[0]", "images are not supported" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"image\": \"x\"}]}]}", "messages[0].content[0]", "images are not supported" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"video\", \"video\": \"x\"}]}]}", "messages[0].content[0]", "videos are not supported" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_audio\"}]}]}", "messages[0].content[0]", "audio" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"smell\"}]}]}", "messages[0].content[0]", "'smell' are not known" },
        { "{\"messages\": [" USER("x") ",{\"role\": \"assistant\", \"reasoning\": {}}]}", "messages[1].reasoning", "string" },
        { "{\"messages\": [" USER("x") ",{\"role\": \"assistant\", \"tool_calls\": {}}]}", "messages[1].tool_calls", "list" },
        { "{\"messages\": [" USER("x") ",{\"role\": \"assistant\", \"tool_calls\": [5]}]}", "messages[1].tool_calls[0]", "object" },
        { "{\"messages\": [" USER("x") ",{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": 5}}]}]}", "messages[1].tool_calls[0].function.name", "name" },
        { "{\"messages\": [" USER("x") "], \"tools\": {}}", "tools", "list" },
        { "{\"messages\": [" USER("x") "], \"tools\": [5]}", "tools[0]", "object" },
        { "{\"messages\": [" USER("x") "], \"tools\": [" F ", {\"type\": 5}]}", "tools[1].type", "string" },
        { "{\"messages\": [" USER("x") "], \"tools\": [{\"type\": \"function\", \"function\": {}}]}", "tools[0].function.name", "name" },
        { "{\"messages\": [" USER("x") "], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": []}}]}", "tools[0].function.parameters", "schema" },
        { "{\"messages\": [" USER("x") "], \"chat_template_kwargs\": []}", "chat_template_kwargs", "object" },
        { "{\"messages\": [" USER("x") "], \"chat_template_kwargs\": {\"enable_thinking\": \"false\"}}", "chat_template_kwargs.enable_thinking", "true, false or null" },
        { "{\"messages\": [" USER("x") "], \"enable_thinking\": 0}", "enable_thinking", "true, false or null" },
        { "{\"messages\": [" USER("x") "], \"reasoning_effort\": \"enormous\"}", "reasoning_effort", "none" },
        { "{\"messages\": [" USER("x") "], \"reasoning\": {\"effort\": 5}}", "reasoning.effort", "none" },
        { "{\"messages\": [" USER("x") "], \"thinking\": {\"type\": \"maybe\"}}", "thinking.type", "disabled" },
        { "{\"messages\": [" USER("x") "], \"add_generation_prompt\": 1}", "add_generation_prompt", "true, false or null" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refuses(cases[i][0], cases[i][1], cases[i][2]);
    struct result r = run("[]");
    assert_int_equal(r.rc, CALLA_ERR_ARGUMENT);
    assert_string_equal(r.field, "");
    done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leading_system_and_developer_messages_are_one),
        cmocka_unit_test(test_a_later_system_message_stays_at_its_place),
        cmocka_unit_test(test_a_later_system_message_is_no_query),
        cmocka_unit_test(test_without_a_user_message_thinking_is_kept),
        cmocka_unit_test(test_reasoning_has_two_names_and_is_used_once),
        cmocka_unit_test(test_arguments_are_parsed_and_broken_ones_stay_text),
        cmocka_unit_test(test_arguments_nested_too_deep_stay_text),
        cmocka_unit_test(test_legacy_function_calls_are_tool_calls),
        cmocka_unit_test(test_a_trailing_assistant_message_stays_open_and_an_empty_one_goes),
        cmocka_unit_test(test_a_think_tag_in_a_text_loses_nothing),
        cmocka_unit_test(test_text_parts_are_joined_for_every_role),
        cmocka_unit_test(test_null_missing_and_empty_content_are_equal),
        cmocka_unit_test(test_the_billing_line_goes),
        cmocka_unit_test(test_null_is_the_default_everywhere),
        cmocka_unit_test(test_every_spelling_of_the_thinking_switch),
        cmocka_unit_test(test_look_alikes_are_taken_or_named),
        cmocka_unit_test(test_warnings_are_bounded),
        cmocka_unit_test(test_other_switches_reach_the_template),
        cmocka_unit_test(test_tools_are_printed_as_sent_but_for_cache_control),
        cmocka_unit_test(test_unknown_tool_types_are_left_out_with_a_warning),
        cmocka_unit_test(test_tool_choice),
        cmocka_unit_test(test_what_is_refused_names_its_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
