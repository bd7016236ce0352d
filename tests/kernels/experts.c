/* SPDX-License-Identifier: Apache-2.0 */

/* Times the feed-forward of experts as an engine runs it (cpu/experts.c), next to a dense one of
 * the same shape whose matrices have as many rows each.
 *
 *   experts [--left] [TABLE] [THREADS]   two threads by default
 *
 * Experts gather their rows, multiply, gate, multiply and add up; the rows that each expert gets
 * are drawn. The dense one multiplies the matrices of one expert after another by as many rows as
 * an expert has on average, and gates. Both read their weights from memory. Figures are of one core
 * in processor time, the best of several tries in turn; those by the clock need a machine that has
 * nothing else to do.
 * --left: the experts' rows stay where a file has them. */

#include "cpu/experts.h"
#include "cpu/forward_state.h"
#include "cpu/task_split.h"
#include "harness.h"
#include "kernels/peak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRIES 5
#define TRY_NS INT64_C(60000000) /* a measurement lasts this long at least */

struct shape {
    const char *name;
    uint32_t count, used, width, ffn;
    enum tensor_type types[5]; /* F32 (0) ends them */
};

static const struct shape shapes[] = {
    {"Qwen3-30B-A3B", 128, 8, 2048, 768, {TENSOR_Q4_K, TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q8_0}},
    {"gpt-oss", 32, 4, 2880, 2880, {TENSOR_MXFP4, TENSOR_Q4_0, TENSOR_Q8_0}},
    {"LFM2-MoE", 32, 4, 2048, 1792, {TENSOR_Q4_K, TENSOR_Q4_1, TENSOR_Q8_0}},
};
static const uint32_t rows_each[] = {1, 4, 16, 64};

struct work {
    const struct shape *shape;
    const struct kernels *kernels;
    struct pool *pool;
    struct experts experts;
    unsigned char *blocks[3]; /* gate, up, down: the same for all experts */
    struct program program;
    struct forward forward;
    struct op op;
    uint32_t rows; /* an expert's, on average */
};

struct times {
    int64_t wall_ns, cpu_ns;
};

static int64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- weights ---- */

static struct matrix *open_matrix(const struct work *work, const struct matrix_part *parts,
                                  uint32_t part_count, uint32_t cols, bool is_left) {
    struct error error = {0};
    struct matrix *matrix = NULL;
    if (!is_left) return make_matrix(work->kernels, parts, part_count, cols);
    if (matrix_open(&matrix, work->kernels, parts, part_count, cols, &error) != OK) abort();
    matrix_leave(matrix, parts);
    return matrix;
}

static void open_experts(struct work *work, enum tensor_type type, bool is_left) {
    const struct shape *shape = work->shape;
    struct rng rng = {11};
    for (int i = 0; i < 3; i++)
        work->blocks[i] = i < 2 ? make_weights(&rng, type, shape->ffn, shape->width)
                                : make_weights(&rng, type, shape->width, shape->ffn);
    const struct matrix_part parts[] = {{type, work->blocks[0], shape->ffn, NULL},
                                        {type, work->blocks[1], shape->ffn, NULL},
                                        {type, work->blocks[2], shape->width, NULL}};
    work->experts = (struct experts){.count = shape->count,
                                     .used = shape->used,
                                     .ffn = shape->ffn,
                                     .sums_to_one = true,
                                     .gate_up = make_bytes(shape->count * sizeof(void *)),
                                     .down = make_bytes(shape->count * sizeof(void *))};
    for (uint32_t i = 0; i < shape->count; i++) {
        work->experts.gate_up[i] = open_matrix(work, parts, 2, shape->width, is_left);
        work->experts.down[i] = open_matrix(work, parts + 2, 1, shape->ffn, is_left);
    }
}

static void close_experts(struct work *work) {
    for (uint32_t i = 0; i < work->experts.count; i++) {
        matrix_close(work->experts.gate_up[i]);
        matrix_close(work->experts.down[i]);
    }
    free(work->experts.gate_up);
    free(work->experts.down);
    for (int i = 0; i < 3; i++) free(work->blocks[i]);
}

/* ---- a step ---- */

static size_t more(size_t a, size_t b) {
    return a > b ? a : b;
}

/* The buffers of a step in which each expert has work->rows rows on average, all with numbers. */
static void open_step(struct work *work) {
    const struct shape *shape = work->shape;
    struct forward *forward = &work->forward;
    const size_t rows = (size_t)work->rows * shape->count / shape->used;
    const size_t places = rows * shape->used;
    const struct matrix *up = work->experts.gate_up[0], *down = work->experts.down[0];
    struct rng rng = {12};
    work->program.shape.width = shape->width;
    *forward = (struct forward){
        .options = {.kernels = work->kernels, .pool = work->pool},
        .program = &work->program,
        .row_count = (uint32_t)rows,
        .h = make_random(&rng, rows * shape->width),
        .x = make_random(&rng, rows * shape->width),
        .wide = make_random(&rng, more(rows * shape->count, (size_t)work->rows * 2 * shape->ffn)),
        .activations = make_bytes(
            more(rows * up->activation_bytes, (size_t)work->rows * down->activation_bytes)),
        .routing = {.experts = make_bytes(places * sizeof(uint32_t)),
                    .weights = make_floats(places),
                    .places = make_bytes(places * sizeof(uint32_t)),
                    .rows = make_bytes(places * sizeof(uint32_t)),
                    .ends = make_bytes(shape->count * sizeof(uint32_t)),
                    .products = make_bytes(shape->count * sizeof(struct matmul)),
                    .activations =
                        make_bytes(places * more(up->activation_bytes, down->activation_bytes)),
                    .hidden = make_floats(places * 2 * shape->ffn),
                    .sums = make_floats(places * shape->width),
                    .room = make_bytes(pool_threads(work->pool) *
                                       more(matrix_tile_bytes(up), matrix_tile_bytes(down)))}};
    work->op = (struct op){
        .kind = OP_EXPERTS, .experts = &work->experts, .next = up, .gate = GATE_SILU, .to = TO_X};
    experts_route(forward, &work->op);
}

static void close_step(struct work *work) {
    struct forward *forward = &work->forward;
    void *const all[] = {forward->h,
                         forward->x,
                         forward->wide,
                         forward->activations,
                         forward->routing.experts,
                         forward->routing.weights,
                         forward->routing.places,
                         forward->routing.rows,
                         forward->routing.ends,
                         forward->routing.products,
                         forward->routing.activations,
                         forward->routing.hidden,
                         forward->routing.sums,
                         forward->routing.room};
    for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

static void run_experts(struct work *work) {
    experts_run(&work->forward, &work->op);
}

/* ---- the dense one ---- */

static void gate_dense(void *context, uint32_t row, uint32_t count) {
    const struct work *work = context;
    const struct matrix *down = work->experts.down[0];
    const size_t ffn = work->shape->ffn;
    float *gate = work->forward.wide + row * 2 * ffn;
    work->kernels->silu_mul(&(struct gate){.gate = gate,
                                           .up = gate + ffn,
                                           .in_stride = 2 * ffn,
                                           .y = gate,
                                           .y_stride = 2 * ffn,
                                           .width = ffn,
                                           .rows = count});
    work->kernels->activate(down, gate, 2 * ffn, count,
                            work->forward.routing.activations + row * down->activation_bytes);
}

/* As forward.c does it for a layer with one feed-forward: its product of down adds by itself. */
static void run_dense(struct work *work) {
    const struct forward *forward = &work->forward;
    for (uint32_t i = 0; i < work->experts.count; i++) {
        struct matmul up = {.matrix = work->experts.gate_up[i],
                            .activations = forward->activations,
                            .rows = work->rows,
                            .y = forward->wide,
                            .y_stride = 2 * (size_t)work->shape->ffn};
        struct matmul down = {.matrix = work->experts.down[i],
                              .activations = forward->routing.activations,
                              .rows = work->rows,
                              .y = forward->routing.sums,
                              .y_stride = work->shape->width,
                              .add = true};
        task_split_matmuls(work->pool, work->kernels, &up, 1, forward->routing.room);
        task_split_rows(work->pool, gate_dense, work, work->rows);
        task_split_matmuls(work->pool, work->kernels, &down, 1, forward->routing.room);
    }
}

/* ---- times ---- */

static void measure(struct work *work, void (*run)(struct work *), struct times *best) {
    const int64_t wall_ns = now_ns(CLOCK_MONOTONIC), cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    int64_t runs = 0, all_ns = 0;
    for (; all_ns < TRY_NS; runs++) {
        run(work);
        all_ns = now_ns(CLOCK_MONOTONIC) - wall_ns;
    }
    all_ns /= runs;
    const int64_t spent = (now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns) / runs;
    if (all_ns < best->wall_ns) best->wall_ns = all_ns;
    if (spent < best->cpu_ns) best->cpu_ns = spent;
}

static void bench_rows(struct work *work, enum tensor_type type, struct peak peak) {
    struct times grouped = {INT64_MAX, INT64_MAX}, dense = {INT64_MAX, INT64_MAX};
    const struct shape *shape = work->shape;
    open_step(work);
    for (int i = 0; i < TRIES; i++) {
        measure(work, run_experts, &grouped);
        measure(work, run_dense, &dense);
    }
    const double operations = 6.0 * shape->width * shape->ffn * shape->count * work->rows;
    const double share = 100 * operations / peak.gop_s;
    (void)printf("%s experts %s %s %u of %ux%u, %u rows each: %.1f GOP/s, %.0f %% of %s; dense "
                 "%.0f %%, ratio %.2f; by the clock of %u threads %.1f GOP/s, ratio %.2f\n",
                 work->kernels->name, shape->name, tensor_type_name(type), shape->count, shape->ffn,
                 shape->width, work->rows, operations / (double)grouped.cpu_ns,
                 share / (double)grouped.cpu_ns, peak.what, share / (double)dense.cpu_ns,
                 (double)dense.cpu_ns / (double)grouped.cpu_ns, pool_threads(work->pool),
                 operations / (double)grouped.wall_ns,
                 (double)dense.wall_ns / (double)grouped.wall_ns);
    (void)fflush(stdout);
    close_step(work);
}

static void bench_table(const struct kernels *kernels, struct pool *pool, bool is_left) {
    if (kernels->keeps_blocks) return; /* ref promises no speed */
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        for (const enum tensor_type *type = shapes[s].types; *type != TENSOR_F32; type++) {
            struct work work = {.shape = &shapes[s], .kernels = kernels, .pool = pool};
            open_experts(&work, *type, is_left);
            const struct peak peak = peak_of(kernels, work.experts.gate_up[0]->layout);
            for (size_t r = 0; r < COUNT_OF(rows_each); r++) {
                work.rows = rows_each[r];
                bench_rows(&work, *type, peak);
            }
            close_experts(&work);
        }
    }
}

int main(int count, char **words) {
    const bool is_left = count > 1 && strcmp(words[1], "--left") == 0;
    const char *only = count > 1 + is_left ? words[1 + is_left] : NULL;
    const long threads = count > 2 + is_left ? strtol(words[2 + is_left], NULL, 10) : 2;
    struct error error = {0};
    struct pool *pool = NULL;
    if (count > 3 + is_left || threads < 1 || (only && !kernels_choose(only)) ||
        pool_open(&pool, (uint32_t)threads, &error) != OK) {
        (void)fprintf(stderr, "usage: experts [--left] [TABLE] [THREADS]\n");
        return 2;
    }
    for (size_t i = 0; kernels_at(i); i++)
        if (!only || strcmp(kernels_at(i)->name, only) == 0)
            bench_table(kernels_at(i), pool, is_left);
    pool_close(pool);
    return EXIT_SUCCESS;
}
