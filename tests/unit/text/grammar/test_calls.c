/* SPDX-License-Identifier: Apache-2.0 */
/* Forced calls in every form, as texts of their grammar. */
#include "base/buf.h"
#include "chat/tool_tags.h"
#include "compiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* How a list of calls of f without arguments is written. */
static const struct {
    enum tool_format format;
    const char *open, *call, *separator, *close;
} rows[] = {
    {TOOL_FORMAT_HERMES, "", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
     "\n", ""},
    {TOOL_FORMAT_XML, "", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "\n",
     ""},
    {TOOL_FORMAT_KEYS, "", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "\n",
     ""},
    {TOOL_FORMAT_MISTRAL, "[TOOL_CALLS][", "{\"name\": \"f\", \"arguments\": {}}", ", ", "]"},
    {TOOL_FORMAT_NAMED, "", "[TOOL_CALLS]f[ARGS]{}", "", ""},
    {TOOL_FORMAT_LLAMA, "", "{\"name\": \"f\", \"parameters\": {}}", "; ", ""},
    {TOOL_FORMAT_PYTHON, "", "{\"name\": \"f\", \"parameters\": {}}", "; ", ""},
    {TOOL_FORMAT_PHI, "functools[", "{\"name\": \"f\", \"arguments\": {}}", ", ", "]"},
    {TOOL_FORMAT_GEMMA, "", "<|tool_call>call:f{}<tool_call|>", "", ""},
    {TOOL_FORMAT_FUNCTION, "", "<start_function_call>call:f{}<end_function_call>", "", ""},
    {TOOL_FORMAT_ACTION, "<|START_ACTION|>[\n", "{\"tool_name\": \"f\", \"parameters\": {}}", ",\n",
     "\n]<|END_ACTION|>"},
    {TOOL_FORMAT_MEMBERS, "<|tools_prefix|>[", "{\"f\": {}}", ", ", "]<|tools_suffix|>"},
    {TOOL_FORMAT_DEEPSEEK, "<｜tool▁calls▁begin｜>",
     "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>"},
    {TOOL_FORMAT_DEEPSEEK_3, "<｜tool▁calls▁begin｜>",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>", "\n",
     "<｜tool▁calls▁end｜>"},
    {TOOL_FORMAT_KIMI, "<|tool_calls_section_begin|>",
     "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>", "",
     "<|tool_calls_section_end|>"},
    {TOOL_FORMAT_HUNYUAN, "<tool_calls>\n", "<tool_call>f\n```json\n{}\n```</tool_call>", "\n",
     "\n</tool_calls>"},
    {TOOL_FORMAT_HARMONY, "", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}",
     "<|end|><|start|>assistant", ""},
};

static struct grammar *forced_calls(enum tool_format format, bool only_one) {
    json_t *tools = value_of("[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]");
    struct tool_tags tags = {
        .format = format, .tools = tools, .is_forced = true, .only_one = only_one};
    tool_set_add(&tags.callable, 0);
    struct error error = {0};
    json_t *source = tool_tags_format(&tags);
    struct grammar *grammar = compiled(GRAMMAR_TAGS, source, &error);
    if (!grammar) fail_msg("form %d: %s", (int)format, error.text);
    json_decref(source);
    json_decref(tools);
    return grammar;
}

/* Whether the grammar takes `count` calls in the form of a row. */
static bool takes_calls(struct grammar *grammar, size_t row, size_t count) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_text(&text, rows[row].open);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) buf_add_text(&text, rows[row].separator);
        buf_add_text(&text, rows[row].call);
    }
    buf_add_text(&text, rows[row].close);
    bool is_taken = takes(grammar, buf_str(&text));
    buf_release(&text);
    return is_taken;
}

static void test_forced_calls_end_by_themselves(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grammar *grammar = forced_calls(rows[i].format, false);
        assert_false(takes_calls(grammar, i, 0));
        assert_true(takes_calls(grammar, i, 1));
        assert_true(takes_calls(grammar, i, TOOL_CALLS_MAX));
        assert_false(takes_calls(grammar, i, TOOL_CALLS_MAX + 1));
        grammar_drop(grammar);
    }
}

static void test_without_parallel_calls_there_is_one(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grammar *grammar = forced_calls(rows[i].format, true);
        assert_true(takes_calls(grammar, i, 1));
        assert_false(takes_calls(grammar, i, 2));
        grammar_drop(grammar);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forced_calls_end_by_themselves),
        cmocka_unit_test(test_without_parallel_calls_there_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
