/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "executor_rig.h"
#include "gpu/gpu_load.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Texts on the device of the tests: their vectors and labels are those of the CPU in float32. The
 * models are tiny, and leaving out a norm, a bias, a window or a token type moves them far more
 * than the limit. */

#define TEXTS 24u
#define TOKENS_MAX 90u
#define GPU_BYTES ((uint64_t)1 << 30)
#define LIMIT 2e-4f /* 2e-5 at most was measured */

struct texts {
    struct embed_sequence sequences[TEXTS];
    int32_t ids[TEXTS][TOKENS_MAX];
};

/* Texts of one token and of the longest ones are among them. */
static void make_texts(struct texts *texts, const struct model_description *is, uint64_t seed) {
    struct rng rng = {seed};
    uint32_t most = is->embed_tokens_max < TOKENS_MAX ? is->embed_tokens_max : TOKENS_MAX;
    for (uint32_t i = 0; i < TEXTS; i++) {
        struct embed_sequence *text = &texts->sequences[i];
        *text = (struct embed_sequence){.ids = texts->ids[i]};
        text->count = i == 0   ? 1
                      : i == 1 ? most
                               : 1 + (uint32_t)rng_below(&rng, i % 3 == 0 ? most : 1 + most / 4);
        if (is->pair_form != PAIR_NONE && text->count > 2 && i % 2 == 0)
            text->second_first = 1 + (uint32_t)rng_below(&rng, text->count - 1);
        for (uint32_t j = 0; j < text->count; j++)
            texts->ids[i][j] = (int32_t)rng_below(&rng, is->vocab);
    }
}

static void open_device(struct loaded_gpu *device, uint64_t bytes) {
    struct error error;
    uint32_t count;
    *device = (struct loaded_gpu){.table = quern_gpu_table(), .memory_bytes = bytes};
    must(device->table->list(&device->card, 1, &count, &error), &error);
    must(device->table->open(&device->gpu, &(struct gpu_options){.memory_bytes = bytes}, &error),
         &error);
}

static float *embed(struct model *model, const struct texts *texts, uint32_t width) {
    struct error error;
    float *vectors = calloc((size_t)TEXTS * width, sizeof *vectors);
    must(model_embed(model, texts->sequences, TEXTS, vectors, &error), &error);
    return vectors;
}

/* Opens the model on the CPU and on the device and compares. `rows` are those of a step. */
static void compare(const char *path, enum pooling pooling, uint32_t rows, uint64_t seed) {
    struct model *cpu, *own;
    struct loaded_gpu device;
    struct model_description is, on_device;
    struct texts texts;
    struct error error;
    struct model_options options = {.reference = true, .threads = 1, .pooling = pooling};
    must(model_open(&cpu, path, &options, &error), &error);
    model_describe(cpu, &is);
    make_texts(&texts, &is, seed);
    open_device(&device, GPU_BYTES);
    options.device = &device;
    options.rows_max = rows;
    must(model_open(&own, path, &options, &error), &error);
    model_describe(own, &on_device);
    assert_true(on_device.embeds && !on_device.generates && on_device.ledger.used > 0);
    assert_int_equal(on_device.embedding_width, is.embedding_width);
    if (is.is_judge) {
        must(model_set_answers(cpu, 5, 7, &error), &error);
        must(model_set_answers(own, 5, 7, &error), &error);
    }
    float *wanted = embed(cpu, &texts, is.embedding_width);
    float *got = embed(own, &texts, is.embedding_width);
    for (size_t i = 0; i < (size_t)TEXTS * is.embedding_width; i++)
        if (!(fabsf(wanted[i] - got[i]) <= LIMIT * (1 + fabsf(wanted[i]))))
            fail_msg("%s: number %zu of text %zu is %g, not %g (seed %llu)", path,
                     i % is.embedding_width, i / is.embedding_width, (double)got[i],
                     (double)wanted[i], (unsigned long long)seed);
    free(wanted);
    free(got);
    model_close(cpu);
    model_close(own);
    device.table->close(device.gpu);
}

static void compare_all(void **state, const char *name, enum pooling pooling) {
    (void)state;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/tests/engine/%s", getenv("QUERN_SOURCE"), name);
    compare(path, pooling, 0, 1);
    compare(path, pooling, 100, 2); /* several steps */
}

static void bert_is_the_cpus_with_each_pooling(void **state) {
    compare_all(state, "families/bert", POOLING_MEAN);
    compare_all(state, "families/bert", POOLING_CLS);
    compare_all(state, "families/bert", POOLING_LAST);
}

static void decoders_that_see_both_sides_are_the_cpus(void **state) {
    compare_all(state, "families/embeddinggemma", POOLING_NONE);
    compare_all(state, "families/modernbert", POOLING_NONE);
    compare_all(state, "families/modernbert", POOLING_CLS);
}

static void heads_for_labels_are_the_cpus(void **state) {
    compare_all(state, "rankers/bert-cross", POOLING_NONE);
    compare_all(state, "rankers/bert-sorts", POOLING_NONE);
    compare_all(state, "rankers/xlmr-cross", POOLING_NONE);
    compare_all(state, "rankers/modernbert-cls", POOLING_NONE);
    compare_all(state, "rankers/modernbert-cross", POOLING_NONE);
}

static void a_judge_is_the_cpus(void **state) {
    compare_all(state, "rankers/qwen3-reranker", POOLING_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert_is_the_cpus_with_each_pooling),
        cmocka_unit_test(decoders_that_see_both_sides_are_the_cpus),
        cmocka_unit_test(heads_for_labels_are_the_cpus),
        cmocka_unit_test(a_judge_is_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
