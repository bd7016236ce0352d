/* SPDX-License-Identifier: Apache-2.0 */

/* The lists of operations of some families, as texts. " /" marks the end of a slice. */
#include "program/program.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LAYERS_MAX 8u

/* Weights of which only the addresses count. */
struct model {
    struct model_config config;
    struct kv_layout layout;
    struct matrix matrices[2 + 4 * LAYERS_MAX];
    struct layer_weights layers[LAYERS_MAX];
    struct program_options options;
    struct program program;
};

static float vector[8];

static void make_model(struct model *model, const char *architecture, uint32_t layers) {
    *model = (struct model){
        .config = {.architecture = config_architecture(str_from(architecture)),
                   .layers = layers,
                   .width = 64,
                   .ffn = 96,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 16,
                   .context_max = 4096,
                   .vocab_rows = 100,
                   .attention_scale = 0.25f},
    };
    assert_non_null(model->config.architecture);
    for (uint32_t i = 0; i < layers; i++) {
        struct matrix *matrices = &model->matrices[2 + 4 * i];
        model->layers[i] = (struct layer_weights){.attention_norm = &vector[0],
                                                  .ffn_norm = &vector[1],
                                                  .qkv = &matrices[0],
                                                  .output = &matrices[1],
                                                  .gate_up = &matrices[2],
                                                  .down = &matrices[3]};
    }
}

static void set_windows(struct model_config *config, uint32_t period) {
    bool is_local[CONFIG_LAYERS_MAX];
    config_local_layers(config->layers, 0, period, is_local);
    config_set_windows(config, 32, is_local);
}

static void add_flagged_vectors(struct model *model) {
    const struct architecture *architecture = model->config.architecture;
    for (uint32_t i = 0; i < model->config.layers; i++) {
        struct layer_weights *layer = &model->layers[i];
        if (architecture->has_qkv_bias) layer->qkv_bias = &vector[2];
        if (architecture->has_qk_norm) layer->q_norm = layer->k_norm = &vector[3];
        if (!architecture->has_post_norm) continue;
        layer->post_attention_norm = &vector[4];
        layer->post_ffn_norm = &vector[5];
    }
}

/* Makes the program of a model whose config is set. */
static void make_program(struct model *model, bool matmul_adds) {
    add_flagged_vectors(model);
    model->layout = kv_layout_of(&model->config, model->config.context_max);
    model->options.config = &model->config;
    model->options.layout = &model->layout;
    model->options.matmul_adds = matmul_adds;
    model->options.weights = (struct program_weights){.layers = model->layers,
                                                      .embedding = &model->matrices[0],
                                                      .head = &model->matrices[1],
                                                      .output_norm = &vector[6]};
    program_of(&model->program, &model->options);
}

static void print_op(const struct op *op, char *text, size_t bytes) {
    static const char *const kinds[OP_KINDS] = {
        "embed", "norm",    "matmul",  "heads",    "attention", "gate",       "keep",   "logits",
        "route", "experts", "prepare", "conv",     "delta",     "gated norm", "inputs", "aside",
        "join",  "mamba",   "entry",   "latent q", "latent",    "latent out", "pool"};
    static const char *const adds[] = {"", "h+", "post+"};
    static const char *const to[] = {":wide", ":h", ":x", ":narrow", ":inputs", ":shared"};
    static const char *const gates[] = {"(silu)", "(gelu)"};
    char window[24] = "";
    if (op->window > 0) snprintf(window, sizeof window, "(%u)", op->window);
    snprintf(text, bytes, "%s%s%s%s%s%s%s%s%s%s", adds[op->add], kinds[op->kind],
             op->kind == OP_MATMUL || op->kind == OP_EXPERTS ? to[op->to] : "",
             op->bias ? "+bias" : "", op->q_norm ? "(norms)" : "", op->rope ? "(local)" : "",
             op->kind == OP_GATE || op->kind == OP_EXPERTS ? gates[op->gate] : "", window,
             op->kind == OP_EMBED && op->scale != 1.0f ? "(scaled)" : "",
             op->ends_slice ? " /" : "");
}

/* Compares the operations of one layer. What follows the last layer counts as a layer. */
static void expect_layer(const struct program *program, uint32_t layer, const char *expected) {
    char text[512] = "";
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->layer != layer) continue;
        size_t used = strlen(text);
        if (used > 0) text[used++] = ' ';
        print_op(op, text + used, sizeof text - used);
    }
    assert_string_equal(text, expected);
}

/* Every product reads what was prepared for its matrix, and layers have their pages. */
static void check_program(const struct model *model) {
    const struct matrix *prepared = NULL;
    for (uint32_t i = 0; i < model->program.op_count; i++) {
        const struct op *op = &model->program.ops[i];
        if (op->kind == OP_MATMUL || op->kind == OP_LOGITS) assert_ptr_equal(op->matrix, prepared);
        if (op->next) prepared = op->next;
        assert_true((op->add == ADD_NORMED_H) == (op->post != NULL));
        const bool has_keys = op->kind == OP_HEADS || op->kind == OP_ATTENTION;
        if (!has_keys && op->kind != OP_LATENT_ENTRY && op->kind != OP_LATENT) continue;
        assert_int_equal(op->kv_group, model->layout.group[op->layer]);
        assert_int_equal(op->kv_place, model->layout.place[op->layer]);
    }
}

static void a_llama_adds_its_products_to_the_residual(void **state) {
    (void)state;
    struct model model;
    make_model(&model, "llama", 2);
    make_program(&model, true);
    check_program(&model);
    expect_layer(&model.program, 0,
                 "embed norm matmul:wide heads / attention matmul:x / "
                 "norm matmul:wide gate(silu) matmul:x /");
    expect_layer(&model.program, 1,
                 "norm matmul:wide heads keep / attention matmul:x / "
                 "norm matmul:wide gate(silu) matmul:x");
    expect_layer(&model.program, 2, "norm logits");
    program_release(&model.program);
}

static void a_device_leaves_the_sum_to_the_next_norm(void **state) {
    (void)state;
    struct model model;
    make_model(&model, "qwen2", 2);
    make_program(&model, false);
    check_program(&model);
    expect_layer(&model.program, 0,
                 "embed norm matmul:wide+bias heads / attention matmul:h / "
                 "h+norm matmul:wide gate(silu) matmul:h /");
    expect_layer(&model.program, 1,
                 "h+norm matmul:wide+bias heads keep / attention matmul:h / "
                 "h+norm matmul:wide gate(silu) matmul:h");
    expect_layer(&model.program, 2, "h+norm logits");
    program_release(&model.program);
}

static void qwen_3_norms_its_heads(void **state) {
    (void)state;
    struct model model;
    make_model(&model, "qwen3", 2);
    make_program(&model, true);
    check_program(&model);
    expect_layer(&model.program, 0,
                 "embed norm matmul:wide heads(norms) / attention matmul:x / "
                 "norm matmul:wide gate(silu) matmul:x /");
    program_release(&model.program);
}

static void phi_3_has_a_window_in_all_layers(void **state) {
    (void)state;
    struct model model;
    make_model(&model, "phi3", 2);
    set_windows(&model.config, 0);
    make_program(&model, true);
    check_program(&model);
    for (uint32_t i = 0; i < model.program.op_count; i++)
        if (model.program.ops[i].kind == OP_ATTENTION)
            assert_int_equal(model.program.ops[i].window, 32);
    expect_layer(&model.program, 1,
                 "norm matmul:wide heads keep / attention(32) matmul:x / "
                 "norm matmul:wide gate(silu) matmul:x");
    program_release(&model.program);
}

static void latent_layers_turn_q_behind_the_rows_that_are_kept(void **state) {
    (void)state;
    struct model model;
    struct error error;
    struct matrix in = {.rows = 70}, q_b = {.rows = 96};
    for (int has_two = 0; has_two <= 1; has_two++) {
        make_model(&model, "deepseek2", 2);
        model.config.latent = (struct latent_sizes){.rank = 32,
                                                    .q_rank = has_two ? 24 : 0,
                                                    .still_dim = 8,
                                                    .turned_dim = 16,
                                                    .value_dim = 40};
        assert_int_equal(config_set_latent(&model.config, &error), OK);
        for (int i = 0; i < 2; i++)
            model.layers[i].latent = (struct latent){.in = &in, .q_b = has_two ? &q_b : NULL};
        make_program(&model, true);
        assert_int_equal(model.layout.planes, 1);
        assert_int_equal(model.layout.width[1], 48);
        assert_int_equal(model.program.shape.q_width, 4 * 32);
        assert_int_equal(model.program.shape.qkv_width, 4 * 40);
        check_program(&model);
        expect_layer(&model.program, 0,
                     has_two ? "embed norm matmul:wide entry / matmul:wide latent q latent "
                               "latent out matmul:x / norm matmul:wide gate(silu) matmul:x /"
                             : "embed norm matmul:wide entry / latent q latent "
                               "latent out matmul:x / norm matmul:wide gate(silu) matmul:x /");
        expect_layer(&model.program, 1,
                     has_two ? "norm matmul:wide entry matmul:wide keep / latent q latent "
                               "latent out matmul:x / norm matmul:wide gate(silu) matmul:x"
                             : "norm matmul:wide entry keep / latent q latent "
                               "latent out matmul:x / norm matmul:wide gate(silu) matmul:x");
        for (uint32_t i = 0; i < model.program.op_count; i++)
            if (model.program.ops[i].kind == OP_KEEP)
                assert_int_equal(model.program.ops[i].width, has_two ? 96 : 70);
        program_release(&model.program);
    }
}

static void experts_stand_where_their_layers_have_them(void **state) {
    (void)state;
    struct model model;
    struct matrix router, gate_up, *gate_ups[] = {&gate_up};
    make_model(&model, "qwen3moe", 2);
    model.config.list[1].ffn = FFN_EXPERTS;
    model.layers[1].experts =
        (struct experts){.count = 1, .used = 1, .ffn = 96, .router = &router, .gate_up = gate_ups};
    make_program(&model, true);
    check_program(&model);
    expect_layer(&model.program, 0,
                 "embed norm matmul:wide heads(norms) / attention matmul:x / "
                 "norm matmul:wide gate(silu) matmul:x /");
    expect_layer(&model.program, 1,
                 "norm matmul:wide heads(norms) keep / attention matmul:x / "
                 "norm matmul:wide route experts:x(silu)");
    for (uint32_t i = 0; i < model.program.op_count; i++) {
        const struct op *op = &model.program.ops[i];
        const bool is_of_experts = op->kind == OP_ROUTE || op->kind == OP_EXPERTS;
        assert_ptr_equal(op->experts, is_of_experts ? &model.layers[1].experts : NULL);
        if (op->kind == OP_ROUTE) assert_ptr_equal(op->next, &gate_up);
    }
    program_release(&model.program);
}

/* On a device the norm is for the factor, or the router: gate and up may have 8 bits. */
static void a_device_adds_a_shared_expert_with_the_others(void **state) {
    (void)state;
    for (int has_factor = 0; has_factor < 2; has_factor++) {
        struct model model;
        struct matrix router, gate_up, factor, up, down, *gate_ups[] = {&gate_up};
        make_model(&model, "glm4moe", 2);
        model.config.list[0].ffn = FFN_EXPERTS;
        model.layers[0].experts = (struct experts){.count = 1,
                                                   .used = 1,
                                                   .ffn = 96,
                                                   .router = &router,
                                                   .gate_up = gate_ups,
                                                   .shared_ffn = 32,
                                                   .shared_gate_up = &up,
                                                   .shared_down = &down,
                                                   .shared_scale = has_factor ? &factor : NULL};
        make_program(&model, false);
        check_program(&model);
        expect_layer(&model.program, 0,
                     has_factor ? "embed norm matmul:wide heads / attention matmul:h / h+norm "
                                  "matmul:narrow prepare matmul:wide gate(silu) matmul:shared "
                                  "prepare matmul:wide route experts:h(silu) /"
                                : "embed norm matmul:wide heads / attention matmul:h / h+norm "
                                  "prepare matmul:wide gate(silu) matmul:shared "
                                  "prepare matmul:wide route experts:h(silu) /");
        for (uint32_t i = 0; i < model.program.op_count; i++) {
            const struct op *op = &model.program.ops[i];
            if (op->kind == OP_NORM && op->add == ADD_H && op->layer == 0)
                assert_ptr_equal(op->next, has_factor ? &factor : &router);
            if (op->kind != OP_GATE || op->layer > 0) continue;
            assert_int_equal(op->width, 32);
            assert_false(op->is_gated);
        }
        program_release(&model.program);
    }
}

static void gemma_3_norms_before_its_sums_and_alternates_windows(void **state) {
    (void)state;
    struct model model;
    make_model(&model, "gemma3", 7);
    set_windows(&model.config, 6);
    model.config.rope_base = 1e6f;
    model.config.rope_base_local = 1e4f;
    model.config.attention_softcap = 50.0f;
    model.config.softcap = 30.0f;
    make_program(&model, true);
    check_program(&model);
    assert_true(model.program.ops[0].scale == 8.0f);
    assert_int_equal(model.program.shape.rope_count, 2);
    for (uint32_t table = 0; table < 2; table++) {
        float expected[8];
        config_rope_frequencies(&model.config, table == 1, expected);
        assert_memory_equal(model.program.frequencies[table], expected, sizeof expected);
    }
    expect_layer(&model.program, 0,
                 "embed(scaled) norm matmul:wide heads(norms)(local) / attention(32) matmul:h / "
                 "post+norm matmul:wide gate(gelu) matmul:h /");
    expect_layer(&model.program, 5,
                 "post+norm matmul:wide heads(norms) / attention matmul:h / "
                 "post+norm matmul:wide gate(gelu) matmul:h /");
    expect_layer(&model.program, 6,
                 "post+norm matmul:wide heads(norms)(local) keep / attention(32) matmul:h / "
                 "post+norm matmul:wide gate(gelu) matmul:h");
    expect_layer(&model.program, 7, "post+norm logits");
    for (uint32_t i = 0; i < model.program.op_count; i++) {
        const struct op *op = &model.program.ops[i];
        if (op->kind == OP_ATTENTION) assert_true(op->softcap == 50.0f && op->scale == 0.25f);
        if (op->kind == OP_LOGITS) assert_true(op->softcap == 30.0f);
    }
    program_release(&model.program);
}

static void a_pass_for_embeddings_ends_in_hidden_states_and_may_see_all_rows(void **state) {
    (void)state;
    struct model model;
    make_model(&model, "gemma3", 2);
    set_windows(&model.config, 0);
    make_program(&model, true);
    program_release(&model.program);
    model.options.weights.head = NULL;
    model.options.is_bidirectional = true;
    program_of(&model.program, &model.options);
    assert_false(model.program.shape.is_causal);
    expect_layer(&model.program, 1,
                 "post+norm matmul:wide heads(norms)(local) keep / attention matmul:h / "
                 "post+norm matmul:wide gate(gelu) matmul:h");
    expect_layer(&model.program, 2, "post+norm");
    program_release(&model.program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_adds_its_products_to_the_residual),
        cmocka_unit_test(a_device_leaves_the_sum_to_the_next_norm),
        cmocka_unit_test(qwen_3_norms_its_heads),
        cmocka_unit_test(phi_3_has_a_window_in_all_layers),
        cmocka_unit_test(latent_layers_turn_q_behind_the_rows_that_are_kept),
        cmocka_unit_test(experts_stand_where_their_layers_have_them),
        cmocka_unit_test(a_device_adds_a_shared_expert_with_the_others),
        cmocka_unit_test(gemma_3_norms_before_its_sums_and_alternates_windows),
        cmocka_unit_test(a_pass_for_embeddings_ends_in_hidden_states_and_may_see_all_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
