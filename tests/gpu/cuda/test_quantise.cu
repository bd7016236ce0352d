/* SPDX-License-Identifier: Apache-2.0 */
#include "rows_of.h"

static bool check_case(struct rng *rng, size_t rows, size_t width, size_t stride,
                       enum cuda_code code) {
    struct random_product from = random_product(rng, FORM_BF16, rows, width, stride, 2.0f);
    struct cuda_quantise call = {};
    call.from = from.product.sums, call.from_stride = stride;
    call.y = take_rows(code, rows, stride);
    call.width = (uint32_t)width, call.rows = (uint32_t)rows;
    MUST_BE_OK(cuda_quantise(&call, stream, error));
    gpu_settle();
    bool is_well = are_rows(&call.y, rows, width, from.values);
    if (!is_well) note("rows %zu, width %zu, stride %zu", rows, width, stride);
    gpu_release();
    return is_well;
}

void check_quantise(void) {
    struct rng rng = random_of("quantise");
    for (enum cuda_code code : {CUDA_E4M3, CUDA_INT8})
        report(
            check_case(&rng, 0, 64, 64, code) && check_case(&rng, 1, 8, 8, code) &&
                check_case(&rng, 17, 2048, 2056, code) && check_case(&rng, 33, 4096, 4096, code) &&
                check_case(&rng, 401, 4088, 4096, code) && check_case(&rng, 3, 8200, 8208, code) &&
                check_case(&rng, 5, 9728, 9728, code) && check_case(&rng, 2, 32776, 32776, code) &&
                check_case(&rng, 2048, 8, 16, code) && check_case(&rng, 2051, 768, 768, code) &&
                check_case(&rng, 2049, 1000, 1000, code) &&
                check_case(&rng, 2048, 2048, 2056, code) &&
                check_case(&rng, 2055, 2880, 2880, code),
            "quantise: rows of bf16 to %s", code_names[code]);
}

static void bench_one(uint32_t rows, uint32_t width) {
    const size_t count = (size_t)rows * width;
    const int copies = cold_copies(count * 3);
    uint16_t *from = gpu_take<uint16_t>(count * copies);
    uint8_t *y = gpu_take<uint8_t>(count * copies);
    float *scale = gpu_take<float>(rows);
    fill_bf16(from, count * copies, 1, 1.0f);
    double us = time_us([&](int i) {
        const size_t at = (size_t)(i % copies) * count;
        struct cuda_quantise call = {};
        call.from = from + at, call.from_stride = width;
        call.y = {y + at, CUDA_E4M3, width, scale};
        call.width = width, call.rows = rows;
        MUST_BE_OK(cuda_quantise(&call, stream, error));
    });
    bench_moved("quantise", us, (double)count * 3, "%u x %u bf16 -> e4m3", rows, width);
    gpu_release();
}

void bench_quantise(void) {
    for (uint32_t width : {2048u, 4096u, 8192u, 9728u, 14336u})
        for (uint32_t rows : {64u, 512u, 1024u, 2048u}) bench_one(rows, width);
    for (uint32_t rows : {8192u, 20352u}) bench_one(rows, 768); /* pairs of experts */
    bench_one(10176, 2880);
}
