/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/tool_format.h"

#include "chat/harmony.h"
#include "jinja/jinja.h"

#include <string.h>

static const struct row {
    struct tool_marks marks;
    const char *parsers; /* vLLM's names, with a space around each */
    const char *inner;   /* marks inside a call */
} rows[TOOL_FORMAT_COUNT] = {
    [TOOL_FORMAT_HERMES] = {{"<tool_call>", "</tool_call>"}, " hermes qwen3_json longcat ", ""},
    [TOOL_FORMAT_XML] = {{"<tool_call>", "</tool_call>"}, " qwen3_coder qwen3_xml ", ""},
    [TOOL_FORMAT_KEYS] = {{"<tool_call>", "</tool_call>"},
                          " glm45 glm47 ",
                          "<arg_key> </arg_key> <arg_value> </arg_value>"},
    [TOOL_FORMAT_MISTRAL] = {{"[TOOL_CALLS]", NULL}, " mistral ", "[ARGS] [CALL_ID]"},
    [TOOL_FORMAT_NAMED] = {{"[TOOL_CALLS]", NULL}, "", "[ARGS] [CALL_ID]"},
    [TOOL_FORMAT_LLAMA] = {{NULL, NULL}, " llama3_json llama4_json ", "<|python_tag|>"},
    [TOOL_FORMAT_PYTHON] = {{NULL, NULL}, " pythonic llama4_pythonic ", "<|python_tag|>"},
    [TOOL_FORMAT_PHI] = {{"functools", NULL}, " phi4_mini_json ", ""},
    [TOOL_FORMAT_GEMMA] = {{"<|tool_call>", "<tool_call|>"}, " gemma4 ", "<|\"|>"},
    [TOOL_FORMAT_FUNCTION] = {{"<start_function_call>", "<end_function_call>"},
                              " functiongemma ",
                              "<escape>"},
    [TOOL_FORMAT_ACTION] = {{"<|START_ACTION|>", "<|END_ACTION|>"}, " cohere_command3 ", ""},
    [TOOL_FORMAT_MEMBERS] = {{"<|tools_prefix|>", "<|tools_suffix|>"}, " apertus ", ""},
    [TOOL_FORMAT_DEEPSEEK] = {{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
                              " deepseek_v31 ",
                              "<｜tool▁call▁begin｜> <｜tool▁sep｜> <｜tool▁call▁end｜>"},
    [TOOL_FORMAT_DEEPSEEK_3] = {{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
                                " deepseek_v3 ",
                                "<｜tool▁call▁begin｜> <｜tool▁sep｜> <｜tool▁call▁end｜>"},
    [TOOL_FORMAT_KIMI] = {{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
                          " kimi_k2 ",
                          "<|tool_call_begin|> <|tool_call_argument_begin|> <|tool_call_end|>"},
    [TOOL_FORMAT_HUNYUAN] = {{"<tool_calls>", "</tool_calls>"},
                             " hunyuan_a13b ",
                             "<tool_call> </tool_call>"},
    [TOOL_FORMAT_HARMONY] = {{NULL, NULL},
                             " openai ",
                             "<|start|> <|channel|> <|constrain|> <|message|> <|end|>"},
};

const char *const chat_marks[CHAT_MARKS_MAX + 1] = {"<tool_call>",
                                                    "</tool_call>",
                                                    "<arg_key>",
                                                    "</arg_key>",
                                                    "<arg_value>",
                                                    "</arg_value>",
                                                    "[TOOL_CALLS]",
                                                    "[ARGS]",
                                                    "[CALL_ID]",
                                                    "<|tool_call>",
                                                    "<tool_call|>",
                                                    "<start_function_call>",
                                                    "<end_function_call>",
                                                    "<escape>",
                                                    "<|\"|>",
                                                    "<|python_tag|>",
                                                    "<think>",
                                                    "</think>",
                                                    "[THINK]",
                                                    "[/THINK]",
                                                    "<seed:think>",
                                                    "</seed:think>",
                                                    "<|channel>",
                                                    "<channel|>",
                                                    "<|start|>",
                                                    "<|channel|>",
                                                    "<|constrain|>",
                                                    "<|message|>",
                                                    "<|end|>",
                                                    "<|START_ACTION|>",
                                                    "<|END_ACTION|>",
                                                    "<|START_THINKING|>",
                                                    "<|END_THINKING|>",
                                                    "<|tools_prefix|>",
                                                    "<|tools_suffix|>",
                                                    "<|inner_prefix|>",
                                                    "<|inner_suffix|>",
                                                    "<｜tool▁calls▁begin｜>",
                                                    "<｜tool▁calls▁end｜>",
                                                    "<｜tool▁call▁begin｜>",
                                                    "<｜tool▁sep｜>",
                                                    "<｜tool▁call▁end｜>",
                                                    "<|tool_calls_section_begin|>",
                                                    "<|tool_calls_section_end|>",
                                                    "<|tool_call_begin|>",
                                                    "<|tool_call_argument_begin|>",
                                                    "<|tool_call_end|>",
                                                    "<tool_calls>",
                                                    "</tool_calls>"};

uint64_t chat_marks_in(const char *text) {
    uint64_t marks = 0;
    for (size_t k = 0; text && chat_marks[k]; k++)
        if (strstr(text, chat_marks[k])) marks |= UINT64_C(1) << k;
    return marks;
}

static bool has_word(const char *list, struct str word) {
    char spaced[40] = " ";
    if (!list || word.bytes == 0 || word.bytes > sizeof spaced - 3) return false;
    memcpy(spaced + 1, word.at, word.bytes);
    spaced[word.bytes + 1] = ' ';
    return !memchr(word.at, ' ', word.bytes) && strstr(list, spaced);
}

struct tool_marks tool_format_marks(enum tool_format format) {
    return rows[format].marks;
}

uint64_t tool_format_mark_set(enum tool_format format) {
    const struct row *row = &rows[format];
    return chat_marks_in(row->marks.begin) | chat_marks_in(row->marks.end) |
           chat_marks_in(row->inner);
}

enum tool_format tool_format_named(struct str name) {
    for (size_t i = 0; i < TOOL_FORMAT_COUNT; i++)
        if (has_word(rows[i].parsers, name)) return (enum tool_format)i;
    return TOOL_FORMAT_NONE;
}

void tool_format_list(struct buf *buf) {
    size_t begin = buf->bytes;
    for (size_t i = 0; i < TOOL_FORMAT_COUNT; i++)
        for (const char *at = rows[i].parsers; at && *at; at++) {
            bool is_last = *at == ' ' && !at[1];
            if (*at == ' ' && buf->bytes > begin && !is_last) buf_add_text(buf, ", ");
            if (*at != ' ') buf_add_byte(buf, *at);
        }
}

/* --- which form a template teaches --- */

static bool is_word_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Whether the source uses the variable `tools`. */
static bool takes_tools(struct str source) {
    struct str name = STR("tools");
    for (size_t at = 0; (at = str_find(source, name, at)) != SIZE_MAX; at++) {
        size_t end = at + name.bytes;
        bool begins = at == 0 || !is_word_byte(source.at[at - 1]);
        if (begins && (end == source.bytes || !is_word_byte(source.at[end]))) return true;
    }
    return false;
}

static bool has(struct str source, const char *text) {
    return str_find(source, str_from(text), 0) != SIZE_MAX;
}

enum tool_format tool_format_of(const struct jinja_template *template) {
    struct str source = template ? jinja_template_source(template) : (struct str){NULL, 0};
    if (!template || !takes_tools(source)) return TOOL_FORMAT_NONE;
    if (has(source, "<tool_call>") && has(source, "<function=") && has(source, "<parameter="))
        return TOOL_FORMAT_XML;
    if (has(source, HARMONY_THOUGHT_BEGIN)) return TOOL_FORMAT_HARMONY;
    if (has(source, "<tool_call>") && has(source, "<arg_key>") && has(source, "<arg_value>"))
        return TOOL_FORMAT_KEYS;
    if (has(source, "<｜tool▁calls▁begin｜>"))
        return has(source, "```json") ? TOOL_FORMAT_DEEPSEEK_3 : TOOL_FORMAT_DEEPSEEK;
    if (has(source, "<|tool_calls_section_begin|>")) return TOOL_FORMAT_KIMI;
    if (has(source, "<|START_ACTION|>")) return TOOL_FORMAT_ACTION;
    if (has(source, "<|tools_prefix|>")) return TOOL_FORMAT_MEMBERS;
    if (has(source, "<tool_calls>") && has(source, "<tool_call>") && has(source, "```json"))
        return TOOL_FORMAT_HUNYUAN;
    /* Calls as other XML, in the marks of Hermes or of Llama. */
    if (has(source, "<function=")) return TOOL_FORMAT_PLAIN;
    if (has(source, "[TOOL_CALLS]"))
        return has(source, "[ARGS]") ? TOOL_FORMAT_NAMED : TOOL_FORMAT_MISTRAL;
    if (has(source, "<|tool_call>")) return TOOL_FORMAT_GEMMA;
    if (has(source, "<start_function_call>")) return TOOL_FORMAT_FUNCTION;
    if (has(source, "<tool_call>")) return TOOL_FORMAT_HERMES;
    if (has(source, "functools[") || has(source, "<|tool|>")) return TOOL_FORMAT_PHI;
    if (has(source, "func_name1(params_name1")) return TOOL_FORMAT_PYTHON;
    if (has(source, "<|python_tag|>") || has(source, "\"parameters\": dictionary of argument name"))
        return TOOL_FORMAT_LLAMA;
    return TOOL_FORMAT_PLAIN;
}
