/* SPDX-License-Identifier: Apache-2.0 */

/* Times a table on one core: the matrices of SmolLM2-135M and a few of other types, attention of a
 * decode step and of a prompt, and the operations on rows. Best CPU time of several tries. */

#include "harness.h"
#include "kernels/peak.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY_NS 15000000 /* time of one measurement, which runs at least twice */
#define DRAM_BYTES ((size_t)128 << 20)
#define L2_BYTES ((size_t)512 << 10)

double seconds_of(bench_fn function, void *context) {
    int64_t best_ns = INT64_MAX;
    int64_t all_ns = 0;
    for (int tries = 0; tries < 3 || (all_ns < TRY_NS && tries < 1000); tries++) {
        int64_t begin_ns = spent_ns();
        function(context);
        int64_t this_ns = spent_ns() - begin_ns;
        if (this_ns < best_ns) best_ns = this_ns;
        all_ns += this_ns;
        if (all_ns > 10 * (int64_t)TRY_NS) break;
    }
    return (double)(best_ns ? best_ns : 1) * 1e-9;
}

/* ---- matrices ---- */

struct product {
    const struct kernels *kernels;
    struct matmul call;
    const float *x;
    void *activations;
};

static void run_product(void *context) {
    struct product *product = context;
    product->kernels->matmul(&product->call, 0, product->call.matrix->tile_count);
}

static void run_activate(void *context) {
    struct product *product = context;
    product->kernels->activate(product->call.matrix, product->x, product->call.matrix->cols,
                               product->call.rows, product->activations);
}

/* Activations as far apart as those of a model: of SmolLM2's, 1.7 % (576 inputs) and 3.1 % (1536)
 * lie beyond four times the mean size, where a step ends (kernels/cpu/tile.h); here it is 1.8 %. */
static float *make_activations(struct rng *rng, size_t count) {
    float *values = make_random(rng, count);
    for (size_t i = 0; i < count; i++)
        values[i] = copysignf(-logf(1 - (float)rng_unit(rng)), values[i]);
    return values;
}

static void bench_matrix(const struct kernels *kernels, enum tensor_type type, uint32_t rows,
                         uint32_t cols, const size_t *counts) {
    struct rng rng = {5};
    unsigned char *blocks = make_weights(&rng, type, rows, cols);
    struct matrix_part part = {type, blocks, rows, NULL};
    struct matrix *matrix = make_matrix(kernels, &part, 1, cols);
    struct peak peak = peak_of(kernels, matrix->layout);
    for (; *counts; counts++) {
        float *x = make_activations(&rng, *counts * cols);
        struct product product = {.kernels = kernels,
                                  .x = x,
                                  .activations = make_bytes(*counts * matrix->activation_bytes)};
        product.call = (struct matmul){.matrix = matrix,
                                       .activations = product.activations,
                                       .rows = *counts,
                                       .y = make_floats(*counts * rows),
                                       .y_stride = rows};
        double before_s = seconds_of(run_activate, &product);
        double s = seconds_of(run_product, &product);
        double gop_s = 2e-9 * (double)*counts * rows * cols / s;
        (void)printf("%s matmul %s N=%u K=%u m=%zu: %.1f GOP/s, %.0f %% of %s, weights %.1f GB/s, "
                     "activate +%.1f %%\n",
                     kernels->name, tensor_type_name(type), rows, cols, *counts, gop_s,
                     peak.gop_s > 0 ? 100 * gop_s / peak.gop_s : 0, peak.what,
                     1e-9 * (double)matrix->bytes / s, 100 * before_s / s);
        (void)fflush(stdout);
        free(product.activations);
        free(product.call.y);
        free(x);
    }
    matrix_close(matrix);
    free(blocks);
}

static void bench_matrices(const struct kernels *kernels) {
    static const size_t decode_counts[] = {1, 4, 8, 16, 32, 64, 256, 0};
    static const size_t head_counts[] = {1, 32, 64, 0};
    static const size_t other_counts[] = {64, 256, 0};
    static const size_t low_counts[] = {1, 64, 256, 0};
    static const struct {
        enum tensor_type type;
        uint32_t rows;
        uint32_t cols;
        const size_t *counts;
    } shapes[] = {
        {TENSOR_Q4_1, 960, 576, decode_counts},    {TENSOR_Q4_1, 576, 576, other_counts},
        {TENSOR_Q4_1, 3072, 576, decode_counts},   {TENSOR_Q4_1, 576, 1536, decode_counts},
        {TENSOR_Q4_1, 16384, 4096, decode_counts}, /* 50 MB: read from memory */
        {TENSOR_Q4_1, 49152, 576, head_counts},    {TENSOR_Q8_0, 49152, 576, head_counts},
        {TENSOR_Q8_0, 3072, 576, other_counts},    {TENSOR_Q4_0, 3072, 576, other_counts},
        {TENSOR_Q4_K, 2048, 2048, other_counts},   {TENSOR_Q6_K, 2048, 2048, other_counts},
        {TENSOR_Q2_K, 2048, 2048, low_counts},     {TENSOR_Q3_K, 2048, 2048, low_counts},
        {TENSOR_Q4_0, 2048, 2048, low_counts},     {TENSOR_IQ4_NL, 2048, 2048, low_counts},
        {TENSOR_IQ4_XS, 2048, 2048, low_counts},   {TENSOR_MXFP4, 2048, 2048, low_counts},
        {TENSOR_BF16, 2048, 2048, other_counts},   {TENSOR_F16, 384, 1536, other_counts},
        {TENSOR_F32, 384, 1536, other_counts},
    };
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        bench_matrix(kernels, shapes[i].type, shapes[i].rows, shapes[i].cols, shapes[i].counts);
}

/* ---- attention ---- */

struct attend {
    const struct kernels *kernels;
    struct attention call;
    struct attention_group group;
};

static void run_attention(void *context) {
    struct attend *attend = context;
    attend->kernels->attention(&attend->call, &attend->group, 0, attend->call.cache->kv_heads);
}

/* `sequences` items of `rows` queries at the end of `length` tokens each, the first `shared` of
 * them the same in all; they are one group, which knows of that or does not. */
static void bench_cache(const struct kernels *kernels, enum tensor_type type, uint32_t kv_heads,
                        uint32_t group, uint32_t head_dim, uint32_t sequences, uint32_t rows,
                        uint32_t length, uint32_t shared, bool is_told, bool has_bias) {
    struct rng rng = {6};
    struct kv_cache cache = {.type = type, .kv_heads = kv_heads, .head_dim = head_dim};
    uint32_t each = (length + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    uint32_t shared_blocks = shared / KV_BLOCK_TOKENS;
    size_t bytes = (size_t)sequences * each * kv_block_bytes(&cache);
    cache.k = kernels_memory(bytes);
    cache.v = kernels_memory(bytes);
    memset(cache.k, 0x2a, bytes); /* 0.05 in f16, 1.5e-13 in bf16 and in steps of it */
    memset(cache.v, 0x2a, bytes);
    uint32_t *blocks = make_bytes((size_t)sequences * each * sizeof *blocks);
    struct attention_item *items = make_bytes(sequences * sizeof *items);
    /* Blocks of a sequence lie apart, as they do once sequences come and go. */
    for (uint32_t s = 0; s < sequences; s++) {
        for (uint32_t i = 0; i < each; i++)
            blocks[s * each + i] = i * sequences + (i < shared_blocks ? 0 : s);
        items[s] = (struct attention_item){.row = (size_t)s * rows,
                                           .row_count = rows,
                                           .position = length - rows,
                                           .blocks = blocks + s * each};
    }
    size_t width = (size_t)kv_heads * group * head_dim;
    float *q = make_random(&rng, sequences * rows * width);
    float *y = make_floats(sequences * rows * width);
    struct attend attend = {kernels,
                            {.cache = &cache,
                             .q = q,
                             .q_stride = width,
                             .y = y,
                             .y_stride = width,
                             .head_count = kv_heads * group,
                             .scale = 0.125f,
                             .causal = true},
                            {items, sequences, is_told ? shared_blocks : 0}};
    float *bias = make_random(&rng, (size_t)kv_heads * group * 2 * (length + 64));
    if (has_bias) {
        attend.call.bias = bias;
        attend.call.bias_stride = 2 * ((size_t)length + 64);
        attend.call.bias_zero = length;
    }
    double s = seconds_of(run_attention, &attend);
    double keys = (double)rows * (length - (rows - 1) / 2.0); /* keys read per head and sequence */
    double gop_s = 4e-9 * sequences * (double)width * keys / s;
    double read_gb = 2e-9 * (double)kv_block_bytes(&cache) / KV_BLOCK_TOKENS *
                     (sequences * (double)(length - shared) + (shared > 0 ? shared : 0));
    struct peak peak = peak_of(kernels, type == TENSOR_KV_INT8 ? MATRIX_BYTES
                                        : type == TENSOR_BF16  ? MATRIX_BF16_PAIRS
                                                               : MATRIX_F32);
    (void)printf(
        "%s attention, %s, %ux%u heads of %u, %u x %u queries, %u keys, %u shared%s%s: %.0f us, "
        "%.1f GOP/s, %.0f %% of %s, cache %.1f GB/s\n",
        kernels->name, kv_type_name(type), kv_heads, group, head_dim, sequences, rows, length,
        shared, is_told ? " once" : "", has_bias ? ", bias" : "", 1e6 * s, gop_s,
        peak.gop_s > 0 ? 100 * gop_s / peak.gop_s : 0, peak.what, read_gb / s);
    (void)fflush(stdout);
    free(cache.k);
    free(cache.v);
    free(blocks);
    free(items);
    free(q);
    free(y);
    free(bias);
}

static void bench_attention(const struct kernels *kernels, uint32_t kv_heads, uint32_t group,
                            uint32_t head_dim, uint32_t sequences, uint32_t rows, uint32_t length,
                            uint32_t shared, bool is_told, bool has_bias) {
    const enum tensor_type types[] = {kernels->kv_type, TENSOR_KV_INT8};
    for (size_t i = 0; i < COUNT_OF(types); i++)
        bench_cache(kernels, types[i], kv_heads, group, head_dim, sequences, rows, length, shared,
                    is_told, has_bias);
}

static void bench_lines(const struct kernels *kernels, uint32_t heads, uint32_t sequences,
                        uint32_t rows, uint32_t length) {
    double gop = 0;
    const double s = bench_latent(kernels, heads, sequences, rows, length, &gop);
    struct peak peak = peak_of(kernels, MATRIX_F32);
    (void)printf("%s latent attention %u heads of 512 + 64, %u x %u queries, %u keys: %.0f us, "
                 "%.1f GOP/s, %.0f %% of %s, cache %.1f GB/s\n",
                 kernels->name, heads, sequences, rows, length, 1e6 * s, gop / s,
                 peak.gop_s > 0 ? 100 * gop / s / peak.gop_s : 0, peak.what,
                 2e-9 * sequences * 576 * length / s);
    (void)fflush(stdout);
}

/* ---- rows ---- */

struct row_work {
    const struct kernels *kernels;
    float *x; /* (rows, 2 * width) */
    float *y;
    size_t rows;
    size_t width;
    struct scored top[64];
};

static void run_norm(void *context) {
    struct row_work *work = context;
    struct norm call = {.x = work->x,
                        .x_stride = work->width,
                        .y = work->y,
                        .y_stride = work->width,
                        .weight = work->x,
                        .width = work->width,
                        .rows = work->rows,
                        .epsilon = 1e-5f};
    work->kernels->rms_norm(&call);
}

static void run_layer_norm(void *context) {
    struct row_work *work = context;
    struct norm call = {.x = work->x,
                        .x_stride = work->width,
                        .y = work->y,
                        .y_stride = work->width,
                        .weight = work->x,
                        .bias = work->x,
                        .width = work->width,
                        .rows = work->rows,
                        .epsilon = 1e-12f};
    work->kernels->layer_norm(&call);
}

static void run_gelu(void *context) {
    struct row_work *work = context;
    work->kernels->gelu_erf(work->x, work->width, work->width, work->rows);
}

static void run_xielu(void *context) {
    struct row_work *work = context;
    work->kernels->xielu(&(struct xielu){.x = work->x,
                                         .x_stride = work->width,
                                         .width = work->width,
                                         .rows = work->rows,
                                         .alpha_p = 0.1f,
                                         .alpha_n = 0.1f,
                                         .beta = 0.1f,
                                         .eps = -1e-6f});
}

static void run_gate(void *context) {
    struct row_work *work = context;
    struct gate call = {.gate = work->x,
                        .up = work->x + work->width,
                        .in_stride = 2 * work->width,
                        .y = work->y,
                        .y_stride = work->width,
                        .width = work->width,
                        .rows = work->rows};
    work->kernels->silu_mul(&call);
}

static void run_argmax(void *context) {
    struct row_work *work = context;
    for (size_t r = 0; r < work->rows; r++)
        work->top[0].index = work->kernels->argmax(work->x + r * work->width, work->width);
}

static void run_log_sum_exp(void *context) {
    struct row_work *work = context;
    for (size_t r = 0; r < work->rows; r++)
        work->top[0].value = work->kernels->log_sum_exp(work->x + r * work->width, work->width);
}

static void run_top_k(void *context) {
    struct row_work *work = context;
    for (size_t r = 0; r < work->rows; r++)
        (void)work->kernels->top_k(work->x + r * work->width, work->width, COUNT_OF(work->top),
                                   work->top);
}

static void bench_rows(const struct kernels *kernels) {
    static const struct {
        const char *name;
        bench_fn function;
        size_t rows;
        size_t width;
        double bytes; /* read and written for an element of `width` */
    } works[] = {
        {"rms_norm", run_norm, 64, 576, 8},    {"layer_norm", run_layer_norm, 64, 384, 8},
        {"gelu_erf", run_gelu, 64, 1536, 8},   {"xielu", run_xielu, 64, 1536, 8},
        {"silu_mul", run_gate, 64, 1536, 12},  {"argmax", run_argmax, 8, 49152, 4},
        {"top_k(64)", run_top_k, 8, 49152, 4}, {"log_sum_exp", run_log_sum_exp, 8, 49152, 4},
    };
    struct rng rng = {7};
    double peak_gb_s = peak_read_gb_s(L2_BYTES);
    for (size_t i = 0; i < COUNT_OF(works); i++) {
        size_t count = works[i].rows * works[i].width;
        struct row_work work = {.kernels = kernels,
                                .x = make_random(&rng, 2 * count),
                                .y = make_floats(count),
                                .rows = works[i].rows,
                                .width = works[i].width};
        double s = seconds_of(works[i].function, &work);
        double gb_s = 1e-9 * (double)count * works[i].bytes / s;
        (void)printf("%s %s %zux%zu: %.2f us a row, %.1f GB/s, %.0f %% of an L2 read\n",
                     kernels->name, works[i].name, works[i].rows, works[i].width,
                     1e6 * s / (double)works[i].rows, gb_s, 100 * gb_s / peak_gb_s);
        free(work.x);
        free(work.y);
    }
}

void bench(const struct kernels *kernels) {
    if (kernels->keeps_blocks) return; /* ref promises no speed */
    (void)printf("%s: one core reads %.1f GB/s of memory, %.1f GB/s of L2\n", kernels->name,
                 peak_read_gb_s(DRAM_BYTES), peak_read_gb_s(L2_BYTES));
    bench_matrices(kernels);
    bench_fill(kernels);
    bench_attention(kernels, 3, 3, 64, 1, 1, 1024, 0, false, false);
    bench_attention(kernels, 3, 3, 64, 32, 1, 900, 0, false, false);
    bench_attention(kernels, 3, 3, 64, 32, 1, 900, 300, false, false);
    bench_attention(kernels, 3, 3, 64, 32, 1, 900, 300, true, false);
    bench_attention(kernels, 3, 3, 64, 1, 512, 512, 0, false, false);
    bench_attention(kernels, 8, 4, 128, 16, 1, 900, 0, false, false);
    bench_attention(kernels, 8, 4, 128, 16, 1, 900, 300, true, false);
    bench_attention(kernels, 4, 2, 256, 16, 1, 900, 0, false, false);
    bench_attention(kernels, 12, 1, 32, 1, 256, 256, 0, false, false);
    bench_attention(kernels, 12, 1, 64, 1, 256, 256, 0, false, false);
    bench_attention(kernels, 12, 1, 64, 1, 256, 256, 0, false, true);
    bench_lines(kernels, 16, 32, 1, 900);
    bench_lines(kernels, 128, 4, 1, 900);
    bench_lines(kernels, 16, 1, 32, 512);
    bench_recurrent(kernels);
    bench_rows(kernels);
}
