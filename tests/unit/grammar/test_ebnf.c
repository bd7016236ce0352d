/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "compiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define MOST 9

static const struct {
    const char *text;
    const char *good[MOST], *bad[MOST];
} rows[] = {
    {"root ::= \"a\" | 'b'* \"c\"", {"a", "c", "bbc"}, {"", "ab", "b", "ac"}},
    {"root ::= [a-c\\]\\-x]+ [^a\\n] . # a comment with ::=\n",
     {"a]z!", "-xéé", "xbb"},
     {"az", "a\nz", "daa"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\\"\\\\\"", {"Aé😀\n\"\\"}, {"A", "Aé"}},
    {"root ::= (\"a\" \"b\"){2} \"c\"{1,} \"d\"{,2} \"e\"{0,1} f\nf ::= \"f\"?",
     {"ababc", "ababccdde", "ababcf"},
     {"abc", "abababc", "ababcddd", "ababcff"}},
    {"root ::= [\\d\\s]{3} [\\w]", {"1 2_"}, {"1a2_", "1 2-"}},
    /* what llama.cpp has as examples */
    {"root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] ws term)*\n"
     "term ::= ident | num | \"(\" ws expr \")\" ws\nident ::= [a-z] [a-z0-9_]* ws\n"
     "num ::= [0-9]+ ws\nws ::= [ \\t\\n]*\n",
     {"a=1\n", "(a + b1) * 2 = c\n1=1\n", "((((1))))=x\n"},
     {"", "a=\n", "(a=1\n", "a==1\n", "a)=1\n"}},
    {"root   ::= object\n"
     "value  ::= object | array | string | (\"true\" | \"false\" | \"null\") ws\n\n"
     "object ::=\n  \"{\" ws (\n            string \":\" ws value\n    (\",\" ws string \":\" ws "
     "value)*\n"
     "  )? \"}\" ws\n\n"
     "array  ::=\n  \"[\" ws (\n            value\n    (\",\" ws value)*\n  )? \"]\" ws\n\n"
     "string ::=\n  \"\\\"\" (\n    [^\"\\\\\\x7F\\x00-\\x1F] |\n    \"\\\\\" ([\"\\\\bfnrt] | "
     "\"u\" [0-9a-fA-F]{4})"
     "\n  )* \"\\\"\" ws\n\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
     {"{}", "{\"a\": [true,{\"b\":\"\\u00e9\"}]}", "{\"\":\n null}"},
     {"", "[]", "{\"a\"}", "{\"a\":[}", "{\"a\":1}"}},
    /* what vLLM has as an example */
    {"root ::= select_statement\nselect_statement ::= \"SELECT \" column \" from \" table \" where "
     "\" condition\n"
     "column ::= \"col_1 \" | \"col_2 \"\ntable ::= \"table_1 \" | \"table_2 \"\n"
     "condition ::= column \"= \" number\nnumber ::= \"1 \" | \"2 \"\n",
     {"SELECT col_1  from table_2  where col_2 = 1 "},
     {"SELECT col_1 from table_2 ", "SELECT"}},
    /* a rule that begins with itself */
    {"root ::= expr\nexpr ::= expr \"+\" term | term | expr\nterm ::= term \"*\" [0-9] | [0-9] | "
     "\"(\" expr \")\"",
     {"1", "1+2*3+4", "(1+2)*3", "((1))"},
     {"", "+1", "1+", "1*(2)", "(1"}},
    {"root ::= \"(\" root \")\" root | \"\"", {"", "()", "(())()"}, {"(", ")", "())"}},
    /* rules without a text are taken out */
    {"root ::= \"a\" | endless\nendless ::= \"b\" endless", {"a"}, {"", "b", "bb"}},
    /* Lark */
    {"?start: \"hello\" name+ [\"!\"] // a comment\nname: /[A-Z][a-z]*/ -> given\n  | \"you\"\n",
     {"helloAnnaBob", "helloyou!"},
     {"hello", "hello!", "helloanna"}},
};

static struct grammar *compile(const char *text, struct error *error) {
    json_t *source = json_string(text);
    struct grammar *grammar = compiled(GRAMMAR_EBNF, source, error);
    json_decref(source);
    return grammar;
}

static void test_texts_are_taken_as_the_rules_say(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error error = {0};
        struct grammar *grammar = compile(rows[i].text, &error);
        if (!grammar) fail_msg("%s: %s", rows[i].text, error.text);
        for (size_t k = 0; k < MOST && rows[i].good[k]; k++)
            if (!takes(grammar, str_from(rows[i].good[k])))
                fail_msg("%s refuses %s", rows[i].text, rows[i].good[k]);
        for (size_t k = 0; k < MOST && rows[i].bad[k]; k++)
            if (takes(grammar, str_from(rows[i].bad[k])))
                fail_msg("%s takes %s", rows[i].text, rows[i].bad[k]);
        grammar_drop(grammar);
    }
}

/* A text, and a piece of the sentence that refuses it. */
static const char *const refused[][2] = {
    {"", "no rule 'root'"},
    {"a ::= \"b\"", "no rule 'root'"},
    {"root ::= a", "line 1 of the grammar: the rule 'a' is not there"},
    {"root ::= \"a\"\nroot ::= \"b\"", "line 2 of the grammar: the rule 'root' is there twice"},
    {"root ::= \"a", "a string without its end"},
    {"root ::= [a", "a class without its ]"},
    {"root ::= [z-a]", "a range"},
    {"root ::= [a-", "a character is missing"},
    {"root ::= [a\\", "an escape"},
    {"root ::= \"\\", "an escape"},
    {"root ::= /\\", "without its /"},
    {"root ::= /a", "without its /"},
    {"root ::= \"a\"{", "a count"},
    {"root ::= [^", "a class without its ]"},
    {"root ::= (\"a\"", "a group without its )"},
    {"root ::= \"a\")", "must begin with its name"},
    {"root ::= \"a\"{2,1}", "a count"},
    {"root ::= \"\\q\"", "an escape that is not known: \\q"},
    {"root ::= \"\\ud800\"", "no character"},
    {"root ::= (=\"a\") \"a\"", "look-ahead"},
    {"root ::= TagDispatch((\"a\", b))", "the macro TagDispatch"},
    {"root ::= a \"x\" | \"y\"\na ::= root | \"z\"", "begins with itself"},
    {"root ::= \"a\"? root \"b\" | \"c\"", "begins with itself"},
    {"root ::= root", "begins with itself"},
    {"root ::= \"a\" root", "no text satisfies it"},
    {"root ::= /(?=a)/", "line 1 of the grammar: "},
    {"root ::= %", "'%' is not expected here"},
    {"start: \"a\"\n%ignore \" \"", "not"},
    {"start: \"a\"i", "flags"},
};

static void test_what_is_wrong_is_named_with_its_line(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct error error = {0};
        assert_null(compile(refused[i][0], &error));
        if (!strstr(error.text, refused[i][1])) fail_msg("%s: %s", refused[i][0], error.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_taken_as_the_rules_say),
        cmocka_unit_test(test_what_is_wrong_is_named_with_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
