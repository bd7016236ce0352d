/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "chat/thought.h"
#include "chat/tool_calls.h"
#include "jinja/jinja.h"

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

struct row {
    const char *text;
    const char *content;
    const char *calls; /* "name(arguments)" each, with ';' between */
};

static const struct row hermes[] = {
    {"", "", ""},
    {"Hello \n", "Hello \n", ""},
    {CALL("f", "{}"), "", "f({})"},
    {"\n\n" CALL("f", "{\"a\": [1, 2.50]}") "\n", "", "f({\"a\": [1, 2.50]})"},
    {"Let me see.\n" CALL("f", "{}") "\n" CALL("g", "{\"x\":\"\\u00e9\"}"), "Let me see.",
     "f({});g({\"x\":\"\\u00e9\"})"},
    {"a " CALL("f", "{}") " b " CALL("g", "{}") " c \n", "a b c \n", "f({});g({})"},
    /* Unclosed, as when the end tag is a stop token. */
    {"<tool_call>{\"name\":\"f\",\"arguments\":{}}", "", "f({})"},
    {"<tool_call>{\"name\":\"f\",\"argum", "<tool_call>{\"name\":\"f\",\"argum", ""},
    /* Cut in the end tag: the stream has shown the whole call, and the answer has it, too. */
    {"<tool_call>{\"name\":\"f\",\"arguments\":{}}<", "", "f({})"},
    {"<tool_call>{\"name\":\"f\",\"arguments\":{}}\n</tool_call", "", "f({})"},
    {CALL("f", "{}") "\n<tool_call>{\"name\":\"g\",\"arguments\":{}}\n</to", "", "f({});g({})"},
    {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"</tool",
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"</tool", ""},
    {"x <tool_call>no</tool_call> y", "x <tool_call>no</tool_call> y", ""},
    {"x <tool_call>[]</tool_call>" CALL("f", "{}"), "x <tool_call>[]</tool_call>", "f({})"},
    {"<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>", "", "f({\"a\":1})"},
    {"<tool_call>{\"name\":\"f\",\"arguments\":\"a\"}</tool_call>",
     "<tool_call>{\"name\":\"f\",\"arguments\":\"a\"}</tool_call>", ""},
    {"<tool_call>{\"name\":\"\",\"arguments\":{}}</tool_call>",
     "<tool_call>{\"name\":\"\",\"arguments\":{}}</tool_call>", ""},
    {"<tool_call>{\"name\":7,\"arguments\":{}}</tool_call>",
     "<tool_call>{\"name\":7,\"arguments\":{}}</tool_call>", ""},
    {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1},\"arguments\":{\"a\":2},\"name\":\"g\"}</"
     "tool_call>",
     "", "f({\"a\":1})"},
    {"<tool_call>{\"name\":\"f\",\"parameters\":{\"a\":1},\"arguments\":{\"a\":2}}</tool_call>", "",
     "f({\"a\":1})"},
    {"<tool_call>{\"name\":\"f\",\"name\":\"g\",\"arguments\":{}}</tool_call>", "", "f({})"},
    {"a < b <tool_cal", "a < b <tool_cal", ""},
    /* Without arguments, of a tool and of none. */
    {"<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "", "f({})"},
    {CALL("f", "null") CALL("g", "\"\"") CALL("f", "\" \""), "", "f({});g({});f({})"},
    {CALL("f", "{\"a\": 1}") "<tool_call>{\"name\":\"g\"}</tool_call>", "", "f({\"a\": 1});g({})"},
    {"<tool_call>{\"name\":\"h\"}</tool_call>", "<tool_call>{\"name\":\"h\"}</tool_call>", ""},
    {CALL("h", "null"), CALL("h", "null"), ""},
    {CALL("f", "[]"), CALL("f", "[]"), ""},
    {"<tool_call>\xff</tool_call>", "<tool_call>\xff</tool_call>", ""},
};

#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL "<|channel|>final<|message|>"
#define NEXT "<|start|>assistant"
#define TO_F "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"

/* A prompt ends with NEXT. */
static const struct {
    struct row row;
    const char *thought;
} harmony[] = {
    {{"", "", ""}, ""},
    {{FINAL "Hi \n", "Hi \n", ""}, ""},
    {{FINAL "Hi<|return|>", "Hi", ""}, ""},
    {{ANALYSIS "Hm.<|end|>" NEXT FINAL "Hi", "Hi", ""}, "Hm."},
    {{ANALYSIS "Hm.", "", ""}, "Hm."},
    {{ANALYSIS "Hm.<|en", "", ""}, "Hm.<|en"},
    {{ANALYSIS "a<|end|>" NEXT ANALYSIS "b < c<|end|>" NEXT FINAL "d", "d", ""}, "a\nb < c"},
    {{TO_F "{\"a\": 1}", "", "f({\"a\": 1})"}, ""},
    {{TO_F " {\"a\": 1}\n<|call|>", "", "f({\"a\": 1})"}, ""},
    {{ANALYSIS "Hm.<|end|>" NEXT TO_F "{}<|call|>", "", "f({})"}, "Hm."},
    {{" to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "", "f({})"}, ""},
    {{ANALYSIS "x<|end|>" NEXT " to=functions.f<|channel|>commentary<|message|>{}", "", "f({})"},
     "x"},
    {{"to=functions.f<|channel|>analysis<|message|>{}", "", "f({})"}, ""},
    {{"<|channel|>commentary to=g<|message|>{\"b\":[]}", "", "g({\"b\":[]})"}, ""},
    {{TO_F "{}<|end|>" NEXT "<|channel|>commentary to=functions.g<|message|>{\"x\":2}<|call|>", "",
      "f({});g({\"x\":2})"},
     ""},
    {{"<|channel|>commentary<|message|>Let me see.<|end|>" NEXT TO_F "{}", "Let me see.", "f({})"},
     ""},
    {{"<|channel|>commentary<|message|>a<|end|>" NEXT FINAL "b", "a\nb", ""}, ""},
    /* Broken or cut calls are text, without their headers. */
    {{TO_F "{\"a\": ", "{\"a\": ", ""}, ""},
    {{TO_F "[1]<|call|>" NEXT FINAL "b", "[1]\nb", ""}, ""},
    {{TO_F "{}{}", "{}{}", ""}, ""},
    {{"<|channel|>commentary to=functions.<|message|>{}", "{}", ""}, ""},
    /* Answers that leave marks out. */
    {{"Just text", "Just text", ""}, ""},
    {{"to=be", "to=be", ""}, ""},
    {{"<|message|>Hi", "Hi", ""}, ""},
    {{"<|end|>" NEXT FINAL "Hi", "Hi", ""}, ""},
    {{FINAL "Hi" NEXT ANALYSIS "no end", "Hi", ""}, "no end"},
    {{"<|channel|>fin", "", ""}, ""},
    {{"<|channel|>final" NEXT FINAL "Hi", "Hi", ""}, ""},
    {{"<|channel|>final <|constrain|>json<|message|>{\"to=x\": 1}", "{\"to=x\": 1}", ""}, ""},
    {{"<|channel|>analysis to=python code<|message|>1+1<|call|>", "", ""}, "1+1"},
    {{FINAL "a <| b <|channel|> c", "a <| b <|channel|> c", ""}, ""},
    {{FINAL "\xff<|return|>", "\xff", ""}, ""},
};

static const struct row mistral[] = {
    {"[TOOL_CALLS][{\"name\": \"f\"}, {\"name\": \"g\", \"arguments\": null}]", "", "f({});g({})"},
    {"[TOOL_CALLS][{\"name\": \"f\"}, {\"name\": \"h\"}]",
     "[TOOL_CALLS][{\"name\": \"f\"}, {\"name\": \"h\"}]", ""},
    {"[TOOL_CALLS]f[ARGS]", "", "f({})"},
    {"[TOOL_CALLS]f[TOOL_CALLS]g[ARGS]{}", "", "f({});g({})"},
    {"[TOOL_CALLS]h", "[TOOL_CALLS]h", ""},
    {"Hi", "Hi", ""},
    {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", "
     "\"arguments\": {}}]",
     "", "f({\"a\": 1});g({})"},
    {"Sure. [TOOL_CALLS]f{\"a\": 1}[TOOL_CALLS]g[ARGS]{}", "Sure.", "f({\"a\": 1});g({})"},
    {"[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"b\":{}}", "", "f({\"b\":{}})"},
    {"[TOOL_CALLS]{\"name\":\"f\",\"arguments\":{}}", "", "f({})"},
    {"[TOOL_CALLS][]", "[TOOL_CALLS][]", ""},
    {"[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}},7]",
     "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}},7]", ""},
    {"[TOOL_CALLS]f[ARGS]{\"a\":", "[TOOL_CALLS]f[ARGS]{\"a\":", ""},
    {"[TOOL_CALLS]", "[TOOL_CALLS]", ""},
    /* A mark in a string is part of it. */
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"x [TOOL_CALLS][more] \\\" "
     "[TOOL_CALLS]\"}}]",
     "", "f({\"a\": \"x [TOOL_CALLS][more] \\\" [TOOL_CALLS]\"})"},
    {"[TOOL_CALLS]f[ARGS]{\"a\": \"[TOOL_CALLS]g[ARGS]{}\"}[TOOL_CALLS]g[ARGS]{\"b\": \"[ARGS]\"}",
     "", "f({\"a\": \"[TOOL_CALLS]g[ARGS]{}\"});g({\"b\": \"[ARGS]\"})"},
    {"[TOOL_CALLS]f{\"a\": \"[ARGS]{}\"}", "", "f({\"a\": \"[ARGS]{}\"})"},
    {"[TOOL_", "[TOOL_", ""},
};

static const struct row llama[] = {
    {"{\"name\": \"f\", \"parameters\": \"\"}; {\"name\": \"g\", \"parameters\": null}", "",
     "f({});g({})"},
    {"{\"name\": \"Alice\"}", "{\"name\": \"Alice\"}", ""},
    {"Hello {\"name\":\"f\",\"parameters\":{}}", "Hello {\"name\":\"f\",\"parameters\":{}}", ""},
    {"{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "", "f({\"a\": 1})"},
    {" \n<|python_tag|>{\"name\": \"f\", \"arguments\": {}}", "", "f({})"},
    {"{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}", "", "f({});g({})"},
    {"{\"name\":\"f\",\"parameters\":{}} and more", "{\"name\":\"f\",\"parameters\":{}} and more",
     ""},
    {"{\"name\":\"f\"}", "{\"name\":\"f\"}", ""},
    {"{\"answer\": 42}", "{\"answer\": 42}", ""},
    {"{\"name\":", "{\"name\":", ""},
    {"<|python_tag|>print(1)", "<|python_tag|>print(1)", ""},
    {"<|pyt", "<|pyt", ""},
    {"   ", "   ", ""},
};

/* An end mark in a string of the arguments is part of the string. */
static const struct row quoted[] = {
    {CALL("f", "{\"a\": \"</tool_call>\"}") " x", "x", "f({\"a\": \"</tool_call>\"})"},
    {CALL("f", "{\"a\": \"\\\"</tool_call>\\\\\"}") CALL("g", "{}"), "",
     "f({\"a\": \"\\\"</tool_call>\\\\\"});g({})"},
    {"<tool_call>{\"a</tool_call>", "<tool_call>{\"a</tool_call>", ""},
};

#define XML(name, parameters)                                                                      \
    "<tool_call>\n<function=" name ">\n" parameters "</function>\n</tool_call>"
#define SET(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"

#define KEYS(name, parameters) "<tool_call>" name "\n" parameters "</tool_call>"
#define KEY(name, value) "<arg_key>" name "</arg_key>\n<arg_value>" value "</arg_value>\n"

static const struct row keys[] = {
    {"Hi", "Hi", ""},
    {KEYS("f", KEY("city", "Oslo") KEY("days", "2")), "", "f({\"city\": \"Oslo\", \"days\": 2})"},
    {"One moment.\n" KEYS("f", "") "\n" KEYS("g", KEY("a", "1")), "One moment.",
     "f({});g({\"a\": \"1\"})"},
    {KEYS("f", KEY("days", "two") KEY("dry", "true") KEY("list", "[1, \"a\"]")), "",
     "f({\"days\": \"two\", \"dry\": true, \"list\": [1, \"a\"]})"},
    {KEYS("f", KEY("city", " a\n<b> ")), "", "f({\"city\": \" a\\n<b> \"})"},
    {"<tool_call>f<arg_key>days</arg_key><arg_value>2</arg_value></tool_call>", "",
     "f({\"days\": 2})"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"days\": 2}}\n</tool_call>", "",
     "f({\"days\": 2})"},
    {KEYS("f", KEY("days", "2")) " end", "end", "f({\"days\": 2})"},
    {"<tool_call></tool_call>", "<tool_call></tool_call>", ""},
    {"<tool_call>f<arg_key>a</arg_key></tool_call>", "<tool_call>f<arg_key>a</arg_key></tool_call>",
     ""},
    {"<tool_call>f<arg_key>a</arg_key>x<arg_value>1</arg_value></tool_call>",
     "<tool_call>f<arg_key>a</arg_key>x<arg_value>1</arg_value></tool_call>", ""},
    {"<tool_call><b>f</tool_call>", "<tool_call><b>f</tool_call>", ""},
};

static const struct row xml[] = {
    {"Hi", "Hi", ""},
    {XML("f", SET("city", "Oslo") SET("days", "2")), "", "f({\"city\": \"Oslo\", \"days\": 2})"},
    {"One moment.\n" XML("f", "") "\n" XML("g", SET("a", "1")), "One moment.",
     "f({});g({\"a\": \"1\"})"},
    {XML("f", SET("days", "two") SET("dry", "True") SET("none", "None") SET("list", "[1, \"a\"]")),
     "", "f({\"days\": \"two\", \"dry\": true, \"none\": null, \"list\": [1, \"a\"]})"},
    {XML("f", SET("either", "null") SET("ref", "{\"x\": 1}") SET("city", "null") SET("city", "7")),
     "", "f({\"either\": null, \"ref\": {\"x\": 1}, \"city\": \"7\"})"},
    {XML("f", SET("city", "a\n<b> \"c\"\\\n")), "", "f({\"city\": \"a\\n<b> \\\"c\\\"\\\\\\n\"})"},
    /* Tags that a model forgets. */
    {"<tool_call><function=f><parameter=city>Oslo<parameter=days>2</function></tool_call>", "",
     "f({\"city\": \"Oslo\", \"days\": 2})"},
    {"<tool_call>\n<function=f>\n" SET("days", "2"), "", "f({\"days\": 2})"},
    {"<tool_call><function=f></function><function=g>\n</function></tool_call>", "", "f({});g({})"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"days\": 2}}\n</tool_call>", "",
     "f({\"days\": 2})"},
    /* Without the first mark, which Qwen's models leave out; the last one may follow. */
    {"<function=f>\n" SET("days", "2") "</function>", "", "f({\"days\": 2})"},
    {"Look.\n\n<function=f>\n</function>\n</tool_call>", "Look.", "f({})"},
    {"<function=f></function></tool_call>\n <function=g></function>\n</tool_call> end", "end",
     "f({});g({})"},
    {"<function=f></function>" XML("g", "") "<function=f>" SET("days", "2"), "",
     "f({});g({});f({\"days\": 2})"},
    {"a <function=f", "a <function=f", ""},
    {"a <function=h></function> b", "a <function=h></function> b", ""},
    {"a <function=f> b", "a <function=f> b", ""},
    {"<function=h><function=f></function></tool_cal", "<function=h></tool_cal", "f({})"},
    {XML("f", "") "</tool_call>", "</tool_call>", "f({})"},
    {"<tool_call>f</tool_call>", "<tool_call>f</tool_call>", ""},
    {"<tool_call><function=></tool_call>", "<tool_call><function=></tool_call>", ""},
    {"<tool_call><function=f>text</function></tool_call>",
     "<tool_call><function=f>text</function></tool_call>", ""},
    {"<tool_call><function=f><parameter=\xff>a</function></tool_call>",
     "<tool_call><function=f><parameter=\xff>a</function></tool_call>", ""},
};

static const struct row python[] = {
    {"Hello [f()]", "Hello [f()]", ""},
    {"[f()]", "", "f({})"},
    {"[get_weather(city=\"Oslo\", days=2)]", "", "get_weather({\"city\":\"Oslo\",\"days\":2})"},
    {" [f(a='x\\'\\n\\u00e9', b=[1, -2.5, (3,)], c={\"k\": True, 'l': None,}), g(x=False)] ", "",
     "f({\"a\":\"x'\\n\xc3\xa9\",\"b\":[1,-2.5,[3]],\"c\":{\"k\":true,\"l\":null}});g({\"x\":false}"
     ")"},
    {"<|python_tag|>[f(a=1)]", "", "f({\"a\":1})"},
    {"{\"name\": \"f\", \"parameters\": {}}", "", "f({})"},
    {"[f(a=1)] and more", "[f(a=1)] and more", ""},
    {"[f(a=x)]", "[f(a=x)]", ""},
    {"[f(1)]", "[f(1)]", ""},
    {"[f(a=1", "[f(a=1", ""},
    {"[1, 2]", "[1, 2]", ""},
    {"[f(a=\"\\ud800\")]", "[f(a=\"\\ud800\")]", ""},
    {"[", "[", ""},
};

static const struct row action[] = {
    {"<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
     "{\"a\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]"
     "<|END_ACTION|>",
     "", "f({\"a\": 1});g({})"},
    {"Well. <|START_ACTION|>[{\"tool_name\":\"f\",\"parameters\":{\"a\":\"<|END_ACTION|>\"}}]"
     "<|END_ACTION|>",
     "Well.", "f({\"a\":\"<|END_ACTION|>\"})"},
    {"<|START_ACTION|>[{\"tool_name\":\"f\"}]<|END", "", "f({})"},
    {"<|START_ACTION|>[{\"tool_name\":\"f\",\"parameters\":{}}",
     "<|START_ACTION|>[{\"tool_name\""
     ":\"f\",\"parameters\":{}}",
     ""},
    {"<|START_ACTION|>[]<|END_ACTION|>", "<|START_ACTION|>[]<|END_ACTION|>", ""},
    {"<|START_ACTION|>[{\"tool_call_id\": \"0\"}]<|END_ACTION|> b",
     "<|START_ACTION|>[{\"tool_call_id\": \"0\"}]<|END_ACTION|> b", ""},
};

static const struct row members[] = {
    {"<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>", "",
     "f({\"a\": 1});g({})"},
    {"I look. <|tools_prefix|>[{\"f\": null}]<|tools_suffix|>", "I look.", "f({})"},
    {"<|tools_prefix|>[{\"f\": {\"b\": \"]<|tools_suffix|>\"}}]", "",
     "f({\"b\": \"]<|tools_suffix|>\"})"},
    {"<|tools_prefix|>[{\"f\": {}, \"g\": {}}]<|tools_suffix|>",
     "<|tools_prefix|>[{\"f\": {}, \"g\": {}}]<|tools_suffix|>", ""},
    {"<|tools_prefix|>[{}]<|tools_suffix|>", "<|tools_prefix|>[{}]<|tools_suffix|>", ""},
    {"<|tools_prefix|>[{\"f\": {}}, 1]<|tools_suffix|>",
     "<|tools_prefix|>[{\"f\": {}}, 1]<|tools_suffix|>", ""},
};

#define SECTION "<｜tool▁calls▁begin｜>"
#define SECTION_END "<｜tool▁calls▁end｜>"
#define ONE "<｜tool▁call▁begin｜>"
#define ONE_END "<｜tool▁call▁end｜>"
#define SEP "<｜tool▁sep｜>"

static const struct row deepseek[] = {
    {SECTION ONE "f" SEP "{\"a\": 1}" ONE_END ONE "g" SEP "{}" ONE_END SECTION_END, "",
     "f({\"a\": 1});g({})"},
    {"Let me see." SECTION ONE "f" SEP "{}" ONE_END SECTION_END, "Let me see.", "f({})"},
    /* V3 and R1 write a type, a name and a fence; R1 also a string. */
    {SECTION ONE "function" SEP "f\n```json\n{\"a\": 1}\n```" ONE_END "\n" ONE "function" SEP
                 "g\n```json\n{}\n```" ONE_END SECTION_END,
     "", "f({\"a\": 1});g({})"},
    {SECTION ONE "function" SEP "f\n```json\n\"{\\\"a\\\": 1}\"\n```" ONE_END SECTION_END, "",
     "f({\"a\": 1})"},
    /* A tool of the name "function", and marks in a string. */
    {SECTION ONE "function" SEP "{}" ONE_END SECTION_END, "", "function({})"},
    {SECTION ONE "f" SEP "{\"a\": \"" ONE_END SECTION_END "\"}" ONE_END SECTION_END, "",
     "f({\"a\": \"" ONE_END SECTION_END "\"})"},
    /* Cut: in the marks at the end, and before them. */
    {SECTION ONE "f" SEP "{\"a\": 1}" ONE_END, "", "f({\"a\": 1})"},
    {SECTION ONE "f" SEP "{\"a\": 1}<｜tool▁call", "", "f({\"a\": 1})"},
    {SECTION ONE "f" SEP "{\"a\": 1", SECTION ONE "f" SEP "{\"a\": 1", ""},
    {SECTION ONE "f" SEP "{}" ONE_END ONE "g", SECTION ONE "f" SEP "{}" ONE_END ONE "g", ""},
    {SECTION SECTION_END "x", SECTION SECTION_END "x", ""},
    {SECTION ONE "f" SEP "[]" ONE_END SECTION_END, SECTION ONE "f" SEP "[]" ONE_END SECTION_END,
     ""},
    {SECTION ONE "f" SEP "{} x" ONE_END SECTION_END, SECTION ONE "f" SEP "{} x" ONE_END SECTION_END,
     ""},
    {SECTION ONE SEP "{}" ONE_END SECTION_END, SECTION ONE SEP "{}" ONE_END SECTION_END, ""},
    {SECTION "\xff" SECTION_END, SECTION "\xff" SECTION_END, ""},
};

#define KIMI "<|tool_calls_section_begin|>"
#define KIMI_END "<|tool_calls_section_end|>"
#define KIMI_ONE(id, arguments)                                                                    \
    "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"

static const struct row kimi[] = {
    {"Hm." KIMI KIMI_ONE("functions.f:0", "{\"a\": 1}") KIMI_ONE("functions.g:1", "{}") KIMI_END,
     "Hm.", "f({\"a\": 1});g({})"},
    {KIMI KIMI_ONE("f", "{}") KIMI_ONE("a:b", "{}") KIMI_ONE("functions.x:12", "{}") KIMI_END, "",
     "f({});a:b({});x({})"},
    {KIMI KIMI_ONE(" functions.f:0 ", " {\"a\":\"<|tool_call_end|>\"} ") KIMI_END, "",
     "f({\"a\":\"<|tool_call_end|>\"})"},
    {KIMI KIMI_ONE("functions.:0", "{}") KIMI_END, KIMI KIMI_ONE("functions.:0", "{}") KIMI_END,
     ""},
};

static const struct row hunyuan[] = {
    {"<tool_calls>\n<tool_call>f\n```json\n{\"a\": 1}\n```</tool_call>\n<tool_call>g\n```json\n{}"
     "\n```</tool_call>\n</tool_calls>",
     "", "f({\"a\": 1});g({})"},
    {"Yes.<tool_calls><tool_call>f```json{}```</tool_call></tool_calls>", "Yes.", "f({})"},
    {"<tool_calls>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]</tool_calls>", "",
     "f({\"a\": 1})"},
    {"<tool_calls>\n<tool_call>f\n```json\n{}\n``", "", "f({})"},
    {"<tool_calls><tool_call>f\n{}</tool_call></tool_calls>",
     "<tool_calls><tool_call>f\n{}</tool_call></tool_calls>", ""},
};

static const struct row phi[] = {
    {"Hi", "Hi", ""},
    {"functools[{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": \"g\", \"arguments\": "
     "{}}]",
     "", "f({\"a\": [1]});g({})"},
    {"Use functools here.", "Use functools here.", ""},
    {"functools[]", "functools[]", ""},
    {"functools{\"name\": \"f\", \"arguments\": {}}",
     "functools{\"name\": \"f\", \"arguments\": {}}", ""},
};

#define Q "<|\"|>"

static const struct row gemma[] = {
    {"<|tool_call>call:f<tool_call|>", "", "f({})"},
    {"<|tool_call>call:h<tool_call|>", "<|tool_call>call:h<tool_call|>", ""},
    {"Hi", "Hi", ""},
    {"<|tool_call>call:f{}<tool_call|>", "", "f({})"},
    {"So: <|tool_call>call:get_weather{city:" Q "Oslo" Q ",days:2}<tool_call|>",
     "So:", "get_weather({\"city\":\"Oslo\",\"days\":2})"},
    {"<|tool_call>call:f{a:{b:[1," Q "x,}\"" Q
     ",true],c:null}}<tool_call|><|tool_call>call:g{}<tool_call|>",
     "", "f({\"a\":{\"b\":[1,\"x,}\\\"\",true],\"c\":null}});g({})"},
    {"<|tool_call>call:f{\"a\": \"b\"}<tool_call|>", "", "f({\"a\": \"b\"})"},
    {"<|tool_call>call:f{a:bare word}<tool_call|>", "", "f({\"a\":\"bare word\"})"},
    {"<|tool_call>f{}<tool_call|>", "<|tool_call>f{}<tool_call|>", ""},
    {"<|tool_call>call:f{a:}<tool_call|>", "<|tool_call>call:f{a:}<tool_call|>", ""},
    {"<|tool_call>call:f{a:" Q "x}<tool_call|>", "<|tool_call>call:f{a:" Q "x}<tool_call|>", ""},
    {"<|tool_call>call:f{a:1}b<tool_call|>", "<|tool_call>call:f{a:1}b<tool_call|>", ""},
};

static const struct row function[] = {
    {"<start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:<escape>2<escape>}<end_"
     "function_call>",
     "", "get_weather({\"city\":\"Oslo\",\"days\":\"2\"})"},
    {"<start_function_call>call:f{days:2}", "", "f({\"days\":2})"},
};

static json_t *tools; /* argument for the readers */

static int open_tools(void **state) {
    (void)state;
    tools = json_loads("[{\"function\":{\"name\":\"g\"}},{\"function\":{\"name\":\"f\","
                       "\"parameters\":{\"$defs\":{\"D\":"
                       "{\"type\":\"object\"}},\"properties\":{\"city\":{\"type\":\"string\"},"
                       "\"days\":{\"type\":\"integer\"},"
                       "\"dry\":{\"type\":\"boolean\"},\"none\":{\"const\":null},\"list\":{"
                       "\"type\":[\"array\",\"null\"]},"
                       "\"either\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}]},\"ref\":"
                       "{\"$ref\":\"#/$defs/D\"}}}}}]",
                       0, NULL);
    return tools ? 0 : -1;
}

static int close_tools(void **state) {
    (void)state;
    json_decref(tools);
    return 0;
}

static void add_calls(struct buf *out, const struct tool_reader *reader) {
    for (size_t i = 0; i < reader->calls.count; i++) {
        if (i > 0) buf_add_byte(out, ';');
        buf_add_str(out, buf_str(&reader->calls.at[i].name));
        buf_add_byte(out, '(');
        buf_add_str(out, buf_str(&reader->calls.at[i].arguments));
        buf_add_byte(out, ')');
    }
}

/* What a stream has shown stays, and the calls of the answer are among its calls, in their
 * order. */
static void check_shown(const struct tool_reader *reader, size_t *shown_bytes, bool is_end) {
    size_t bytes = reader->content_shown, at = 0;
    for (size_t i = 0; i < reader->shown.count; i++)
        bytes += 1 + reader->shown.at[i].name.bytes + reader->shown.at[i].arguments.bytes;
    assert_true(bytes >= *shown_bytes && reader->content_shown <= reader->content.bytes);
    *shown_bytes = bytes;
    for (size_t i = 0; is_end && i < reader->calls.count; i++) {
        const struct tool_call *call = &reader->calls.at[i];
        while (at < reader->shown.count && strcmp(reader->shown.at[at].id, call->id) != 0) at++;
        assert_true(at < reader->shown.count);
        const struct tool_call *shown = &reader->shown.at[at];
        assert_true(str_equals(buf_str(&shown->name), buf_str(&call->name)));
        assert_true(str_equals(buf_str(&shown->arguments), buf_str(&call->arguments)));
    }
}

/* Reads `text` in pieces of `step` bytes, or of sizes that the generator chooses; compares. */
static void check(enum tool_format format, const struct row *row, const char *thought, size_t step,
                  struct rng *rng) {
    struct tool_reader reader;
    struct buf calls;
    size_t bytes = strlen(row->text), content_before = 0, calls_before = 0, shown = 0;
    tool_reader_init(&reader, format, false, tools);
    buf_init(&calls, 4096);
    for (size_t at = 0; at < bytes;) {
        at += rng ? 1 + rng_below(rng, 1 + rng_below(rng, 12)) : step;
        if (at > bytes) at = bytes;
        tool_reader_feed(&reader, (struct str){row->text, at}, false);
        /* Text that was shown stays. */
        assert_true(reader.content.bytes >= content_before && reader.calls.count >= calls_before);
        content_before = reader.content.bytes;
        calls_before = reader.calls.count;
        check_shown(&reader, &shown, false);
    }
    tool_reader_feed(&reader, str_from(row->text), true);
    check_shown(&reader, &shown, true);
    add_calls(&calls, &reader);
    if (!str_is(buf_str(&reader.thought), thought))
        fail_msg("'%s': thought '%.*s'", row->text, STR_ARGS(buf_str(&reader.thought)));
    if (!str_is(buf_str(&reader.content), row->content) || !str_is(buf_str(&calls), row->calls))
        fail_msg("'%s': content '%.*s', calls '%.*s'", row->text,
                 STR_ARGS(buf_str(&reader.content)), STR_ARGS(buf_str(&calls)));
    buf_release(&calls);
    tool_reader_release(&reader);
}

static void check_all(enum tool_format format, const struct row *rows, size_t count) {
    struct rng rng = {.state = 5};
    for (size_t i = 0; i < count; i++) {
        for (size_t step = 1; step <= strlen(rows[i].text) + 1; step++)
            check(format, &rows[i], "", step, NULL);
        for (int try = 0; try < 200; try++) check(format, &rows[i], "", 0, &rng);
    }
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void calls_between_tags_are_found_however_the_text_comes(void **state) {
    (void)state;
    check_all(TOOL_FORMAT_HERMES, hermes, COUNT(hermes));
}

static void calls_after_the_mark_of_mistral_are_found_however_the_text_comes(void **state) {
    (void)state;
    check_all(TOOL_FORMAT_MISTRAL, mistral, COUNT(mistral));
}

static void a_text_of_calls_alone_is_found_however_it_comes(void **state) {
    (void)state;
    check_all(TOOL_FORMAT_LLAMA, llama, COUNT(llama));
}

static void calls_of_other_forms_are_found_however_they_come(void **state) {
    (void)state;
    check_all(TOOL_FORMAT_HERMES, quoted, COUNT(quoted));
    check_all(TOOL_FORMAT_XML, xml, COUNT(xml));
    check_all(TOOL_FORMAT_KEYS, keys, COUNT(keys));
    check_all(TOOL_FORMAT_KEYS, quoted, COUNT(quoted));
    check_all(TOOL_FORMAT_XML, quoted, COUNT(quoted));
    check_all(TOOL_FORMAT_NAMED, mistral, COUNT(mistral));
    check_all(TOOL_FORMAT_PYTHON, python, COUNT(python));
    check_all(TOOL_FORMAT_PHI, phi, COUNT(phi));
    check_all(TOOL_FORMAT_ACTION, action, COUNT(action));
    check_all(TOOL_FORMAT_MEMBERS, members, COUNT(members));
    check_all(TOOL_FORMAT_DEEPSEEK, deepseek, COUNT(deepseek));
    check_all(TOOL_FORMAT_DEEPSEEK_3, deepseek, COUNT(deepseek));
    check_all(TOOL_FORMAT_KIMI, kimi, COUNT(kimi));
    check_all(TOOL_FORMAT_HUNYUAN, hunyuan, COUNT(hunyuan));
    check_all(TOOL_FORMAT_GEMMA, gemma, COUNT(gemma));
    check_all(TOOL_FORMAT_FUNCTION, function, COUNT(function));
}

static void messages_are_sorted_however_they_come(void **state) {
    (void)state;
    struct rng rng = {.state = 6};
    for (size_t i = 0; i < COUNT(harmony); i++) {
        const struct row *row = &harmony[i].row;
        for (size_t step = 1; step <= strlen(row->text) + 1; step++)
            check(TOOL_FORMAT_HARMONY, row, harmony[i].thought, step, NULL);
        for (int try = 0; try < 200; try++)
            check(TOOL_FORMAT_HARMONY, row, harmony[i].thought, 0, &rng);
    }
    /* Without tools a message with a recipient is text. */
    struct tool_reader reader;
    tool_reader_init(&reader, TOOL_FORMAT_HARMONY, false, NULL);
    tool_reader_feed(&reader, str_from(ANALYSIS "a<|end|>" NEXT TO_F "{}<|call|>"), true);
    assert_true(str_is(buf_str(&reader.content), "{}"));
    assert_true(str_is(buf_str(&reader.thought), "a"));
    assert_int_equal(reader.calls.count, 0);
    tool_reader_release(&reader);
}

static void many_messages_cost_no_more_than_their_length(void **state) {
    (void)state;
    static const char *const parts[] = {"<|start|>", "<|channel|>", "<|message|>",
                                        "<",         "<|end|>",     "<|start|>x<|message|> "};
    for (size_t i = 0; i < COUNT(parts); i++) {
        struct tool_reader reader;
        struct buf text;
        buf_init(&text, BUF_UNLIMITED);
        while (text.bytes < 400000) buf_add_text(&text, parts[i]);
        tool_reader_init(&reader, TOOL_FORMAT_HARMONY, false, tools);
        for (size_t at = 7; at < text.bytes; at += 7)
            tool_reader_feed(&reader, (struct str){text.at, at}, false);
        tool_reader_feed(&reader, buf_str(&text), true);
        assert_int_equal(reader.calls.count, 0);
        tool_reader_release(&reader);
        buf_release(&text);
    }
}

static void a_call_is_there_as_soon_as_it_is_whole(void **state) {
    (void)state;
    struct tool_reader reader;
    tool_reader_init(&reader, TOOL_FORMAT_HERMES, false, tools);
    const char *text = "Wait. " CALL("f", "{}");
    tool_reader_feed(&reader, str_from("Wait. <tool"), false);
    assert_true(str_is(buf_str(&reader.content), "Wait."));
    tool_reader_feed(&reader, str_from(text), false);
    assert_int_equal(reader.calls.count, 1);
    tool_reader_release(&reader);
}

static void only_the_first_call_is_kept_when_one_is_wanted(void **state) {
    (void)state;
    struct tool_reader reader;
    tool_reader_init(&reader, TOOL_FORMAT_HERMES, true, tools);
    tool_reader_feed(&reader, str_from(CALL("f", "{}") CALL("g", "{}")), true);
    assert_int_equal(reader.calls.count, 1);
    assert_true(str_is(buf_str(&reader.calls.at[0].name), "f"));
    tool_reader_release(&reader);
}

static void ids_have_the_form_that_templates_take(void **state) {
    (void)state;
    struct tool_reader reader;
    tool_reader_init(&reader, TOOL_FORMAT_MISTRAL, false, tools);
    tool_reader_feed(&reader, str_from("[TOOL_CALLS]f{}[TOOL_CALLS]g{}"), true);
    assert_int_equal(strlen(reader.calls.at[0].id), 9);
    assert_string_not_equal(reader.calls.at[0].id, reader.calls.at[1].id);
    tool_reader_release(&reader);
    tool_reader_init(&reader, TOOL_FORMAT_HERMES, false, tools);
    tool_reader_feed(&reader, str_from(CALL("f", "{}")), true);
    assert_memory_equal(reader.calls.at[0].id, "call_", 5);
    tool_reader_release(&reader);
}

static void white_space_without_end_costs_no_more_than_its_length(void **state) {
    (void)state;
    size_t bytes = 400000;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, ' ', bytes);
    static const enum tool_format formats[] = {TOOL_FORMAT_HERMES, TOOL_FORMAT_LLAMA};
    for (size_t i = 0; i < 2; i++) {
        struct tool_reader reader;
        tool_reader_init(&reader, formats[i], false, tools);
        for (size_t at = 1; at < bytes; at++)
            tool_reader_feed(&reader, (struct str){text, at}, false);
        tool_reader_feed(&reader, (struct str){text, bytes}, true);
        assert_int_equal(reader.content.bytes, bytes);
        tool_reader_release(&reader);
    }
    free(text);
}

static void a_template_says_which_form_it_teaches(void **state) {
    (void)state;
    static const struct {
        const char *source;
        enum tool_format format;
    } rows[] = {
        {"{{ messages }}", TOOL_FORMAT_NONE},
        {"{{ xml_tools }} <tool_call>", TOOL_FORMAT_NONE},
        {"{% if tools %}<tool_call>{% endif %}", TOOL_FORMAT_HERMES},
        {"{% if tools %}<tool_call><function=f>{% endif %}", TOOL_FORMAT_PLAIN},
        {"{{ tools }}<tool_call><function=f><parameter=a>", TOOL_FORMAT_XML},
        {"{{ tools }}<tool_call>f<arg_key>a</arg_key><arg_value>", TOOL_FORMAT_KEYS},
        {"{{ tools }}[TOOL_CALLS]", TOOL_FORMAT_MISTRAL},
        {"{{ tools }}[TOOL_CALLS]f[ARGS]", TOOL_FORMAT_NAMED},
        {"{{ tools }}<|tool_call>", TOOL_FORMAT_GEMMA},
        {"{{ tools }}<start_function_call>", TOOL_FORMAT_FUNCTION},
        {"{{ tools }}functools[", TOOL_FORMAT_PHI},
        {"{{ tools }}[func_name1(params_name1=1)]", TOOL_FORMAT_PYTHON},
        {"{{ tools }}<|python_tag|>", TOOL_FORMAT_LLAMA},
        {"{{ tools }}<|channel|>analysis<|message|>", TOOL_FORMAT_HARMONY},
        {"{{ tools }}<|START_ACTION|>", TOOL_FORMAT_ACTION},
        {"{{ tools }}<|tools_prefix|>[", TOOL_FORMAT_MEMBERS},
        {"{{ tools }}" SECTION ONE SEP, TOOL_FORMAT_DEEPSEEK},
        {"{{ tools }}" SECTION ONE "function" SEP "f ```json", TOOL_FORMAT_DEEPSEEK_3},
        {"{{ tools }}<|tool_calls_section_begin|>", TOOL_FORMAT_KIMI},
        {"{{ tools }}<tool_calls><tool_call>f\n```json\n```</tool_call>", TOOL_FORMAT_HUNYUAN},
        {"{{ tools }}", TOOL_FORMAT_PLAIN}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct jinja_template *template;
        assert_int_equal(jinja_template_open(&template, str_from(rows[i].source), NULL), OK);
        assert_int_equal(tool_format_of(template), rows[i].format);
        jinja_template_close(template);
    }
    assert_int_equal(tool_format_of(NULL), TOOL_FORMAT_NONE);
}

/* Each mark of a form or a family of thoughts is in chat_marks, and no other word is. */
static void chat_marks_are_the_marks_of_forms_and_thoughts(void **state) {
    (void)state;
    static const int counts[TOOL_FORMAT_COUNT] = {
        [TOOL_FORMAT_KEYS] = 6,     [TOOL_FORMAT_HERMES] = 2,     [TOOL_FORMAT_XML] = 2,
        [TOOL_FORMAT_MISTRAL] = 3,  [TOOL_FORMAT_NAMED] = 3,      [TOOL_FORMAT_LLAMA] = 1,
        [TOOL_FORMAT_PYTHON] = 1,   [TOOL_FORMAT_GEMMA] = 3,      [TOOL_FORMAT_FUNCTION] = 3,
        [TOOL_FORMAT_HARMONY] = 5,  [TOOL_FORMAT_ACTION] = 2,     [TOOL_FORMAT_MEMBERS] = 2,
        [TOOL_FORMAT_DEEPSEEK] = 5, [TOOL_FORMAT_DEEPSEEK_3] = 5, [TOOL_FORMAT_KIMI] = 5,
        [TOOL_FORMAT_HUNYUAN] = 4};
    static const char *const thoughts[] = {"</think>",   "[/THINK]",         "</seed:think>",
                                           "<channel|>", "<|END_THINKING|>", "<|inner_suffix|>"};
    uint64_t all = 0;
    for (size_t i = 0; i < TOOL_FORMAT_COUNT; i++) {
        uint64_t marks = tool_format_mark_set((enum tool_format)i);
        assert_int_equal(__builtin_popcountll(marks), counts[i]);
        all |= marks;
    }
    for (size_t i = 0; i < COUNT(thoughts); i++) {
        struct jinja_template *template;
        assert_int_equal(jinja_template_open(&template, str_from(thoughts[i]), NULL), OK);
        uint64_t marks = thought_mark_set(thought_marks_of(template));
        assert_int_equal(__builtin_popcountll(marks), 2);
        all |= marks;
        jinja_template_close(template);
    }
    for (size_t k = 0; chat_marks[k]; k++)
        if (!(all >> k & 1)) fail_msg("no form and no thought has %s", chat_marks[k]);
}

static void parsers_have_the_names_that_vllm_has(void **state) {
    (void)state;
    assert_int_equal(tool_format_named(STR("hermes")), TOOL_FORMAT_HERMES);
    assert_int_equal(tool_format_named(STR("qwen3_coder")), TOOL_FORMAT_XML);
    assert_int_equal(tool_format_named(STR("glm45")), TOOL_FORMAT_KEYS);
    assert_int_equal(tool_format_named(STR("llama4_pythonic")), TOOL_FORMAT_PYTHON);
    assert_int_equal(tool_format_named(STR("openai")), TOOL_FORMAT_HARMONY);
    assert_int_equal(tool_format_named(STR("deepseek_v31")), TOOL_FORMAT_DEEPSEEK);
    assert_int_equal(tool_format_named(STR("kimi_k2")), TOOL_FORMAT_KIMI);
    assert_int_equal(tool_format_named(STR("")), TOOL_FORMAT_NONE);
    assert_int_equal(tool_format_named(STR("pythonic llama4_pythonic")), TOOL_FORMAT_NONE);
    assert_int_equal(tool_format_named(STR("herm")), TOOL_FORMAT_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_between_tags_are_found_however_the_text_comes),
        cmocka_unit_test(calls_after_the_mark_of_mistral_are_found_however_the_text_comes),
        cmocka_unit_test(a_text_of_calls_alone_is_found_however_it_comes),
        cmocka_unit_test(calls_of_other_forms_are_found_however_they_come),
        cmocka_unit_test(messages_are_sorted_however_they_come),
        cmocka_unit_test(many_messages_cost_no_more_than_their_length),
        cmocka_unit_test(a_call_is_there_as_soon_as_it_is_whole),
        cmocka_unit_test(only_the_first_call_is_kept_when_one_is_wanted),
        cmocka_unit_test(ids_have_the_form_that_templates_take),
        cmocka_unit_test(white_space_without_end_costs_no_more_than_its_length),
        cmocka_unit_test(a_template_says_which_form_it_teaches),
        cmocka_unit_test(chat_marks_are_the_marks_of_forms_and_thoughts),
        cmocka_unit_test(parsers_have_the_names_that_vllm_has),
    };
    return cmocka_run_group_tests(tests, open_tools, close_tools);
}
