/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tool_format: the forms in which model families write calls of tools, and which form a template
 * teaches.
 *
 *     HERMES    text <tool_call>{"name": "f", "arguments": {…}}</tool_call> …   (Hermes, Qwen 2.5
 *               and 3)
 *     XML       text <tool_call><function=f><parameter=a>…</parameter></function></tool_call> …
 *               (Qwen3-Coder)
 *     KEYS      text <tool_call>f<arg_key>a</arg_key><arg_value>…</arg_value>…</tool_call> …
 *               (GLM-4.5)
 *     MISTRAL   text [TOOL_CALLS][{"name": "f", "arguments": {…}}, …]
 *     NAMED     text [TOOL_CALLS]f[ARGS]{…}[TOOL_CALLS]…                        (Mistral from v11
 *               on)
 *     LLAMA     {"name": "f", "parameters": {…}}; …         alone, or after <|python_tag|>
 *     PYTHON    [f(a=1, b="x"), …]                          alone; Llama 3.2 and 4
 *     PHI       text functools[{"name": "f", "arguments": {…}}, …]              (Phi-4-mini)
 *     GEMMA     text <|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|> …        (Gemma 4)
 *     FUNCTION  text <start_function_call>call:f{a:1,b:<escape>x<escape>}<end_function_call> …
 *     ACTION    text <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {…}},
 *               …]<|END_ACTION|>                                                (Command-R7B)
 *     MEMBERS   text <|tools_prefix|>[{"f": {…}}, …]<|tools_suffix|>            (Apertus)
 *     DEEPSEEK  text <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}
 *               <｜tool▁call▁end｜>…<｜tool▁calls▁end｜>                          (DeepSeek V3.1)
 *     DEEPSEEK_3  the same with function<｜tool▁sep｜>f and the arguments between ```json and ```
 *               (DeepSeek V3 and R1)
 *     KIMI      text <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0
 *               <|tool_call_argument_begin|>{…}<|tool_call_end|>…<|tool_calls_section_end|>
 *     HUNYUAN   text <tool_calls><tool_call>f ```json {…} ```</tool_call>…</tool_calls>
 *     HARMONY   messages of harmony.h; one of them is a call (gpt-oss)
 *
 * Thread: any; pure.
 * Memory: none. */

#include "base/buf.h"

struct jinja_template;

enum tool_format {
    TOOL_FORMAT_NONE,  /* the template does not take tools */
    TOOL_FORMAT_PLAIN, /* the template takes tools in a form that is not read: calls stay text */
    TOOL_FORMAT_HERMES,
    TOOL_FORMAT_XML,
    TOOL_FORMAT_KEYS,
    TOOL_FORMAT_MISTRAL,
    TOOL_FORMAT_NAMED,
    TOOL_FORMAT_LLAMA,
    TOOL_FORMAT_PYTHON,
    TOOL_FORMAT_PHI,
    TOOL_FORMAT_GEMMA,
    TOOL_FORMAT_FUNCTION,
    TOOL_FORMAT_ACTION,
    TOOL_FORMAT_MEMBERS,
    TOOL_FORMAT_DEEPSEEK,
    TOOL_FORMAT_DEEPSEEK_3,
    TOOL_FORMAT_KIMI,
    TOOL_FORMAT_HUNYUAN,
    TOOL_FORMAT_HARMONY,
    TOOL_FORMAT_COUNT,
};

/* The form that a template teaches, by the marks in its source. NULL: TOOL_FORMAT_NONE. */
enum tool_format tool_format_of(const struct jinja_template *template);
/* The form of a parser that vLLM has by this name; NONE: there is no such form. */
enum tool_format tool_format_named(struct str name);
/* Appends the names of all parsers, with commas between them. */
void tool_format_list(struct buf *buf);

/* The words around a call. `begin` is NULL for a form whose calls are the whole text; `end` is NULL
 * for one whose call ends with the text or the next `begin`. */
struct tool_marks {
    const char *begin, *end;
};
struct tool_marks tool_format_marks(enum tool_format format);

/* The words of all forms and of thoughts (thought.h), in an array that ends in NULL. A vocabulary
 * may have them as control tokens, which are no text otherwise. A set of marks has bit k for
 * chat_marks[k]. */
#define CHAT_MARKS_MAX 64
extern const char *const chat_marks[CHAT_MARKS_MAX + 1];
/* The marks that a text spells; none for NULL. */
uint64_t chat_marks_in(const char *text);
/* The marks that the calls of a form may have. */
uint64_t tool_format_mark_set(enum tool_format format);
