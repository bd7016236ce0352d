/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config.h"
#include "checkpoint/vocab.h"
#include "gguf_builder.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct opened {
    struct buf file;
    struct gguf *gguf;
};

static void open_recipe(struct opened *opened, const struct recipe *recipe) {
    struct error error = {0};
    buf_init(&opened->file, 1 << 20);
    build_gguf(recipe, &opened->file);
    enum err err = gguf_open_bytes(&opened->gguf, opened->file.at, opened->file.bytes, &error);
    if (err != OK) print_message("# %s\n", error.text);
    assert_int_equal(err, OK);
}

static void close_recipe(struct opened *opened) {
    gguf_close(opened->gguf);
    buf_release(&opened->file);
}

static void a_version_2_file_reads_as_a_version_3_file_does(void **state) {
    (void)state;
    struct opened two, three;
    open_recipe(&two, &(struct recipe){.version = 2});
    open_recipe(&three, &(struct recipe){0});
    assert_int_equal(gguf_pair_count(two.gguf), gguf_pair_count(three.gguf));
    assert_int_equal(gguf_tensor_count(two.gguf), 20);
    close_recipe(&two);
    close_recipe(&three);
}

static void every_tensor_is_found_with_its_shape_and_its_bytes(void **state) {
    (void)state;
    struct opened opened;
    open_recipe(&opened, &(struct recipe){0});
    const struct gguf_tensor *tensor = gguf_tensor_find(opened.gguf, STR("blk.1.ffn_down.weight"));
    assert_non_null(tensor);
    assert_int_equal(tensor->axis_count, 2);
    assert_int_equal(tensor->axes[0], 64);
    assert_int_equal(tensor->axes[1], 32);
    assert_int_equal(tensor->axes[2], 1);
    assert_int_equal(tensor->row_bytes, 68);
    assert_int_equal(tensor->bytes, 32 * 68);
    assert_int_equal((tensor->at - (const unsigned char *)opened.file.at) % 32, 0);
    assert_null(gguf_tensor_find(opened.gguf, STR("blk.2.ffn_down.weight")));
    for (size_t i = 0; i < gguf_tensor_count(opened.gguf); i++) {
        tensor = gguf_tensor_at(opened.gguf, i);
        assert_ptr_equal(gguf_tensor_find(opened.gguf, tensor->name), tensor);
    }
    close_recipe(&opened);
}

static void an_integer_is_read_in_any_width_it_is_stored_in(void **state) {
    (void)state;
    static const uint32_t kinds[] = {GGUF_U8,  GGUF_I8,  GGUF_U16, GGUF_I16,
                                     GGUF_U32, GGUF_I32, GGUF_U64, GGUF_I64};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct opened opened;
        struct error error = {0};
        open_recipe(&opened, &(struct recipe){.set_key = "x", .set_kind = kinds[i], .set_u64 = 96});
        uint32_t value = 5;
        assert_int_equal(gguf_get_u32(opened.gguf, "x", &value, &error), OK);
        assert_int_equal(value, 96);
        assert_int_equal(gguf_get_u32(opened.gguf, "y", &value, &error), OK);
        assert_int_equal(value, 96); /* an absent key leaves the default */
        close_recipe(&opened);
    }
}

static void a_getter_refuses_what_is_of_another_kind_or_does_not_fit(void **state) {
    (void)state;
    struct opened opened;
    struct error error = {0};
    uint32_t narrow = 1;
    uint64_t wide = 1;
    float number = 1;
    bool flag = false;
    struct str text = {0};
    open_recipe(&opened,
                &(struct recipe){.set_key = "x", .set_kind = GGUF_U64, .set_u64 = UINT64_MAX - 1});
    assert_int_equal(gguf_get_u64(opened.gguf, "x", &wide, &error), OK);
    assert_true(wide == UINT64_MAX - 1);
    assert_int_equal(gguf_get_u32(opened.gguf, "x", &narrow, &error), ERR_INVALID);
    assert_int_equal(gguf_get_f32(opened.gguf, "x", &number, &error), ERR_INVALID);
    assert_int_equal(gguf_get_bool(opened.gguf, "x", &flag, &error), ERR_INVALID);
    assert_int_equal(gguf_get_str(opened.gguf, "x", &text, &error), ERR_INVALID);
    assert_string_equal(error.text, "x is of type u64, not a string");
    close_recipe(&opened);
    open_recipe(&opened, &(struct recipe){.set_key = "x", .set_kind = GGUF_I8, .set_u64 = 0xFF});
    assert_int_equal(gguf_get_u64(opened.gguf, "x", &wide, &error), ERR_INVALID);
    assert_string_equal(error.text, "x is negative: -1");
    close_recipe(&opened);
}

static void the_vocabulary_comes_with_the_defaults_of_its_model(void **state) {
    (void)state;
    struct opened opened;
    struct error error = {0};
    struct checkpoint_vocab vocab;
    open_recipe(&opened, &(struct recipe){0});
    assert_int_equal(checkpoint_vocab_init(&vocab, opened.gguf, &error), OK);
    assert_int_equal(vocab.token_count, 8);
    assert_true(str_is(vocab.tokens[7], "abc"));
    assert_int_equal(vocab.kinds[1], 3);
    assert_int_equal(vocab.kinds[2], 1);
    assert_null(vocab.scores);
    assert_int_equal(vocab.merge_count, 3);
    assert_true(str_is(vocab.merges[2], "ab c"));
    assert_int_equal(vocab.bos, 0);
    assert_int_equal(vocab.eos, 1);
    assert_int_equal(vocab.eot, CHECKPOINT_VOCAB_NONE);
    assert_true(vocab.add_bos); /* gpt2 with pre llama-bpe */
    assert_false(vocab.add_space_prefix);
    assert_true(str_is(vocab.chat_template, "{{ messages }}"));
    checkpoint_vocab_release(&vocab);
    close_recipe(&opened);
    open_recipe(&opened, &(struct recipe){.set_key = "tokenizer.ggml.pre",
                                          .set_kind = GGUF_STRING,
                                          .set_str = "qwen2"});
    assert_int_equal(checkpoint_vocab_init(&vocab, opened.gguf, &error), OK);
    assert_false(vocab.add_bos);
    checkpoint_vocab_release(&vocab);
    close_recipe(&opened);
    open_recipe(&opened, &(struct recipe){.set_key = "tokenizer.ggml.eos_token_id",
                                          .set_kind = GGUF_U32,
                                          .set_u64 = UINT32_MAX});
    assert_int_equal(checkpoint_vocab_init(&vocab, opened.gguf, &error), OK);
    assert_int_equal(vocab.eos, CHECKPOINT_VOCAB_NONE);
    checkpoint_vocab_release(&vocab);
    close_recipe(&opened);
}

static void linear_scaling_divides_every_frequency_of_the_rotation(void **state) {
    (void)state;
    struct opened plain, scaled;
    struct error error = {0};
    struct model_config config;
    float expected[4], frequencies[4];
    open_recipe(&plain, &(struct recipe){0});
    open_recipe(&scaled, &(struct recipe){.set_key = "llama.rope.scaling.factor",
                                          .set_kind = GGUF_F32,
                                          .set_f32 = 4.0f});
    assert_int_equal(config_init(&config, plain.gguf, 8, &error), OK);
    assert_int_equal(config.head_dim, 8);
    config_rope_frequencies(&config, false, expected);
    assert_true(expected[0] == 1.0f);
    assert_true(fabsf(expected[1] - 0.1f) < 1e-7f); /* 10000^(-2/8) */
    assert_int_equal(config_init(&config, scaled.gguf, 8, &error), OK);
    config_rope_frequencies(&config, false, frequencies);
    for (int i = 0; i < 4; i++) assert_true(frequencies[i] == expected[i] / 4.0f);
    close_recipe(&plain);
    close_recipe(&scaled);
}

static void a_window_counts_or_is_refused_by_its_key(void **state) {
    (void)state;
    struct opened opened;
    struct error error = {0};
    struct model_config config;
    open_recipe(&opened, &(struct recipe){.set_key = "llama.attention.sliding_window",
                                          .set_kind = GGUF_U32,
                                          .set_u64 = 8});
    assert_int_equal(config_init(&config, opened.gguf, 8, &error), OK);
    assert_int_equal(config.window, 8);
    assert_true(config_layer_is_local(&config, 0) && config_layer_is_local(&config, 1));
    close_recipe(&opened);
    struct recipe experts = {.set_key = "qwen3moe.attention.sliding_window",
                             .set_kind = GGUF_U32,
                             .set_u64 = 63,
                             .experts = 4};
    open_recipe(&opened, &experts);
    assert_int_equal(config_init(&config, opened.gguf, 8, &error), ERR_INVALID);
    assert_string_equal(error.text, "qwen3moe.attention.sliding_window is 63: not supported here");
    close_recipe(&opened);
    experts.set_u64 = 64; /* as long as the context: it never counts */
    open_recipe(&opened, &experts);
    assert_int_equal(config_init(&config, opened.gguf, 8, &error), OK);
    assert_int_equal(config.window, 0);
    close_recipe(&opened);
}

static void a_scalar_may_be_an_array_of_equal_numbers_a_layer(void **state) {
    (void)state;
    static const unsigned char heads[] = {4, 0, 0, 0, 2, 0, 0, 0, 0, 0,
                                          0, 0, 4, 0, 0, 0, 4, 0, 0, 0};
    struct opened opened;
    struct error error = {0};
    struct model_config config;
    open_recipe(&opened, &(struct recipe){.set_key = "llama.attention.head_count",
                                          .set_kind = GGUF_ARRAY,
                                          .set_raw = heads,
                                          .set_raw_bytes = sizeof heads});
    assert_int_equal(config_init(&config, opened.gguf, 8, &error), OK);
    assert_int_equal(config.heads, 4);
    close_recipe(&opened);
}

static void what_is_no_regular_file_is_refused_by_path(void **state) {
    (void)state;
    struct gguf *gguf;
    struct error error = {0};
    assert_int_equal(gguf_open(&gguf, "/nowhere/at-all.gguf", &error), ERR_NOT_FOUND);
    assert_int_equal(gguf_open(&gguf, "/", &error), ERR_INVALID);
    assert_int_equal(gguf_open(&gguf, "/dev/null", &error), ERR_INVALID);
}

static void a_file_on_disk_reads_as_its_bytes_do(void **state) {
    (void)state;
    struct opened opened;
    struct error error = {0};
    struct gguf *gguf;
    char path[] = "/tmp/quern-test-gguf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    open_recipe(&opened, &(struct recipe){0});
    assert_int_equal(write(fd, opened.file.at, opened.file.bytes), opened.file.bytes);
    close(fd);
    assert_int_equal(gguf_open(&gguf, path, &error), OK);
    assert_int_equal(gguf_file_bytes(gguf), opened.file.bytes);
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *mapped = gguf_tensor_at(gguf, i);
        gguf_drop_pages(gguf, mapped); /* the bytes come back when they are read */
        assert_memory_equal(mapped->at, gguf_tensor_at(opened.gguf, i)->at, mapped->bytes);
    }
    gguf_close(gguf);
    unlink(path);
    close_recipe(&opened);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_2_file_reads_as_a_version_3_file_does),
        cmocka_unit_test(every_tensor_is_found_with_its_shape_and_its_bytes),
        cmocka_unit_test(an_integer_is_read_in_any_width_it_is_stored_in),
        cmocka_unit_test(a_getter_refuses_what_is_of_another_kind_or_does_not_fit),
        cmocka_unit_test(the_vocabulary_comes_with_the_defaults_of_its_model),
        cmocka_unit_test(a_window_counts_or_is_refused_by_its_key),
        cmocka_unit_test(linear_scaling_divides_every_frequency_of_the_rotation),
        cmocka_unit_test(a_scalar_may_be_an_array_of_equal_numbers_a_layer),
        cmocka_unit_test(what_is_no_regular_file_is_refused_by_path),
        cmocka_unit_test(a_file_on_disk_reads_as_its_bytes_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
