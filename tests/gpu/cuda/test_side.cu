/* SPDX-License-Identifier: Apache-2.0 */

/* Parts of tokens, their gates, and norms beside experts (inputs.cu, side.cu). */

#include "rows_of.h"

#define EPSILON 1e-6f
#define VOCABULARY 41u

/* ---- gates of parts ---- */

struct gate_case {
    size_t rows, width, parts, part;
    bool has_list;
};

static bool check_gate_with(struct rng *rng, const struct gate_case *shape, enum product_form form,
                            enum cuda_code code, enum cuda_gate_kind kind) {
    const size_t rows = shape->rows, width = shape->width, all = shape->parts * width;
    if (rng_below(rng, check_one_in) != 0) return true;
    struct random_product in = random_product(rng, form, rows, width, width + 16, 3.0f);
    std::vector<uint16_t> with = random_bf16(rng, (rows + 2) * all, 1.0f);
    std::vector<uint32_t> list(rows);
    std::vector<double> want(rows * width);
    for (size_t i = 0; i < rows; i++)
        list[i] = shape->has_list ? (uint32_t)rng_below(rng, rows + 2) : (uint32_t)i;
    for (size_t i = 0; i < rows * width; i++) {
        const double gate = in.values[i];
        const double inner = 0.797884560802865 * (gate + 0.044715 * gate * gate * gate);
        want[i] = (kind == CUDA_SILU ? gate / (1 + exp(-gate)) : gate / (1 + exp(-2 * inner))) *
                  bf16_to_f32(with[list[i / width] * all + shape->part * width + i % width]);
    }
    struct cuda_gate_with call = {};
    call.in = in.product, call.kind = kind;
    call.with = gpu_copy(with) + shape->part * width, call.with_stride = all;
    if (shape->has_list) call.with_rows = gpu_copy(list);
    call.y = take_rows(code, rows, width + 16);
    call.width = (uint32_t)width, call.rows = (uint32_t)rows;
    MUST_BE_OK(cuda_gate_with(&call, stream, error));
    gpu_settle();
    const bool is_well = are_rows(&call.y, rows, width, want);
    if (!is_well) note("rows %zu, width %zu", rows, width);
    gpu_release();
    return is_well;
}

static void check_gates(struct rng *rng) {
    static const struct gate_case cases[] = {{0, 256, 3, 1, false},  {1, 8, 1, 0, false},
                                             {1, 32, 6, 5, true},    {17, 256, 42, 41, true},
                                             {9, 264, 2, 1, false},  {5, 1024, 3, 2, true},
                                             {1030, 256, 2, 0, true}};
    for (int form = FORM_BF16; form < FORM_COUNT; form++)
        for (enum cuda_code code : {CUDA_BF16, CUDA_E4M3, CUDA_INT8}) {
            bool is_well = true;
            for (const struct gate_case &shape : cases)
                for (enum cuda_gate_kind kind : {CUDA_SILU, CUDA_GELU_TANH})
                    is_well &= check_gate_with(rng, &shape, (enum product_form)form, code, kind);
            report(is_well, "gate of parts: %s to %s", form_names[form], code_names[code]);
        }
}

/* ---- parts of tokens ---- */

static bool are_bf16(const std::vector<uint16_t> &got, const std::vector<double> &want,
                     double least_room) {
    for (size_t i = 0; i < want.size(); i++) {
        const double value = bf16_to_f32(got[i]);
        if (fabs(value - want[i]) <= bf16_room(want[i]) * 1.02 + least_room) continue;
        note("number %zu: %g, not %g", i, value, want[i]);
        return false;
    }
    return true;
}

static bool check_inputs(struct rng *rng, uint32_t rows, uint32_t width, uint32_t parts,
                         enum product_form form) {
    const size_t all = (size_t)parts * width;
    if (rng_below(rng, check_one_in) != 0) return true;
    const float in_scale = 0.02f, table_scale = 16;
    struct random_product in = random_product(rng, form, rows, all, all + 16, 30.0f);
    const std::vector<uint16_t> table = random_bf16(rng, VOCABULARY * all, 0.1f);
    const std::vector<float> weight = random_floats(rng, width, 1.0f);
    std::vector<int32_t> tokens(rows), last(3);
    std::vector<double> want(rows * all);
    for (int32_t &token : last) token = (int32_t)rng_below(rng, VOCABULARY);
    for (int32_t &token : tokens)
        token =
            rng_below(rng, 2) ? (int32_t)rng_below(rng, VOCABULARY) : ~(int32_t)rng_below(rng, 3);
    for (size_t first = 0; first < want.size(); first += width) {
        const int32_t token = tokens[first / all], id = token < 0 ? last[~token] : token;
        double squares = 0;
        for (uint32_t i = 0; i < width; i++)
            squares += in.values[first + i] * in.values[first + i] * in_scale * in_scale;
        const double factor = in_scale / sqrt(squares / width + EPSILON);
        for (uint32_t i = 0; i < width; i++)
            want[first + i] =
                sqrt(0.5) * (in.values[first + i] * factor * weight[i] +
                             bf16_to_f32(table[id * all + first % all + i]) * table_scale);
    }
    struct cuda_inputs call = {};
    call.in = in.product, call.in_scale = in_scale;
    call.table = gpu_copy(table), call.table_scale = table_scale;
    call.tokens = gpu_copy(tokens), call.last_token = gpu_copy(last);
    call.weight = gpu_copy(weight), call.epsilon = EPSILON;
    call.y = gpu_take<uint16_t>(rows * all);
    call.width = width, call.parts = parts, call.rows = rows;
    MUST_BE_OK(cuda_inputs(&call, stream, error));
    gpu_settle();
    const bool is_well = are_bf16(gpu_read(call.y, rows * all), want, 1e-5);
    if (!is_well) note("%u rows of %u parts of %u", rows, parts, width);
    gpu_release();
    return is_well;
}

/* ---- norms beside experts ---- */

static bool check_side_case(struct rng *rng, uint32_t rows, uint32_t width, bool has_plus,
                            bool is_in_place, enum product_form form) {
    if (rng_below(rng, check_one_in) != 0) return true;
    const size_t count = (size_t)rows * width;
    struct random_product in =
        random_product(rng, form, rows, width, is_in_place ? width : width + 16, 0.5f);
    const std::vector<float> weight = random_floats(rng, width, 1.0f);
    const std::vector<uint16_t> plus = random_bf16(rng, count, 1.0f);
    std::vector<double> want(count);
    for (size_t first = 0; first < count; first += width) {
        double squares = 0;
        for (uint32_t i = 0; i < width; i++) squares += in.values[first + i] * in.values[first + i];
        for (uint32_t i = 0; i < width; i++)
            want[first + i] = in.values[first + i] / sqrt(squares / width + EPSILON) * weight[i] +
                              (has_plus ? (double)bf16_to_f32(plus[first + i]) : 0);
    }
    struct cuda_side call = {};
    call.in = in.product, call.weight = gpu_copy(weight);
    if (has_plus) call.plus = gpu_copy(plus);
    call.y = is_in_place ? (uint16_t *)in.product.sums : gpu_take<uint16_t>(count);
    call.width = width, call.rows = rows, call.epsilon = EPSILON;
    MUST_BE_OK(cuda_side(&call, stream, error));
    gpu_settle();
    const bool is_well = are_bf16(gpu_read(call.y, count), want, 1e-5);
    if (!is_well) note("%u rows of %u", rows, width);
    gpu_release();
    return is_well;
}

void check_side(void) {
    struct rng rng = random_of("side");
    check_gates(&rng);
    for (int form = FORM_BF16; form < FORM_COUNT; form++) {
        const enum product_form is = (enum product_form)form;
        report(check_inputs(&rng, 0, 256, 2, is) && check_inputs(&rng, 1, 8, 1, is) &&
                   check_inputs(&rng, 3, 32, 6, is) && check_inputs(&rng, 5, 256, 42, is) &&
                   check_inputs(&rng, 2, 264, 9, is),
               "inputs: %s", form_names[form]);
        report(check_side_case(&rng, 0, 64, false, false, is) &&
                   check_side_case(&rng, 1, 8, false, false, is) &&
                   check_side_case(&rng, 5, 2816, true, false, is) &&
                   check_side_case(&rng, 33, 2048, false, false, is) &&
                   check_side_case(&rng, 3, 5384, true, form == FORM_BF16, is),
               "a norm beside experts: %s", form_names[form]);
    }
}

/* The E4B shape: 42 parts of 256; and the 26B-A4B's rows of 2,816. */
void bench_side(void) {
    const uint32_t width = 256, parts = 42, all = width * parts;
    uint16_t *table = gpu_take<uint16_t>((size_t)32768 * all);
    float *weight = gpu_take<float>(4096);
    fill_bf16(table, (size_t)32768 * all, 1, 1.0f), fill_f32(weight, 4096, 2, 1.0f);
    for (uint32_t rows : {64u, 512u, 2048u}) {
        const double bytes = (double)rows * all * 6, gate_bytes = (double)rows * width * 6;
        const int copies = cold_copies((size_t)(rows * all * 4));
        uint16_t *in = gpu_take<uint16_t>((size_t)copies * rows * all);
        uint16_t *y = gpu_take<uint16_t>((size_t)copies * rows * all);
        int32_t *tokens = gpu_take<int32_t>(rows);
        fill_bf16(in, (size_t)copies * rows * all, 3, 1.0f);
        fill_u32((uint32_t *)tokens, rows, 4, 32768);
        struct cuda_inputs call = {};
        call.in.stride = all, call.in_scale = 0.02f, call.table = table, call.table_scale = 16;
        call.tokens = tokens, call.weight = weight, call.epsilon = EPSILON;
        call.width = width, call.parts = parts, call.rows = rows;
        double us = time_us([&](int i) {
            call.in.sums = in + (size_t)(i % copies) * rows * all;
            call.y = y + (size_t)(i % copies) * rows * all;
            MUST_BE_OK(cuda_inputs(&call, stream, error));
        });
        bench_moved("inputs", us, bytes, "%u x %u x %u", rows, parts, width);
        struct cuda_gate_with gate = {};
        gate.kind = CUDA_GELU_TANH, gate.in.stride = width, gate.with_stride = all;
        gate.y.type = CUDA_BF16, gate.y.stride = width, gate.width = width, gate.rows = rows;
        us = time_us([&](int i) {
            gate.in.sums = in + (size_t)(i % copies) * rows * all;
            gate.with = in + (size_t)(i % copies) * rows * all + (size_t)(i % parts) * width;
            gate.y.codes = y + (size_t)(i % copies) * rows * all;
            MUST_BE_OK(cuda_gate_with(&gate, stream, error));
        });
        bench_moved("gate of parts", us, gate_bytes, "%u x %u", rows, width);
        struct cuda_side side = {};
        side.in.stride = 2816, side.weight = weight, side.width = 2816, side.rows = rows;
        side.epsilon = EPSILON;
        us = time_us([&](int i) {
            side.in.sums = in + (size_t)(i % copies) * rows * all;
            side.plus = in + (size_t)(i % copies) * rows * all + (size_t)rows * 2816;
            side.y = y + (size_t)(i % copies) * rows * all;
            MUST_BE_OK(cuda_side(&side, stream, error));
        });
        bench_moved("side", us, (double)rows * 2816 * 6, "%u x 2816", rows);
        gpu_release();
        table = gpu_take<uint16_t>((size_t)32768 * all), weight = gpu_take<float>(4096);
        fill_bf16(table, (size_t)32768 * all, 1, 1.0f), fill_f32(weight, 4096, 2, 1.0f);
    }
    gpu_release();
}
