/* SPDX-License-Identifier: Apache-2.0 */
#include "rows_of.h"

#include "gpu/cuda/vec.cuh"

extern "C" {
#include "gpu/cuda/unpack.h"
}

static const enum tensor_type types[] = {
    TENSOR_F32,  TENSOR_F16,    TENSOR_BF16,   TENSOR_Q4_0,  TENSOR_Q4_1, TENSOR_Q5_0,
    TENSOR_Q5_1, TENSOR_Q8_0,   TENSOR_Q2_K,   TENSOR_Q3_K,  TENSOR_Q4_K, TENSOR_Q5_K,
    TENSOR_Q6_K, TENSOR_IQ4_NL, TENSOR_IQ4_XS, TENSOR_MXFP4, TENSOR_INT4,
};

/* Where a block's float16 numbers stand, which would mostly be absurd if their bits were random. */
static void make_sane(struct rng *rng, enum tensor_type type, uint8_t *block) {
    int at[2] = {-1, -1};
    switch (type) {
    case TENSOR_Q4_0:
    case TENSOR_Q5_0:
    case TENSOR_Q8_0:
    case TENSOR_IQ4_NL:
    case TENSOR_IQ4_XS: at[0] = 0; break;
    case TENSOR_Q4_1:
    case TENSOR_Q5_1:
    case TENSOR_Q4_K:
    case TENSOR_Q5_K: at[0] = 0, at[1] = 2; break;
    case TENSOR_Q2_K: at[0] = 80, at[1] = 82; break;
    case TENSOR_Q3_K: at[0] = 108; break;
    case TENSOR_Q6_K: at[0] = 208; break;
    case TENSOR_MXFP4:
        block[0] = (uint8_t)(rng_below(rng, 9) ? 110 + rng_below(rng, 20) : rng_below(rng, 3));
        return;
    default: break;
    }
    for (int i : at) {
        if (i < 0) continue;
        uint16_t half = half_from_f32(random_normal(rng) * (rng_below(rng, 9) ? 0.02f : 1e-6f));
        memcpy(block + i, &half, 2);
    }
    if (type != TENSOR_INT4) return;
    float pair[2] = {random_normal(rng) * 0.02f, random_normal(rng)};
    memcpy(block, pair, 8);
}

static std::vector<uint8_t> random_file(struct rng *rng, enum tensor_type type, uint32_t rows,
                                        uint32_t cols, bool is_wild) {
    size_t row_bytes = tensor_type_row_bytes(type, cols), block = tensor_type_block_bytes(type);
    std::vector<uint8_t> file(rows * row_bytes);
    for (uint8_t &byte : file) byte = (uint8_t)rng_next(rng);
    if (is_wild) return file;
    if (tensor_type_is_quantised(type)) {
        for (size_t at = 0; at < file.size(); at += block) make_sane(rng, type, &file[at]);
        return file;
    }
    for (size_t i = 0; i < rows * (size_t)cols; i++) {
        float value = random_normal(rng) * 0.05f;
        uint16_t half = type == TENSOR_F16 ? half_from_f32(value) : bf16_from_f32(value);
        if (type == TENSOR_F32)
            memcpy(&file[4 * i], &value, 4);
        else
            memcpy(&file[2 * i], &half, 2);
    }
    return file;
}

/* Whether a row of e4m3 has all numbers, but for roundings to bf16: of each, of the largest and of
 * the scale. */
static bool is_exact(const std::vector<float> &values, const uint8_t *codes, double scale) {
    for (size_t i = 0; i < values.size(); i++)
        if (!(fabs(e4m3_to_f32(codes[i]) * scale - values[i]) <= fabs(values[i]) * 0.0119))
            return false;
    return true;
}

/* One row of 8-bit codes: the scale is the least bf16 that will do, the codes the nearest, unless
 * they are exact. */
static bool are_codes(enum cuda_code code, const std::vector<float> &values, const uint8_t *codes,
                      uint16_t scale_bits) {
    double most = 0, scale = bf16_to_f32(scale_bits);
    std::vector<double> want(values.begin(), values.end());
    if (code == CUDA_INT8) want = mixed(want, want.size(), 0.25);
    for (double value : want) most = std::max(most, fabs(value));
    double largest = code == CUDA_E4M3 ? 448 : 127;
    if (code == CUDA_E4M3 && is_exact(values, codes, scale)) return true;
    if (!(scale >= most / largest * 0.9999999 &&
          scale <= std::max(most / largest, 1e-20) * 1.0079)) {
        note("scale %g for at most %g", scale, most);
        return false;
    }
    for (size_t i = 0; i < want.size(); i++) {
        double got = (code == CUDA_E4M3 ? e4m3_to_f32(codes[i]) : (float)(int8_t)codes[i]) * scale;
        double room =
            code == CUDA_INT8 ? scale * 0.5 : std::max(fabs(want[i]) * 0x1p-4, scale * 0x1p-10);
        if (fabs(got - want[i]) <= room * 1.0001 + most * 1e-6) continue;
        note("element %zu: %g, not %g", i, got, want[i]);
        return false;
    }
    return true;
}

static bool check_case(struct rng *rng, enum tensor_type type, enum cuda_code code, uint32_t rows,
                       uint32_t cols, bool is_wild) {
    const uint32_t file_rows = rows + 3;
    if (rng_below(rng, check_one_in) != 0) return true;
    std::vector<uint8_t> file = random_file(rng, type, file_rows, cols, is_wild);
    std::vector<uint32_t> order(rows);
    bool has_order = rng_below(rng, 2);
    for (uint32_t i = 0; i < rows; i++)
        order[i] = has_order ? (uint32_t)rng_below(rng, file_rows) : i;
    size_t stride = (cols + 7) / 8 * 8 + 8, bytes = code == CUDA_BF16 ? 2 : 1;
    struct cuda_unpack call = {};
    call.blocks = gpu_copy(file), call.type = type;
    call.row_order = has_order ? gpu_copy(order) : NULL;
    call.rows = rows, call.cols = cols, call.code = code;
    call.codes = gpu_take_bytes(rows * stride * bytes), call.stride = stride;
    call.scales = gpu_take<uint16_t>(rows);
    MUST_BE_OK(cuda_unpack(&call, stream, error));
    gpu_settle();
    std::vector<uint8_t> codes = gpu_read((uint8_t *)call.codes, rows * stride * bytes);
    std::vector<uint16_t> scales = gpu_read(call.scales, rows);
    bool is_well = true;
    for (uint32_t row = 0; row < rows && is_well; row++) {
        std::vector<float> want(cols);
        quant_row_to_f32(type, &file[order[row] * tensor_type_row_bytes(type, cols)], cols,
                         want.data());
        if (code != CUDA_BF16) {
            is_well = are_codes(code, want, &codes[row * stride], scales[row]);
            continue;
        }
        for (uint32_t i = 0; i < cols && is_well; i++) {
            uint16_t got, right = bf16_from_f32(want[i]);
            memcpy(&got, &codes[2 * (row * stride + i)], 2);
            is_well = got == right || (std::isnan(want[i]) && std::isnan(bf16_to_f32(got)));
            if (!is_well) note("row %u, element %u: %04x, not %04x", row, i, got, right);
        }
    }
    if (!is_well)
        note("%s, %u x %u%s", tensor_type_name(type), rows, cols, is_wild ? ", any bits" : "");
    gpu_release();
    return is_well;
}

/* Rows of a file in FP8 with one scale for all, as numbers: the largest code of a row is any. */
static std::vector<float> random_fp8(struct rng *rng, float scale, uint32_t rows, uint32_t cols) {
    std::vector<float> values(rows * (size_t)cols);
    for (uint32_t row = 0; row < rows; row++) {
        const uint64_t below = 1 + rng_below(rng, 0x7f); /* codes have the order of their numbers */
        for (uint32_t i = 0; i < cols; i++) {
            const float size = e4m3_to_f32((uint8_t)rng_below(rng, below)) * scale;
            values[row * (size_t)cols + i] = rng_below(rng, 2) ? size : -size;
        }
    }
    return values;
}

static std::vector<uint8_t> bytes_of(enum tensor_type type, const std::vector<float> &values) {
    const size_t each = tensor_type_block_bytes(type);
    std::vector<uint8_t> file(values.size() * each);
    for (size_t i = 0; i < values.size(); i++) {
        const uint16_t half = bf16_from_f32(values[i]);
        memcpy(&file[i * each], type == TENSOR_F32 ? (const void *)&values[i] : &half, each);
    }
    return file;
}

/* Rows that are e4m3 times a number stay so; `off`: one number of each row is between two codes, so
 * that the row is rounded as any other. */
static bool check_fp8(struct rng *rng, enum tensor_type type, uint32_t cols, bool off) {
    const uint32_t rows = 20;
    const size_t stride = (cols + 7) / 8 * 8;
    const float scale = 0.001f + 0.01f * (float)rng_unit(rng);
    std::vector<float> values = random_fp8(rng, scale, rows, cols);
    for (uint32_t row = 0; row < rows && off; row++) {
        float *at = &values[row * (size_t)cols];
        for (uint32_t i = 0; i < 7; i++) at[i] = scale * (float)(8 + i);
        at[7 + rng_below(rng, cols - 7)] = scale * 8.5f;
        for (uint32_t i = 0; i < cols && type == TENSOR_BF16; i++)
            at[i] = bf16_to_f32(bf16_from_f32(at[i]));
    }
    struct cuda_unpack call = {};
    call.blocks = gpu_copy(bytes_of(type, values)), call.type = type;
    call.rows = rows, call.cols = cols, call.code = CUDA_E4M3, call.stride = stride;
    call.codes = gpu_take_bytes(rows * stride), call.scales = gpu_take<uint16_t>(rows);
    MUST_BE_OK(cuda_unpack(&call, stream, error));
    gpu_settle();
    const std::vector<uint8_t> codes = gpu_read((uint8_t *)call.codes, rows * stride);
    const std::vector<uint16_t> scales = gpu_read(call.scales, rows);
    bool is_well = true;
    for (uint32_t row = 0; row < rows; row++) {
        const float *at = &values[row * (size_t)cols];
        const std::vector<float> want(at, at + cols);
        const bool is_kept = is_exact(want, &codes[row * stride], bf16_to_f32(scales[row]));
        is_well &= off ? !is_kept && are_codes(CUDA_E4M3, want, &codes[row * stride], scales[row])
                       : is_kept;
    }
    if (!is_well) note("%s, %u columns%s", tensor_type_name(type), cols, off ? ", one off" : "");
    gpu_release();
    return is_well;
}

void check_unpack(void) {
    struct rng rng = random_of("unpack");
    for (bool off : {false, true}) {
        bool is_well = true;
        for (uint32_t cols : {8u, 100u, 2048u, 4100u})
            for (enum tensor_type type : {TENSOR_BF16, TENSOR_F32})
                is_well &= check_fp8(&rng, type, cols, off);
        report(is_well, "unpack: rows of e4m3 times a number %s",
               off ? "but for one are rounded as others" : "keep their numbers");
    }
    for (enum tensor_type type : types) {
        uint32_t block = tensor_type_block_elements(type);
        bool is_well = true;
        for (uint32_t rows : {0u, 1u, 17u})
            for (uint32_t blocks : {1u, 3u, 17u, 700u}) {
                if (block == 256 && blocks == 700) continue;
                is_well &= check_case(&rng, type, CUDA_BF16, rows, block * blocks, false);
                is_well &= check_case(&rng, type, CUDA_BF16, rows, block * blocks, true);
                is_well &= check_case(&rng, type, CUDA_E4M3, rows, block * blocks, false);
                is_well &= check_case(&rng, type, CUDA_INT8, rows, block * blocks, false);
            }
        report(is_well, "unpack: %s to bf16 bit for bit, to e4m3 and int8 as near as can be",
               tensor_type_name(type));
    }
    size_t wrong = 0;
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 1009) {
        uint32_t word = (uint32_t)bits;
        float value;
        memcpy(&value, &word, sizeof value);
        wrong += e4m3_of_bits(word) != e4m3_from_f32(value);
    }
    report(wrong == 0, "unpack: e4m3 by bit tricks, for GPUs without the instruction");
}

void bench_unpack(void) {
    const uint32_t rows = 19456, cols = 2560;
    for (enum tensor_type type : types)
        for (enum cuda_code code : {CUDA_BF16, CUDA_E4M3}) {
            size_t in = rows * tensor_type_row_bytes(type, cols),
                   out = (size_t)rows * cols * (code == CUDA_BF16 ? 2 : 1);
            int copies = cold_copies(in + out);
            uint8_t *blocks = gpu_take<uint8_t>((in + 16) / 16 * 16 * copies);
            uint8_t *codes = gpu_take<uint8_t>(out * copies);
            uint16_t *scales = gpu_take<uint16_t>(rows);
            fill_u32((uint32_t *)blocks, (in + 16) / 16 * 4 * copies, 1, ~0u);
            double us = time_us([&](int i) {
                struct cuda_unpack call = {};
                call.blocks = blocks + (in + 16) / 16 * 16 * (size_t)(i % copies), call.type = type;
                call.rows = rows, call.cols = cols, call.code = code;
                call.codes = codes + out * (size_t)(i % copies), call.stride = cols,
                call.scales = scales;
                MUST_BE_OK(cuda_unpack(&call, stream, error));
            });
            bench_moved("unpack", us, (double)in + (double)out, "%u x %u %s -> %s", rows, cols,
                        tensor_type_name(type), code == CUDA_BF16 ? "bf16" : "e4m3");
            gpu_release();
        }
}
