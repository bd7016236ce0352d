/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "compiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define MOST 10

/* The strings of a format are written with ' for ". */
#define CALL(name, schema)                                                                         \
    "{'type':'tag','begin':'<call>{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": ',"          \
    "'content':{'type':'json_schema','json_schema':" schema "},'end':'}</call>'}"
#define TWO_CALLS                                                                                  \
    CALL("add", "{'type':'integer'}") "," CALL("say", "{'type':'string','maxLength':3}")

static const struct {
    const char *format;
    const char *good[MOST], *bad[MOST];
} rows[] = {
    {"{'type':'const_string','value':'a b'}", {"a b"}, {"", "a", "a bc"}},
    {"{'type':'sequence','elements':[{'type':'const_string','value':'x'},{'type':'regex','pattern':"
     "'[0-9]+'},{'type':'optional','content':{'type':'const_string','value':'!'}}]}",
     {"x1", "x12!"},
     {"x", "x!", "1!", "x1!!"}},
    {"{'type':'or','elements':[{'type':'json_schema','json_schema':{'type':'null'}},{'type':'const_"
     "string','value':'never'}]}",
     {"null", "never"},
     {"", "nulln"}},
    {"{'type':'tags_with_separator','at_least_one':true,'separator':'\\n','tags':[" TWO_CALLS "]}",
     {"<call>{\"name\": \"add\", \"arguments\": 12}</call>",
      "<call>{\"name\": \"say\", \"arguments\": \"a\"}</call>\n"
      "<call>{\"name\": \"add\", \"arguments\": 1}</call>"},
     {"", "<call>{\"name\": \"add\", \"arguments\": \"a\"}</call>",
      "<call>{\"name\": \"say\", \"arguments\": \"abcd\"}</call>",
      "<call>{\"name\": \"add\", \"arguments\": 1}</call>\n"}},
    {"{'type':'tags_with_separator','stop_after_first':true,'separator':'','tags':[" TWO_CALLS "]}",
     {"", "<call>{\"name\": \"add\", \"arguments\": 12}</call>"},
     {"<call>{\"name\": \"add\", \"arguments\": 1}</call><call>{\"name\": \"add\", \"arguments\": "
      "1}</call>"}},
    {"{'type':'tags_with_separator','at_least_one':true,'max':3,'separator':',','tags':[{'type':'"
     "tag',"
     "'begin':'<','content':{'type':'json_schema','json_schema':{'type':'null'}},'end':'>'}]}",
     {"<null>", "<null>,<null>", "<null>,<null>,<null>"},
     {"", "<null>,", "<null>,<null>,<null>,", "<null>,<null>,<null>,<null>"}},
    {"{'type':'tags_with_separator','max':1,'separator':'','tags':[{'type':'tag','begin':'<','"
     "content':"
     "{'type':'any_text'},'end':'>'}]}",
     {"", "<a>"},
     {"<a><b>"}},
    {"{'type':'triggered_tags','triggers':['<call>'],'tags':[" TWO_CALLS "]}",
     {"", "free text, é <cal", "<call>{\"name\": \"add\", \"arguments\": 12}</call>",
      "a<call>{\"name\": \"say\", \"arguments\": \"\"}</call>b<call>{\"name\": \"add\", "
      "\"arguments\": 12}</call>c"},
     {"<call>", "a<call>x", "<call>{\"name\": \"add\", \"arguments\": \"\"}</call>", "\xff",
      "a<call>{\"name\": \"add\", \"arguments\": 12}</call><call>"}},
    {"{'type':'triggered_tags','at_least_one':true,'stop_after_first':true,'triggers':['<call>'],"
     "'tags':[" TWO_CALLS "]}",
     {"<call>{\"name\": \"add\", \"arguments\": 12}</call>"},
     {"", "a", "a<call>{\"name\": \"add\", \"arguments\": 12}</call>",
      "<call>{\"name\": \"add\", \"arguments\": 12}</call>b"}},
    /* A trigger that begins within itself. */
    {"{'type':'triggered_tags','triggers':['aab'],'tags':[{'type':'tag','begin':'aab','content':"
     "{'type':'any_text'},'end':'b'}]}",
     {"aa", "aaabb", "aaaaabxxb", "aabaabbaab b"},
     {"aab", "aaab", "aaabbaab"}},
    {"{'type':'tag','begin':'<a>','content':{'type':'any_text','excludes':['no']},'end':['</a>',"
     "'.']}",
     {"<a></a>", "<a>.", "<a>yes</a>", "<a>n o </a."},
     {"<a>no</a>", "<a>x</a>.", "<a>..", "<a>"}},
    {"{'type':'sequence','elements':[{'type':'any_text'},{'type':'mark','mark':2},{'type':'mark','"
     "mark':63}]}",
     {"\xff\x02\xff\x3f", "text\xff\x02\xff\x3f"},
     {"", "text", "\xff\x3f\xff\x02", "\xff\x02", "a\xff\x02\xff\x3f\xff\x02"}},
    {"{'type':'json_schema','json_schema':{'not':{}},'otherwise':{'type':'null'}}",
     {"null"},
     {"1", ""}},
    {"{'type':'any_text','excludes':['ab','c']}", {"", "a", "ba", "é"}, {"ab", "xab", "c"}},
    {"{'type':'repeat','min':2,'max':3,'content':{'type':'const_string','value':'ab'}}",
     {"abab", "ababab"},
     {"ab", "abababab", "aba"}},
    {"{'type':'sequence','elements':[{'type':'star','content':{'type':'const_string','value':'a'}},"
     "{'type':'plus','content':{'type':'const_string','value':'b'}}]}",
     {"b", "aabb"},
     {"", "a", "ba"}},
};

static json_t *format_of(const char *text) {
    char json[4096];
    snprintf(json, sizeof json, "%s", text);
    for (char *at = json; *at; at++)
        if (*at == '\'') *at = '"';
    return value_of(json);
}

static void test_texts_are_taken_as_the_format_says(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error error = {0};
        json_t *format = format_of(rows[i].format);
        struct grammar *grammar = compiled(GRAMMAR_TAGS, format, &error);
        if (!grammar) fail_msg("%s: %s", rows[i].format, error.text);
        for (size_t k = 0; k < MOST && rows[i].good[k]; k++)
            if (!takes(grammar, str_from(rows[i].good[k])))
                fail_msg("%s refuses %s", rows[i].format, rows[i].good[k]);
        for (size_t k = 0; k < MOST && rows[i].bad[k]; k++)
            if (takes(grammar, str_from(rows[i].bad[k])))
                fail_msg("%s takes %s", rows[i].format, rows[i].bad[k]);
        grammar_drop(grammar);
        json_decref(format);
    }
}

/* A format, and a piece of the sentence that refuses it. */
static const char *const refused[][2] = {
    {"{'type':'token','token':1}", "'token' is not supported"},
    {"{}", "it must be an object with a 'type'"},
    {"{'type':'sequence','elements':[{'type':'or','elements':[{'type':'const_string'}]}]}",
     "format.elements[0].elements[0]: 'value' must be a string"},
    {"{'type':'tag','begin':'a','end':'b','content':{'type':'json_schema','json_schema':{'not':{}}"
     "}}",
     "format.content: "},
    {"{'type':'triggered_tags','triggers':['x'],'tags':[{'begin':'a','end':'b','content':{'type':"
     "'any_text'}}]}",
     "begins with 0 triggers"},
    {"{'type':'triggered_tags','triggers':['a','x'],'tags':[{'begin':'ab','end':'b','content':"
     "{'type':'any_text'}}]}",
     "no tag begins with the trigger 'x'"},
    {"{'type':'mark','mark':64}", "'mark' must be an integer below 64"},
    {"{'type':'json_schema','json_schema':{'not':{}},'place':'tools[3]'}", "tools[3]: "},
    {"{'type':'regex','pattern':'(','place':'guided_regex'}", "guided_regex: "},
    {"{'type':'grammar','grammar':'x'}", "format: "},
    {"{'type':'json_schema','json_schema':{'not':{}},'otherwise':{'not':{}}}", "'not'"},
    {"{'type':'repeat','min':3,'max':2,'content':{'type':'any_text'}}", "'max' must be"},
    {"{'type':'or','elements':[]}", "'elements' must be an array"},
    {"{'type':'tags_with_separator','separator':'','max':0,'tags':[{'type':'any_text'}]}",
     "'max' must be an integer from 1 on"},
    {"{'type':'tag','begin':'a','content':{'type':'any_text'}}", "'end' must be"},
};

static void test_what_is_wrong_is_named_with_its_place(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct error error = {0};
        json_t *format = format_of(refused[i][0]);
        assert_null(compiled(GRAMMAR_TAGS, format, &error));
        if (!strstr(error.text, refused[i][1])) fail_msg("%s: %s", refused[i][0], error.text);
        json_decref(format);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_taken_as_the_format_says),
        cmocka_unit_test(test_what_is_wrong_is_named_with_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
