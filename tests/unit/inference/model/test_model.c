/* SPDX-License-Identifier: Apache-2.0 */
#include "../checkpoint/gguf_builder.h"
#include "backend_driver.h"
#include "kernels/kernels.h"
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A built model in a file of its own. */
static void write_model(const struct recipe *recipe, char path[64]) {
    struct buf file;
    buf_init(&file, 1 << 24);
    build_gguf(recipe, &file);
    snprintf(path, 64, "/tmp/quern-test-model-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file.at, file.bytes), file.bytes);
    close(fd);
    buf_release(&file);
}

static struct model *open_model(const struct recipe *recipe, const struct model_options *options) {
    char path[64];
    struct model *model;
    struct error error = {0};
    write_model(recipe, path);
    enum err err = model_open(&model, path, options, &error);
    if (err != OK) print_message("# %s\n", error.text);
    assert_int_equal(err, OK);
    unlink(path);
    return model;
}

static void the_caps_and_the_ledger_say_what_was_opened(void **state) {
    (void)state;
    struct model_options options = {.reference = true,
                                    .threads = 2,
                                    .rows_max = 24,
                                    .sequences_max = 5,
                                    .context_max = 48,
                                    .block_count = 9};
    struct model *model = open_model(&(struct recipe){0}, &options);
    const struct backend_caps *caps = &model_backend(model)->caps;
    assert_int_equal(caps->block_tokens, 16);
    assert_int_equal(caps->page_count, 9);
    assert_int_equal(caps->rows_max, 24);
    assert_int_equal(caps->sequences_max, 5);
    assert_int_equal(caps->context_tokens_max, 48);
    assert_int_equal(caps->vocab, 8);
    struct model_description description;
    model_describe(model, &description);
    assert_string_equal(description.name, "grain");
    assert_string_equal(description.architecture, "llama");
    assert_string_equal(description.type, "Q8_0");
    assert_string_equal(description.kernels, "ref");
    assert_string_equal(description.kv_type, "F32");
    assert_int_equal(description.context_model, 64);
    assert_int_equal(description.kv_bytes_per_token, 2 * 2 * 2 * 8 * 4);
    assert_int_equal(description.kv_bytes, 9 * 16 * description.kv_bytes_per_token);
    /* embedding, 2 layers of q k v o gate up down and two norms, the last norm */
    assert_int_equal(description.parameters,
                     8 * 32 + 2 * (32 * (32 + 16 + 16 + 32) + 3 * 64 * 32 + 64) + 32);
    assert_true(description.weight_bytes > 0 && description.workspace_bytes > 0);
    assert_int_equal(model_vocab(model)->token_count, 8);
    model_close(model);
}

static void kv_bytes_are_turned_into_blocks_and_capped_at_what_can_be_used(void **state) {
    (void)state;
    struct model_options options = {.reference = true, .kv_bytes = 100000, .sequences_max = 64};
    struct model *model = open_model(&(struct recipe){0}, &options);
    /* 256 bytes a token, 4096 a block */
    assert_int_equal(model_backend(model)->caps.page_count, 24);
    model_close(model);
    options.kv_bytes = 0;
    model = open_model(&(struct recipe){0}, &options);
    assert_int_equal(model_backend(model)->caps.page_count, 64 * 4);
    model_close(model);
}

static void options_out_of_range_are_refused_with_their_numbers(void **state) {
    (void)state;
    static const struct {
        struct model_options options;
        const char *says;
    } wrong[] = {
        {{.kernels = "mmx"}, "this build or CPU has no kernels 'mmx'"},
        {{.rows_max = 70000}, "rows_max is 70000"},
        {{.sequences_max = 70000}, "sequences_max is 70000"},
        {{.context_max = 65}, "context_max is 65, but the model was made for 64"},
        {{.context_max = 1}, "a context of one token"},
        {{.block_count = UINT32_MAX}, "block_count is 4294967295"},
        {{.reference = true, .kv_bytes = 4095}, "kv_bytes is 4095, less than the 4096"},
    };
    char path[64];
    write_model(&(struct recipe){0}, path);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct model *model;
        struct error error = {0};
        assert_int_equal(model_open(&model, path, &wrong[i].options, &error), ERR_INVALID);
        assert_non_null(strstr(error.text, wrong[i].says));
    }
    unlink(path);
}

static void logits_asked_for_wrongly_are_refused(void **state) {
    (void)state;
    struct model *model =
        open_model(&(struct recipe){0}, &(struct model_options){.block_count = 2});
    static const int32_t ids[] = {1, 2, 8, -1}, many[40] = {0};
    static const uint32_t positions[] = {0, 3};
    float logits[16];
    struct error error = {0};
    struct logits_request request = {.ids = ids, .positions = positions};
    assert_int_equal(model_logits(model, &request, logits, &error), ERR_INVALID);
    request.count = 3;
    assert_int_equal(model_logits(model, &request, logits, &error), ERR_INVALID);
    assert_string_equal(error.text, "token 2 is 8, not 0..7");
    request.count = 2;
    request.position_count = 2;
    assert_int_equal(model_logits(model, &request, logits, &error), ERR_INVALID);
    assert_string_equal(error.text,
                        "position 3 does not ascend or is not below the 2 of the prompt");
    request = (struct logits_request){.ids = many, .count = 33};
    assert_int_equal(model_logits(model, &request, logits, &error), ERR_LIMIT);
    model_close(model);
}

static void fill_runs(struct driver_run *runs, uint32_t count, const int32_t *prompt) {
    for (uint32_t i = 0; i < count; i++)
        runs[i] = (struct driver_run){.prompt = prompt,
                                      .prompt_count = 3 + i % 5,
                                      .sampling = {.max_tokens = 20,
                                                   .temperature = i % 2 ? 1.0f : 0.0f,
                                                   .top_p = i % 3 ? 0.9f : 0.0f,
                                                   .logprobs = true,
                                                   .top_logprobs = i % 4},
                                      .seed = i / 4,
                                      .stop = -1,
                                      .chunk = i % 3};
}

/* 40 sequences over a model opened for 150 logit rows at a time, and the same one after another. */
static void a_sequence_says_the_same_alone_and_in_company(void **state) {
    (void)state;
    static const int32_t prompt[] = {2, 3, 4, 5, 6, 7, 2, 2};
    static struct driver_run together[40], alone[40];
    struct error error = {0};
    for (size_t k = 0; kernels_at(k); k++)
        for (uint32_t threads = 1; threads <= 2; threads++) {
            struct model_options options = {.kernels = kernels_at(k)->name,
                                            .threads = threads,
                                            .rows_max = 50,
                                            .sequences_max = 40,
                                            .block_count = 80};
            struct model *model = open_model(&(struct recipe){0}, &options);
            fill_runs(together, 40, prompt);
            fill_runs(alone, 40, prompt);
            assert_int_equal(drive(model_backend(model), together, 40, 2, &error), OK);
            for (uint32_t i = 0; i < 40; i++)
                assert_int_equal(drive(model_backend(model), &alone[i], 1, 2, &error), OK);
            for (uint32_t i = 0; i < 40; i++) {
                assert_int_equal(together[i].generated_count, 20);
                for (uint32_t j = 0; j < 20; j++) {
                    const struct sample *a = &together[i].samples[j], *b = &alone[i].samples[j];
                    assert_int_equal(a->token, b->token);
                    assert_true(a->logprob == b->logprob);
                    assert_int_equal(a->top_count, i % 4);
                    assert_memory_equal(a->top, b->top, a->top_count * sizeof *a->top);
                }
            }
            model_close(model);
        }
}

/* The embedding has more rows than tokens; the other rows must never be sampled. */
static void rows_that_are_no_tokens_are_never_sampled(void **state) {
    (void)state;
    static const int32_t prompt[] = {2, 3, 4};
    static struct driver_run runs[16];
    struct recipe recipe = {.change_tensor = "token_embd.weight", .change.axes = {32, 512}};
    struct error error = {0};
    struct model *model =
        open_model(&recipe, &(struct model_options){.block_count = 64, .sequences_max = 16});
    assert_int_equal(model_backend(model)->caps.vocab, 8);
    for (uint32_t i = 0; i < 16; i++)
        runs[i] = (struct driver_run){.prompt = prompt,
                                      .prompt_count = 3,
                                      .sampling = {.max_tokens = 50,
                                                   .temperature = i ? 5.0f : 0.0f,
                                                   .logprobs = true,
                                                   .top_logprobs = 20},
                                      .seed = i,
                                      .stop = -1};
    assert_int_equal(drive(model_backend(model), runs, 16, 4, &error), OK);
    for (uint32_t i = 0; i < 16; i++)
        for (uint32_t j = 0; j < 50; j++) {
            assert_in_range(runs[i].generated[j], 0, 7);
            assert_int_equal(runs[i].samples[j].top_count, 8);
        }
    model_close(model);
}

/* The description of one tensor of the sound file, with q standing for q, k and v: there they lie
 * one after another with no padding between them. */
static void put_fused_tensor(struct buf *fused, const struct gguf_tensor *tensor,
                             const unsigned char *start) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", STR_ARGS(tensor->name));
    if (strstr(name, "attn_k.") || strstr(name, "attn_v.")) return;
    char *q = strstr(name, "attn_q.");
    if (q) snprintf(q, 20, "attn_qkv.weight");
    put_str(fused, name);
    put_u32(fused, tensor->axis_count);
    put_u64(fused, tensor->axes[0]);
    if (tensor->axis_count > 1) put_u64(fused, q ? 64 : tensor->axes[1]);
    put_u32(fused, tensor->type);
    put_u64(fused, (uint64_t)(tensor->at - start));
}

/* The sound file with each layer's q, k and v under one name. */
static void write_fused(char path[64]) {
    struct buf split, fused;
    struct gguf *gguf;
    struct error error = {0};
    buf_init(&split, 1 << 24);
    buf_init(&fused, 1 << 24);
    build_gguf(&(struct recipe){0}, &split);
    assert_int_equal(gguf_open_bytes(&gguf, split.at, split.bytes, &error), OK);
    size_t descriptions = 24; /* where the first tensor's name has its length */
    while (memcmp(split.at + descriptions + 8, "token_embd.weight", 17) != 0) descriptions++;
    buf_add_text(&fused, "GGUF");
    put_u32(&fused, 3);
    put_u64(&fused, gguf_tensor_count(gguf) - 4);
    put_u64(&fused, gguf_pair_count(gguf));
    buf_add(&fused, split.at + 24, descriptions - 24);
    const unsigned char *start = gguf_tensor_at(gguf, 0)->at;
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++)
        put_fused_tensor(&fused, gguf_tensor_at(gguf, i), start);
    while (fused.bytes % 32 != 0) buf_add_byte(&fused, 0);
    buf_add(&fused, start, (size_t)(split.at + split.bytes - (const char *)start));
    snprintf(path, 64, "/tmp/quern-test-fused-XXXXXX");
    int fd = mkstemp(path);
    assert_int_equal(write(fd, fused.at, fused.bytes), fused.bytes);
    close(fd);
    gguf_close(gguf);
    buf_release(&split);
    buf_release(&fused);
}

static void a_fused_qkv_tensor_is_the_same_model(void **state) {
    (void)state;
    static const int32_t ids[] = {0, 2, 3, 4, 5};
    static const uint32_t last[] = {4};
    char path[64];
    float first[8], second[8];
    struct model *one, *other;
    struct model_options options = {.block_count = 2};
    struct error error = {0};
    write_fused(path);
    one = open_model(&(struct recipe){0}, &options);
    assert_int_equal(model_open(&other, path, &options, &error), OK);
    unlink(path);
    struct logits_request request = {
        .ids = ids, .count = 5, .positions = last, .position_count = 1};
    assert_int_equal(model_logits(one, &request, first, &error), OK);
    assert_int_equal(model_logits(other, &request, second, &error), OK);
    assert_memory_equal(first, second, sizeof first);
    for (int i = 0; i < 8; i++) assert_true(isfinite(first[i]));
    model_close(one);
    model_close(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_caps_and_the_ledger_say_what_was_opened),
        cmocka_unit_test(kv_bytes_are_turned_into_blocks_and_capped_at_what_can_be_used),
        cmocka_unit_test(options_out_of_range_are_refused_with_their_numbers),
        cmocka_unit_test(logits_asked_for_wrongly_are_refused),
        cmocka_unit_test(a_sequence_says_the_same_alone_and_in_company),
        cmocka_unit_test(rows_that_are_no_tokens_are_never_sampled),
        cmocka_unit_test(a_fused_qkv_tensor_is_the_same_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
