/* SPDX-License-Identifier: Apache-2.0 */

/* Times of experts: each step of a layer, and the whole, as shares of what bounds them: the weights
 * of the experts that are met and the rows, once, or the products. */

#include "experts_world.h"
#include "rows_of.h"

#define SETS 4 /* sets of logits, by turns */

struct experts_bench {
    uint32_t experts, each, width, inner, rows;
    enum cuda_code code;
    enum grouping grouping; /* kind of the weights; their rows are bf16 */
    double met;             /* experts with a row, on average */
    char *gate_up, *down;
    uint16_t *scales;
    float *logits, *row_scale;
    void *x;
    struct cuda_expert_order orders[SETS];
    uint16_t *h, *results, *y;
    struct cuda_rows codes; /* codes for h */
};

static struct cuda_route route_at(const struct experts_bench *b, int i) {
    return route_of(b->logits + (size_t)(i % SETS) * b->rows * b->experts, b->orders[i % SETS]);
}

static void launch_up(const struct experts_bench *b, int i) {
    struct cuda_experts call = {CUDA_EXPERTS_SILU, b->code, 2 * b->inner, b->width, b->gate_up};
    call.in = b->x, call.y = b->h, call.by = b->orders[i % SETS];
    if (b->code != CUDA_BF16) call.row_scale = b->row_scale, call.column_scale = b->scales;
    call.grouping = b->grouping;
    MUST_BE_OK(cuda_experts(&call, stream, error));
}

static void launch_codes(const struct experts_bench *b) {
    struct cuda_quantise call = {b->h, b->inner, b->codes, b->inner, b->rows * b->each};
    if (b->code != CUDA_BF16) MUST_BE_OK(cuda_quantise(&call, stream, error));
}

static void launch_down(const struct experts_bench *b, int i) {
    struct cuda_experts call = {CUDA_EXPERTS_DOWN, b->code, b->width, b->inner, b->down};
    call.in = b->code == CUDA_BF16 ? b->h : b->codes.codes, call.y = b->results;
    call.by = b->orders[i % SETS];
    if (b->code != CUDA_BF16) call.row_scale = b->codes.scale, call.column_scale = b->scales;
    call.grouping = b->grouping;
    MUST_BE_OK(cuda_experts(&call, stream, error));
}

static struct cuda_experts_sum sum_at(const struct experts_bench *b, int i) {
    struct cuda_experts_sum call = {b->orders[i % SETS], b->results};
    call.y = b->y, call.width = b->width;
    return call;
}

static void launch_sum(const struct experts_bench *b, int i) {
    const struct cuda_experts_sum call = sum_at(b, i);
    MUST_BE_OK(cuda_experts_sum(&call, stream, error));
}

static void launch_layer(const struct experts_bench *b, int i) {
    const struct cuda_route route = route_at(b, i);
    MUST_BE_OK(cuda_route(&route, stream, error));
    launch_up(b, i);
    launch_codes(b);
    launch_down(b, i);
    launch_sum(b, i);
}

/* One line, by what bounds it. */
static void tell(const struct experts_bench *b, const char *name, const char *step, double us,
                 double bytes, double flops) {
    const double of_products = ceiling_product(b->code == CUDA_BF16   ? PRODUCT_BF16
                                               : b->code == CUDA_E4M3 ? PRODUCT_E4M3
                                                                      : PRODUCT_INT8);
    if (of_products == 0 || bytes / ceiling_read() / 1e3 > flops / of_products / 1e6)
        bench_bytes("experts", us, bytes, ceiling_read(), "%s %s %u rows %s", name, step, b->rows,
                    b->grouping ? "4 bits" : code_names[b->code]);
    else
        bench_flops("experts", us, flops, of_products, "%s %s %u rows %s", name, step, b->rows,
                    b->grouping ? "4 bits" : code_names[b->code]);
}

static void take(struct experts_bench *b) {
    const size_t pairs = (size_t)b->rows * b->each, size = code_bytes(b->code);
    const size_t weights = (size_t)b->experts * b->inner * b->width;
    const auto fill = b->code == CUDA_BF16   ? fill_bf16
                      : b->code == CUDA_E4M3 ? fill_e4m3
                                             : fill_int8;
    const float deviation = b->code == CUDA_BF16 ? 0.02f : 32.0f;
    b->gate_up = gpu_take<char>(2 * weights * size), b->down = gpu_take<char>(weights * size);
    fill(b->gate_up, 2 * weights, 1, deviation), fill(b->down, weights, 2, deviation);
    b->scales = gpu_take<uint16_t>((size_t)b->experts * std::max(2 * b->inner, b->width));
    fill_bf16(b->scales, (size_t)b->experts * std::max(2 * b->inner, b->width), 3, 0.001f);
    b->logits = gpu_take<float>((size_t)SETS * b->rows * b->experts);
    fill_f32(b->logits, (size_t)SETS * b->rows * b->experts, 4, 1.0f);
    b->row_scale = gpu_take<float>(b->rows), fill_f32(b->row_scale, b->rows, 5, 0.01f);
    b->x = gpu_take_bytes((size_t)b->rows * b->width * size);
    fill(b->x, (size_t)b->rows * b->width, 6, b->code == CUDA_BF16 ? 1.0f : 32.0f);
    b->h = gpu_take<uint16_t>(pairs * b->inner), b->results = gpu_take<uint16_t>(pairs * b->width);
    b->y = gpu_take<uint16_t>((size_t)b->rows * b->width);
    b->codes = take_rows(b->code == CUDA_BF16 ? CUDA_INT8 : b->code, pairs, b->inner);
    b->met = 0;
    for (int i = 0; i < SETS; i++) {
        b->orders[i] = take_order(b->experts, b->each, b->rows);
        launch_layer(b, i);
        gpu_settle();
        std::vector<uint16_t> chosen = gpu_read(b->orders[i].chosen, pairs);
        std::sort(chosen.begin(), chosen.end());
        b->met += (double)(std::unique(chosen.begin(), chosen.end()) - chosen.begin()) / SETS;
    }
}

static void bench_one(const char *name, struct experts_bench b) {
    const double pairs = (double)b.rows * b.each, size = (double)code_bytes(b.code);
    take(&b);
    const double each = b.grouping ? 0.625 : size;
    const double one = each * b.inner * b.width; /* B of an expert's gate, up or down */
    const double up_bytes = 2 * b.met * one + size * b.rows * b.width + 2 * pairs * b.inner;
    const double down_bytes = b.met * one + size * pairs * b.inner + 2 * pairs * b.width;
    const double sum_bytes = 2 * (pairs + b.rows) * b.width, flops = 2 * pairs * b.inner * b.width;
    const double codes = b.code == CUDA_BF16 ? 0 : 3 * pairs * b.inner;
    tell(&b, name, "gate_up", time_us([&](int i) { launch_up(&b, i); }), up_bytes, 2 * flops);
    tell(&b, name, "down", time_us([&](int i) { launch_down(&b, i); }), down_bytes, flops);
    bench_bytes("experts", time_us([&](int i) { launch_sum(&b, i); }), sum_bytes, ceiling_copy(),
                "%s sum %u rows", name, b.rows);
    bench_bytes("experts", time_us([&](int i) {
                    const struct cuda_route route = route_at(&b, i);
                    MUST_BE_OK(cuda_route(&route, stream, error));
                }),
                (double)b.rows * b.experts * 4 + pairs * 10, ceiling_read(), "%s route %u rows",
                name, b.rows);
    auto layer = [&](int i) { launch_layer(&b, i); };
    tell(&b, name, "layer", time_us(layer), up_bytes + down_bytes + sum_bytes + codes, 3 * flops);
    tell(&b, name, "layer without a pause", steady_us(layer),
         up_bytes + down_bytes + sum_bytes + codes, 3 * flops);
    gpu_release();
}

void bench_experts(void) {
    for (enum cuda_code code : {CUDA_BF16, CUDA_E4M3, CUDA_INT8})
        for (uint32_t rows : {1u, 4u, 16u, 64u, 256u, 1024u, 2544u, 4096u, 8192u})
            bench_one("qwen3-30b-a3b", {128, 8, 2048, 768, rows, code});
    for (enum cuda_code code : {CUDA_BF16, CUDA_E4M3})
        for (uint32_t rows : {16u, 1024u, 2544u})
            bench_one("gpt-oss-20b", {32, 4, 2880, 2880, rows, code});
    for (uint32_t rows : {1u, 16u, 64u, 256u, 2544u}) {
        bench_one("gpt-oss-20b", {32, 4, 2880, 2880, rows, CUDA_BF16, GROUPED_E2M1});
        bench_one("qwen3-30b-a3b", {128, 8, 2048, 768, rows, CUDA_BF16, GROUPED_MINIMA});
    }
    for (uint32_t rows : {16u, 1024u, 2544u}) /* Qwen3.5-35B-A3B */
        bench_one("256 experts of 512", {256, 8, 2048, 512, rows, CUDA_BF16});
}
