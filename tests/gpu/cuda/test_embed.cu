/* SPDX-License-Identifier: Apache-2.0 */
#include "rows_of.h"

static bool check_embed_case(struct rng *rng, uint32_t rows, uint32_t width, size_t stride) {
    const uint32_t vocabulary = 77;
    std::vector<uint16_t> table = random_bf16(rng, (size_t)vocabulary * width, 1.0f);
    std::vector<int32_t> tokens(rows), last(5), ids(rows);
    for (int32_t &token : last) token = (int32_t)rng_below(rng, vocabulary);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t slot = (uint32_t)rng_below(rng, 5);
        tokens[i] = rng_below(rng, 2) ? (int32_t)rng_below(rng, vocabulary) : ~(int32_t)slot;
        ids[i] = tokens[i] < 0 ? last[~tokens[i]] : tokens[i];
    }
    struct cuda_embed call = {};
    call.table = gpu_copy(table), call.tokens = gpu_copy(tokens);
    call.last_token = gpu_copy(last), call.scale = 50.596443f;
    call.x = gpu_take<float>(rows * stride), call.x_stride = stride;
    call.width = width, call.rows = rows;
    MUST_BE_OK(cuda_embed(&call, stream, error));
    gpu_settle();
    std::vector<float> got = gpu_read(call.x, rows * stride);
    bool is_well = true;
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < width; i++)
            is_well &= got[row * stride + i] ==
                       bf16_to_f32(table[(size_t)ids[row] * width + i]) * 50.596443f;
    gpu_release();
    return is_well;
}

static bool check_keep_case(struct rng *rng, uint32_t rows, size_t row_bytes, size_t from_bytes) {
    const uint32_t from_count = 40;
    std::vector<uint8_t> from(from_count * from_bytes);
    for (uint8_t &byte : from) byte = (uint8_t)rng_next(rng);
    std::vector<uint32_t> from_rows(rows);
    for (uint32_t &row : from_rows) row = (uint32_t)rng_below(rng, from_count);
    struct cuda_keep call = {};
    call.from = gpu_copy(from), call.from_bytes = from_bytes;
    call.from_rows = gpu_copy(from_rows), call.to = gpu_take_bytes(rows * row_bytes);
    call.row_bytes = row_bytes, call.rows = rows;
    MUST_BE_OK(cuda_keep(&call, stream, error));
    gpu_settle();
    std::vector<uint8_t> got = gpu_read((uint8_t *)call.to, rows * row_bytes);
    bool is_well = true;
    for (uint32_t row = 0; row < rows; row++)
        is_well &=
            memcmp(&got[row * row_bytes], &from[from_rows[row] * from_bytes], row_bytes) == 0;
    gpu_release();
    return is_well;
}

void check_embed(void) {
    struct rng rng = random_of("embed");
    report(check_embed_case(&rng, 0, 64, 64) && check_embed_case(&rng, 1, 8, 8) &&
               check_embed_case(&rng, 17, 2048, 2052) && check_embed_case(&rng, 33, 2560, 2560) &&
               check_embed_case(&rng, 9, 2568, 2568) && check_embed_case(&rng, 5, 5384, 5388),
           "embed: rows of the table times a scale, tokens named or last sampled");
    report(check_keep_case(&rng, 0, 16, 16) && check_keep_case(&rng, 1, 1, 3) &&
               check_keep_case(&rng, 9, 101, 103) && check_keep_case(&rng, 17, 10240, 10256),
           "keep: any rows in any order, any number of bytes");
}

void bench_embed(void) {
    const uint32_t width = 2560, vocabulary = 151936;
    uint16_t *table = gpu_take<uint16_t>((size_t)vocabulary * width);
    fill_bf16(table, (size_t)vocabulary * width, 1, 1.0f);
    for (uint32_t rows : {512u, 1024u, 2048u}) {
        int copies = cold_copies((size_t)rows * width * 6);
        float *x = gpu_take<float>((size_t)rows * width * copies);
        uint32_t *tokens = gpu_take<uint32_t>((size_t)rows * copies);
        fill_u32(tokens, (size_t)rows * copies, 2, vocabulary);
        double us = time_us([&](int i) {
            size_t at = (size_t)(i % copies) * rows;
            struct cuda_embed call = {};
            call.table = table, call.tokens = (int32_t *)tokens + at, call.scale = 2.0f;
            call.x = x + at * width, call.x_stride = width, call.width = width, call.rows = rows;
            MUST_BE_OK(cuda_embed(&call, stream, error));
        });
        bench_moved("embed", us, (double)rows * width * 6, "%u x %u", rows, width);
    }
    gpu_release();
}
