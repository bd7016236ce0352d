/* SPDX-License-Identifier: Apache-2.0 */

/* The contents that a tokenizer.json may have. test_fixtures shows that its ids are right. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

/* The parts of a small tokenizer.json; NULL leaves a part as it is in `parts_good`. */
struct parts {
    const char *model;
    const char *normalizer;
    const char *pre_tokenizer;
    const char *post_processor;
    const char *added_tokens;
};

static const struct parts parts_good = {
    .model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\u0120\":4},"
             "\"merges\":[[\"a\",\"b\"]]}",
    .normalizer = "null",
    .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
    .post_processor = "null",
    .added_tokens = "[{\"id\":5,\"content\":\"<s>\",\"special\":true}]",
};

static enum err open_parts(struct tokenizer **ret_tokenizer, struct parts parts,
                           struct error *error) {
    struct buf text;
    buf_init(&text, 100000);
#define PART(name) (parts.name ? parts.name : parts_good.name)
    buf_printf(&text,
               "{\"model\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,"
               "\"added_tokens\":%s}",
               PART(model), PART(normalizer), PART(pre_tokenizer), PART(post_processor),
               PART(added_tokens));
#undef PART
    enum err err = tokenizer_open_json(ret_tokenizer, buf_str(&text), error);
    buf_release(&text);
    return err;
}

static void assert_refused(struct parts parts, const char *part) {
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    assert_int_equal(open_parts(&tokenizer, parts, &error), ERR_INVALID);
    assert_null(tokenizer);
    if (!strstr(error.text, part)) fail_msg("'%s' does not say '%s'", error.text, part);
    assert_non_null(strstr(error.text, "tokenizer.json"));
}

static struct tokenizer *open_good(struct parts parts) {
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    if (open_parts(&tokenizer, parts, &error) != OK) fail_msg("%s", error.text);
    return tokenizer;
}

static size_t count_ids(const struct tokenizer *tokenizer, const char *text, bool add_bos) {
    struct ids ids = {0};
    struct encode_options options = {.parse_special = true, .add_bos = add_bos};
    assert_int_equal(tokenizer_encode(tokenizer, str_from(text), options, &ids, NULL), OK);
    size_t count = ids.count;
    ids_release(&ids);
    return count;
}

static void both_forms_of_merges_are_read(void **state) {
    (void)state;
    static const char *const merges[] = {"[[\"a\",\"b\"]]", "[\"a b\"]"};
    for (size_t i = 0; i < 2; i++) {
        struct buf model;
        buf_init(&model, 1000);
        buf_printf(&model, "{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":%s}", merges[i]);
        struct tokenizer *tokenizer = open_good((struct parts){.model = model.at});
        assert_int_equal(count_ids(tokenizer, "ab", false), 1);
        tokenizer_close(tokenizer);
        buf_release(&model);
    }
}

static void holes_in_the_numbering_are_unused_tokens(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_good((struct parts){0});
    assert_int_equal(tokenizer_count(tokenizer), 6);
    assert_int_equal(tokenizer_kind(tokenizer, 3), TOKEN_UNUSED);
    assert_int_equal(tokenizer_kind(tokenizer, 5), TOKEN_CONTROL);
    assert_int_equal(tokenizer_bos(tokenizer), TOKEN_NONE);
    assert_true(str_is(tokenizer_bytes(tokenizer, 4), " "));
    tokenizer_close(tokenizer);
}

/* Where merges are ignored, a piece that is a token becomes it: a token of the model only. The
 * added token "ac" stands between words, and the piece "ac" before a digit is none. */
static void an_added_token_is_no_piece_of_the_model(void **state) {
    (void)state;
    static const char *const models[] = {"{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{"
                                         "\"a\":0,\"b\":1,\"ab\":2,\"c\":3,\"1\":4},"
                                         "\"merges\":[]}",
                                         "{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{"
                                         "\"a\":0,\"b\":1,\"ab\":2,\"c\":3,\"1\":4,"
                                         "\"ac\":6},\"merges\":[]}"};
    for (size_t is_in_model = 0; is_in_model < 2; is_in_model++) {
        struct tokenizer *tokenizer = open_good((struct parts){
            .model = models[is_in_model],
            .pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
                             "\"individual_digits\":true},{\"type\":\"ByteLevel\","
                             "\"add_prefix_space\":false,\"use_regex\":true}]}",
            .added_tokens = "[{\"id\":6,\"content\":\"ac\",\"single_word\":true}]"});
        assert_int_equal(count_ids(tokenizer, "ac", false), 1);
        assert_int_equal(count_ids(tokenizer, "ac1", false), is_in_model ? 2 : 3);
        assert_int_equal(count_ids(tokenizer, "ab1", false), 2); /* "ab" is a token of the model */
        assert_int_equal(count_ids(tokenizer, "bac", false), 3);
        tokenizer_close(tokenizer);
    }
}

static void the_template_names_bos_and_eos(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_good((struct parts){
        .post_processor =
            "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
            "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
            "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"e\"}}],"
            "\"special_tokens\":{\"<s>\":{\"ids\":[5]},\"e\":{\"ids\":[1]}}}]}"});
    assert_int_equal(tokenizer_bos(tokenizer), 5);
    assert_int_equal(tokenizer_eos(tokenizer), 1);
    assert_int_equal(count_ids(tokenizer, "a", true), 3);
    assert_int_equal(count_ids(tokenizer, "<s>a", true), 3);
    assert_int_equal(count_ids(tokenizer, "a", false), 1);
    tokenizer_close(tokenizer);
}

/* Spaces are U+2581; one merge has two words and no token; é is spelled in bytes. */
#define SENTENCEPIECE                                                                              \
    "{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,"     \
    "\"<0xC3>\":1,\"<0xA9>\":2,\"\u2581\":3,\"a\":4,\"b\":8,\"ab\":6,\"\u2581ab\":7},"             \
    "\"merges\":[\"a b\",\"\u2581 ab\"]}"
#define WORDPIECE                                                                                  \
    "{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]"   \
    "\":2,"                                                                                        \
    "\"cafe\":3,\"##s\":4,\".\":6,\"ca\":7}}"

static void assert_text_ids(const struct tokenizer *tokenizer, const char *text,
                            const int32_t *want, size_t count) {
    struct ids ids = {0};
    struct encode_options options = {.parse_special = true, .add_bos = true};
    assert_int_equal(tokenizer_encode(tokenizer, str_from(text), options, &ids, NULL), OK);
    if (ids.count != count || memcmp(ids.at, want, count * sizeof *want) != 0)
        fail_msg("'%s' is %zu ids, the first %d", text, ids.count, ids.count ? ids.at[0] : -1);
    ids_release(&ids);
}
#define ASSERT_IDS(tokenizer, text, ...)                                                           \
    assert_text_ids(tokenizer, text, (const int32_t[]){__VA_ARGS__},                               \
                    sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void sentencepiece_writes_spaces_as_the_file_says(void **state) {
    (void)state;
    static const char replace[] =
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}";
    static const char prepend_and_replace[] =
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]}";
    static const char metaspace_first[] =
        "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\","
        "\"split\":false}";
    struct tokenizer *plain = open_good(
        (struct parts){.model = SENTENCEPIECE, .normalizer = replace, .pre_tokenizer = "null"});
    ASSERT_IDS(plain, "ab ab", 6, 7);
    ASSERT_IDS(plain, "  ab", 3, 7);
    ASSERT_IDS(plain, "a\u00e9", 4, 1, 2);
    ASSERT_IDS(plain, "ab\u20acab", 6, 0, 6);
    tokenizer_close(plain);
    struct tokenizer *each = open_good((struct parts){
        .model = SENTENCEPIECE, .normalizer = prepend_and_replace, .pre_tokenizer = "null"});
    ASSERT_IDS(each, "ab", 7);
    ASSERT_IDS(each, " ab", 3, 7);
    ASSERT_IDS(each, "ab<s>ab", 7, 5, 7);
    tokenizer_close(each);
    struct tokenizer *first =
        open_good((struct parts){.model = SENTENCEPIECE, .pre_tokenizer = metaspace_first});
    ASSERT_IDS(first, "ab<s>ab", 7, 5, 6);
    ASSERT_IDS(first, " ab", 7);
    tokenizer_close(first);
}

static void sentencepiece_without_a_rule_for_spaces_is_refused(void **state) {
    (void)state;
    assert_refused((struct parts){.model = SENTENCEPIECE, .pre_tokenizer = "null"}, "spaces");
    assert_refused((struct parts){.model = SENTENCEPIECE,
                                  .normalizer = "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}",
                                  .pre_tokenizer = "null"},
                   "Prepend");
    assert_refused((struct parts){.model = SENTENCEPIECE,
                                  .pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":"
                                                   "\"\u2581\",\"prepend_scheme\":\"first\"}"},
                   "split");
    assert_refused((struct parts){.model = SENTENCEPIECE,
                                  .pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":"
                                                   "\"_\",\"split\":false}"},
                   "Metaspace");
}

static void wordpiece_takes_the_longest_pieces_of_plain_words(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_good((struct parts){
        .model = WORDPIECE,
        .normalizer = "{\"type\":\"BertNormalizer\",\"clean_text\":true,"
                      "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true}",
        .pre_tokenizer = "{\"type\":\"BertPreTokenizer\"}",
        .post_processor = "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",2],"
                          "\"cls\":[\"[CLS]\",1]}"});
    ASSERT_IDS(tokenizer, "Caf\u00e9s.", 1, 3, 4, 6, 2);
    ASSERT_IDS(tokenizer, "cafe xyz", 1, 3, 0, 2);
    ASSERT_IDS(tokenizer, "caf", 1, 0, 2);
    ASSERT_IDS(tokenizer, "", 1, 2);
    tokenizer_close(tokenizer);
}

static void other_kinds_of_model_are_refused_by_name(void **state) {
    (void)state;
    assert_refused((struct parts){.model = "{\"type\":\"WordLevel\"}"}, "WordLevel");
    assert_refused((struct parts){.model = "{\"type\":\"Unigram\"}"}, "no vocab");
    assert_refused((struct parts){.model = "{\"vocab\":{},\"dropout\":0.1}"}, "dropout");
    assert_refused((struct parts){.model = "{\"vocab\":{},\"continuing_subword_prefix\":\"##\"}"},
                   "continuing_subword_prefix");
    assert_refused((struct parts){.model = "{\"vocab\":{},\"end_of_word_suffix\":\"</w>\"}"},
                   "end_of_word");
    assert_refused((struct parts){.model = WORDPIECE}, "BertPreTokenizer");
    assert_refused((struct parts){.model = "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},"
                                           "\"continuing_subword_prefix\":\"@@\"}"},
                   "'@@'");
    assert_refused((struct parts){.model = "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},"
                                           "\"max_input_chars_per_word\":0}"},
                   "max_input_chars_per_word");
    assert_refused((struct parts){.model = "{\"type\":\"BPE\"}"}, "no vocab");
    assert_refused((struct parts){.model = "[]"}, "model");
    assert_refused((struct parts){.model = "null"}, "model");
}

static void other_steps_are_refused_by_name(void **state) {
    (void)state;
    assert_refused((struct parts){.normalizer = "{\"type\":\"NFKC\"}"}, "NFKC");
    assert_refused((struct parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":["
                                                "{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}"},
                   "Lowercase");
    assert_refused((struct parts){.pre_tokenizer = "null"}, "pre_tokenizer");
    assert_refused((struct parts){.pre_tokenizer = "{\"type\":\"Metaspace\"}"}, "Metaspace");
    assert_refused(
        (struct parts){.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"},
        "add_prefix_space");
    assert_refused((struct parts){.pre_tokenizer = "{\"type\":\"ByteLevel\",\"use_regex\":false,"
                                                   "\"add_prefix_space\":false}"},
                   "use_regex");
    assert_refused((struct parts){.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":["
                                                   "{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                                                   "\"x+\"},\"behavior\":\"Isolated\"},"
                                                   "{\"type\":\"ByteLevel\"}]}"},
                   "'x+'");
    assert_refused((struct parts){.pre_tokenizer = "{\"type\":\"Digits\"}"}, "Digits");
    assert_refused((struct parts){.post_processor = "{\"type\":\"OtherProcessing\"}"},
                   "OtherProcessing");
    assert_refused((struct parts){.post_processor = "{\"type\":\"TemplateProcessing\"}"},
                   "no text");
}

static void broken_vocabularies_are_refused(void **state) {
    (void)state;
    assert_refused((struct parts){.model = "{\"vocab\":{},\"merges\":[]}", .added_tokens = "[]"},
                   "empty");
    assert_refused((struct parts){.model = "{\"vocab\":{\"a\":-1}}"}, "'a'");
    assert_refused((struct parts){.model = "{\"vocab\":{\"a\":4000000000}}"}, "'a'");
    assert_refused((struct parts){.model = "{\"vocab\":{\"a\":\"0\"}}"}, "'a'");
    assert_refused((struct parts){.model = "{\"vocab\":{\"a\":0,\"b\":0}}"}, "both have the id 0");
    assert_refused((struct parts){.added_tokens = "[{\"id\":0,\"content\":\"x\"}]"}, "the id 0");
    assert_refused((struct parts){.added_tokens = "[{\"id\":9,\"content\":\"a\"}]"},
                   "spelled the same");
    assert_refused((struct parts){.added_tokens = "[{\"id\":9}]"}, "no content");
    assert_refused((struct parts){.model = "{\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}"}, "merge");
    assert_refused((struct parts){.model = "{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}"}, "merge");
    assert_refused((struct parts){.model = "{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}"},
                   "no token");
}

static void what_is_no_json_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"", "{", "[]", "null", "\"x\"", "{}", "\xFF"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct tokenizer *tokenizer = NULL;
        struct error error = {0};
        assert_int_equal(tokenizer_open_json(&tokenizer, str_from(texts[i]), &error), ERR_INVALID);
        assert_non_null(strstr(error.text, "tokenizer.json: "));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_of_merges_are_read),
        cmocka_unit_test(holes_in_the_numbering_are_unused_tokens),
        cmocka_unit_test(an_added_token_is_no_piece_of_the_model),
        cmocka_unit_test(the_template_names_bos_and_eos),
        cmocka_unit_test(sentencepiece_writes_spaces_as_the_file_says),
        cmocka_unit_test(sentencepiece_without_a_rule_for_spaces_is_refused),
        cmocka_unit_test(wordpiece_takes_the_longest_pieces_of_plain_words),
        cmocka_unit_test(other_kinds_of_model_are_refused_by_name),
        cmocka_unit_test(other_steps_are_refused_by_name),
        cmocka_unit_test(broken_vocabularies_are_refused),
        cmocka_unit_test(what_is_no_json_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
