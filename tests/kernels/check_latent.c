/* SPDX-License-Identifier: Apache-2.0 */

/* Attention over entries that all heads share. Each cache is full of NaN but for the entries that
 * latent_store wrote, and the block table is shuffled. ref works on the same entries (rounded to
 * f16 first); tolerance 2e-5 of the largest value. The rows of an item must be bitwise those of
 * items of one row each, head by head. */

#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX 200
#define BLOCKS 16
#define GAP 5 /* floats between rows */

struct shape {
    uint32_t heads, rank, turned;
};

struct trial {
    struct shape shape;
    uint32_t length;
    struct latent_cache cache;
    uint32_t blocks[BLOCKS];
    float *q, *entries;
    size_t q_stride, y_stride, entry_stride;
};

static struct trial make_trial(struct rng *rng, struct shape shape, uint32_t length) {
    const uint32_t dim = shape.rank + shape.turned;
    struct trial trial = {.shape = shape,
                          .length = length,
                          .q_stride = (size_t)shape.heads * dim + GAP,
                          .y_stride = (size_t)shape.heads * shape.rank + GAP,
                          .entry_stride = dim + GAP};
    trial.q = make_random(rng, length * trial.q_stride);
    trial.entries = make_random(rng, length * trial.entry_stride);
    for (size_t i = 0; i < length * trial.entry_stride; i++)
        trial.entries[i] = half_to_f32(half_from_f32(trial.entries[i]));
    for (uint32_t i = 0; i < BLOCKS; i++) trial.blocks[i] = (i * 7 + 3) % BLOCKS;
    return trial;
}

static void open_cache(struct trial *trial, const struct kernels *kernels) {
    const uint32_t dim = trial->shape.rank + trial->shape.turned;
    const size_t bytes =
        (size_t)BLOCKS * KV_BLOCK_TOKENS * dim * tensor_type_block_bytes(kernels->latent_type);
    uint32_t slots[LENGTH_MAX];
    trial->cache = (struct latent_cache){.entries = make_bytes(bytes),
                                         .type = kernels->latent_type,
                                         .dim = dim,
                                         .rank = trial->shape.rank};
    memset(trial->cache.entries, 0xff, bytes); /* NaN in f16 and in f32 */
    for (uint32_t i = 0; i < trial->length; i++)
        slots[i] = trial->blocks[i / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + i % KV_BLOCK_TOKENS;
    kernels->latent_store(&(struct latent_store){.cache = &trial->cache,
                                                 .entries = trial->entries,
                                                 .stride = trial->entry_stride,
                                                 .slots = slots,
                                                 .rows = trial->length});
}

/* Rows first..first+count-1 and some heads. */
static void attend(const struct trial *trial, const struct kernels *kernels, bool causal,
                   uint32_t first, uint32_t count, uint32_t head_begin, uint32_t head_end,
                   float *y) {
    const struct latent_attention call = {.cache = &trial->cache,
                                          .q = trial->q,
                                          .q_stride = trial->q_stride,
                                          .y = y,
                                          .y_stride = trial->y_stride,
                                          .head_count = trial->shape.heads,
                                          .scale = 1 / sqrtf((float)trial->cache.dim),
                                          .causal = causal};
    const struct attention_item item = {.row = first,
                                        .row_count = count,
                                        .position = first,
                                        .key_count = trial->length,
                                        .blocks = trial->blocks};
    kernels->latent_attend(&call, &item, head_begin, head_end);
}

/* Whether the rows are near ref's. */
static bool is_near(const struct trial *trial, const float *y, const float *expected) {
    const size_t width = (size_t)trial->shape.heads * trial->shape.rank;
    float largest = 0, worst = 0;
    for (size_t r = 0; r < trial->length; r++)
        for (size_t i = 0; i < width; i++) {
            const size_t at = r * trial->y_stride + i;
            largest = fmaxf(largest, fabsf(expected[at]));
            if (!(fabsf(y[at] - expected[at]) <= worst)) worst = fabsf(y[at] - expected[at]);
        }
    if (worst <= 2e-5f * largest) return true;
    note("differs by %g of %g", (double)worst, (double)largest);
    return false;
}

static bool trial_is_right(struct rng *rng, const struct kernels *kernels, struct shape shape,
                           uint32_t length, bool causal) {
    struct trial trial = make_trial(rng, shape, length);
    const size_t count = length * trial.y_stride;
    const struct kernels *ref = kernels_choose("ref");
    float *expected = make_floats(count), *whole = make_floats(count), *single = make_floats(count);
    poison(expected, count);
    poison(whole, count);
    poison(single, count);
    open_cache(&trial, ref);
    attend(&trial, ref, causal, 0, length, 0, shape.heads, expected);
    free(trial.cache.entries);
    open_cache(&trial, kernels);
    attend(&trial, kernels, causal, 0, length, 0, shape.heads, whole);
    for (uint32_t r = 0; r < length; r++)
        for (uint32_t head = 0; head < shape.heads; head += 1 + r % 3) {
            const uint32_t end = head + 1 + r % 3;
            attend(&trial, kernels, causal, r, 1, head, end < shape.heads ? end : shape.heads,
                   single);
        }
    bool is_ok = is_near(&trial, whole, expected);
    if (!same_floats(whole, single, count)) {
        note("rows one by one differ");
        is_ok = false;
    }
    free(trial.cache.entries);
    free(trial.q);
    free(trial.entries);
    free(expected);
    free(whole);
    free(single);
    return is_ok;
}

void check_latent(const struct kernels *kernels) {
    static const struct shape shapes[] = {{4, 64, 32},  {1, 16, 16},   {5, 512, 64},
                                          {16, 48, 16}, {33, 32, 128}, {3, 80, 48}};
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 130, 200};
    struct rng rng = {17};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t i = 0; i < COUNT_OF(lengths); i++) {
            const struct shape shape = shapes[s];
            bool is_ok = trial_is_right(&rng, kernels, shape, lengths[i], true);
            is_ok = trial_is_right(&rng, kernels, shape, lengths[i], false) && is_ok;
            report(is_ok, "%s latent attention, %u heads, entries of %u + %u, %u tokens",
                   kernels->name, shape.heads, shape.rank, shape.turned, lengths[i]);
        }
}

/* ---- bench ---- */

struct attend {
    const struct kernels *kernels;
    struct latent_attention call;
    const struct attention_item *items;
    uint32_t count;
};

static void run_attend(void *context) {
    const struct attend *attend = context;
    for (uint32_t i = 0; i < attend->count; i++)
        attend->kernels->latent_attend(&attend->call, &attend->items[i], 0,
                                       attend->call.head_count);
}

double bench_latent(const struct kernels *kernels, uint32_t heads, uint32_t sequences,
                    uint32_t rows, uint32_t length, double *ret_gop) {
    const uint32_t rank = 512, dim = 576;
    const uint32_t each = (length + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    struct rng rng = {6};
    const size_t bytes = (size_t)sequences * each * KV_BLOCK_TOKENS * dim *
                         tensor_type_block_bytes(kernels->latent_type);
    struct latent_cache cache = {
        .entries = kernels_memory(bytes), .type = kernels->latent_type, .dim = dim, .rank = rank};
    memset(cache.entries, 0x2a, bytes); /* 0.05 in f16 */
    uint32_t *blocks = make_bytes((size_t)sequences * each * sizeof *blocks);
    struct attention_item *items = make_bytes(sequences * sizeof *items);
    /* Blocks of a sequence lie apart, as they do once sequences come and go. */
    for (uint32_t s = 0; s < sequences; s++) {
        for (uint32_t i = 0; i < each; i++) blocks[s * each + i] = i * sequences + s;
        items[s] = (struct attention_item){.row = (size_t)s * rows,
                                           .row_count = rows,
                                           .position = length - rows,
                                           .blocks = blocks + s * each};
    }
    float *q = make_random(&rng, (size_t)sequences * rows * heads * dim);
    float *y = make_floats((size_t)sequences * rows * heads * rank);
    struct attend attend = {kernels,
                            {.cache = &cache,
                             .q = q,
                             .q_stride = (size_t)heads * dim,
                             .y = y,
                             .y_stride = (size_t)heads * rank,
                             .head_count = heads,
                             .scale = 0.07f,
                             .causal = true},
                            items,
                            sequences};
    const double s = seconds_of(run_attend, &attend);
    *ret_gop = 2e-9 * sequences * (double)heads * (dim + rank) * rows * (length - (rows - 1) / 2.0);
    free(cache.entries);
    free(blocks);
    free(items);
    free(q);
    free(y);
    return s;
}
