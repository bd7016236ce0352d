/* SPDX-License-Identifier: Apache-2.0 */

/* Times of products with codes in groups, beside what they replace: the codes unpacked to bf16 and
 * a product of cuBLASLt. */

#include "grouped_world.h"

extern "C" {
#include "gpu/cuda/products.h"
}

#define WORKSPACE_BYTES (32u << 20)

struct grouped_bench {
    struct cuda_products *products;
    const char *name;
    struct cuda_grouped weights;
    int copies;
    size_t bytes; /* bytes in a copy */
    uint16_t *in, *y, *unpacked;
    struct cuda_grouped_rows codes;
    struct cuda_grouped_room room;
};

static struct cuda_grouped copy_of(const struct grouped_bench *b, int i) {
    struct cuda_grouped weights = b->weights;
    weights.at = (char *)weights.at + (size_t)(i % b->copies) * b->bytes;
    return weights;
}

static void launch_few(const struct grouped_bench *b, uint32_t rows, int i) {
    const struct cuda_grouped weights = copy_of(b, i);
    const struct cuda_grouped_few call = {weights, rows,          b->in,  weights.inputs,
                                          b->y,    weights.lines, b->room};
    MUST_BE_OK(cuda_grouped_few(&call, stream, error));
}

static void launch_many(const struct grouped_bench *b, uint32_t rows, int i) {
    const struct cuda_grouped weights = copy_of(b, i);
    const struct cuda_grouped_quantise quantise = {b->in, weights.inputs, weights.inputs, rows,
                                                   b->codes};
    const struct cuda_grouped_many call = {weights, rows, b->codes, b->y, weights.lines};
    MUST_BE_OK(cuda_grouped_quantise(&quantise, stream, error));
    MUST_BE_OK(cuda_grouped_many(&call, stream, error));
}

static void launch_unpacked(const struct grouped_bench *b, uint32_t rows, int i) {
    const struct cuda_grouped weights = copy_of(b, i);
    const struct cuda_grouped_unpack unpack = {weights, b->unpacked};
    const struct cuda_multiply call = {
        CUDA_FORMAT_BF16, weights.lines, weights.inputs, rows, b->unpacked, b->in, b->y};
    MUST_BE_OK(cuda_grouped_unpack(&unpack, stream, error));
    MUST_BE_OK(cuda_multiply(b->products, &call, stream, error));
}

static void bench_rows(const struct grouped_bench *b, uint32_t rows) {
    const uint32_t lines = b->weights.lines, inputs = b->weights.inputs;
    const struct cuda_multiply tune = {CUDA_FORMAT_BF16, lines, inputs, rows,
                                       b->unpacked,      b->in, b->y};
    const bool has_many = b->weights.kind != GROUPED_BYTES;
    MUST_BE_OK(cuda_products_tune(b->products, &tune, 1, 0, stream, error));
    const double few = time_us([&](int i) { launch_few(b, rows, i); });
    const double many = has_many ? time_us([&](int i) { launch_many(b, rows, i); }) : 0;
    const double unpacked = time_us([&](int i) { launch_unpacked(b, rows, i); });
    if (rows <= 64)
        bench_bytes("grouped", few, (double)b->bytes, ceiling_read(),
                    "%s %u x %u, %u rows: few; many %.1f, unpacked %.1f", b->name, lines, inputs,
                    rows, many, unpacked);
    else
        bench_flops("grouped", has_many ? many : few, 2.0 * lines * inputs * rows,
                    ceiling_product(PRODUCT_INT8),
                    "%s %u x %u, %u rows: many; few %.1f, unpacked %.1f", b->name, lines, inputs,
                    rows, few, unpacked);
}

static void bench_one(struct cuda_products *products, const char *name, enum grouping kind,
                      uint32_t lines, uint32_t inputs) {
    const uint32_t most = 2048;
    struct grouped_bench b = {products, name, {kind, lines, inputs, NULL}};
    b.bytes = grouped_bytes(kind, lines, inputs);
    b.copies = std::min(cold_copies(b.bytes), 32);
    b.weights.at = gpu_take<char>(b.bytes * (size_t)b.copies);
    /* As float16, bf16 numbers of this size are about 1. */
    fill_bf16(b.weights.at, b.bytes * (size_t)b.copies / 2, 1, 0.01f);
    b.in = gpu_take<uint16_t>((size_t)most * inputs),
    b.y = gpu_take<uint16_t>((size_t)most * lines);
    b.unpacked = gpu_take<uint16_t>((size_t)lines * inputs);
    b.codes = {gpu_take_bytes((size_t)most * inputs), gpu_take_bytes((size_t)most * inputs / 4),
               most};
    b.room = grouped_room(lines, (uint32_t)card.multiProcessorCount);
    fill_bf16(b.in, (size_t)most * inputs, 2, 1.0f);
    for (uint32_t rows : {1u, 4u, 8u, 16u, 32u, 64u, 128u, 256u, 512u, 2048u}) bench_rows(&b, rows);
    gpu_release();
}

void bench_grouped(void) {
    struct cuda_products *products;
    MUST_BE_OK(cuda_products_open(&products, getenv("CUBLASLT"), WORKSPACE_BYTES, error));
    bench_one(products, "qwen3-14b qkv", GROUPED_MINIMA, 7168, 5120);
    bench_one(products, "qwen3-14b o", GROUPED_ZEROS, 5120, 5120);
    bench_one(products, "qwen3-14b gate_up", GROUPED_MINIMA, 34816, 5120);
    bench_one(products, "qwen3-14b down", GROUPED_MINIMA, 5120, 17408);
    bench_one(products, "qwen3-14b down, Q6_K", GROUPED_BYTES, 5120, 17408);
    bench_one(products, "qwen3-4b gate_up", GROUPED_ZEROS, 19456, 2560);
    cuda_products_close(products);
}
