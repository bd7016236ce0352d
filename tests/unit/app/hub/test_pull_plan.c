/* SPDX-License-Identifier: Apache-2.0 */

/* How a hub's answers are read, and which files a model needs. */

#include "hub/pull_choose.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SHA1 "da39a3ee5e6b4b0d3255bfef95601890afd80709"
#define SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* Whether a list that names this one file is taken. */
static bool is_taken(const char *path) {
    struct pull_listing listing;
    struct error error;
    char page[300];
    snprintf(page, sizeof page,
             "[{\"type\":\"file\",\"path\":\"%s\",\"size\":1,\"oid\":\"" SHA1 "\"}]", path);
    pull_listing_init(&listing);
    bool is_ok = pull_listing_read(&listing, str_from(page), &error) == OK;
    assert_int_equal(listing.count, is_ok);
    pull_listing_release(&listing);
    return is_ok;
}

static void a_path_stays_below_its_folder(void **state) {
    static const char *const good[] = {"config.json",      "1_Pooling/config.json", "a/b/c.gguf",
                                       "with space+.gguf", ".gitattributes",        "a..b",
                                       "\xC3\xA9.txt"};
    static const char *const bad[] = {"",
                                      "/",
                                      "/a",
                                      "a/",
                                      "a//b",
                                      "..",
                                      "../a",
                                      "a/..",
                                      "a/../b",
                                      "./a",
                                      "a\\nb",
                                      "a\\\\b",
                                      "\x7F",
                                      "a\\u0000b",
                                      "a/./b",
                                      "\xC2\x9B[2J",
                                      "1/2/3/4/5/6/7/8/9"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!is_taken(good[i])) fail_msg("'%s' is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (is_taken(bad[i])) fail_msg("'%s' is taken", bad[i]);
}

static void names_of_repositories_and_revisions_are_plain(void **state) {
    (void)state;
    assert_true(pull_is_repository(STR("org/name-1.5_x")));
    assert_true(pull_is_repository(STR("gpt2")));
    assert_false(pull_is_repository(STR("a/b/c")));
    assert_false(pull_is_repository(STR("org/..")));
    assert_false(pull_is_repository(STR("a--b/c")));
    assert_false(pull_is_repository(STR("")));
    assert_true(pull_is_revision(STR("refs/pr/12")));
    assert_true(pull_is_revision(STR("v1.0")));
    assert_false(pull_is_revision(STR("a/../b")));
    assert_false(pull_is_revision(STR("")));
}

static void a_page_is_read_and_folders_are_left_out(void **state) {
    struct pull_listing listing;
    struct error error;
    (void)state;
    pull_listing_init(&listing);
    assert_int_equal(
        pull_listing_read(
            &listing,
            STR("[{\"type\":\"directory\",\"path\":\"onnx\",\"oid\":\"x\"},"
                "{\"type\":\"file\",\"path\":\"config.json\",\"size\":3,\"oid\":\"" SHA1
                "\"},{\"type\":\"file\",\"path\":\"m.safetensors\",\"size\":7,\"oid\":"
                "\"" SHA1 "\",\"lfs\":{\"oid\":\"" SHA256 "\",\"size\":7}}]"),
            &error),
        OK);
    assert_int_equal(listing.count, 2);
    assert_string_equal(listing.files[0].digest, SHA1);
    assert_string_equal(listing.files[1].digest, SHA256);
    assert_int_equal(listing.files[1].bytes, 7);
    assert_int_equal(pull_listing_read(&listing, STR("{}"), &error), ERR_INVALID);
    assert_int_equal(pull_listing_read(&listing, STR("[1"), &error), ERR_INVALID);
    pull_listing_release(&listing);
}

static void the_next_page_is_the_one_that_is_called_next(void **state) {
    char url[PULL_URL_BYTES];
    (void)state;
    assert_true(
        pull_next_read(STR("<https://h/a?x>; rel=\"prev\", <https://h/b>; rel=\"next\""), url));
    assert_string_equal(url, "https://h/b");
    assert_false(pull_next_read(STR("<https://h/a>; rel=\"last\""), url));
    assert_false(pull_next_read(STR("<https://h/a"), url));
    assert_false(pull_next_read(STR("<>; rel=\"next\""), url));
    assert_false(pull_next_read(STR(""), url));
}

/* --- the choice --- */

static struct pull_listing listing;
static struct error error;

/* Reads a list of these names, separated by spaces; ret_chosen has the chosen ones, in the same
 * form. */
static enum err choose(const char *names, const char *quantisation, char ret_chosen[1024]) {
    struct pull_wish wish = {.quantisation = str_from(quantisation)};
    pull_listing_release(&listing);
    pull_listing_init(&listing);
    struct str rest = str_from(names);
    while (rest.bytes > 0) {
        char page[600];
        size_t end = str_find_byte(rest, ' ', 0);
        struct str name = {rest.at, end == SIZE_MAX ? rest.bytes : end};
        snprintf(page, sizeof page,
                 "[{\"type\":\"file\",\"path\":\"%.*s\",\"size\":1,\"oid\":\"" SHA1 "\"}]",
                 STR_ARGS(name));
        assert_int_equal(pull_listing_read(&listing, str_from(page), &error), OK);
        rest = str_skip(rest, name.bytes + 1);
    }
    enum err err = pull_choose(&listing, &wish, &error);
    size_t used = 0;
    ret_chosen[0] = '\0';
    for (size_t i = 0; i < listing.count; i++)
        if (listing.files[i].is_wanted)
            used += (size_t)snprintf(ret_chosen + used, 1024 - used, "%s%s", used ? " " : "",
                                     listing.files[i].path);
    return err;
}

static void of_gguf_files_one_is_chosen(void **state) {
    static const char all[] = "m-Q8_0.gguf m-Q4_0.gguf m-Q4_K_M.gguf m-F16.gguf mmproj-m-F16.gguf";
    char chosen[1024];
    (void)state;
    assert_int_equal(choose(all, "", chosen), OK);
    assert_string_equal(chosen, "m-Q4_K_M.gguf");
    assert_int_equal(choose(all, "f16", chosen), OK);
    assert_string_equal(chosen, "m-F16.gguf");
    assert_int_equal(choose(all, "Q5_0", chosen), ERR_NOT_FOUND);
    assert_non_null(strstr(error.text, "m-Q8_0.gguf"));
    assert_int_equal(choose("m-Q8_0.gguf m-Q4_0.gguf", "", chosen), OK);
    assert_string_equal(chosen, "m-Q4_0.gguf");
    assert_int_equal(choose("some.gguf", "", chosen), OK);
    assert_string_equal(chosen, "some.gguf");
    assert_int_equal(choose("a-Q4_0.gguf b-Q4_0.gguf", "Q4_0", chosen), ERR_INVALID);
    assert_int_equal(choose("a-Q2_K.gguf b-Q3_K_L.gguf", "", chosen), ERR_INVALID);
}

static void all_parts_come_or_none(void **state) {
    char chosen[1024];
    (void)state;
    assert_int_equal(choose("q/m-Q6_K-00001-of-00002.gguf q/m-Q6_K-00002-of-00002.gguf m-F32.gguf",
                            "Q6_K", chosen),
                     OK);
    assert_string_equal(chosen, "q/m-Q6_K-00001-of-00002.gguf q/m-Q6_K-00002-of-00002.gguf");
    assert_int_equal(choose("m-Q6_K-00001-of-00003.gguf m-Q6_K-00003-of-00003.gguf", "", chosen),
                     ERR_NOT_FOUND);
    assert_non_null(strstr(error.text, "m-Q6_K-00002-of-00003.gguf"));
    assert_int_equal(choose("m-00001-of-99999.gguf", "", chosen), ERR_INVALID);
}

static void a_folder_comes_with_its_words_and_one_set_of_weights(void **state) {
    char chosen[1024];
    (void)state;
    assert_int_equal(choose("config.json tokenizer.json vocab.json merges.txt model.safetensors "
                            "consolidated.safetensors onnx/model.onnx original/x.safetensors "
                            "LICENSE",
                            "", chosen),
                     OK);
    assert_string_equal(chosen, "config.json tokenizer.json model.safetensors");
    assert_int_equal(choose("config.json vocab.json merges.txt tokenizer.model model.safetensors "
                            "model.safetensors.index.json model-00001-of-00002.safetensors "
                            "model-00002-of-00002.safetensors",
                            "", chosen),
                     OK);
    assert_string_equal(chosen, "config.json vocab.json merges.txt tokenizer.model "
                                "model.safetensors.index.json model-00001-of-00002.safetensors "
                                "model-00002-of-00002.safetensors");
    assert_int_equal(choose("config.json modules.json 1_Pooling/config.json 2_Dense/config.json "
                            "2_Dense/model.safetensors 2_Dense/pytorch_model.bin "
                            "sentence_bert_config.json model.safetensors",
                            "", chosen),
                     OK);
    assert_null(strstr(chosen, "pytorch_model"));
    assert_non_null(strstr(chosen, "2_Dense/model.safetensors"));
    assert_int_equal(choose("config.json model.safetensors", "Q4_K_M", chosen), ERR_NOT_FOUND);
    assert_int_equal(choose("config.json model.safetensors m-Q4_K_M.gguf", "Q4_K_M", chosen), OK);
    assert_string_equal(chosen, "m-Q4_K_M.gguf");
    assert_int_equal(choose("pytorch_model.bin", "", chosen), ERR_NOT_FOUND);
    assert_int_equal(choose("README.md", "", chosen), ERR_NOT_FOUND);
}

static int release(void **state) {
    (void)state;
    pull_listing_release(&listing);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_stays_below_its_folder),
        cmocka_unit_test(names_of_repositories_and_revisions_are_plain),
        cmocka_unit_test(a_page_is_read_and_folders_are_left_out),
        cmocka_unit_test(the_next_page_is_the_one_that_is_called_next),
        cmocka_unit_test(of_gguf_files_one_is_chosen),
        cmocka_unit_test(all_parts_come_or_none),
        cmocka_unit_test(a_folder_comes_with_its_words_and_one_set_of_weights),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
