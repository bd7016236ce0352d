/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "tokenizer/pretokenize.h"

/* `want` has the pieces with '|' after each. */
static void assert_pieces(const char *pre, const char *text, const char *want) {
    const struct pre_rules *rules = pre_rules_find(str_from(pre));
    assert_non_null(rules);
    struct buf got;
    buf_init(&got, 1000);
    struct str whole = str_from(text);
    for (size_t at = 0; at < whole.bytes;) {
        size_t end = pre_piece_end(rules, whole, at);
        buf_add(&got, whole.at + at, end - at);
        buf_add_byte(&got, '|');
        at = end;
    }
    if (!str_is(buf_str(&got), want))
        fail_msg("%s: '%s' became '%.*s'", pre, text, STR_ARGS(buf_str(&got)));
    buf_release(&got);
}

static void gpt2_splits_words_numbers_and_the_rest(void **state) {
    (void)state;
    assert_pieces("gpt-2", "Hello, world 123!", "Hello|,| world| 123|!|");
    assert_pieces("gpt-2", "don't DON'T x'll", "don|'t| DON|'|T| x|'ll|");
    assert_pieces("gpt-2", "a   b", "a|  | b|");
    assert_pieces("gpt-2", "a\n\nb \n", "a|\n|\n|b| \n|");
    assert_pieces("gpt-2", "a \tb", "a| |\t|b|");
    assert_pieces("gpt-2", " ", " |");
    assert_pieces("gpt-2", "e\u0301x", "e|\u0301|x|");
}

static void the_digit_split_ends_every_lookahead(void **state) {
    (void)state;
    assert_pieces("smollm", "a  1", "a|  |1|");
    assert_pieces("smollm", "a  b", "a| | b|");
    assert_pieces("smollm", "12 34", "1|2| |3|4|");
    assert_pieces("smollm", "x\u0663\u00bd y", "x|\u0663|\u00bd| y|");
    assert_pieces("smollm", "!1'1s", "!|1|'|1|s|");
}

static void llama3_takes_three_digits_and_one_mark_before_letters(void **state) {
    (void)state;
    assert_pieces("llama-bpe", "1234567 8", "123|456|7| |8|");
    assert_pieces("llama-bpe", "(hello)(x", "(hello|)(|x|");
    assert_pieces("llama-bpe", "I'M we'Ll '\u017ft", "I|'M| we|'Ll| '|\u017ft|");
    assert_pieces("llama-bpe", "x'\u017ft", "x|'\u017f|t|");
    assert_pieces("llama-bpe", "a\r\n\n  b", "a|\r\n\n| | b|");
    assert_pieces("llama-bpe", "a  \n  \n  b", "a|  \n  \n| | b|");
    assert_pieces("llama-bpe", "hi!\n\n.", "hi|!\n\n|.|");
    assert_pieces("llama-bpe", " =\n", " =\n|");
    assert_pieces("llama-bpe", "\tx \ty", "\tx| |\ty|");
    assert_pieces("llama-bpe", "\nx", "\n|x|");
}

static void qwen2_takes_one_digit(void **state) {
    (void)state;
    assert_pieces("qwen2", "12 x", "1|2| x|");
    assert_pieces("qwen2", "e\u0301x", "e|\u0301x|");
    assert_pieces("deepseek-r1-qwen", "12", "1|2|");
}

static void qwen35_takes_marks_for_letters(void **state) {
    (void)state;
    assert_pieces("qwen35", "e\u0301x \u0301", "e\u0301x| \u0301|");
    assert_pieces("qwen35", "!\u0301", "!\u0301|");
}

static void llamas_rules_have_other_names(void **state) {
    (void)state;
    static const char *const names[] = {"llama3", "llama-v3", "falcon3",  "pixtral",
                                        "lfm2",   "dbrx",     "smaug-bpe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_pieces(names[i], "fooBar 12345 x's", "fooBar| |123|45| x|'s|");
        bool merges = i + 2 >= sizeof names / sizeof *names;
        assert_int_equal(pre_rules_find(str_from(names[i]))->ignore_merges, !merges);
    }
}

static void tekken_ends_a_word_before_an_upper_letter(void **state) {
    (void)state;
    assert_pieces("tekken", "fooBarHTMLx XMLHttp", "foo|Bar|HTMLx| XMLHttp|");
    assert_pieces("tekken", "12345 x's I'M", "1|2|3|4|5| x|'s| I|'M|");
    /* Letters without a case and marks belong to both halves; upper ones behind them do not. */
    assert_pieces("tekken", "A\u4e2dB", "A\u4e2d|B|");
    assert_pieces("tekken", "ABC\u4e2d\u6587abc", "ABC\u4e2d\u6587abc|");
    assert_pieces("tekken", "\u01c5ab \u0301AB", "\u01c5ab| \u0301|AB|");
    assert_pieces("tekken", "e\u0301X", "e\u0301|X|");
    assert_pieces("tekken", "a/b //\n/x", "a|/b| //\n/|x|");
    assert_pieces("tekken", "a\n\n  b", "a|\n\n| | b|");
    assert_pieces("tekken", "\tABC", "\tABC|");
}

static void gpt_4o_joins_an_ending_to_its_word(void **state) {
    (void)state;
    assert_pieces("gpt-4o", "x's DON'T we'Ll 's", "x's| DON'T| we'Ll| '|s|");
    assert_pieces("gpt-4o", "12345 fooBar", "123|45| foo|Bar|");
    assert_pieces("gpt-4o", "x'\u017ft x'", "x'\u017f|t| x|'|");
    assert_pieces("gpt-4o", "HTML's//", "HTML's|//|");
}

static void deepseek_cuts_by_several_expressions_in_turn(void **state) {
    (void)state;
    assert_pieces("deepseek-v3", "1234567 8", "123|456|7| |8|");
    assert_pieces("deepseek-v3", "(hello)(x1", "(hello|)(|x|1|");
    assert_pieces("deepseek-v3", "  a  12", " | a|  |12|");
    assert_pieces("deepseek-v3", "\u65e5\u672cab\u30fb\u30a2", "\u65e5\u672c|ab|\u30fb|\u30a2|");
    assert_pieces("deepseek-v3", "x =\n\n y\n", "x| =\n\n| y|\n|");
    assert_pieces("joyai-llm", "e\u0301\u2026 \x01\x02!", "e\u0301|\u2026| |\x01\x02|!|");
    assert_pieces("deepseek-llm", "na\u00efve caf\u00e9", "na|\u00ef|ve| caf|\u00e9|");
    assert_pieces("deepseek-llm", "12 a,b\n\n c", "1|2| a|,|b|\n|\n| c|");
    assert_pieces("deepseek-llm", "\u65e5\u672c  x", "\u65e5\u672c| | x|");
    assert_pieces("deepseek-coder", "\u65e5\u672c na\u00efve!?", "\u65e5\u672c| na\u00efve|!?|");
    assert_pieces("glm4", "1234 don't", "123|4| don|'t|");
}

static void white_space_is_that_of_unicode(void **state) {
    (void)state;
    assert_pieces("gpt-2", "a\u2003\u00a0b", "a|\u2003|\u00a0|b|");
    /* U+180E and U+200B are no white space. */
    assert_pieces("gpt-2", "a\u180e \u200b", "a|\u180e| \u200b|");
}

static void unknown_names_are_not_found(void **state) {
    (void)state;
    assert_null(pre_rules_find(STR("default")));
    assert_null(pre_rules_find(STR("")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_splits_words_numbers_and_the_rest),
        cmocka_unit_test(the_digit_split_ends_every_lookahead),
        cmocka_unit_test(llama3_takes_three_digits_and_one_mark_before_letters),
        cmocka_unit_test(qwen2_takes_one_digit),
        cmocka_unit_test(qwen35_takes_marks_for_letters),
        cmocka_unit_test(llamas_rules_have_other_names),
        cmocka_unit_test(tekken_ends_a_word_before_an_upper_letter),
        cmocka_unit_test(gpt_4o_joins_an_ending_to_its_word),
        cmocka_unit_test(deepseek_cuts_by_several_expressions_in_turn),
        cmocka_unit_test(white_space_is_that_of_unicode),
        cmocka_unit_test(unknown_names_are_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
