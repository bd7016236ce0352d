/* SPDX-License-Identifier: Apache-2.0 */

/* What a tokenizer.json may say. That its ids are right is shown by test_fixtures. */

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

static void other_kinds_of_model_are_refused_by_name(void **state) {
    (void)state;
    assert_refused((struct parts){.model = "{\"type\":\"WordPiece\",\"vocab\":{}}"}, "WordPiece");
    assert_refused((struct parts){.model = "{\"type\":\"Unigram\"}"}, "Unigram");
    assert_refused((struct parts){.model = "{\"type\":\"BPE\",\"byte_fallback\":true}"},
                   "SentencePiece");
    assert_refused((struct parts){.model = "{\"dropout\":0.1}"}, "dropout");
    assert_refused((struct parts){.model = "{\"continuing_subword_prefix\":\"##\"}"},
                   "continuing_subword_prefix");
    assert_refused((struct parts){.model = "{\"end_of_word_suffix\":\"</w>\"}"}, "end_of_word");
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
    assert_refused((struct parts){.post_processor = "{\"type\":\"RobertaProcessing\"}"},
                   "RobertaProcessing");
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
        cmocka_unit_test(the_template_names_bos_and_eos),
        cmocka_unit_test(other_kinds_of_model_are_refused_by_name),
        cmocka_unit_test(other_steps_are_refused_by_name),
        cmocka_unit_test(broken_vocabularies_are_refused),
        cmocka_unit_test(what_is_no_json_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
