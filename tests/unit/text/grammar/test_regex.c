/* SPDX-License-Identifier: Apache-2.0 */
#include "compiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define MOST 12

/* A regular expression of the whole text, and texts that it has and has not. */
static const struct {
    const char *pattern;
    const char *good[MOST], *bad[MOST];
} rows[] = {
    {"", {""}, {"a"}},
    {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
    {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
    {"a*b+c?", {"b", "aab", "bbc"}, {"", "ac", "abcc"}},
    {"(ab){2,3}", {"abab", "ababab"}, {"ab", "abababab", "aba"}},
    {"a{3}", {"aaa"}, {"aa", "aaaa"}},
    {"a{2,}", {"aa", "aaaaa"}, {"a"}},
    {"a*?b+?", {"b", "ab"}, {"a"}},
    {"(?:a|b)(?<name>c)(?P<other>d)", {"acd", "bcd"}, {"cd"}},
    {"^a$", {"a"}, {"ba", "ab"}},
    {"(^a|b$)", {"a", "b"}, {"ab"}},
    {"[a-c]", {"a", "b", "c"}, {"d", "-", ""}},
    {"[^a-c]", {"d", "é", "\n", "😀"}, {"a", "", "dd"}},
    {"[-a]", {"-", "a"}, {"b"}},
    {"[a\\-c\\]]", {"-", "a", "c", "]"}, {"b"}},
    {"[\\d_]+", {"12_3"}, {"a", "٣"}},
    {"\\w\\W\\d\\D\\s\\S", {"a-1b c", "_ 0x\tz"}, {"aa1b c"}},
    {".", {"a", "é", "😀", " "}, {"\n", "\r", "", "ab"}},
    {"\\.\\*\\/\\{", {".*/{"}, {"a*/{"}},
    {"\\x41\\u00e9\\u{1F600}\\ud83d\\ude00\\cA\\t", {"Aé😀😀\x01\t"}, {"A"}},
    {"é{2}", {"éé"}, {"é"}},
    {"\\p{L}+\\P{L}", {"aéя1"}, {"a1a", "1"}},
    {"\\p{Lu}\\p{Letter}\\p{gc=Nd}", {"Aa1"}, {"aa1"}},
    {"(a?){3}", {"", "a", "aaa"}, {"aaaa"}},
    {"(a*)*b", {"b", "aab"}, {"a"}},
    {"[[:alpha:]]+", {"aZ"}, {"a1", "[:a", "a]"}},
    {"[^[:digit:][:space:]x]", {"a", "é", ":"}, {"1", " ", "\n", "x"}},
    {"[[:^upper:]][[:punct:]_[:xdigit:]]", {"a!", "1_", "é~", "af"}, {"A!", "ag"}},
    {"[[:alpha]", {"[", ":", "a", "p"}, {"b", "]"}},
    {"[[:]", {"[", ":"}, {"a"}},
    {"^(?!ab)[abc]{2}$", {"aa", "ba", "cc"}, {"ab", "a"}},
    {"(?=.*[0-9])(?=.*[a-z])[a-z0-9]{2,4}", {"a1", "11aa", "1a"}, {"aa", "11", "a", "a1a1a"}},
    {"a(?!b).", {"ac", "aa"}, {"ab", "a"}},
    {"x(a(?=c).|b)", {"xac", "xb"}, {"xab", "xa"}},
    {"(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*", {"1", "-0.5", "5."}, {"", "-", ".", "+."}},
    {"a(?!)|b(?!c)", {"b"}, {"a", "bc"}},
    {"(?!(?=a)..)[ab]{2}", {"ba", "bb"}, {"aa", "ab"}},
    {"[\\u0000-\\uffff]", {"a", "\xef\xbf\xbf"}, {"😀"}},
};

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error error;
        struct grammar *grammar = compiled_text(GRAMMAR_REGEX, rows[i].pattern, &error);
        if (!grammar) fail_msg("%s: %s", rows[i].pattern, error.text);
        for (size_t k = 0; k < MOST && rows[i].good[k]; k++)
            if (!takes(grammar, str_from(rows[i].good[k])))
                fail_msg("%s has '%s'", rows[i].pattern, rows[i].good[k]);
        for (size_t k = 0; k < MOST && rows[i].bad[k]; k++)
            if (takes(grammar, str_from(rows[i].bad[k])))
                fail_msg("%s has not '%s'", rows[i].pattern, rows[i].bad[k]);
        grammar_drop(grammar);
    }
}

static void test_refusals(void **state) {
    static const struct {
        const char *pattern, *word;
    } bad[] = {
        {"(", "group"},
        {")", ")"},
        {"[a", "class"},
        {"*a", "quantifier"},
        {"a**", "quantifier"},
        {"a{2,1}", "{"},
        {"a{", "{"},
        {"\\", "backslash"},
        {"\\q", "escape"},
        {"[b-a]", "range"},
        {"[\\d-z]", "range"},
        {"(?=a)", "no text"},
        {"((?=a)b)c", "look-ahead"},
        {"(?:(?!a).)*", "look-ahead"},
        {"(?!a)+b", "quantifier"},
        {"(?<=a)b", "look-around"},
        {"[[:klingon:]]", "POSIX"},
        {"[[=a=]]", "POSIX"},
        {"[[.a.]]", "POSIX"},
        {"(?<!a)b", "look-around"},
        {"(a)\\1", "reference"},
        {"\\bword", "anchor"},
        {"a^b", "^"},
        {"a$b", "$"},
        {"(a|^b)*", "^"},
        {"\\p{Klingon}", "\\p"},
        {"\\ud83d", "surrogate"},
        {"\\u{110000}", "\\u"},
        {"a{200000}", "quantifier"},
        {"(?i)a", "flag"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error error;
        struct grammar *grammar = compiled_text(GRAMMAR_REGEX, bad[i].pattern, &error);
        if (grammar) fail_msg("%s compiles", bad[i].pattern);
        if (!strstr(error.text, bad[i].word)) fail_msg("%s: %s", bad[i].pattern, error.text);
    }
}

/* Expressions that are large in one way or another end, compiled or not. */
static void test_large(void **state) {
    static const char *const large[] = {"((a{1,1000}){1,1000}){1,1000}", "(a?){1000}a{1000}",
                                        "(.*a){30}.*", "(a|b)*a(a|b){200}",
                                        "((((((((((a*)*)*)*)*)*)*)*)*)*)*"};
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct error error;
        struct grammar *grammar = compiled_text(GRAMMAR_REGEX, large[i], &error);
        if (!grammar) continue;
        struct grammar_state text;
        grammar_state_init(&text, grammar);
        for (int k = 0; k < 300; k++)
            if (grammar_accept(&text, STR("a")) != GRAMMAR_ACCEPTED) break;
        grammar_state_release(&text);
        grammar_drop(grammar);
    }
}

static void test_choice(void **state) {
    json_t *source = value_of("[\"yes\",\"no\",\"not sure\",\"é\"]");
    struct error error;
    struct grammar *grammar = compiled(GRAMMAR_CHOICE, source, &error);
    (void)state;
    assert_non_null(grammar);
    assert_true(takes(grammar, STR("yes")) && takes(grammar, STR("no")));
    assert_true(takes(grammar, STR("not sure")) && takes(grammar, STR("é")));
    assert_false(takes(grammar, STR("not")) || takes(grammar, STR("")) ||
                 takes(grammar, STR("yesno")));
    grammar_drop(grammar);
    json_decref(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
