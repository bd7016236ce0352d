/* SPDX-License-Identifier: Apache-2.0 */

/* Made-up steps: prompts from their beginning, of which the last rows have logits. warm runs them
 * so that all kernels are loaded, and plugin_trial to tell how long a step takes. */

#include "base/min_max.h"
#include "gpu/cuda/plugin_internal.h"

#include <assert.h>
#include <stdlib.h>

#define PROMPT_TOKENS 512u     /* rows of a prompt, if the context has as many */
#define WANTED_OF_TEN 4u       /* rows with logits: answers of 300 tokens behind prompts of 480 */
#define PREFIX GPU_PAGE_TOKENS /* keys of the made-up prefix */
#define PARTIALS 3u            /* partials in the made-up step */
#define TOKENS_APART 7919u     /* a prime: rows are of many tokens, or they had the same experts */

struct trial {
    struct gpu_step step;
    struct gpu_group groups[GPU_GROUPS_MAX];
    struct gpu_samples samples;
    uint32_t prompt; /* rows of a prompt: whole pages, unless there is one prompt alone */
    int32_t *tokens;
    uint32_t *positions, *slots, *pages, *wanted;
    uint32_t *places; /* zeros */
    struct gpu_tile_item *tiles;
    uint32_t tile_count;
    struct gpu_tile_item prefix;
    struct gpu_decode_item *decode;
    uint32_t decode_count;
    struct gpu_merge_item merge;
    struct gpu_draw *draws;
    struct gpu_ask ask;
    struct gpu_page_copy copy;
    struct gpu_state_item *states;
    uint32_t state_count;
    struct gpu_pool *pools; /* each a row with logits */
    struct gpu_result result;
};

static void trial_free(struct trial *trial) {
    free(trial->tokens);
    free(trial->positions);
    free(trial->slots);
    free(trial->pages);
    free(trial->wanted);
    free(trial->tiles);
    free(trial->decode);
    free(trial->draws);
    free(trial->states);
    free(trial->pools);
    free(trial->places);
    free(trial->result.vectors);
    free(trial->result.tokens);
    free(trial->result.answers);
}

static bool trial_take(struct trial *trial, uint32_t rows, uint32_t width) {
    trial->pools = calloc(rows, sizeof *trial->pools);
    trial->places = calloc(rows, sizeof *trial->places);
    trial->result.vectors = calloc((size_t)rows * width, sizeof *trial->result.vectors);
    trial->tokens = calloc(rows, sizeof *trial->tokens);
    trial->positions = calloc(rows, sizeof *trial->positions);
    trial->slots = calloc(rows, sizeof *trial->slots);
    trial->pages = calloc(rows, sizeof *trial->pages);
    trial->wanted = calloc(rows, sizeof *trial->wanted);
    trial->tiles = calloc(rows, sizeof *trial->tiles);
    trial->decode = calloc(rows + 1, sizeof *trial->decode);
    trial->draws = calloc(rows, sizeof *trial->draws);
    trial->states = calloc(rows, sizeof *trial->states);
    trial->result.tokens = calloc(rows, sizeof *trial->result.tokens);
    trial->result.answers = calloc(1, sizeof *trial->result.answers);
    return trial->places && trial->pools && trial->result.vectors && trial->tokens &&
           trial->positions && trial->slots && trial->pages && trial->wanted && trial->tiles &&
           trial->decode && trial->draws && trial->states && trial->result.tokens &&
           trial->result.answers;
}

static uint32_t prompt_rows(const struct gpu *gpu) {
    const uint32_t most = min_u32(gpu->limits.context_max, PROMPT_TOKENS);
    return most < GPU_PAGE_TOKENS ? most : most - most % GPU_PAGE_TOKENS;
}

uint32_t made_up_rows_max(const struct gpu *gpu) {
    const struct gpu_limits *limits = &gpu->limits;
    const uint32_t pages = min_u32(gpu->page_count, limits->pages_max / limits->group_count);
    uint32_t most = min_u32(limits->rows_max / GPU_PAGE_TOKENS, pages) * GPU_PAGE_TOKENS;
    if (most == 0 && pages > 0) most = limits->rows_max; /* fewer than a page has */
    if (limits->context_max < GPU_PAGE_TOKENS) most = min_u32(most, limits->context_max);
    const bool has_pieces = limits->items_max > limits->logit_rows_max;
    return has_pieces ? most : min_u32(most, 1);
}

/* All rows as tiles of their prompts. */
static void trial_tiles(const struct gpu *gpu, struct trial *trial, uint32_t rows) {
    const uint32_t tile = cuda_tile_rows(gpu->program.heads / gpu->program.kv_heads);
    uint32_t count;
    for (uint32_t row = 0; row < rows && trial->tile_count < gpu->limits.items_max; row += count) {
        const uint32_t position = trial->positions[row];
        count = min_u32(min_u32(tile, rows - row), trial->prompt - position);
        trial->tiles[trial->tile_count++] =
            (struct gpu_tile_item){.row = row,
                                   .row_count = count,
                                   .end = position + count,
                                   .pages = (row - position) / GPU_PAGE_TOKENS,
                                   .partial_in = GPU_NONE,
                                   .partial_out = GPU_NONE};
    }
}

/* Among the rows with logits one continues from a prefix and one is cut. */
static void trial_decode(const struct gpu *gpu, struct trial *trial) {
    for (uint32_t i = 0; i < trial->step.wanted_count; i++) {
        const uint32_t row = trial->wanted[i], position = trial->positions[row];
        const bool has_parts = position > PREFIX && gpu->limits.partials_max >= PARTIALS;
        struct gpu_decode_item item = {.row = i,
                                       .position = position,
                                       .end = position + 1,
                                       .pages = (row - position) / GPU_PAGE_TOKENS,
                                       .partial_out = GPU_NONE};
        if (has_parts && trial->prefix.row_count == 0) {
            trial->prefix = (struct gpu_tile_item){.row = i,
                                                   .row_count = 1,
                                                   .end = PREFIX,
                                                   .pages = item.pages,
                                                   .partial_in = GPU_NONE,
                                                   .partial_step = 1};
            item.begin = PREFIX, item.partial_count = 1;
        } else if (has_parts && trial->merge.count == 0) {
            struct gpu_decode_item piece = item;
            piece.end = PREFIX, piece.partial_out = 1;
            trial->decode[trial->decode_count++] = piece;
            item.begin = PREFIX, item.partial_out = 2;
            trial->merge = (struct gpu_merge_item){.row = i, .first = 1, .count = 2};
        }
        trial->decode[trial->decode_count++] = item;
    }
}

/* Rows with logits are sequences of their own, as in decode, as far as there are places, and go on
 * from the zeros of warm or of a trial before; the others are those of their prompts. */
static void trial_states(const struct gpu *gpu, struct trial *trial, uint32_t rows) {
    const struct gpu_limits *limits = &gpu->limits;
    const uint32_t prompts = (rows + trial->prompt - 1) / trial->prompt;
    const uint32_t places = min_u32(limits->state_places, limits->sequences_max);
    uint32_t alone = places > prompts ? places - prompts : 0;
    if (limits->state_places == 0) return;
    alone = min_u32(min_u32(alone, trial->step.wanted_count), rows - 1);
    for (uint32_t row = 0, count; row < rows && trial->state_count < places; row += count) {
        const uint32_t left = rows - alone > row ? rows - alone - row : 1;
        count = min_u32(left, trial->prompt - trial->positions[row]);
        const bool is_alone = row >= rows - alone;
        if (is_alone) count = 1;
        if (trial->state_count + 1 == places) count = rows - row; /* the last place has the rest */
        trial->states[trial->state_count] =
            (struct gpu_state_item){.row = row,
                                    .rows = count,
                                    .from = is_alone ? trial->state_count : GPU_NONE,
                                    .to = trial->state_count,
                                    .save = GPU_NONE};
        trial->state_count++;
    }
    trial->step.states = trial->states;
    trial->step.state_count = trial->state_count;
}

static void trial_groups(const struct gpu *gpu, struct trial *trial, uint32_t rows) {
    struct gpu_group group = {
        .slots = trial->slots,
        .pages = trial->pages,
        .page_count = (rows + GPU_PAGE_TOKENS - 1) / GPU_PAGE_TOKENS,
        .all = {.tiles = {.items = trial->tiles, .count = trial->tile_count}},
        .kept = {.prefixes = {.items = &trial->prefix, .count = trial->prefix.row_count},
                 .decode = trial->decode,
                 .decode_count = trial->decode_count,
                 .merges = &trial->merge,
                 .merge_count = trial->merge.count > 0},
    };
    for (uint32_t i = 0; i < gpu->limits.group_count; i++) trial->groups[i] = group;
}

static void trial_samples(const struct gpu *gpu, struct trial *trial) {
    const uint32_t wanted = trial->step.wanted_count;
    const struct gpu_draw plain = {.mask = -1, .slot = -1};
    for (uint32_t i = 0; i < wanted; i++) {
        trial->draws[i] = plain;
        if (i % 2 == 1) trial->draws[i].factor = 1, trial->draws[i].top_k = 4;
    }
    trial->ask = (struct gpu_ask){.token = -1, .top_count = 1};
    trial->samples = (struct gpu_samples){
        .number = trial->step.number,
        .count = wanted,
        .rows = trial->slots, /* 0, 1, 2, … as the slots of a first sequence are */
        .draws = trial->draws,
        .mask_words = (gpu->program.vocab + 31) / 32,
        .asks = &trial->ask,
        .ask_count = wanted > 0,
    };
}

static void trial_make(const struct gpu *gpu, struct trial *trial, uint32_t rows) {
    uint32_t wanted = min_u32((rows * WANTED_OF_TEN + 9) / 10, gpu->limits.logit_rows_max);
    if (gpu->logit_matrix == GPU_NONE && !gpu->program.pools) wanted = 0;
    if (gpu->program.pools) wanted = min_u32(wanted, gpu->limits.sequences_max);
    trial->prompt = prompt_rows(gpu);
    for (uint32_t i = 0; i < rows; i++) {
        trial->tokens[i] = (int32_t)(i * TOKENS_APART % gpu->program.vocab);
        trial->positions[i] = i % trial->prompt;
        trial->slots[i] = i;
        trial->pages[i] = i; /* more than there are pages; only the first are named */
    }
    for (uint32_t i = 0; i < wanted; i++) trial->wanted[i] = rows - wanted + i;
    trial->copy = (struct gpu_page_copy){.from = 0, .to = 1};
    trial->step = (struct gpu_step){.row_count = rows,
                                    .wanted_count = wanted,
                                    .copy_count = gpu->page_count > 1,
                                    .copies = &trial->copy,
                                    .tokens = trial->tokens,
                                    .positions = trial->positions,
                                    .wanted = trial->wanted,
                                    .groups = trial->groups};
    if (gpu->program.pools) {
        for (uint32_t i = 0; i < wanted; i++) trial->pools[i] = (struct gpu_pool){i, 1};
        trial->step.pools = trial->pools;
        trial->step.pool_count = wanted;
    }
    if (gpu->ops[0].op.positions) trial->step.places = trial->places;
    trial_tiles(gpu, trial, rows);
    trial_decode(gpu, trial);
    trial_groups(gpu, trial, rows);
    trial_samples(gpu, trial);
    trial_states(gpu, trial, rows);
}

enum err made_up_step(struct gpu *gpu, uint32_t rows, struct error *error) {
    assert(rows > 0 && rows <= made_up_rows_max(gpu));
    struct trial trial = {0};
    enum err err = OK;
    if (!trial_take(&trial, rows, gpu->program.pools ? gpu->program.width : 1))
        err = err_set(error, ERR_LIMIT, "no memory for a made-up step");
    if (err == OK) {
        trial_make(gpu, &trial, rows);
        err = plugin_submit(gpu, &trial.step, &trial.samples, error);
    }
    if (err == OK) err = plugin_wait(gpu, trial.step.number, &trial.result, error);
    trial_free(&trial);
    return err;
}

enum err plugin_trial(struct gpu *gpu, uint32_t rows, uint64_t *ret_ns, struct error *error) {
    const struct gpu_counters before = gpu->counters;
    *ret_ns = 0;
    if (rows == 0 || rows > made_up_rows_max(gpu)) return OK;
    enum err err = made_up_step(gpu, rows, error);
    if (err == OK) *ret_ns = gpu->counters.busy_ns - before.busy_ns;
    gpu->counters = before;
    return err;
}
