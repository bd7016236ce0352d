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
    {"root ::= [\\d\\s]{3} [\\w]", {"1 2_", "1\u00a02_", "\u3000\n2a"}, {"1a2_", "1 2-"}},
    {"root ::= [\\D] [\\S\\n] [^\\W]", {"a-b", "\u00e9\n_"}, {"1-b", "a b", "a\u00a0b", "a--"}},
    {"root ::= /\\s/ [\\s]", {" \u2028", "\u2028\ufeff"}, {"  \u180e", "\u180e "}},
    /* in the form of llama.cpp: a rule for space, groups, rules that meet again inside themselves
     */
    {"root ::= line (\"\\n\" line)*\nline ::= name gap \":=\" gap sum\n"
     "sum ::= part (gap [-+] gap part)*\npart ::= digits | name | \"<\" sum \">\"\n"
     "name ::= [A-Z] [a-z]*\ndigits ::= [1-9] [0-9]*\ngap ::= \" \"?\n",
     {"X:=1", "Total := 20 + <Tax - 3>\nY:=X", "A:=<<<7>>>"},
     {"", "X:=", "x:=1", "X:=<1", "X:=01", "X:=1\n"}},
    {"root  ::= pair (\n    \";\" pair\n  )*\npair  ::= word \"=\" value\n"
     "value ::= word | \"[\" (value (\" \" value)*)? \"]\"\n"
     "word  ::= \"'\" ( [^'\\\\\\x00-\\x1F] | \"\\\\\" ([nt'] | \"x\" [0-9a-f]{2}) )* \"'\"\n",
     {"'a'='b'", "''=[];'k'=['x' ['\\x0a'] 'y\\n']", "'\xc3\xa9'='\\''"},
     {"", "'a'", "'a'=[", "'a'='b';", "'a'='\\q'", "'a'='\n'"}},
    /* a rule with a group directly behind it, and alternatives that are empty */
    {"root ::= unit((\"x\" | \"/\") unit)* gap \".\"\nunit ::= [a-z]\ngap ::= | \" \" | \"\\n\" [ "
     "\\t]{0,2}\n",
     {"a.", "axb/c .", "a\n \t."},
     {"", "a/.", "a  .", "a\n   ."}},
    /* in the form of vLLM: words with their spaces */
    {"root ::= order\norder ::= \"BRING \" count thing \"TO \" place\n"
     "count ::= \"two \" | \"three \"\nthing ::= \"cups \" | \"plates \"\n"
     "place ::= \"table \" number\nnumber ::= \"7\" | \"12\"\n",
     {"BRING two plates TO table 12"},
     {"BRING two plates TO table 1", "BRING cups TO table 7"}},
    /* Lark */
    {"?start: \"hello\" name+ [\"!\"] // a comment\nname: /[A-Z][a-z]*/ -> given\n  | \"you\"\n",
     {"helloAnnaBob", "helloyou!"},
     {"hello", "hello!", "helloanna"}},
};

static void test_texts_are_taken_as_the_rules_say(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error error = {0};
        struct grammar *grammar = compiled_text(GRAMMAR_EBNF, rows[i].text, &error);
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
    {"root ::= \"a\"{", "a count that is not {m}, {m,}, {,n} or {m,n}"},
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
    {"root ::= /(?<=a)b/", "line 1 of the grammar: "},
    {"root ::= %", "'%' is not expected here"},
    {"start: \"a\"\n%ignore \" \"", "not"},
    {"start: \"a\"i", "flags"},
};

static void test_what_is_wrong_is_named_with_its_line(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct error error = {0};
        assert_null(compiled_text(GRAMMAR_EBNF, refused[i][0], &error));
        if (!strstr(error.text, refused[i][1])) fail_msg("%s: %s", refused[i][0], error.text);
    }
}

/* Each part is another call of the compiler. */
static void test_a_deep_text_is_refused(void **state) {
    (void)state;
    static const char *const parts[] = {"?", "*", "+", "{2}", "{1,2}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct buf text;
        buf_init(&text, SIZE_MAX);
        struct error error = {0};
        buf_add_text(&text, "root ::= \"a\"");
        for (int k = 0; k < 50000; k++) buf_add_text(&text, parts[i]);
        buf_add(&text, "", 1);
        assert_null(compiled_text(GRAMMAR_EBNF, text.at, &error));
        assert_string_equal(error.text, "rules and parts are nested more than 2000 deep");
        buf_release(&text);
    }
}

/* Rules in rules, each in as many groups as may be. */
static void test_deep_groups_in_many_rules_are_refused(void **state) {
    (void)state;
    struct buf text;
    buf_init(&text, SIZE_MAX);
    struct error error = {0};
    for (int rule = 0; rule < 400; rule++) {
        if (rule == 0)
            buf_add_text(&text, "root ::= ");
        else
            buf_printf(&text, "r%d ::= ", rule);
        for (int k = 0; k < 60; k++) buf_add_text(&text, "(");
        buf_printf(&text, "r%d", rule + 1);
        for (int k = 0; k < 60; k++) buf_add_text(&text, " | \"x\")");
        buf_add_text(&text, "\n");
    }
    buf_add_text(&text, "r400 ::= \"y\"\n");
    buf_add(&text, "", 1);
    assert_null(compiled_text(GRAMMAR_EBNF, text.at, &error));
    assert_string_equal(error.text, "rules and parts are nested more than 2000 deep");
    buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_taken_as_the_rules_say),
        cmocka_unit_test(test_what_is_wrong_is_named_with_its_line),
        cmocka_unit_test(test_a_deep_text_is_refused),
        cmocka_unit_test(test_deep_groups_in_many_rules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
