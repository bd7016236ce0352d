/* SPDX-License-Identifier: Apache-2.0 */
#include "rows_of.h"

struct gate_case {
    size_t rows, width, stride, y_stride;
};

static const struct gate_case cases[] = {
    {0, 64, 128, 64},
    {1, 8, 16, 8},
    {1, 1, 2, 1},
    {3, 100, 200, 100},
    {2, 101, 203, 107},
    {17, 64, 136, 72},
    {5, 9728, 19456, 9728},
    {3, 14336, 28672, 14336},
    {3, 10240, 20480, 10248},
    {3, 10760, 21520, 10760},
    {2, 16128, 32256, 16128},
    {2, 16136, 32272, 16136},
    {2, 16384, 32768, 16384},
    {2, 16392, 32784, 16392},
    {4, 2560, 5121, 2560},
    {15, 8192, 16384, 8200},
    {517, 1032, 2064, 1032},
};

static bool check_case(struct rng *rng, const struct gate_case *shape, enum product_form form,
                       enum cuda_code code, enum cuda_gate_kind kind, float factor = 0) {
    size_t rows = shape->rows, width = shape->width, all = kind == CUDA_RELU2 ? width : 2 * width;
    if (rng_below(rng, check_one_in) != 0) return true;
    struct random_product in = random_product(rng, form, rows, all, shape->stride, 3.0f);
    std::vector<double> want(rows * width);
    for (size_t i = 0; i < rows * width; i++) {
        double gate = in.values[i / width * all + i % width] * (factor > 0 ? factor : 1);
        double up = in.values[i / width * all + (all - width) + i % width];
        double inner = 0.797884560802865 * (gate + 0.044715 * gate * gate * gate);
        want[i] = kind == CUDA_RELU2 ? fmax(gate, 0) * fmax(gate, 0)
                                     : up * (kind == CUDA_SILU ? gate / (1 + exp(-gate))
                                                               : gate / (1 + exp(-2 * inner)));
    }
    struct cuda_gate call = {};
    call.in = in.product, call.factor = factor;
    call.kind = kind;
    call.y = take_rows(code, rows, shape->y_stride);
    call.width = (uint32_t)width;
    call.rows = (uint32_t)rows;
    MUST_BE_OK(cuda_gate(&call, stream, error));
    gpu_settle();
    bool is_well = are_rows(&call.y, rows, width, want);
    if (!is_well) note("rows %zu, width %zu, stride %zu", rows, width, shape->stride);
    gpu_release();
    return is_well;
}

/* Numbers at which an exponential overflows or vanishes. */
static void check_edges(void) {
    const float edges[8] = {0.0f, -0.0f, 100.0f, -100.0f, 3e38f, -3e38f, -88.0f, 1e-30f};
    std::vector<uint16_t> in(16, bf16_from_f32(1.0f));
    for (int i = 0; i < 8; i++) in[i] = bf16_from_f32(edges[i]);
    for (int kind = 0; kind < 2; kind++) {
        struct cuda_gate call = {};
        call.in.sums = gpu_copy(in), call.in.stride = 16;
        call.kind = (enum cuda_gate_kind)kind;
        call.y = take_rows(CUDA_BF16, 1, 8);
        call.width = 8, call.rows = 1;
        MUST_BE_OK(cuda_gate(&call, stream, error));
        gpu_settle();
        std::vector<float> got = floats_of_bf16(gpu_read((uint16_t *)call.y.codes, 8));
        bool is_well = got[0] == 0 && got[1] == 0 && got[2] == 100 && got[3] == 0 &&
                       got[4] > 2.9e38f && got[5] == 0 && fabsf(got[6]) < 1e-30f &&
                       fabsf(got[7] - 5e-31f) < 1e-32f;
        if (!is_well)
            note("%g %g %g %g %g %g %g %g", got[0], got[1], got[2], got[3], got[4], got[5], got[6],
                 got[7]);
        report(is_well, "gate: %s of 0, 100, 3e38 and their negatives", kind ? "gelu" : "silu");
    }
    gpu_release();
}

/* Rows of attention times the sigmoid of gates that are in other rows of a product. */
static bool check_output_gate(struct rng *rng, enum product_form form, size_t rows, size_t width,
                              bool has_list) {
    const size_t gates = rows + 3, stride = width + 8;
    struct random_product gate = random_product(rng, form, gates, width, width + 16, 3.0f);
    std::vector<uint32_t> list(rows);
    std::vector<uint16_t> y(rows * stride, 0x1234);
    std::vector<double> want(rows * width);
    for (size_t i = 0; i < rows; i++)
        list[i] = has_list ? (uint32_t)rng_below(rng, gates) : (uint32_t)i;
    for (size_t i = 0; i < rows * width; i++) {
        uint16_t *at = &y[i / width * stride + i % width];
        *at = bf16_from_f32((float)(4.0 * rng_unit(rng) - 2.0));
        want[i] = bf16_to_f32(*at) / (1 + exp(-gate.values[list[i / width] * width + i % width]));
    }
    struct cuda_output_gate call = {};
    call.gate = gate.product;
    if (has_list) call.gate_rows = gpu_copy(list);
    call.y = gpu_copy(y);
    call.y_stride = stride;
    call.width = (uint32_t)width;
    call.rows = (uint32_t)rows;
    MUST_BE_OK(cuda_output_gate(&call, stream, error));
    gpu_settle();
    const std::vector<uint16_t> got = gpu_read(call.y, y.size());
    bool is_well = true;
    for (size_t i = 0; i < got.size(); i++) {
        const size_t column = i % stride, row = i / stride;
        if (column >= width)
            is_well &= got[i] == 0x1234;
        else
            is_well &= fabs(bf16_to_f32(got[i]) - want[row * width + column]) <=
                       1e-6 + 8e-3 * fabs(want[row * width + column]);
    }
    gpu_release();
    return is_well;
}

static void check_output_gates(struct rng *rng) {
    bool is_well = true;
    for (int form = FORM_BF16; form < FORM_COUNT; form++)
        for (size_t width : {8, 256, 2056, 4096})
            for (size_t rows : {0, 1, 37})
                is_well &= check_output_gate(rng, (enum product_form)form, rows, width, width > 99);
    report(is_well, "output_gate: rows of attention times the sigmoid of their gates");
    struct error error = {};
    struct cuda_output_gate call = {};
    call.width = 12;
    report(cuda_output_gate(&call, stream, &error) == ERR_INVALID && error.text[0],
           "output_gate: twelve columns are refused");
}

/* x += factor · h. */
static bool check_add(struct rng *rng, enum product_form form, size_t rows, size_t width) {
    const struct random_product h = random_product(rng, form, rows, width, width + 8, 2.0f);
    const std::vector<float> x = random_floats(rng, rows * (width + 4), 1.0f);
    struct cuda_add call = {};
    call.x = gpu_copy(x), call.x_stride = width + 4, call.h = h.product, call.factor = 0.75f;
    call.width = (uint32_t)width, call.rows = (uint32_t)rows;
    MUST_BE_OK(cuda_add(&call, stream, error));
    gpu_settle();
    const std::vector<float> got = gpu_read(call.x, x.size());
    bool is_well = true;
    for (size_t i = 0; i < x.size(); i++) {
        const size_t row = i / (width + 4), at = i % (width + 4);
        const double sum = x[i] + (at < width ? 0.75 * h.values[row * width + at] : 0);
        is_well &= fabs(got[i] - sum) <= 1e-5 * (1 + fabs(sum));
    }
    gpu_release();
    return is_well;
}

static void check_adds(struct rng *rng) {
    bool is_well = true;
    for (int form = FORM_BF16; form < FORM_COUNT; form++)
        for (size_t width : {4, 96, 1028})
            for (size_t rows : {0, 1, 19})
                is_well &= check_add(rng, (enum product_form)form, rows, width);
    report(is_well, "add: rows of products, with a factor");
    struct error error = {};
    struct cuda_add call = {};
    call.width = 6;
    report(cuda_add(&call, stream, &error) == ERR_INVALID && error.text[0],
           "add: six columns are refused");
}

/* A square without a second half, and gates with a factor. */
static void check_other_gates(struct rng *rng) {
    for (int form = FORM_BF16; form < FORM_COUNT; form++) {
        bool is_well = true, has_factors = true;
        for (int code = 0; code < 3; code++)
            for (struct gate_case shape : cases) {
                has_factors &= check_case(rng, &shape, (enum product_form)form,
                                          (enum cuda_code)code, CUDA_SILU, 0.6f);
                shape.stride -= shape.width;
                is_well &= check_case(rng, &shape, (enum product_form)form, (enum cuda_code)code,
                                      CUDA_RELU2);
            }
        report(is_well, "gate: relu2 of %s", form_names[form]);
        report(has_factors, "gate: silu of %s with a factor", form_names[form]);
    }
}

void check_gate(void) {
    struct rng rng = random_of("gate");
    for (int form = FORM_BF16; form < FORM_COUNT; form++)
        for (int code = 0; code < 3; code++)
            for (int kind = 0; kind < 2; kind++) {
                bool is_well = true;
                for (const struct gate_case &shape : cases)
                    is_well &= check_case(&rng, &shape, (enum product_form)form,
                                          (enum cuda_code)code, (enum cuda_gate_kind)kind);
                report(is_well, "gate: %s of %s to %s", kind ? "gelu_tanh" : "silu",
                       form_names[form], code_names[code]);
            }
    /* More rows than the GPU has multiprocessors, three times. */
    const struct gate_case large[] = {{397, 9728, 19456, 9728}, {401, 14336, 28672, 14336}};
    report(check_case(&rng, &large[0], FORM_INT32, CUDA_E4M3, CUDA_GELU_TANH) &&
               check_case(&rng, &large[1], FORM_BF16_SCALED, CUDA_INT8, CUDA_SILU) &&
               check_case(&rng, &large[0], FORM_BF16_SCALED, CUDA_E4M3, CUDA_SILU),
           "gate: many wide rows");
    check_other_gates(&rng);
    check_edges();
    check_output_gates(&rng);
    check_adds(&rng);
}

static void bench_one(uint32_t rows, uint32_t width, enum cuda_code code, enum cuda_sums sums,
                      bool is_scaled) {
    size_t count = (size_t)rows * width, in_bytes = sums == CUDA_SUMS_INT32 ? 4 : 2;
    double bytes = (double)count * (2 * in_bytes + code_bytes(code));
    int copies = cold_copies((size_t)bytes);
    uint8_t *in = gpu_take<uint8_t>(2 * count * copies * in_bytes);
    uint8_t *y = gpu_take<uint8_t>(count * copies * code_bytes(code));
    uint16_t *columns = gpu_take<uint16_t>(2 * width);
    float *row_scale = gpu_take<float>(rows), *y_scale = gpu_take<float>(rows);
    if (sums == CUDA_SUMS_INT32)
        fill_u32((uint32_t *)in, 2 * count * copies, 1, 100000);
    else
        fill_bf16(in, 2 * count * copies, 1, 1.0f);
    fill_f32(row_scale, rows, 2, is_scaled ? 0.01f : 1.0f), fill_bf16(columns, 2 * width, 3, 0.01f);
    double us = time_us([&](int i) {
        size_t at = (size_t)(i % copies) * count;
        struct cuda_gate call = {};
        call.in.sums = in + 2 * at * in_bytes, call.in.stride = 2 * width, call.in.type = sums;
        if (is_scaled) call.in.row_scale = row_scale, call.in.column_scale = columns;
        call.y = {y + at * code_bytes(code), code, width, y_scale};
        call.width = width, call.rows = rows;
        MUST_BE_OK(cuda_gate(&call, stream, error));
    });
    bench_moved("gate", us, bytes, "%u x %u %s%s -> %s", rows, width, is_scaled ? "scaled " : "",
                sums == CUDA_SUMS_INT32 ? "int32" : "bf16", code_names[code]);
    gpu_release();
}

void bench_gate(void) {
    for (uint32_t width : {8192u, 9728u, 10240u, 14336u}) /* Llama-3.2-1B to Llama-3.1-8B */
        for (uint32_t rows : {64u, 512u, 1024u, 2048u}) {
            bench_one(rows, width, CUDA_BF16, CUDA_SUMS_BF16, false);
            if (rows < 1024) continue;
            bench_one(rows, width, CUDA_E4M3, CUDA_SUMS_BF16, true);
            bench_one(rows, width, CUDA_INT8, CUDA_SUMS_INT32, true);
        }
}
