/* SPDX-License-Identifier: Apache-2.0 */

/* How many layers leave their experts in the host's memory: the fewest with which the cache has
 * room for 64 sequences of 1,024 tokens that are asked for, counted here one number after another;
 * and the number of sequences where none is. */

#include "gpu/gpu_limits.h"

#include "fit_configs.h"
#include "gpu/away.h"
#include "gpu/gpu_ledger.h"
#include "gpu/gpu_shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define BLOCKS_EACH 64u /* blocks of 1,024 tokens */

/* A model, its program, and the pages that a sequence of 1,024 tokens has. */
struct world {
    struct model_config config;
    struct kv_layout layout;
    struct gpu_shapes shapes;
    struct gpu_limits_options options;
    uint64_t pages_each;
};

static void world_open(struct world *ret_world, struct model_config config, enum gpu_form form,
                       uint64_t pages_each) {
    struct world *world = ret_world;
    *world = (struct world){.config = config, .pages_each = pages_each};
    world->layout = kv_layout_of(&world->config, world->config.context_max);
    gpu_shapes_open(&world->shapes, &(struct gpu_shapes_options){.config = &world->config,
                                                                 .layout = &world->layout,
                                                                 .weights = form});
    world->options = (struct gpu_limits_options){
        .program = &world->shapes.gpu_program,
        .layout = &world->layout,
        .kv_form = GPU_BF16,
        .multiprocessors = 132,
        .leaves_experts = true,
        .wanted = {.context_max = world->config.context_max, .sequences_max = 64}};
}

/* The nth layer's experts, as a file's codes that take so many bits per number in all. */
static void set_bits(struct world *world, uint32_t nth, uint32_t gate_up_bits, uint32_t down_bits) {
    const uint32_t bits[2] = {gate_up_bits, down_bits};
    for (uint32_t i = 0; i < 2; i++) {
        struct gpu_matrix *matrix =
            &world->shapes.forms[world->shapes.experts[2 * nth + i]->handle];
        matrix->form = GPU_BLOCKS;
        matrix->grouping = GROUPED_E2M1;
        matrix->block_bytes = (uint64_t)matrix->rows * matrix->cols * bits[i] / 8;
    }
}

static bool fits(const struct world *world, struct gpu_limits limits, uint32_t away) {
    limits.experts_away = away;
    const struct memory_ledger ledger =
        gpu_ledger_predict(world->options.program, &limits, world->options.memory_bytes);
    return ledger.used <= ledger.limit && ledger.page_count >= 64 * world->pages_each;
}

/* The least number by counting; all layers if none is enough. */
static uint32_t counted(const struct world *world, const struct gpu_limits *limits) {
    const uint32_t layers = away_layers(world->options.program);
    uint32_t away = AWAY_LEAST;
    while (away < layers && !fits(world, *limits, away)) away++;
    return away;
}

/* Returns how many of the limits, from 12,000 to 24,000 MiB, leave some layers and not all. */
static uint32_t check_limits(struct world *world) {
    const uint32_t layers = away_layers(world->options.program);
    uint32_t some = 0;
    for (uint64_t mib = 12000; mib <= 24000; mib += 250) {
        world->options.memory_bytes = mib * MIB;
        const struct gpu_limits limits = gpu_limits_of(&world->options);
        assert_int_equal(limits.sequences_max, 64);
        assert_int_equal(limits.experts_away, counted(world, &limits));
        some += limits.experts_away > AWAY_LEAST && limits.experts_away < layers;
    }
    return some;
}

static void the_fewest_layers_leave_that_give_the_cache_its_room(void **state) {
    (void)state;
    const struct {
        struct model_config config;
        enum gpu_form form;
    } cases[] = {{qwen3_30b_a3b(), GPU_INT8},
                 {mixtral_8x7b(), GPU_INT8},
                 {deepseek_v2_lite(), GPU_INT8},
                 {deepseek_v2_lite(), GPU_BF16}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world world;
        world_open(&world, cases[i].config, cases[i].form, BLOCKS_EACH);
        assert_true(check_limits(&world) >= 10);
        gpu_shapes_close(&world.shapes);
    }
}

/* gpt-oss-20b in MXFP4, of which a number takes 5 bits on a GPU: 24 layers of 32 · 3 · 2,880²
 * numbers. Half of its layers see 128 tokens, 8 pages of a sequence and two that the window begins
 * and ends in, and not the 64 of the others. */
static void pages_behind_a_window_need_no_room(void **state) {
    (void)state;
    struct world world;
    world_open(&world, gpt_oss_20b(), GPU_INT8, BLOCKS_EACH + 8 + 2);
    for (uint32_t i = 0; i < world.config.layers; i++) set_bits(&world, i, 5, 5);
    assert_int_equal(world.layout.full_groups, 1);
    assert_int_equal(world.layout.window_groups, 1);
    assert_true(check_limits(&world) >= 10);
    world.options.memory_bytes = 14745 * MIB;
    const struct gpu_limits limits = gpu_limits_of(&world.options);
    const struct memory_ledger ledger =
        gpu_ledger_predict(world.options.program, &limits, world.options.memory_bytes);
    const uint64_t layer = UINT64_C(32) * 3 * 2880 * 2880 * 5 / 8;
    const uint64_t needed = UINT64_C(64) * 74 * 12 * 2 * 16 * 8 * 64 * 2;
    const uint64_t rest = ledger.used - ledger.kv;
    assert_int_equal(ledger.away, limits.experts_away * layer);
    assert_true(rest + needed <= ledger.limit && rest + layer + needed > ledger.limit);
    gpu_shapes_close(&world.shapes);
}

/* As files of Q4_K_M have them: in half of the layers down is in 8 bits. Which layers leave changes
 * with their number, so more layers may be fewer bytes. */
static void layers_of_other_bytes_are_counted_one_by_one(void **state) {
    (void)state;
    struct world world;
    world_open(&world, qwen3_30b_a3b(), GPU_INT8, BLOCKS_EACH);
    for (uint32_t i = 0; i < world.config.layers; i++)
        set_bits(&world, i, 5, i < 6 || i >= 42 || i % 3 == 2 ? 8 : 5);
    assert_true(check_limits(&world) >= 10);
    for (uint32_t i = 0; i < world.config.layers; i++) set_bits(&world, i, 5, i % 2 ? 32 : 5);
    assert_true(check_limits(&world) >= 10);
    gpu_shapes_close(&world.shapes);
}

/* A cache that may have 4,096 tokens needs no room for 64 sequences of 1,024. */
static void a_cache_that_is_wanted_small_takes_no_layer_away(void **state) {
    (void)state;
    struct world world;
    world_open(&world, qwen3_30b_a3b(), GPU_INT8, BLOCKS_EACH);
    world.options.memory_bytes = 20000 * MIB;
    const struct gpu_limits all = gpu_limits_of(&world.options);
    world.options.wanted.kv_bytes = 4096 * UINT64_C(98304);
    const struct gpu_limits small = gpu_limits_of(&world.options);
    assert_int_equal(small.page_count_max, 256);
    assert_true(small.experts_away < all.experts_away);
    world.pages_each = 256 / 64;
    assert_int_equal(small.experts_away, counted(&world, &small));
    gpu_shapes_close(&world.shapes);
}

/* Sequences per byte on the bus, as the limits for that many sequences have it. */
static double rate_of(struct world *world, uint32_t sequences) {
    world->options.wanted.sequences_max = sequences;
    const struct gpu_limits limits = gpu_limits_of(&world->options);
    world->options.wanted.sequences_max = 0;
    const uint64_t bytes = gpu_ledger_away_bytes(world->options.program, &limits);
    return fits(world, limits, limits.experts_away) ? sequences / (double)bytes : 0;
}

/* No number of sequences is worth much more than the one that is taken, and each that has fewer
 * bytes on the bus is worth less. */
static void a_byte_on_the_bus_serves_nearly_the_most_sequences(void **state) {
    (void)state;
    uint32_t least = UINT32_MAX, most = 0;
    struct world world;
    world_open(&world, qwen3_30b_a3b(), GPU_INT8, BLOCKS_EACH);
    for (uint64_t mib = 14000; mib <= 32000; mib += 2000) {
        world.options.memory_bytes = mib * MIB;
        world.options.wanted.sequences_max = 0;
        const struct gpu_limits limits = gpu_limits_of(&world.options);
        const uint32_t taken = limits.sequences_max;
        world.pages_each = (uint64_t)BLOCKS_EACH * taken / 64;
        const double rate = rate_of(&world, taken);
        assert_int_equal(limits.rows_max, 8192);
        for (uint32_t other = 16; other <= 512; other += 16) {
            world.pages_each = (uint64_t)BLOCKS_EACH * other / 64;
            const double others = rate_of(&world, other);
            assert_true(others <= rate / 0.899);
            assert_true(others < rate * 1.001 || other >= taken);
        }
        world.pages_each = BLOCKS_EACH;
        if (limits.experts_away < least) least = limits.experts_away;
        if (limits.experts_away > most) most = limits.experts_away;
    }
    assert_true(least <= 12 && most >= 36); /* there are 48 */
    gpu_shapes_close(&world.shapes);
}

/* Pages that a sequence has left behind are others'; so a window lets more sequences run, too. */
static void a_window_leaves_room_for_more_sequences(void **state) {
    (void)state;
    struct world world, plain;
    struct model_config config = qwen3_4b();
    bool is_local[CONFIG_LAYERS_MAX];
    world_open(&plain, config, GPU_BF16, 0);
    config_local_layers(config.layers, 0, 6, is_local);
    config_set_windows(&config, 128, is_local);
    world_open(&world, config, GPU_BF16, 0);
    world.options.leaves_experts = plain.options.leaves_experts = false;
    world.options.wanted.sequences_max = plain.options.wanted.sequences_max = 0;
    world.options.memory_bytes = plain.options.memory_bytes = 14745 * MIB;
    const uint32_t few = gpu_limits_of(&plain.options).sequences_max;
    const uint32_t many = gpu_limits_of(&world.options).sequences_max;
    assert_in_range(few, 48, 96);
    assert_in_range(many, few * 3 / 2, few * 4);
    gpu_shapes_close(&world.shapes);
    gpu_shapes_close(&plain.shapes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fewest_layers_leave_that_give_the_cache_its_room),
        cmocka_unit_test(pages_behind_a_window_need_no_room),
        cmocka_unit_test(layers_of_other_bytes_are_counted_one_by_one),
        cmocka_unit_test(a_cache_that_is_wanted_small_takes_no_layer_away),
        cmocka_unit_test(a_byte_on_the_bus_serves_nearly_the_most_sequences),
        cmocka_unit_test(a_window_leaves_room_for_more_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
