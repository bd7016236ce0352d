/* SPDX-License-Identifier: Apache-2.0 */

/* The ledger of a GPU: what does not fit is refused, and device/memory_ledger predicts each part
 * but the context, which is the driver's. `quern models` tells by the prediction which models fit.
 */

#include "check_plugin.h"
#include "plain_world.h"

#include "gpu/gpu_ledger.h"
#include "gpu/gpu_shard.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 1024u
#define SEQUENCES 128u
#define CONTEXT 1024u
#define PAGES (SEQUENCES * 16u)
#define SHARE_OF 50u             /* a part may differ by one of so many, */
#define ROOM (UINT64_C(1) << 17) /* and by so many bytes for alignment and graphs */

static bool is_near(const char *part, uint64_t predicted, uint64_t actual) {
    const uint64_t difference = predicted > actual ? predicted - actual : actual - predicted;
    const bool is_near = difference <= actual / SHARE_OF + ROOM;
    if (!is_near)
        note("%s: %llu bytes predicted, %llu are taken", part, (unsigned long long)predicted,
             (unsigned long long)actual);
    return is_near;
}

/* Opens the GPU and has it lay out the world. */
static enum err lay_out(const struct gpu_table *table, struct world *world, uint64_t memory_bytes,
                        struct memory_ledger *ret_ledger, struct error *error) {
    const struct gpu_options options = {.memory_bytes = memory_bytes};
    open_checked(table, options, &world->gpu);
    return table->prepare(world->gpu, &world->program, &world->limits, ret_ledger, error);
}

static void check_refusal(const struct gpu_table *table, const struct world_traits *traits,
                          uint64_t memory_bytes) {
    struct world world;
    struct error error = {0};
    struct memory_ledger ledger;
    world_make(&world, traits, 1);
    world.limits.page_count_min = world.limits.page_count_max = 1u << 24;
    enum err err = lay_out(table, &world, memory_bytes, &ledger, &error);
    uint64_t sum = ledger.context + ledger.weights + ledger.activations + ledger.logits +
                   ledger.steps + ledger.workspace + ledger.states + ledger.kv;
    report(err == ERR_LIMIT && ledger.used > ledger.limit && ledger.used == sum &&
               ledger.page_count == 1u << 24,
           "what does not fit is refused: %s", error.text);
    world_close(&world);
}

static void check_vocabulary(const struct gpu_table *table, const struct world_traits *traits,
                             uint64_t memory_bytes) {
    struct world world;
    struct error error = {0};
    struct memory_ledger ledger;
    world_make(&world, traits, 1);
    world.program.vocab = (1u << 21) + 1;
    enum err err = lay_out(table, &world, memory_bytes, &ledger, &error);
    report(err == ERR_INVALID &&
               strcmp(error.text, "no CUDA kernel draws from 2097153 tokens: at most 2097152") == 0,
           "a vocabulary that no draw can add up is refused: %s", error.text);
    world_close(&world);
}

/* Limits in the proportions of a served model, not of the checks' steps. */
static void widen(struct gpu_limits *limits) {
    limits->rows_max = ROWS;
    limits->logit_rows_max = limits->sequences_max = SEQUENCES;
    limits->context_max = CONTEXT;
    if (limits->state_places > 0) limits->state_places = SEQUENCES + 8;
    limits->page_count_max = limits->page_count_min = PAGES;
    limits->pages_max = limits->group_count * SEQUENCES * CONTEXT / GPU_PAGE_TOKENS;
    limits->items_max = limits->partials_max = 2 * ROWS;
}

/* Against the prediction of the first of `ranks` GPUs. */
static void check_prediction(const struct gpu_table *table, const struct world_traits *given,
                             uint32_t ranks, uint64_t memory_bytes) {
    struct gpu_shard share = {0};
    struct world world;
    struct error error = {0};
    struct memory_ledger is;
    struct world_traits traits = *given;
    traits.width *= 8, traits.ffn *= traits.experts > 0 ? 3 : 16;
    world_make(&world, &traits, 1);
    world_card_forms(&world);
    widen(&world.limits);
    if (ranks > 1 && gpu_shard_sizes(&share, &world.program, 0, ranks, &error) != OK) {
        world_close(&world); /* refused, which others check */
        return;
    }
    must(lay_out(table, &world, memory_bytes, &is, &error), &error, "prepare");
    const struct memory_ledger predicted = gpu_ledger_predict(
        ranks > 1 ? &share.program : &world.program, &world.limits, memory_bytes);
    bool is_right = predicted.page_bytes == is.page_bytes && predicted.kv == is.kv;
    is_right &= is_near("weights", predicted.weights, is.weights);
    is_right &= is_near("activations", predicted.activations, is.activations);
    is_right &= is_near("logits", predicted.logits, is.logits);
    is_right &= is_near("steps", predicted.steps, is.steps);
    is_right &= is_near("workspace", predicted.workspace, is.workspace);
    is_right &= is_near("states", predicted.states, is.states);
    is_right &= predicted.state_bytes == is.state_bytes;
    report(is_right, "%s: the ledger is as predicted", traits.name);
    gpu_shard_release(&share);
    world_close(&world);
}

void check_ledger(const struct gpu_table *table, const struct world_traits *traits, size_t count,
                  uint64_t memory_bytes) {
    check_refusal(table, traits, memory_bytes);
    check_vocabulary(table, traits, memory_bytes);
    for (size_t i = 0; i < count; i++) check_prediction(table, &traits[i], 1, memory_bytes);
}

void check_ledger_of_ranks(const struct gpu_table *table, const struct world_traits *traits,
                           uint32_t ranks, uint64_t memory_bytes) {
    check_prediction(table, traits, ranks, memory_bytes);
}
