/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream shows of calls that are not complete. */
#include "chat/tool_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CALL(name, arguments)                                                                      \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static json_t *tools; /* argument for the readers */

static int open_tools(void **state) {
    (void)state;
    tools =
        json_loads("[{\"function\":{\"name\":\"g\"}},{\"function\":{\"name\":\"f\"}}]", 0, NULL);
    return tools ? 0 : -1;
}

static int close_tools(void **state) {
    (void)state;
    json_decref(tools);
    return 0;
}

/* Calls as answers that are held to them have them, byte after byte; and two in notations of their
 * own, of which nothing but the name is known before they are complete. */
static void arguments_are_shown_while_they_come(void **state) {
    static const struct {
        enum tool_format format;
        const char *begin, *arguments, *end;
        bool is_name_only;
    } rows[] = {
        {TOOL_FORMAT_HERMES, "Hm. <tool_call>\n{\"name\": \"f\", \"arguments\": ",
         "{\"a\": [1, {\"}\": \"\\\">\"}]}", "}\n</tool_call>", false},
        {TOOL_FORMAT_XML, "<tool_call>\n{\"name\": \"f\", \"arguments\": ", "{\"a\": 1.5}",
         "}\n</tool_call>", false},
        {TOOL_FORMAT_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": ", "{\"a\": \"(\"}",
         "}]", false},
        {TOOL_FORMAT_MISTRAL,
         "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"f\", \"arguments\": ",
         "{\"a\": {}}", "} ]", false},
        {TOOL_FORMAT_NAMED, "[TOOL_CALLS]f[ARGS]", "{\"a\": 1}", "", false},
        {TOOL_FORMAT_NAMED, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[CALL_ID]x[ARGS]", "{\"a\": 1}", "",
         false},
        {TOOL_FORMAT_LLAMA, "{\"name\": \"f\", \"parameters\": ", "{\"a\": 1}", "}", false},
        {TOOL_FORMAT_LLAMA,
         " <|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": ",
         "{\"a\": 1}", "}", false},
        {TOOL_FORMAT_PYTHON, "{\"name\": \"f\", \"parameters\": ", "{\"a\": 1}", "}", false},
        {TOOL_FORMAT_PHI, "functools[{\"name\": \"f\", \"arguments\": ", "{\"a\": 1}", "}]", false},
        {TOOL_FORMAT_GEMMA, "<|tool_call>call:f", "{\"a\": 1}", "<tool_call|>", false},
        {TOOL_FORMAT_ACTION,
         "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
         "{}}"
         ",\n{\"tool_call_id\": \"1\", \"tool_name\": \"f\", \"parameters\": ",
         "{\"a\": 1}", "}\n]<|END_ACTION|>", false},
        {TOOL_FORMAT_MEMBERS, "a<|tools_prefix|>[{\"f\": {}}, {\"f\": ", "{\"a\": \"]\"}",
         "}]<|tools_suffix|>", false},
        {TOOL_FORMAT_DEEPSEEK,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
         "<｜tool▁call▁begin｜>f<｜tool▁sep｜>",
         "{\"a\": 1}", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>", false},
        {TOOL_FORMAT_DEEPSEEK_3,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```"
         "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n",
         "{\"a\": 1}", "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", false},
        {TOOL_FORMAT_KIMI,
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
         "{\"a\": 1}", "<|tool_call_end|><|tool_calls_section_end|>", false},
        {TOOL_FORMAT_HUNYUAN, "<tool_calls>\n<tool_call>f\n```json\n", "{\"a\": 1}",
         "\n```</tool_call>\n</tool_calls>", false},
        {TOOL_FORMAT_HUNYUAN, "<tool_calls>[{\"name\": \"f\", \"arguments\": ", "{\"a\": 1}",
         "}]</tool_calls>", false},
        {TOOL_FORMAT_FUNCTION, "<start_function_call>call:f", "{\"a\": 1}", "<end_function_call>",
         false},
        {TOOL_FORMAT_XML, "<tool_call>\n<function=f>", "<parameter=b>x</parameter>",
         "</function></tool_call>", true},
        {TOOL_FORMAT_HARMONY, "<|channel|>commentary to=functions.f<|message|>", "{\"a\": 1}",
         "<|call|>", false},
        {TOOL_FORMAT_GEMMA, "<|tool_call>call:f{", "b:<|\"|>x<|\"|>", "}<tool_call|>", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tool_reader reader;
        struct buf text;
        size_t begin = strlen(rows[i].begin), bytes = strlen(rows[i].arguments), cut = 0;
        buf_init(&text, BUF_UNLIMITED);
        buf_printf(&text, "%s%s%s", rows[i].begin, rows[i].arguments, rows[i].end);
        tool_reader_init(&reader, rows[i].format, false, tools);
        for (size_t at = 1; at < begin + bytes; at++) {
            tool_reader_feed(&reader, (struct str){text.at, at}, false);
            if (at <= begin + 2) continue;
            const struct tool_call *call = &reader.shown.at[reader.shown.count - 1];
            assert_true(reader.shown.count > 0 && str_is(buf_str(&call->name), "f") && *call->id);
            cut = call->arguments.bytes;
            if (cut != (rows[i].is_name_only ? 0 : at - begin))
                fail_msg("row %zu: %zu bytes of arguments after %.*s", i, cut, (int)at, text.at);
        }
        /* The end of the text may cut the call off: a stream does not show it again as text. */
        size_t before = reader.content.bytes;
        tool_reader_feed(&reader, (struct str){text.at, begin + bytes - 1}, true);
        assert_int_equal(reader.content_shown, before);
        assert_true(reader.content.bytes > before || reader.calls.count == reader.shown.count);
        tool_reader_release(&reader);
        tool_reader_init(&reader, rows[i].format, false, tools);
        for (size_t at = 1; at <= text.bytes; at++)
            tool_reader_feed(&reader, (struct str){text.at, at}, at == text.bytes);
        assert_int_equal(reader.shown.count, reader.calls.count);
        for (size_t k = 0; k < reader.calls.count; k++) {
            const struct tool_call *call = &reader.calls.at[k], *shown = &reader.shown.at[k];
            assert_string_equal(call->id, shown->id);
            assert_true(str_equals(buf_str(&call->arguments), buf_str(&shown->arguments)));
        }
        assert_int_equal(reader.content_shown, reader.content.bytes);
        tool_reader_release(&reader);
        buf_release(&text);
    }
}

/* A text that turns out to be no call is content, as it always was; the stream has both. */
static void a_call_that_breaks_is_text_too(void **state) {
    (void)state;
    struct tool_reader reader;
    const char *text =
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": x}}</tool_call> b " CALL("f", "{}");
    tool_reader_init(&reader, TOOL_FORMAT_HERMES, false, tools);
    for (size_t at = 1; at <= strlen(text); at++)
        tool_reader_feed(&reader, (struct str){text, at}, at == strlen(text));
    assert_int_equal(reader.calls.count, 1);
    assert_int_equal(reader.shown.count, 2);
    assert_true(str_is(buf_str(&reader.shown.at[0].arguments), "{\"a\": x}"));
    assert_string_equal(reader.shown.at[1].id, reader.calls.at[0].id);
    assert_int_equal(reader.content_shown, reader.content.bytes);
    tool_reader_release(&reader);
    /* Names that are none of the request's tools begin no call. */
    tool_reader_init(&reader, TOOL_FORMAT_HERMES, false, tools);
    tool_reader_feed(&reader, str_from("<tool_call>{\"name\": \"other\", \"arguments\": {\"a\": "),
                     false);
    assert_int_equal(reader.shown.count, 0);
    tool_reader_release(&reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_shown_while_they_come),
        cmocka_unit_test(a_call_that_breaks_is_text_too),
    };
    return cmocka_run_group_tests(tests, open_tools, close_tools);
}
