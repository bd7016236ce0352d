/* SPDX-License-Identifier: Apache-2.0 */
#include "grouped_world.h"

bool grouped_rounds(enum tensor_type type) {
    return type == TENSOR_Q4_K || type == TENSOR_Q6_K;
}

/* Where a block's float16 numbers stand; -1: nowhere. */
static void half_places(enum tensor_type type, int (&at)[2]) {
    at[0] = type == TENSOR_Q6_K ? 208 : 0;
    at[1] = type == TENSOR_Q4_1 || type == TENSOR_Q4_K ? 2 : -1;
    if (type == TENSOR_INT4 || type == TENSOR_MXFP4) at[0] = -1;
}

std::vector<uint8_t> grouped_file(struct rng *rng, const struct grouped_case *is) {
    const size_t block = tensor_type_block_bytes(is->type);
    std::vector<uint8_t> file(is->lines * tensor_type_row_bytes(is->type, is->inputs));
    for (uint8_t &byte : file) byte = (uint8_t)rng_next(rng);
    for (size_t at = 0; at < file.size(); at += block) {
        int places[2];
        half_places(is->type, places);
        for (int place : places) {
            const uint16_t half = half_from_f32(0.01f + 0.01f * fabsf(random_normal(rng)));
            if (place >= 0) memcpy(&file[at + (size_t)place], &half, 2);
        }
        if (is->type == TENSOR_MXFP4) file[at] = (uint8_t)(118 + rng_below(rng, 8));
        if (is->type != TENSOR_INT4) continue;
        float pair[2] = {half_to_f32(half_from_f32(random_normal(rng) * 0.02f)), 0};
        pair[1] = -(float)rng_below(rng, 17) * pair[0];
        memcpy(&file[at], pair, 8);
    }
    return file;
}

struct grouped_made grouped_make(struct rng *rng, const struct grouped_case *is) {
    const size_t row_bytes = tensor_type_row_bytes(is->type, is->inputs);
    const std::vector<uint8_t> file = grouped_file(rng, is);
    const enum grouping kind = grouping_of(is->type);
    const size_t bytes = grouped_bytes(kind, is->lines, is->inputs);
    struct grouped_made made = {
        {kind, is->lines, is->inputs, gpu_copy(std::vector<uint8_t>(bytes))},
        std::vector<float>((size_t)is->lines * is->inputs),
        0};
    const uint32_t first = is->lines * 2 / 3;
    for (int part = 0; part < 2; part++) {
        const uint32_t from = part ? first : 0, rows = part ? is->lines - first : first;
        const std::vector<uint8_t> piece(file.begin() + (long)(from * row_bytes),
                                         file.begin() + (long)((from + rows) * row_bytes));
        const struct cuda_grouped_fill call = {gpu_copy(piece), is->type, from, rows, made.weights};
        MUST_BE_OK(cuda_grouped_fill(&call, stream, error));
    }
    for (uint32_t line = 0; line < is->lines; line++)
        quant_row_to_f32(is->type, &file[line * row_bytes], is->inputs,
                         &made.values[(size_t)line * is->inputs]);
    double most = 0;
    for (float value : made.values) most = std::max(most, fabs((double)value));
    made.room = most * 0x1p-9; /* a scale and a minimum that are mostly each other's difference */
    return made;
}

std::vector<uint16_t> bf16_of(const std::vector<float> &values) {
    std::vector<uint16_t> ret(values.size());
    for (size_t i = 0; i < ret.size(); i++) ret[i] = bf16_from_f32(values[i]);
    return ret;
}

std::vector<float> grouped_rows(struct rng *rng, const struct grouped_case *is) {
    std::vector<float> rows(is->rows * (size_t)is->inputs);
    for (size_t i = 0; i < rows.size(); i++)
        rows[i] = bf16_to_f32(
            bf16_from_f32(random_normal(rng) * (i % is->inputs % 37 == 5 ? 20.0f : 1.0f)));
    return rows;
}

bool grouped_are_codes(const struct grouped_case *is, const struct cuda_grouped_rows &rows,
                       std::vector<float> *in) {
    static const uint8_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const size_t groups = is->inputs / 32, most = rows.rows_most;
    const std::vector<int8_t> codes = gpu_read((const int8_t *)rows.codes, groups * most * 32);
    const std::vector<float> pairs = gpu_read((const float *)rows.scales, groups * most * 2);
    for (size_t row = 0; row < is->rows; row++)
        for (size_t group = 0; group < groups; group++) {
            float *values = &(*in)[row * is->inputs + group * 32], largest = 0;
            for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(values[i]));
            const float scale = pairs[(group * most + row) * 2];
            int sum = 0;
            bool is_well = fabsf(scale * 127 - largest) <= largest * 0x1p-15f;
            for (int i = 0; i < 32; i++) {
                const int code = codes[(group * most + row) * 32 + i];
                float *value = &values[i / 8 * 8 + order[i % 8]];
                is_well &= fabsf(code * scale - *value) <= scale * 0.5001f;
                *value = code * scale;
                sum += code;
            }
            is_well &= fabsf(pairs[(group * most + row) * 2 + 1] - scale * sum) <= 1e-5f;
            if (is_well) continue;
            note("row %zu, group %zu: scale %g for at most %g", row, group, scale, largest);
            return false;
        }
    return true;
}

std::vector<float> grouped_want(const struct grouped_made &made, const struct grouped_case *is,
                                const std::vector<float> &in) {
    std::vector<float> want((size_t)is->rows * is->lines);
    for (size_t row = 0; row < is->rows; row++)
        for (size_t line = 0; line < is->lines; line++) {
            double sum = 0;
            for (size_t i = 0; i < is->inputs; i++)
                sum += (double)in[row * is->inputs + i] * made.values[line * is->inputs + i];
            want[row * is->lines + line] = (float)sum;
        }
    return want;
}

struct cuda_grouped_room grouped_room(uint32_t lines, uint32_t blocks) {
    const size_t tiles = (lines + GROUPED_TILE - 1) / GROUPED_TILE;
    const size_t sums = (size_t)blocks * 2 * GROUPED_TILE * GROUPED_ROWS;
    return {blocks, gpu_take<float>(sums), gpu_copy(std::vector<uint32_t>(tiles))};
}
