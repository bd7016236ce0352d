/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "small_vocab.h"

#include <stdlib.h>

static struct tokenizer *open_source(const struct tokenizer_source *source) {
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    if (tokenizer_open(&tokenizer, source, &error) != OK) fail_msg("%s", error.text);
    return tokenizer;
}

/* Opens must fail with a sentence that holds `part`. */
static void assert_refused(const struct tokenizer_source *source, enum err want, const char *part) {
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    assert_int_equal(tokenizer_open(&tokenizer, source, &error), want);
    assert_null(tokenizer);
    if (!strstr(error.text, part)) fail_msg("'%s' does not say '%s'", error.text, part);
}

/* `want` ends with -1. */
static void assert_encodes(const struct tokenizer *tokenizer, struct str text,
                           struct encode_options options, const int32_t *want) {
    struct ids ids = {0};
    struct error error = {0};
    if (tokenizer_encode(tokenizer, text, options, &ids, &error) != OK) fail_msg("%s", error.text);
    size_t count = 0;
    while (want[count] >= 0) count++;
    assert_int_equal(ids.count, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(ids.at[i], want[i]);
    ids_release(&ids);
}

#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})
#define NO_IDS ((const int32_t[]){-1})

static const struct encode_options plain = {0};
static const struct encode_options special = {.parse_special = true};

static void the_lowest_rank_merges_first_and_the_leftmost_of_equals(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("abc"), plain, IDS(SMALL_ABC));
    assert_encodes(tokenizer, STR("aab"), plain, IDS('a', SMALL_AB));
    assert_encodes(tokenizer, STR("aaa"), plain, IDS(SMALL_AA, 'a'));
    assert_encodes(tokenizer, STR("aaaaa"), plain, IDS(SMALL_AAAA, 'a'));
    assert_encodes(tokenizer, STR("x a"), plain, IDS('x', SMALL_SPACE_A));
    assert_encodes(tokenizer, STR(""), special, NO_IDS);
    /* No merge makes it, so only ignore_merges finds it. */
    assert_encodes(tokenizer, STR("xyz"), plain, IDS('x', 'y', 'z'));
    tokenizer_close(tokenizer);
    vocab.source.pre = STR("llama-bpe");
    tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("xyz"), plain, IDS(SMALL_LONE));
    tokenizer_close(tokenizer);
}

/* Merges a piece the slow way: the definition. */
static size_t merge_by_definition(const struct small_vocab *vocab, struct tokenizer *tokenizer,
                                  struct str text, int32_t *ret_ids) {
    size_t count = text.bytes;
    for (size_t i = 0; i < count; i++) ret_ids[i] = (unsigned char)text.at[i];
    for (;;) {
        size_t best_rank = SIZE_MAX, best_at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            struct buf pair;
            buf_init(&pair, 1000);
            buf_add_str(&pair, vocab->tokens[ret_ids[i]]);
            buf_add_byte(&pair, ' ');
            buf_add_str(&pair, vocab->tokens[ret_ids[i + 1]]);
            for (size_t rank = 0; rank < vocab->source.merge_count; rank++)
                if (str_equals(vocab->merges[rank], buf_str(&pair)) && rank < best_rank) {
                    best_rank = rank;
                    best_at = i;
                }
            buf_release(&pair);
        }
        if (best_rank == SIZE_MAX) return count;
        struct buf merged;
        buf_init(&merged, 1000);
        buf_add_str(&merged, tokenizer_bytes(tokenizer, ret_ids[best_at]));
        buf_add_str(&merged, tokenizer_bytes(tokenizer, ret_ids[best_at + 1]));
        ret_ids[best_at] = tokenizer_find(tokenizer, buf_str(&merged));
        count--;
        memmove(ret_ids + best_at + 1, ret_ids + best_at + 2, (count - best_at - 1) * 4);
        buf_release(&merged);
    }
}

static void short_and_long_pieces_merge_by_the_definition(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    uint64_t mixed = 1;
    for (size_t bytes = 1; bytes < 130; bytes++) {
        char text[130];
        for (size_t i = 0; i < bytes; i++) {
            mixed = mixed * 6364136223846793005u + 1442695040888963407u;
            text[i] = "aabc"[mixed >> 62];
        }
        int32_t want[131];
        size_t count = merge_by_definition(&vocab, tokenizer, (struct str){text, bytes}, want);
        want[count] = -1;
        assert_encodes(tokenizer, (struct str){text, bytes}, plain, want);
    }
    tokenizer_close(tokenizer);
}

static void a_megabyte_without_a_break_is_encoded(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    memset(text, 'a', BYTES);
    struct ids ids = {0};
    assert_int_equal(tokenizer_encode(tokenizer, (struct str){text, BYTES}, plain, &ids, NULL), OK);
    assert_int_equal(ids.count, BYTES / 4);
    for (size_t i = 0; i < ids.count; i++) assert_int_equal(ids.at[i], SMALL_AAAA);
    ids_release(&ids);
    free(text);
    tokenizer_close(tokenizer);
}

static void control_tokens_match_only_when_asked(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("a<s>b"), special, IDS('a', SMALL_BOS, 'b'));
    assert_encodes(tokenizer, STR("a<s>b"), plain, IDS('a', '<', 's', '>', 'b'));
    assert_encodes(tokenizer, STR("<unk>"), special, IDS(SMALL_UNKNOWN));
    assert_encodes(tokenizer, STR("<unk>"), plain, IDS('<', 'u', 'n', 'k', '>'));
    assert_encodes(tokenizer, STR("<unused>x"), special,
                   IDS('<', 'u', 'n', 'u', 's', 'e', 'd', '>', 'x'));
    tokenizer_close(tokenizer);
}

/* SMALL_BOS, SMALL_EOS and SMALL_IM_END have the kind that the file gives them, or none. */
static void marks_of_turns_are_control_tokens_whatever_their_kind(void **state) {
    (void)state;
    static const uint8_t kinds[] = {TOKEN_NORMAL, TOKEN_UNUSED, 0};
    for (size_t i = 0; i < sizeof kinds; i++) {
        struct small_vocab vocab;
        small_vocab_init(&vocab, "gpt-2");
        for (int id = SMALL_BOS; id <= SMALL_IM_END; id++) vocab.kinds[id] = kinds[i];
        if (kinds[i] == 0) vocab.source.kinds = NULL;
        struct tokenizer *tokenizer = open_source(&vocab.source);
        const struct str text = STR("a<|im_end|></s><s>");
        assert_encodes(tokenizer, text, special, IDS('a', SMALL_IM_END, SMALL_EOS, SMALL_BOS));
        assert_encodes(tokenizer, STR("<|a|>"), special, IDS('<', '|', 'a', '|', '>'));
        for (int id = SMALL_BOS; id <= SMALL_IM_END; id++)
            assert_int_equal(tokenizer_kind(tokenizer, id), TOKEN_CONTROL);
        struct ids ids = {0};
        assert_int_equal(tokenizer_encode(tokenizer, text, plain, &ids, NULL), OK);
        assert_int_equal(ids.count, text.bytes); /* no user writes them */
        ids_release(&ids);
        tokenizer_close(tokenizer);
    }
}

/* A word of the vocabulary that another family uses as its end. */
static void a_word_that_no_key_names_stays_a_word(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    vocab.kinds[SMALL_EOS] = TOKEN_NORMAL;
    vocab.source.eos = SMALL_IM_END;
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_int_equal(tokenizer_kind(tokenizer, SMALL_EOS), TOKEN_NORMAL);
    assert_encodes(tokenizer, STR("</s>"), special, IDS('<', '/', 's', '>'));
    tokenizer_close(tokenizer);
}

static void exact_kinds_are_kept(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    vocab.kinds[SMALL_IM_END] = TOKEN_NORMAL;
    vocab.source.kinds_are_exact = true;
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_int_equal(tokenizer_kind(tokenizer, SMALL_IM_END), TOKEN_NORMAL);
    tokenizer_close(tokenizer);
}

static void user_defined_tokens_always_match_the_longest_first(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("<u>a"), plain, IDS(SMALL_USER, 'a'));
    assert_encodes(tokenizer, STR("<u><u>!"), plain, IDS(SMALL_USER_LONG));
    assert_encodes(tokenizer, STR("<u><u>?"), plain, IDS(SMALL_USER, SMALL_USER, '?'));
    assert_encodes(tokenizer, STR("<<u><u"), plain, IDS('<', SMALL_USER, '<', 'u'));
    tokenizer_close(tokenizer);
}

static void bos_and_eos_are_added_when_both_sides_say_so(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    struct encode_options add = {.parse_special = true, .add_bos = true};
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("x"), add, IDS('x'));
    tokenizer_close(tokenizer);
    vocab.source.add_bos = vocab.source.add_eos = true;
    tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("x"), add, IDS(SMALL_BOS, 'x', SMALL_EOS));
    assert_encodes(tokenizer, STR("x"), special, IDS('x'));
    assert_encodes(tokenizer, STR("<s>x"), add, IDS(SMALL_BOS, 'x', SMALL_EOS));
    assert_encodes(tokenizer, STR("x<s>"), add, IDS(SMALL_BOS, 'x', SMALL_BOS, SMALL_EOS));
    assert_encodes(tokenizer, STR(""), add, IDS(SMALL_BOS, SMALL_EOS));
    tokenizer_close(tokenizer);
}

static void encoding_appends_to_what_is_there(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    vocab.source.add_bos = true;
    struct tokenizer *tokenizer = open_source(&vocab.source);
    struct ids ids = {0};
    ids_add(&ids, 7);
    struct encode_options add = {.parse_special = true, .add_bos = true};
    assert_int_equal(tokenizer_encode(tokenizer, STR("<s>abc"), add, &ids, NULL), OK);
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.at[0], 7);
    assert_int_equal(ids.at[1], SMALL_BOS);
    assert_int_equal(ids.at[2], SMALL_ABC);
    ids_release(&ids);
    tokenizer_close(tokenizer);
}

static void invalid_utf8_is_refused_with_its_place(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    struct ids ids = {0};
    struct error error = {0};
    assert_int_equal(tokenizer_encode(tokenizer, STR("ab\xFFz"), special, &ids, &error),
                     ERR_INVALID);
    assert_non_null(strstr(error.text, "byte 2"));
    assert_int_equal(ids.count, 0);
    ids_release(&ids);
    tokenizer_close(tokenizer);
}

static void decoding_hides_control_tokens_unless_asked(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    const int32_t ids[] = {SMALL_BOS,  SMALL_ABC,     0xC3,         0xA9, SMALL_SPACE_A,
                           SMALL_USER, SMALL_UNKNOWN, SMALL_UNUSED, -1,   SMALL_COUNT,
                           INT32_MAX,  INT32_MIN};
    struct buf hidden, shown;
    buf_init(&hidden, 1000);
    buf_init(&shown, 1000);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        tokenizer_decode(tokenizer, ids[i], false, &hidden);
        tokenizer_decode(tokenizer, ids[i], true, &shown);
    }
    assert_true(str_is(buf_str(&hidden), "abc\u00e9 a<u>"));
    assert_true(str_is(buf_str(&shown), "<s>abc\u00e9 a<u><unk>"));
    buf_release(&hidden);
    buf_release(&shown);
    tokenizer_close(tokenizer);
}

static void questions_about_ids_out_of_range_have_empty_answers(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    vocab.source.eot = 'q';
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_int_equal(tokenizer_count(tokenizer), SMALL_COUNT);
    assert_int_equal(tokenizer_kind(tokenizer, SMALL_COUNT), TOKEN_UNUSED);
    assert_int_equal(tokenizer_kind(tokenizer, -1), TOKEN_UNUSED);
    assert_int_equal(tokenizer_bytes(tokenizer, -1).bytes, 0);
    assert_true(str_is(tokenizer_bytes(tokenizer, SMALL_SPACE_A), " a"));
    assert_int_equal(tokenizer_find(tokenizer, STR(" a")), SMALL_SPACE_A);
    assert_int_equal(tokenizer_find(tokenizer, STR("<s>")), SMALL_BOS);
    assert_int_equal(tokenizer_find(tokenizer, STR("nothing")), TOKEN_NONE);
    assert_int_equal(tokenizer_find(tokenizer, STR("")), TOKEN_NONE);
    assert_int_equal(tokenizer_bos(tokenizer), SMALL_BOS);
    assert_int_equal(tokenizer_eos(tokenizer), SMALL_EOS);
    assert_true(tokenizer_is_end(tokenizer, SMALL_EOS));
    assert_true(tokenizer_is_end(tokenizer, SMALL_IM_END));
    assert_true(tokenizer_is_end(tokenizer, 'q'));
    assert_false(tokenizer_is_end(tokenizer, SMALL_BOS));
    assert_false(tokenizer_is_end(tokenizer, TOKEN_NONE));
    tokenizer_close(tokenizer);
    tokenizer_close(NULL);
}

static void a_byte_without_a_token_is_dropped_or_unknown(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    vocab.tokens['q'] = STR("qq");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("aqb"), plain, IDS(SMALL_AB));
    assert_encodes(tokenizer, STR("q"), plain, NO_IDS);
    tokenizer_close(tokenizer);
    vocab.source.missing = MISSING_UNKNOWN;
    tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("aqqb"), plain, IDS('a', SMALL_UNKNOWN, SMALL_UNKNOWN, 'b'));
    tokenizer_close(tokenizer);
    vocab.source.missing = MISSING_UNKNOWN_FUSED;
    tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("aqqb"), plain, IDS('a', SMALL_UNKNOWN, 'b'));
    tokenizer_close(tokenizer);
}

static void unknown_models_and_pre_tokenizers_are_refused_by_name(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "default");
    assert_refused(&vocab.source, ERR_INVALID, "'default'");
    vocab.source.pre = STR("");
    assert_refused(&vocab.source, ERR_INVALID, "pre-tokenizer");
    vocab.source.model = STR("word");
    assert_refused(&vocab.source, ERR_INVALID, "'word'");
    vocab.source.model = STR("llama");
    vocab.source.merge_count = 0;
    assert_refused(&vocab.source, ERR_INVALID, "neither scores nor merges");
}

static void broken_vocabularies_are_refused(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    vocab.source.token_count = 0;
    vocab.source.bos = vocab.source.eos = vocab.source.unknown = TOKEN_NONE;
    assert_refused(&vocab.source, ERR_INVALID, "no tokens");
    small_vocab_init(&vocab, "gpt-2");
    vocab.tokens[300 - 40] = STR("ab");
    assert_refused(&vocab.source, ERR_INVALID, "tokens 256 and 260");
    small_vocab_init(&vocab, "gpt-2");
    vocab.kinds[9] = 0;
    assert_refused(&vocab.source, ERR_INVALID, "token 9 has the unknown kind 0");
    vocab.kinds[9] = 7;
    assert_refused(&vocab.source, ERR_INVALID, "kind 7");
    vocab.kinds[9] = TOKEN_NORMAL;
    vocab.source.eos = SMALL_COUNT;
    assert_refused(&vocab.source, ERR_INVALID, "eos token 269 is outside");
    vocab.source.eos = -7;
    assert_refused(&vocab.source, ERR_INVALID, "-7");
    vocab.source.eos = TOKEN_NONE;
    vocab.source.token_count = SIZE_MAX;
    assert_refused(&vocab.source, ERR_INVALID, "over the limit");
}

static void empty_tokens_are_holes(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    vocab.tokens[SMALL_UNUSED] = vocab.tokens[SMALL_LONE] = (struct str){0};
    vocab.tokens[SMALL_USER] = (struct str){0};
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("abc<u>"), special, IDS(SMALL_ABC, '<', 'u', '>'));
    tokenizer_close(tokenizer);
}

static void merges_that_do_not_split_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"", " ", "ab", "ab ", " b"};
    struct small_vocab vocab;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        small_vocab_init(&vocab, "gpt-2");
        vocab.merges[3] = str_from(bad[i]);
        assert_refused(&vocab.source, ERR_INVALID, "merge 3");
    }
}

static void merges_that_name_no_token_are_skipped_unless_strict(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    vocab.merges[5] = STR("q z");
    vocab.merges[6] = STR("nothing a");
    vocab.merges[7] = STR("a b"); /* a second rank for a pair: the first counts */
    vocab.source.merge_count = 8;
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("qzaab"), plain, IDS('q', 'z', 'a', SMALL_AB));
    tokenizer_close(tokenizer);
    vocab.source.strict_merges = true;
    assert_refused(&vocab.source, ERR_INVALID, "merge 5");
}

static void special_tokens_without_end_are_refused(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    char text[1025];
    memset(text, '<', sizeof text);
    vocab.tokens[SMALL_USER] = (struct str){text, sizeof text};
    assert_refused(&vocab.source, ERR_LIMIT, "1025 bytes");
    vocab.tokens[SMALL_USER].bytes = 1024;
    tokenizer_close(open_source(&vocab.source));
}

static void a_special_token_of_half_a_character_matches_nowhere(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    vocab.tokens[SMALL_USER] = STR("\xA9");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("\xC3\xA9"), special, IDS(0xC3, 0xA9));
    tokenizer_close(tokenizer);
}

/* The ids of a text with start..end plain. */
static void assert_encodes_plain(const struct tokenizer *tokenizer, struct str text, size_t start,
                                 size_t end, const int32_t *expected) {
    struct text_ranges spans = {0};
    text_ranges_add(&spans, start, end);
    struct encode_options options = {.parse_special = true, .plain = &spans};
    assert_encodes(tokenizer, text, options, expected);
    text_ranges_release(&spans);
}

static void no_control_token_has_a_plain_byte(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    struct tokenizer *tokenizer = open_source(&vocab.source);
    struct str text = STR("<s><u><s>");
    assert_encodes_plain(tokenizer, text, 0, 0, IDS(SMALL_BOS, SMALL_USER, SMALL_BOS));
    assert_encodes_plain(tokenizer, text, 0, 9, IDS('<', 's', '>', SMALL_USER, '<', 's', '>'));
    assert_encodes_plain(tokenizer, text, 2, 3, IDS('<', 's', '>', SMALL_USER, SMALL_BOS));
    assert_encodes_plain(tokenizer, text, 3, 6, IDS(SMALL_BOS, SMALL_USER, SMALL_BOS));
    assert_encodes_plain(tokenizer, text, 6, 7, IDS(SMALL_BOS, SMALL_USER, '<', 's', '>'));
    tokenizer_close(tokenizer);
    /* Nor has one that the file calls ordinary, if it ends a turn. */
    vocab.kinds[SMALL_IM_END] = vocab.kinds[SMALL_EOS] = TOKEN_USER_DEFINED;
    tokenizer = open_source(&vocab.source);
    assert_encodes(tokenizer, STR("</s>"), plain, IDS(SMALL_EOS));
    assert_encodes_plain(tokenizer, STR("</s>"), 0, 1, IDS('<', '/', 's', '>'));
    assert_encodes_plain(tokenizer, STR("ab<|im_end|>"), 0, 2, IDS(SMALL_AB, SMALL_IM_END));
    assert_encodes_plain(tokenizer, STR("<|im_end|>"), 9, 10,
                         IDS('<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>'));
    tokenizer_close(tokenizer);
}

static void plain_bytes_are_followed_through_normalisation(void **state) {
    (void)state;
    struct small_vocab vocab;
    small_vocab_init(&vocab, "gpt-2");
    uint8_t flags[SMALL_COUNT] = {[SMALL_BOS] = TOKEN_IN_NORMALIZED};
    vocab.source.flags = flags;
    vocab.source.normalize_nfc = true;
    struct tokenizer *tokenizer = open_source(&vocab.source);
    /* e and an accent become one character of two bytes: the text behind moves a byte to the
     * left. */
    struct str text = STR("e\xCC\x81<s>e\xCC\x81<s>");
    assert_encodes_plain(tokenizer, text, 0, 3, IDS(0xC3, 0xA9, SMALL_BOS, 0xC3, 0xA9, SMALL_BOS));
    assert_encodes_plain(tokenizer, text, 5, 9,
                         IDS(0xC3, 0xA9, '<', 's', '>', 0xC3, 0xA9, SMALL_BOS));
    assert_encodes_plain(tokenizer, text, 6, 10,
                         IDS(0xC3, 0xA9, SMALL_BOS, 0xC3, 0xA9, '<', 's', '>'));
    /* Composed over the border: nothing is told apart any more. */
    assert_encodes_plain(tokenizer, text, 0, 1,
                         IDS(0xC3, 0xA9, '<', 's', '>', 0xC3, 0xA9, '<', 's', '>'));
    tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_rank_merges_first_and_the_leftmost_of_equals),
        cmocka_unit_test(short_and_long_pieces_merge_by_the_definition),
        cmocka_unit_test(a_megabyte_without_a_break_is_encoded),
        cmocka_unit_test(control_tokens_match_only_when_asked),
        cmocka_unit_test(marks_of_turns_are_control_tokens_whatever_their_kind),
        cmocka_unit_test(a_word_that_no_key_names_stays_a_word),
        cmocka_unit_test(exact_kinds_are_kept),
        cmocka_unit_test(user_defined_tokens_always_match_the_longest_first),
        cmocka_unit_test(bos_and_eos_are_added_when_both_sides_say_so),
        cmocka_unit_test(encoding_appends_to_what_is_there),
        cmocka_unit_test(invalid_utf8_is_refused_with_its_place),
        cmocka_unit_test(decoding_hides_control_tokens_unless_asked),
        cmocka_unit_test(questions_about_ids_out_of_range_have_empty_answers),
        cmocka_unit_test(a_byte_without_a_token_is_dropped_or_unknown),
        cmocka_unit_test(unknown_models_and_pre_tokenizers_are_refused_by_name),
        cmocka_unit_test(broken_vocabularies_are_refused),
        cmocka_unit_test(empty_tokens_are_holes),
        cmocka_unit_test(merges_that_do_not_split_are_refused),
        cmocka_unit_test(merges_that_name_no_token_are_skipped_unless_strict),
        cmocka_unit_test(special_tokens_without_end_are_refused),
        cmocka_unit_test(a_special_token_of_half_a_character_matches_nowhere),
        cmocka_unit_test(no_control_token_has_a_plain_byte),
        cmocka_unit_test(plain_bytes_are_followed_through_normalisation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
