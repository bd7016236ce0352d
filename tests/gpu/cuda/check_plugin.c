/* SPDX-License-Identifier: Apache-2.0 */

/* Checks a plugin against decoders in double precision (tests/gpu/plain_world.h).
 *
 *   check-plugin PLUGIN               TAP
 *   check-plugin PLUGIN --part N      one part of it: 1 is the ledger, then each shape, graphs,
 *                                     texts, notes
 *   check-plugin PLUGIN --notes FILE  either for a sanitizer; the file keeps choices of products
 *   check-plugin PLUGIN --seed N      either with other weights: 0 are the usual ones
 *   check-plugin PLUGIN --bench [NAME]
 *                                     milliseconds per step of the shapes that begin so
 *   check-plugin PLUGIN --refused     TAP of the steps that graphs would run, which it refuses
 *   check-plugin PLUGIN --ranks N     TAP of N GPUs that compute every shape together, of which
 *                                     --part has each shape, then graphs; or its bench.
 *                                     --one-gpu: all of them are the first GPU, whose kernels then
 *                                     wait beside those they wait for, so shapes must be small.
 *                                     --in-host: their sums go through memory of the host
 *
 * Without a GPU: "1..0 # SKIP ", the plugin's sentence, and exit status 0. */

#include "check_plugin.h"

#include "plain_world.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_MOST (UINT64_C(2) << 30)

static const struct gpu_table *plugin;
static uint64_t seed_added; /* --seed */
static uint32_t ranks = 1;  /* --ranks */

const struct gpu_table *quern_gpu_table(void) {
    return plugin;
}

void must(enum err err, const struct error *error, const char *what) {
    if (err == OK) return;
    (void)printf("Bail out! %s: %s\n", what, error->text);
    exit(1);
}

/* Limits are some two to four times what kernels in plain C are off by, with the usual weights and
 * with others: 0.03 to 0.05 in bf16, 0.1 to 0.13 with a cache in E4M3, 0.14 to 0.3 in INT8, 0.35 to
 * 0.57 in E4M3. Logits of a tied embedding are five times as large, and so are their differences.
 * With sigmoids a row that got another expert moves those that attend to it: up to 0.15. Norms
 * behind both halves of a layer, and of what stands beside experts, double differences: 0.7 to 0.8
 * in INT8, 0.8 to 0.9 in E4M3. Worlds with experts in the host's memory have a third layer of
 * experts, whose router sees what the two before it have moved: 0.03 to 0.09 with six other
 * weights, 0.153 with the usual ones, with and without copies (a row has two experts of nearly the
 * same weight). */
static const struct world_traits shapes[] = {
    {"bf16", 64, 96, 4, 4, 64, 1.0f, .has_head = true, .form = GPU_BF16, .kv_form = GPU_BF16,
     .tolerance = 0.06},
    {"GQA, window, softcap, post norms, tied", 96, 80, 6, 2, 128, 4.0f, .window = 20,
     .softcap = 3.0f, .logit_softcap = 5.0f, .has_post = true, .is_gelu = true, .form = GPU_BF16,
     .kv_form = GPU_BF16, .tolerance = 0.3},
    {"head norms, biases, magnitude", 48, 64, 4, 1, 256, 1.0f, .window = 7, .magnitude = 1.2f,
     .has_head_norms = true, .has_bias = true, .has_head = true, .form = GPU_BF16,
     .kv_form = GPU_BF16, .tolerance = 0.1},
    {"E4M3 keys and values", 64, 96, 4, 2, 64, 1.0f, .window = 33, .has_head = true,
     .form = GPU_BF16, .kv_form = GPU_E4M3, .tolerance = 0.4},
    {"heads of 80", 64, 96, 2, 2, 80, 1.0f, .has_head = true, .form = GPU_BF16, .kv_form = GPU_BF16,
     .tolerance = 0.06},
    {"heads of 32, biases, E4M3 keys and values", 64, 96, 4, 2, 32, 1.0f, .has_head = true,
     .has_bias = true, .form = GPU_BF16, .kv_form = GPU_E4M3, .tolerance = 0.4},
    {"E4M3 products", 64, 96, 4, 2, 64, 1.0f, .has_head = true, .form = GPU_E4M3,
     .kv_form = GPU_BF16, .tolerance = 1.0},
    {"heads of which a quarter turns", 64, 96, 4, 2, 128, 1.0f, .rotary = 32, .has_head = true,
     .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.06},
    {"rows as their file has them, biases", 64, 96, 4, 2, 64, 1.0f, .has_head = true,
     .has_bias = true, .form = GPU_BLOCKS, .kv_form = GPU_BF16, .tolerance = 0.09},
    {"INT8 products, biases, post norms", 64, 96, 4, 2, 64, 1.0f, .has_head = true,
     .has_bias = true, .has_post = true, .form = GPU_INT8, .kv_form = GPU_E4M3, .tolerance = 1.0},
    {"experts", 64, 96, 4, 4, 64, 1.0f, .has_head = true, .form = GPU_BF16, .kv_form = GPU_BF16,
     .tolerance = 0.1, .experts = 24, .used = 3},
    {"experts, post norms, window", 96, 80, 4, 2, 64, 1.0f, .window = 20, .has_post = true,
     .has_head = true, .is_gelu = true, .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.2,
     .experts = 7, .used = 2},
    {"experts in E4M3", 64, 96, 4, 2, 64, 1.0f, .has_head = true, .form = GPU_E4M3,
     .kv_form = GPU_BF16, .tolerance = 1.0, .experts = 3, .used = 3},
    {"experts with biases, clamped, sinks, window", 96, 64, 8, 1, 64, 1.0f, .window = 20,
     .magnitude = 1.2f, .has_bias = true, .has_sinks = true, .is_clamped = true, .has_head = true,
     .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.1, .experts = 8, .used = 4},
    {"the same in E4M3", 96, 64, 4, 2, 64, 1.0f, .window = 20, .has_bias = true, .has_sinks = true,
     .is_clamped = true, .has_head = true, .form = GPU_E4M3, .kv_form = GPU_E4M3, .tolerance = 1.0,
     .experts = 4, .used = 4},
    {"experts in INT8", 64, 96, 4, 2, 64, 1.0f, .has_head = true, .form = GPU_INT8,
     .kv_form = GPU_BF16, .tolerance = 0.5, .experts = 8, .used = 2},
    {"states, gated attention between them", 64, 96, 4, 2, 256, 1.0f, .rotary = 64,
     .has_head_norms = true, .has_head = true, .form = GPU_BF16, .kv_form = GPU_BF16,
     .tolerance = 0.1, .recurrent = 5, .k_heads = 2, .v_heads = 4, .state_dim = 128,
     .has_output_gate = true},
    {"tiled states in bf16, gated attention behind them", 64, 96, 4, 2, 64, 1.0f, .has_head = true,
     .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.1, .recurrent = 3, .k_heads = 2,
     .v_heads = 6, .state_dim = 64, .is_tiled = true, .has_output_gate = true,
     .state_form = GPU_BF16},
    {"Mamba-2", 64, 96, 4, 2, 64, 1.0f, .has_head = true, .form = GPU_BF16, .kv_form = GPU_BF16,
     .tolerance = 0.15, .recurrent = 5, .k_heads = 2, .v_heads = 6, .state_dim = 32,
     .is_mamba = true},
    {"Mamba-2 last, states in bf16, squares", 64, 96, 4, 2, 64, 1.0f, .has_head = true,
     .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.15, .recurrent = 6, .k_heads = 1,
     .v_heads = 4, .state_dim = 128, .is_mamba = true, .is_ungated = true, .state_form = GPU_BF16},
    {"Mamba-2, squares, products in INT8", 64, 96, 4, 2, 64, 1.0f, .has_head = true,
     .form = GPU_INT8, .kv_form = GPU_BF16, .tolerance = 1.0, .recurrent = 5, .k_heads = 2,
     .v_heads = 4, .state_dim = 64, .is_mamba = true, .is_ungated = true},
    {"convolutions, head norms", 64, 96, 4, 2, 64, 1.0f, .has_head_norms = true, .has_head = true,
     .form = GPU_BF16, .kv_form = GPU_E4M3, .tolerance = 0.4, .recurrent = 5},
    {"states, products in INT8", 64, 96, 4, 2, 64, 1.0f, .has_head = true, .form = GPU_INT8,
     .kv_form = GPU_BF16, .tolerance = 1.0, .recurrent = 5, .k_heads = 2, .v_heads = 4,
     .state_dim = 64, .has_output_gate = true},
    {"states, rows as their file has them", 64, 96, 4, 2, 64, 1.0f, .has_head = true,
     .form = GPU_BLOCKS, .kv_form = GPU_BF16, .tolerance = 0.15, .recurrent = 3, .k_heads = 1,
     .v_heads = 2, .state_dim = 64, .has_output_gate = true},
    {"a shared expert with a factor, states",
     64,
     96,
     4,
     2,
     64,
     1.0f,
     .rotary = 16,
     .has_head_norms = true,
     .has_head = true,
     .form = GPU_BF16,
     .kv_form = GPU_BF16,
     .tolerance = 0.1,
     .experts = 24,
     .used = 3,
     .recurrent = 5,
     .k_heads = 2,
     .v_heads = 4,
     .state_dim = 64,
     .has_output_gate = true,
     .shared_ffn = 80,
     .shared_is_scaled = true},
    {"sigmoids in groups, a shared expert", 64, 96, 4, 2, 64, 1.0f, .has_bias = true,
     .has_head = true, .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.3, .experts = 24,
     .used = 3, .shared_ffn = 128, .groups = 4, .groups_used = 2},
    {"sigmoids without a shared expert", 64, 96, 4, 2, 64, 1.0f, .has_head_norms = true,
     .has_head = true, .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.3, .experts = 8,
     .used = 3, .groups = 1},
    {"sigmoids, convolutions", 64, 96, 4, 2, 64, 1.0f, .has_head_norms = true, .has_head = true,
     .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.3, .experts = 8, .used = 3, .groups = 1,
     .recurrent = 5},
    {"a shared expert in E4M3", 64, 96, 4, 2, 64, 1.0f, .has_head = true, .form = GPU_E4M3,
     .kv_form = GPU_BF16, .tolerance = 1.0, .experts = 3, .used = 3, .shared_ffn = 64,
     .shared_is_scaled = true},
    {"sigmoids, a shared expert in INT8", 64, 96, 4, 2, 64, 1.0f, .has_head = true,
     .form = GPU_INT8, .kv_form = GPU_BF16, .tolerance = 0.5, .experts = 8, .used = 2,
     .shared_ffn = 512, .groups = 1},
    {"a shared expert of four bits", 64, 96, 4, 2, 64, 1.0f, .has_head = true, .form = GPU_BLOCKS,
     .kv_form = GPU_BF16, .tolerance = 0.2, .experts = 8, .used = 2, .shared_ffn = 128,
     .shared_is_scaled = true},
    {"heads of 256 and 512, shared keys, parts of tokens",
     64,
     96,
     4,
     2,
     256,
     1.0f,
     .window = 20,
     .has_post = true,
     .has_head_norms = true,
     .is_gelu = true,
     .has_head = true,
     .form = GPU_BF16,
     .kv_form = GPU_BF16,
     .tolerance = 0.2,
     .wide_dim = 512,
     .wide_kv_heads = 1,
     .norms_v = true,
     .shares_keys = true,
     .input_width = 32,
     .x_scale = 0.7f},
    {"heads of 64 and 128, keys in E4M3, INT8, parts of tokens",
     64,
     96,
     4,
     4,
     64,
     1.0f,
     .window = 33,
     .has_post = true,
     .has_head_norms = true,
     .is_gelu = true,
     .has_head = true,
     .form = GPU_INT8,
     .kv_form = GPU_E4M3,
     .tolerance = 0.9,
     .wide_dim = 128,
     .wide_kv_heads = 2,
     .norms_v = true,
     .shares_keys = true,
     .input_width = 48,
     .x_scale = 1.2f},
    {"experts beside a feed-forward",
     64,
     96,
     4,
     2,
     64,
     1.0f,
     .window = 20,
     .has_post = true,
     .has_head_norms = true,
     .is_gelu = true,
     .has_head = true,
     .form = GPU_BF16,
     .kv_form = GPU_BF16,
     .tolerance = 0.3,
     .experts = 8,
     .used = 2,
     .wide_dim = 128,
     .wide_kv_heads = 1,
     .norms_v = true,
     .x_scale = 0.7f,
     .has_both = true},
    {"the same in E4M3, parts of tokens", 64, 96, 4, 2, 64, 1.0f, .has_post = true, .is_gelu = true,
     .has_head = true, .form = GPU_E4M3, .kv_form = GPU_BF16, .tolerance = 1.6, .experts = 3,
     .used = 3, .norms_v = true, .input_width = 32, .has_both = true},
    {"experts of four bits", 64, 96, 4, 2, 64, 1.0f, .has_bias = true, .has_head = true,
     .form = GPU_BLOCKS, .kv_form = GPU_BF16, .tolerance = 0.2, .experts = 8, .used = 2},
    {"experts in the host's memory", 64, 96, 4, 2, 64, 1.0f, .has_head = true, .form = GPU_BF16,
     .kv_form = GPU_BF16, .tolerance = 0.3, .experts = 8, .used = 2, .away = 3},
    {"the same of two layers, INT8", 64, 96, 4, 2, 64, 1.0f, .has_head = true, .form = GPU_INT8,
     .kv_form = GPU_BF16, .tolerance = 0.5, .experts = 8, .used = 2, .away = 2},
    {"the same of four bits", 64, 96, 4, 2, 64, 1.0f, .has_bias = true, .has_head = true,
     .form = GPU_BLOCKS, .kv_form = GPU_BF16, .tolerance = 0.3, .experts = 8, .used = 2, .away = 3},
    {"entries, unfolded prompts", 128, 96, 2, 1, 128, 1.0f, .rotary = 64, .has_head = true,
     .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.1, .experts = 8, .used = 8, .rank = 64,
     .still_dim = 128, .value_dim = 128, .is_unfolded = true},
    {"entries for all heads", 64, 96, 4, 1, 576, 1.0f, .rotary = 64, .has_head = true,
     .form = GPU_BF16, .kv_form = GPU_BF16, .tolerance = 0.1, .rank = 512, .still_dim = 32,
     .value_dim = 48},
    {"entries, q by two products, sigmoids in groups",
     64,
     96,
     20,
     1,
     96,
     1.0f,
     .rotary = 32,
     .has_head = true,
     .form = GPU_BF16,
     .kv_form = GPU_BF16,
     .tolerance = 0.3,
     .experts = 24,
     .used = 3,
     .shared_ffn = 128,
     .groups = 4,
     .groups_used = 2,
     .rank = 64,
     .q_rank = 48,
     .still_dim = 48,
     .value_dim = 40},
    {"entries, products in INT8", 64, 96, 4, 1, 96, 1.0f, .rotary = 32, .has_head = true,
     .form = GPU_INT8, .kv_form = GPU_BF16, .tolerance = 1.0, .rank = 64, .q_rank = 48,
     .still_dim = 32, .value_dim = 16},
    {"entries, rows as their file has them", 64, 96, 4, 1, 96, 1.0f, .rotary = 32, .has_head = true,
     .form = GPU_BLOCKS, .kv_form = GPU_BF16, .tolerance = 0.15, .rank = 64, .q_rank = 64,
     .still_dim = 32, .value_dim = 16},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* ---- a world on the plugin ---- */

#define UNFOLDING_COMPUTE 90 /* GPUs that unfold prompts of latent layers */

/* The first GPU; without one the program ends. */
static struct gpu_info first_card(void) {
    struct gpu_info cards[8];
    uint32_t count;
    struct error error = {0};
    if (plugin->list(cards, 8, &count, &error) != OK) {
        (void)printf("1..0 # SKIP %s\n", error.text);
        exit(0);
    }
    return cards[0];
}

static uint64_t memory_wanted(void) {
    uint64_t half = first_card().memory_bytes / 2;
    return half < MEMORY_MOST ? half : MEMORY_MOST;
}

/* Whether several GPUs refuse to split the world, by the name of the option. */
static bool is_refused_split(const struct world *world, enum err err, const struct error *error) {
    if (ranks == 1 || err != ERR_INVALID) return false;
    report(strstr(error->text, "--tensor-parallel-size") != NULL, "%s: refused by name: %s",
           world->traits.name, error->text);
    return true;
}

/* False: the plugin refuses to split it. */
static bool open_world(struct world *world, const struct world_traits *traits, uint64_t seed) {
    struct error error = {0};
    world_make(world, traits, seed);
    world_card_forms(world);
    world->limits.pages_max *= world->limits.group_count;
    struct gpu_options options = {.memory_bytes = memory_wanted()};
    open_checked(plugin, options, &world->gpu);
    enum err err =
        plugin->prepare(world->gpu, &world->program, &world->limits, &world->ledger, &error);
    if (is_refused_split(world, err, &error)) return false;
    must(err, &error, "prepare");
    for (uint32_t i = 0; i < world->program.matrix_count; i++) world_fill(world, i);
    warm_checked(plugin, world->gpu);
    return true;
}

void submit_checked(struct world *world, const struct world_step *step,
                    const struct gpu_samples *samples) {
    struct error error = {0};
    must(plugin->submit(world->gpu, &step->step, samples, &error), &error, "submit");
}

void sample_checked(struct world *world, const struct gpu_samples *samples) {
    struct error error = {0};
    must(plugin->sample(world->gpu, samples, &error), &error, "sample");
}

void wait_checked(struct world *world, uint64_t number, struct gpu_result *result) {
    struct error error = {0};
    must(plugin->wait(world->gpu, number, result, &error), &error, "wait");
}

float *logits_checked(struct world *world, uint32_t count) {
    struct error error = {0};
    float *logits = calloc((size_t)count * world->vocab_rows + 1, sizeof *logits);
    must(plugin->logits(world->gpu, 0, count, logits, &error), &error, "logits");
    return logits;
}

/* ---- logits of steps ---- */

/* Every `each`-th way to plan. */
static void check_logits(struct world *world, const struct world_references *references,
                         unsigned each) {
    struct world_step *step = calloc(1, sizeof *step);
    struct gpu_result result = {.tokens = calloc(WORLD_ROWS, sizeof(int32_t))};
    double worst = 0;
    uint32_t bad_rows = 0;
    for (unsigned how = 0; how < PLAN_WAYS; how += each)
        for (uint32_t i = 0; i < WORLD_COURSE; i++) {
            uint64_t number = 1 + how * WORLD_COURSE + i;
            world_plan(world, step, number, world_course[i], world_course_runs(i), how % 3 == 0,
                       how);
            submit_checked(world, step, NULL);
            wait_checked(world, number, &result);
            bad_rows += result.nonfinite_rows;
            float *logits = logits_checked(world, step->step.wanted_count);
            double off = world_compare(world, references, step, logits).off;
            if (off > worst) worst = off;
            free(logits);
        }
    report(worst <= world->traits.tolerance && bad_rows == 0,
           "%s: logits of %u steps planned in %u ways are off by %.3g at most", world->traits.name,
           WORLD_COURSE, (PLAN_WAYS + each - 1) / each, worst);
    free(result.tokens);
    free(step);
}

/* Sequences that begin with copied pages, where another ends in the middle of a block. */
static void check_copies(struct world *world, const struct world_references *references) {
    struct world_step *step = calloc(1, sizeof *step);
    struct gpu_result result = {.tokens = calloc(WORLD_ROWS, sizeof(int32_t))};
    double worst = 0;
    for (uint32_t at = 0; at < WORLD_COPY_STEPS; at++) {
        world_plan_copies(world, step, 700 + at, at, PLAN_TILES | PLAN_PREFIX);
        submit_checked(world, step, NULL);
        wait_checked(world, 700 + at, &result);
        float *logits = logits_checked(world, step->step.wanted_count);
        double off = world_compare(world, references, step, logits).off;
        if (off > worst) worst = off;
        free(logits);
    }
    report(worst <= world->traits.tolerance,
           "%s: logits behind copied pages are off by %.3g at most", world->traits.name, worst);
    free(result.tokens);
    free(step);
}

/* The same steps, planned alike, once more: what ADR 17 promises of one device. */
static void check_again(struct world *world) {
    struct world_step *step = calloc(1, sizeof *step);
    struct gpu_result result = {.tokens = calloc(WORLD_ROWS, sizeof(int32_t))};
    const size_t room = (size_t)WORLD_ROWS * world->vocab_rows;
    float *first = calloc(WORLD_COURSE * room, sizeof *first);
    bool is_equal = true;
    for (uint32_t again = 0; again < 2; again++)
        for (uint32_t i = 0; i < WORLD_COURSE; i++) {
            uint64_t number = 800 + again * WORLD_COURSE + i;
            world_plan(world, step, number, world_course[i], world_course_runs(i), true,
                       PLAN_TILES | PLAN_PREFIX | PLAN_CUT);
            submit_checked(world, step, NULL);
            wait_checked(world, number, &result);
            const uint32_t count = step->step.wanted_count;
            const size_t bytes = (size_t)count * world->vocab_rows * sizeof *first;
            float *logits = logits_checked(world, count);
            if (again == 0) memcpy(first + i * room, logits, bytes);
            is_equal &= memcmp(first + i * room, logits, bytes) == 0;
            free(logits);
        }
    report(is_equal, "%s: the same steps give the same bits again", world->traits.name);
    free(result.tokens);
    free(first);
    free(step);
}

/* ---- two steps under way ---- */

#define TURNS 8u

/* Decodes from position 40 on, the tokens known to the GPU alone; ret: (TURNS, sequences). */
static void decode(struct world *world, uint64_t number, bool is_ahead, int32_t *ret_tokens) {
    struct world_step *step = calloc(2, sizeof *step);
    struct gpu_draw draws[WORLD_SEQUENCES];
    uint32_t rows[WORLD_SEQUENCES];
    for (uint32_t i = 0; i < WORLD_SEQUENCES; i++) {
        rows[i] = i;
        draws[i] = (struct gpu_draw){.mask = -1, .slot = (int32_t)i};
    }
    for (uint32_t turn = 0; turn <= TURNS; turn++) {
        struct world_run runs[WORLD_SEQUENCES];
        for (uint32_t s = 0; s < WORLD_SEQUENCES; s++)
            runs[s] = turn == 0 ? (struct world_run){s, s < 3 && s > 0 ? 32 : 0,
                                                     s < 3 && s > 0 ? 1 : 33, false}
                                : (struct world_run){s, 32 + turn, 1, true};
        if (turn < TURNS) {
            struct world_step *at = &step[turn % 2];
            world_plan(world, at, number + turn, runs, WORLD_SEQUENCES, false, PLAN_TILES);
            submit_checked(world, at,
                           &(struct gpu_samples){.number = number + turn,
                                                 .count = WORLD_SEQUENCES,
                                                 .rows = rows,
                                                 .draws = draws,
                                                 .mask_words = (world->vocab + 31) / 32});
        }
        struct gpu_result result = {.tokens = ret_tokens + turn * WORLD_SEQUENCES};
        if (!is_ahead && turn < TURNS) wait_checked(world, number + turn, &result);
        result.tokens -= WORLD_SEQUENCES;
        if (is_ahead && turn > 0) wait_checked(world, number + turn - 1, &result);
    }
    free(step);
}

static void check_ahead(struct world *world) {
    int32_t one[TURNS * WORLD_SEQUENCES], two[TURNS * WORLD_SEQUENCES];
    decode(world, 1000, false, one);
    decode(world, 2000, true, two);
    report(memcmp(one, two, sizeof one) == 0, "%s: two steps under way give the tokens of one",
           world->traits.name);
    /* The same tokens, known to the host. */
    const double doubt = world->traits.experts > 0 ? WORLD_DOUBT_SHARE : 1.0;
    const double allowed = 2 * world->traits.tolerance / doubt;
    bool is_likely = true;
    double *logits = calloc((size_t)WORLD_CONTEXT * world->vocab_rows, sizeof *logits);
    for (uint32_t s = 0; s < WORLD_SEQUENCES; s++) {
        int32_t tokens[WORLD_CONTEXT];
        memcpy(tokens, world->sequences[s].tokens, sizeof tokens);
        for (uint32_t i = 0; i < TURNS; i++) tokens[33 + i] = one[i * WORLD_SEQUENCES + s];
        world_reference(world, tokens, 33 + TURNS, logits);
        for (uint32_t i = 0; i < TURNS; i++) {
            const double *row = logits + (size_t)(32 + i) * world->vocab_rows;
            double most = row[0];
            for (uint32_t id = 1; id < world->vocab; id++) most = fmax(most, row[id]);
            is_likely &= row[tokens[33 + i]] >= most - allowed;
        }
    }
    free(logits);
    report(is_likely, "%s: greedy tokens are the reference's, or nearly as likely",
           world->traits.name);
}

/* ---- operations alone ---- */

static void check_ops(struct world *world, const struct world_references *references) {
    const struct world_traits *t = &world->traits;
    const size_t qkv = world_qkv_most(world);
    const size_t state = world_channels(t) + 2 * (size_t)world_state_width(t);
    const size_t ffn = t->ffn > t->shared_ffn ? t->ffn : t->shared_ffn;
    const size_t most = 2 * qkv > 2 * ffn ? 2 * qkv : 2 * ffn, entries = (size_t)t->heads * t->rank;
    const size_t least = entries > most ? entries : most;
    const size_t wide = state > least ? state : least;
    struct world_step *step = calloc(1, sizeof *step);
    struct error error = {0};
    struct gpu_op_call call = {.step = &step->step,
                               .x = calloc(WORLD_ROWS * t->width, sizeof(float)),
                               .h = calloc(WORLD_ROWS * t->width, sizeof(float)),
                               .wide = calloc(WORLD_ROWS * wide, sizeof(float)),
                               .narrow = calloc(WORLD_ROWS * 2 * (t->v_heads + 1), sizeof(float)),
                               .shared = calloc(WORLD_ROWS * t->width, sizeof(float)),
                               .attended = calloc(WORLD_ROWS * wide, sizeof(float)),
                               .logits = calloc(WORLD_ROWS * 64, sizeof(float))};
    world_plan(world, step, 4000, world_course[0], 1, false, PLAN_TILES);
    for (; call.op < world->program.op_count; call.op++) {
        must(plugin->run_op(world->gpu, &call, &error), &error, "run_op");
        call.is_behind_keep |= world->ops[call.op].kind == OP_KEEP;
    }
    double off = world_compare(world, references, step, call.logits).off;
    report(off <= t->tolerance, "%s: operations one by one give logits off by %.3g", t->name, off);
    free(call.x);
    free(call.h);
    free(call.wide);
    free(call.narrow);
    free(call.shared);
    free(call.attended);
    free(call.logits);
    free(step);
}

/* ---- trials ---- */

/* Before the first step, as a loader does. */
static void check_trials(struct world *world) {
    const uint32_t most = world->limits.rows_max;
    struct gpu_counters counters;
    struct error error = {0};
    uint32_t timed = 0;
    uint64_t ns, too_many_ns = 1;
    for (uint32_t rows = 1; rows <= most; rows++) {
        must(plugin->trial(world->gpu, rows, &ns, &error), &error, "trial");
        timed += ns > 0;
    }
    must(plugin->trial(world->gpu, most + 1, &too_many_ns, &error), &error, "trial");
    must(plugin->counters(world->gpu, &counters, &error), &error, "counters");
    report(timed >= most - most % GPU_PAGE_TOKENS && too_many_ns == 0 && counters.steps == 0,
           "%s: trials of %u to %u rows tell their time and are not counted", world->traits.name,
           1u, most);
}

/* ---- all of a world ---- */

static void check_world(const struct world_traits *traits, uint64_t seed, unsigned each) {
    struct world world;
    struct world_references references;
    struct gpu_counters counters;
    struct error error = {0};
    if (!open_world(&world, traits, seed)) {
        world_close(&world);
        return;
    }
    world_references_open(&world, &references);
    const struct memory_ledger *ledger = &world.ledger;
    uint64_t sum = ledger->context + ledger->weights + ledger->activations + ledger->logits +
                   ledger->steps + ledger->workspace + ledger->states + ledger->kv;
    report(ledger->used == sum && sum <= ledger->limit &&
               ledger->page_count == world.limits.page_count_max,
           "%s: the ledger adds up", traits->name);
    check_trials(&world);
    check_logits(&world, &references, each);
    check_copies(&world, &references);
    check_again(&world);
    check_ahead(&world);
    /* Draws compute a step again, behind which states have gone on. */
    if (!traits->recurrent) check_draws(&world);
    if (gpu_form_is_bf16(traits->form) && ranks == 1) check_ops(&world, &references);
    must(plugin->counters(world.gpu, &counters, &error), &error, "counters");
    report(counters.steps == WORLD_COURSE * ((PLAN_WAYS + each - 1) / each) + 2 * WORLD_COURSE +
                                 2 * TURNS + (traits->recurrent ? 0 : CHECK_DRAWS_STEPS) +
                                 WORLD_COPY_STEPS &&
               counters.rows > counters.steps && counters.busy_ns > 0,
           "%s: steps and rows are counted", traits->name);
    if (traits->is_unfolded)
        report(counters.unfolded_rows > 0 || first_card().compute != UNFOLDING_COMPUTE,
               "%s: %llu rows were unfolded", traits->name,
               (unsigned long long)counters.unfolded_rows);
    world_references_close(&references);
    world_close(&world);
}

#define INT8_SHAPE 9    /* behind it are those of experts */
#define STATES_SHAPE 16 /* likewise, of states */
#define ODD_SHAPE 28    /* likewise, of layers that differ */
#define GRAPHS 9        /* worlds of check_graphs, of which the first two refuse graphs, too */

static void check_graphs_of(uint32_t which, bool is_refused) {
    struct world_traits wide = shapes[1]; /* its window sees the shared tokens of most sequences */
    wide.name = "two groups";
    wide.window = 100;
    wide.is_local_last = true;
    wide.ffn = ranks > 1 ? 32 * ranks : wide.ffn;
    const struct world_traits *traits[GRAPHS] = {&wide,
                                                 &shapes[INT8_SHAPE],
                                                 &shapes[INT8_SHAPE - 1],
                                                 &shapes[INT8_SHAPE + 1],
                                                 &shapes[STATES_SHAPE - 1],
                                                 &shapes[STATES_SHAPE],
                                                 &shapes[STATES_SHAPE + 2],
                                                 &shapes[ODD_SHAPE],
                                                 &shapes[SHAPES - 3]};
    check_graphs(plugin, traits[which], memory_wanted(), is_refused);
}

#define GRAPHS_REFUSED 2
#define PARTS (SHAPES + GRAPHS + 3)

/* Numbers of a shape's weights and tokens: of its name, so that they are the same wherever in the
 * list it stands, and its limit is a limit of these. */
static uint64_t seed_of(const struct world_traits *traits) {
    uint64_t sum = 0xcbf29ce484222325; /* FNV-1a */
    for (const char *at = traits->name; *at; at++)
        sum = (sum ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    return sum + seed_added;
}

static void check_part(uint32_t part) {
    if (part == 1)
        check_ledger(plugin, shapes, SHAPES, memory_wanted());
    else if (part < 2 + SHAPES)
        check_world(&shapes[part - 2], seed_of(&shapes[part - 2]), part <= 3 ? 1 : 5);
    else if (part < 2 + SHAPES + GRAPHS)
        check_graphs_of(part - 2 - (uint32_t)SHAPES, false);
    else if (part < PARTS)
        check_texts(plugin, 1 + seed_added, memory_wanted());
    else {
        check_notes(plugin, &shapes[0], memory_wanted());
        for (uint32_t i = 0; i < SHAPES; i++)
            if (shapes[i].away > 0) check_away(plugin, &shapes[i], memory_wanted());
    }
}

/* Whether a run that is asked for all of `count` things takes thing i: all, or a drawn share, whose
 * things do not stand side by side: neighbours are alike. `count` is no multiple of APART. */
#define APART 101
static bool is_drawn(uint32_t i, uint32_t count) {
    static double share;
    static uint64_t seed;
    if (share == 0) share = report_share(&seed);
    if (share == 1) return true;
    const uint32_t wanted = (uint32_t)(share * count) > 0 ? (uint32_t)(share * count) : 1;
    return ((uint64_t)i * APART + seed % count) % count < wanted;
}

/* All shapes on several GPUs, or the first and a drawn share of the others, with feed-forwards that
 * divide, then graphs; or that part. */
static void check_ranks(uint32_t part, bool has_usual_memory) {
    static const uint32_t graphs[] = {0, 1, 3}; /* dense in bf16 and INT8, and experts */
    const uint32_t count = (uint32_t)SHAPES, all = count + sizeof graphs / sizeof *graphs;
    for (uint32_t i = 0; i < count; i++) {
        struct world_traits traits = shapes[i];
        const uint32_t multiple = (traits.form == GPU_BLOCKS ? GROUPED_INPUTS : 16) * ranks;
        traits.ffn = (traits.ffn + multiple - 1) / multiple * multiple;
        traits.shared_ffn = (traits.shared_ffn + multiple - 1) / multiple * multiple;
        if (part != i + 1 && (part > 0 || (i > 0 && !is_drawn(i, all)))) continue;
        if (has_usual_memory) check_ledger_of_ranks(plugin, &traits, ranks, memory_wanted());
        check_world(&traits, seed_of(&traits), 5);
    }
    for (uint32_t i = 0; i < all - count; i++)
        if (part == count + 1 + i || (part == 0 && is_drawn(count + i, all)))
            check_graphs_of(graphs[i], false);
}

static bool is_part(const char *word, uint32_t *ret_part) {
    char *end;
    const unsigned long number = strtoul(word, &end, 10);
    *ret_part = (uint32_t)number;
    return *end == '\0' && number >= 1 && number <= PARTS;
}

static int usage(void) {
    (void)fprintf(stderr,
                  "usage: check-plugin PLUGIN [--ranks N [--one-gpu] [--in-host]] [--bench [NAME] "
                  "| --refused | [--part "
                  "1-%zu] [--notes FILE] "
                  "[--seed N]]\n",
                  PARTS);
    return 2;
}

int main(int count, char **words) {
    bool is_bench = false, is_refused = false, is_one_gpu = false, is_in_host = false;
    const char *name = ""; /* how the shapes that are timed begin */
    uint32_t part = 0;     /* all */
    if (count < 2) return usage();
    for (int i = 2; i < count; i++) {
        if (strcmp(words[i], "--bench") == 0) {
            is_bench = true;
            name = i + 1 < count ? words[++i] : name;
        } else if (strcmp(words[i], "--refused") == 0)
            is_refused = true;
        else if (strcmp(words[i], "--one-gpu") == 0)
            is_one_gpu = true;
        else if (strcmp(words[i], "--in-host") == 0)
            is_in_host = true;
        else if (strcmp(words[i], "--ranks") == 0 && i + 1 < count)
            ranks = (uint32_t)strtoul(words[++i], NULL, 10);
        else if (strcmp(words[i], "--notes") == 0 && i + 1 < count)
            notes_read(words[++i]);
        else if (strcmp(words[i], "--seed") == 0 && i + 1 < count)
            seed_added = strtoull(words[++i], NULL, 10);
        else if (strcmp(words[i], "--part") == 0 && i + 1 < count && is_part(words[i + 1], &part))
            i++;
        else
            return usage();
    }
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, GPU_SYMBOL) : NULL;
    if (!symbol) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    gpu_table_fn *table;
    memcpy(&table, &symbol, sizeof table);
    plugin = table();
    (void)memory_wanted(); /* or skips */
    if (ranks == 0 || ranks > GPU_RANKS_MAX) return usage();
    ranks_want(ranks, is_one_gpu, is_in_host);
    if (is_bench) {
        bench_gpu(plugin, name);
        return 0;
    }
    if (is_refused) {
        for (uint32_t i = 0; i < GRAPHS_REFUSED; i++)
            if (is_drawn(i, GRAPHS_REFUSED)) check_graphs_of(i, true);
        return report_end();
    }
    if (ranks > 1) {
        check_ranks(part, !is_one_gpu && !is_in_host);
        return report_end();
    }
    report(plugin->abi == GPU_ABI && plugin->bytes == sizeof *plugin, "the table is this one");
    for (uint32_t i = 1; i <= PARTS; i++)
        if (part == i || (part == 0 && is_drawn(i, PARTS))) check_part(i);
    return report_end();
}
