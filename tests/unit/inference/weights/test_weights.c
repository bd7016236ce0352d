/* SPDX-License-Identifier: Apache-2.0 */
#include "../checkpoint/gguf_builder.h"
#include "checkpoint/config.h"
#include "checkpoint/vocab.h"
#include "plain_store.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A small model in memory, and its weights in a plain store. */
struct scene {
    struct buf file;
    struct gguf *gguf;
    struct checkpoint_vocab vocab;
    struct model_config config;
    struct checkpoint *checkpoint;
    struct pool *pool;
    struct plain_store store;
    struct weights *weights;
};

static enum err open_scene(struct scene *scene, const struct recipe *recipe, struct error *error) {
    buf_init(&scene->file, 1 << 20);
    build_gguf(recipe, &scene->file);
    assert_int_equal(gguf_open_bytes(&scene->gguf, scene->file.at, scene->file.bytes, error), OK);
    assert_int_equal(checkpoint_vocab_init(&scene->vocab, scene->gguf, error), OK);
    assert_int_equal(config_init(&scene->config, scene->gguf, scene->vocab.token_count, error), OK);
    assert_int_equal(checkpoint_of_gguf(&scene->checkpoint, scene->gguf, error), OK);
    assert_int_equal(pool_open(&scene->pool, 1, error), OK);
    struct weights_options options = {.checkpoint = scene->checkpoint,
                                      .config = &scene->config,
                                      .store = plain_store_interface(&scene->store),
                                      .pool = scene->pool};
    return weights_open(&scene->weights, &options, error);
}

static void close_scene(struct scene *scene) {
    weights_close(scene->weights);
    pool_close(scene->pool);
    checkpoint_close(scene->checkpoint);
    checkpoint_vocab_release(&scene->vocab);
    gguf_close(scene->gguf);
    buf_release(&scene->file);
}

static const struct plain_call *call_of(const struct scene *scene, const char *name) {
    for (uint32_t i = 0; i < scene->store.open_count; i++)
        if (strcmp(scene->store.opened[i].name, name) == 0) return &scene->store.opened[i];
    return NULL;
}

static void all_matrices_are_open_before_a_row_is_read(void **state) {
    (void)state;
    struct scene scene = {0};
    struct error error = {0};
    assert_int_equal(open_scene(&scene, &(struct recipe){0}, &error), OK);
    /* The embedding, and q|k|v, output, gate|up and down of two layers. */
    assert_int_equal(scene.store.open_count, 1 + 2 * 4);
    assert_int_equal(scene.store.fill_count, 0);
    const struct plain_call *qkv = call_of(&scene, "blk.1.attn_q.weight");
    assert_int_equal(qkv->part_count, 3);
    assert_int_equal(qkv->rows, 32 + 16 + 16);
    const struct plain_call *gate_up = call_of(&scene, "blk.0.ffn_gate.weight");
    assert_int_equal(gate_up->part_count, 2);
    assert_int_equal(gate_up->rows, 64 + 64);
    assert_int_equal(gate_up->cols, 32);
    /* Vectors are there already. */
    assert_non_null(scene.weights->output_norm);
    assert_non_null(scene.weights->layers[1].ffn_norm);
    assert_int_equal(weights_fill(scene.weights, &error), OK);
    assert_int_equal(scene.store.fill_count, 9);
    assert_int_equal(scene.store.finish_count, 1);
    close_scene(&scene);
}

static void a_tied_embedding_is_multiplied_and_another_only_looked_up(void **state) {
    (void)state;
    struct scene tied = {0}, untied = {0};
    struct error error = {0};
    assert_int_equal(open_scene(&tied, &(struct recipe){0}, &error), OK);
    assert_ptr_equal(tied.weights->head, tied.weights->embedding);
    const struct plain_call *embedding = call_of(&tied, "token_embd.weight");
    assert_true(embedding->is_looked_up && embedding->is_multiplied);
    close_scene(&tied);
    struct recipe recipe = {.extra = {"output.weight", 2, {32, 8}, 8}};
    assert_int_equal(open_scene(&untied, &recipe, &error), OK);
    assert_ptr_not_equal(untied.weights->head, untied.weights->embedding);
    embedding = call_of(&untied, "token_embd.weight");
    assert_true(embedding->is_looked_up && !embedding->is_multiplied);
    const struct plain_call *head = call_of(&untied, "output.weight");
    assert_true(!head->is_looked_up && head->is_multiplied);
    close_scene(&untied);
}

static void a_matrix_that_the_store_has_is_not_read(void **state) {
    (void)state;
    struct scene scene = {.store = {.has = "blk.0.ffn_down.weight"}};
    struct error error = {0};
    assert_int_equal(open_scene(&scene, &(struct recipe){0}, &error), OK);
    assert_int_equal(weights_fill(scene.weights, &error), OK);
    assert_int_equal(scene.store.fill_count, 8);
    for (uint32_t i = 0; i < 8; i++)
        assert_ptr_not_equal(scene.store.filled[i], scene.weights->layers[0].down);
    close_scene(&scene);
}

static void a_store_can_refuse_before_a_row_is_read(void **state) {
    (void)state;
    struct scene scene = {.store = {.misses = "blk.1.attn_output.weight"}};
    struct error error = {0};
    assert_int_equal(open_scene(&scene, &(struct recipe){0}, &error), ERR_LIMIT);
    assert_string_equal(error.text, "no room for blk.1.attn_output.weight");
    assert_null(scene.weights);
    assert_int_equal(scene.store.fill_count, 0);
    close_scene(&scene);
}

/* Weights that are opened but never filled leave nothing behind. */
static void loading_can_end_between_the_phases(void **state) {
    (void)state;
    struct scene scene = {0};
    struct error error = {0};
    assert_int_equal(open_scene(&scene, &(struct recipe){0}, &error), OK);
    close_scene(&scene);
    assert_int_equal(scene.store.finish_count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_matrices_are_open_before_a_row_is_read),
        cmocka_unit_test(a_tied_embedding_is_multiplied_and_another_only_looked_up),
        cmocka_unit_test(a_matrix_that_the_store_has_is_not_read),
        cmocka_unit_test(a_store_can_refuse_before_a_row_is_read),
        cmocka_unit_test(loading_can_end_between_the_phases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
