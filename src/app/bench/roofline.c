/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/roofline.h"

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/peak.h"
#include "kernels/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEMORY_BYTES ((size_t)128 << 20) /* more than a cache of today has for a core */
#define L2_BYTES ((size_t)512 << 10)
#define TRY_NS 40000000 /* time of one measurement, which runs at least three times */
#define OUTPUTS 65536u  /* such weights are read from memory: 50 MB of 4 bits */
#define INPUTS 1024u
#define PATTERN 0x2a /* weights: a scale of 0.05, numbers of 2 and 10 */

static int64_t spent_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return 0;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Seconds of the fastest of several calls. */
static double seconds_of(void (*run)(void *context), void *context) {
    int64_t best_ns = INT64_MAX, all_ns = 0;
    for (int tries = 0; tries < 3 || (all_ns < TRY_NS && tries < 1000); tries++) {
        const int64_t begin_ns = spent_ns();
        run(context);
        const int64_t ns = spent_ns() - begin_ns;
        if (ns < best_ns) best_ns = ns;
        all_ns += ns;
    }
    return 1e-9 * (double)(best_ns > 0 ? best_ns : 1);
}

/* Adds a line whose roof is the lower of those of memory and instruction. */
static void add_line(struct roofline *roofline, const char *what, double gop, double gb,
                     struct peak peak, double seconds) {
    struct roofline_line *line = &roofline->lines[roofline->line_count++];
    const double by_memory = gop / gb * roofline->memory_gb_s;
    const bool is_memory = by_memory < peak.gop_s;
    *line = (struct roofline_line){.roof_of = is_memory ? "memory" : peak.what,
                                   .gop_s = gop / seconds,
                                   .gb_s = gb / seconds,
                                   .roof_gop_s = is_memory ? by_memory : peak.gop_s};
    snprintf(line->what, sizeof line->what, "%s", what);
}

/* Numbers as far apart as a model's: 1.8 % lie beyond four times the mean size. */
static void fill_laplace(struct rng *rng, float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const float size = -logf(1 - (float)rng_unit(rng));
        values[i] = rng_below(rng, 2) ? size : -size;
    }
}

/* ---- products ---- */

static void run_product(void *context) {
    const struct matmul *call = context;
    call->matrix->kernels->matmul(call, 0, call->matrix->tile_count);
}

static void measure_rows(struct roofline *roofline, const struct matrix *matrix,
                         enum tensor_type type, size_t rows) {
    struct rng rng = {rows};
    char what[64];
    float *x = mem_new(rows * INPUTS, sizeof *x);
    void *activations = kernels_memory(rows * matrix->activation_bytes);
    struct matmul call = {.matrix = matrix,
                          .activations = activations,
                          .rows = rows,
                          .y = mem_new(rows * OUTPUTS, sizeof *call.y),
                          .y_stride = OUTPUTS};
    if (activations) {
        fill_laplace(&rng, x, rows * INPUTS);
        matrix->kernels->activate(matrix, x, INPUTS, rows, activations);
        snprintf(what, sizeof what, "%s %u to %u, %zu row%s", tensor_type_name(type), INPUTS,
                 OUTPUTS, rows, rows > 1 ? "s" : "");
        add_line(roofline, what, 2e-9 * (double)rows * INPUTS * OUTPUTS,
                 1e-9 * (double)matrix->bytes, peak_of(matrix->kernels, matrix->layout),
                 seconds_of(run_product, &call));
    }
    free(call.y);
    free(activations);
    free(x);
}

static enum err measure_products(struct roofline *roofline, const struct kernels *kernels,
                                 enum tensor_type type, struct error *error) {
    static const size_t rows[] = {1, 8, 64};
    const size_t bytes = OUTPUTS * tensor_type_row_bytes(type, INPUTS);
    void *blocks = memset(mem_new(bytes, 1), PATTERN, bytes);
    const struct matrix_part part = {type, blocks, OUTPUTS, NULL};
    struct matrix *matrix = NULL;
    enum err err = matrix_open(&matrix, kernels, &part, 1, INPUTS, error);
    if (err == OK) matrix_fill(matrix, &part, 0, matrix->tile_count);
    for (size_t i = 0; err == OK && i < sizeof rows / sizeof *rows; i++)
        measure_rows(roofline, matrix, type, rows[i]);
    matrix_close(matrix);
    free(blocks);
    return err;
}

/* ---- attention ---- */

#define KV_HEADS 8u
#define GROUP 4u /* query heads of a KV head */
#define HEAD_DIM 64u
#define KEYS 1024u
#define SEQUENCES 8u
#define WIDTH ((size_t)KV_HEADS * GROUP * HEAD_DIM)

struct attend {
    const struct kernels *kernels;
    struct attention call;
    struct attention_group group;
};

static void run_attention(void *context) {
    const struct attend *attend = context;
    attend->kernels->attention(&attend->call, &attend->group, 0, KV_HEADS);
}

/* `rows` queries at the end of each of `count` texts. */
static enum err measure_attention(struct roofline *roofline, const struct kernels *kernels,
                                  uint32_t count, uint32_t rows, struct error *error) {
    struct kv_cache cache = {.type = kernels->kv_type, .kv_heads = KV_HEADS, .head_dim = HEAD_DIM};
    uint32_t blocks[SEQUENCES * KEYS / KV_BLOCK_TOKENS];
    struct attention_item items[SEQUENCES];
    const uint32_t each = KEYS / KV_BLOCK_TOKENS;
    const size_t bytes = count * each * kv_block_bytes(&cache);
    struct rng rng = {rows};
    char what[64];
    for (uint32_t i = 0; i < count * each; i++) blocks[i] = i % each * count + i / each;
    for (uint32_t i = 0; i < count; i++)
        items[i] = (struct attention_item){.row = (size_t)i * rows,
                                           .row_count = rows,
                                           .position = KEYS - rows,
                                           .blocks = blocks + i * each};
    cache.k = kernels_memory(bytes);
    cache.v = kernels_memory(bytes);
    if (!cache.k || !cache.v) {
        free(cache.k);
        free(cache.v);
        return err_set(error, ERR_LIMIT, "no memory to measure attention in");
    }
    float *q = mem_new(count * rows * WIDTH, sizeof *q),
          *y = mem_new(count * rows * WIDTH, sizeof *y);
    fill_laplace(&rng, q, count * rows * WIDTH);
    memset(cache.k, PATTERN, bytes);
    memset(cache.v, PATTERN, bytes);
    struct attend attend = {kernels,
                            {.cache = &cache,
                             .q = q,
                             .q_stride = WIDTH,
                             .y = y,
                             .y_stride = WIDTH,
                             .head_count = KV_HEADS * GROUP,
                             .scale = 0.125f,
                             .causal = true},
                            {.items = items, .item_count = count}};
    const double keys = (double)rows * (KEYS - (rows - 1) / 2.0); /* per head and text */
    snprintf(what, sizeof what, "attention %u x %u queries, %u keys, 4 per KV head", count, rows,
             KEYS);
    add_line(roofline, what, 4e-9 * count * (double)WIDTH * keys, 2e-9 * (double)bytes,
             peak_of(kernels, kernels->kv_type == TENSOR_BF16 ? MATRIX_BF16_PAIRS : MATRIX_F32),
             seconds_of(run_attention, &attend));
    free(y);
    free(q);
    free(cache.k);
    free(cache.v);
    return OK;
}

/* ---- the machine ---- */

static void read_memory(void *context, uint32_t task, uint32_t worker) {
    double *gb_s = context;
    (void)worker;
    gb_s[task] = peak_read_gb_s(MEMORY_BYTES / 2);
}

static enum err measure_memory(struct roofline *roofline, struct error *error) {
    struct pool *pool;
    double gb_s[POOL_THREADS_MAX] = {0};
    roofline->memory_gb_s = peak_read_gb_s(MEMORY_BYTES);
    roofline->l2_gb_s = peak_read_gb_s(L2_BYTES);
    if (roofline->memory_gb_s <= 0) return err_set(error, ERR_LIMIT, "no memory to measure");
    enum err err = pool_open(&pool, 0, error);
    if (err != OK) return err;
    roofline->cores = pool_threads(pool);
    pool_run(pool, read_memory, gb_s, roofline->cores);
    for (uint32_t i = 0; i < roofline->cores; i++) roofline->all_memory_gb_s += gb_s[i];
    pool_close(pool);
    return OK;
}

static void measure_peaks(struct roofline *roofline, const struct kernels *kernels) {
    static const enum matrix_layout layouts[] = {MATRIX_BYTES, MATRIX_F32, MATRIX_BF16_PAIRS};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i] == MATRIX_BF16_PAIRS && !kernels->tiles_bf16_pairs) continue;
        const struct peak peak = peak_of(kernels, layouts[i]);
        roofline->peaks[roofline->peak_count++] = (struct roofline_peak){peak.what, peak.gop_s};
    }
}

enum err roofline_measure(struct roofline *ret_roofline, struct error *error) {
    static const enum tensor_type types[] = {TENSOR_Q4_1, TENSOR_Q4_K, TENSOR_Q8_0, TENSOR_BF16};
    const struct kernels *kernels = kernels_choose(NULL);
    *ret_roofline = (struct roofline){.kernels = kernels->name};
    if (kernels->keeps_blocks)
        return err_set(error, ERR_UNAVAILABLE,
                       "this CPU has no AVX2: quern computes in portable C, which has no roofline");
    ret_roofline->ghz = peak_frequency_ghz();
    measure_peaks(ret_roofline, kernels);
    enum err err = measure_memory(ret_roofline, error);
    for (size_t i = 0; err == OK && i < sizeof types / sizeof *types; i++)
        err = measure_products(ret_roofline, kernels, types[i], error);
    if (err == OK) err = measure_attention(ret_roofline, kernels, SEQUENCES, 1, error);
    if (err == OK) err = measure_attention(ret_roofline, kernels, 1, 256, error);
    return err;
}
