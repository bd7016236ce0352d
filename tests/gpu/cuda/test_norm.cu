/* SPDX-License-Identifier: Apache-2.0 */
#include "rows_of.h"

#define EPSILON NORM_EPSILON

struct norm_case {
    size_t rows, width, stride, x_stride;
};

static const struct norm_case cases[] = {
    {0, 64, 64, 64},
    {1, 8, 8, 8},
    {1, 1, 1, 1},
    {3, 100, 100, 100},
    {2, 101, 103, 107},
    {17, 64, 72, 68},
    {16, 2048, 2048, 2048},
    {5, 2560, 2560, 2560},
    {15, 4096, 4104, 4096},
    {2, 5128, 5128, 5132},
    {3, 12160, 12160, 12160},
    {2, 12168, 12168, 12168},
    {1, 14336, 14336, 14336},
    {4, 2560, 2561, 2563},
    {513, 2560, 2560, 2560},
    {600, 2552, 2560, 2556},
    {700, 2048, 2056, 2048},
    {520, 4096, 4104, 4096},
};

static bool check_case(struct rng *rng, const struct norm_case *shape, enum product_form form,
                       enum cuda_code code, bool has_post) {
    size_t rows = shape->rows, width = shape->width;
    if (rng_below(rng, check_one_in) != 0) return true;
    struct random_product h = random_product(rng, form, rows, width, shape->stride, 0.5f);
    std::vector<float> x = random_floats(rng, rows * shape->x_stride, 2.0f);
    std::vector<float> weight = random_floats(rng, width, 1.0f),
                       post = random_floats(rng, width, 1.0f);
    bool is_bf16 = rng_below(rng, 2);
    float plus = rng_below(rng, 2) ? 1.0f : 0.0f, scale = rng_below(rng, 2) ? 0.37f : 1.0f;
    const bool is_bare = rng_below(rng, 3) == 0;
    std::vector<uint16_t> halves = random_bf16(rng, width, 1.0f);
    for (size_t i = 0; i < width && is_bf16; i++) weight[i] = plus + bf16_to_f32(halves[i]);
    if (rows > 1) /* a row of large numbers, and one of nothing */
        for (size_t i = 0; i < width; i++) x[i] *= 1e12f, x[shape->x_stride + i] = 0;
    std::vector<double> want_x(rows * width), want_y(rows * width);
    for (size_t i = 0; i < rows * width; i++)
        want_x[i] = x[i / width * shape->x_stride + i % width];
    norm_wants(&want_x, h.values, has_post ? post.data() : NULL, scale, is_bare, weight, rows,
               width, &want_y);

    struct cuda_norm call = {};
    call.x = gpu_copy(x);
    call.x_stride = shape->x_stride;
    call.h = h.product;
    call.post = has_post ? gpu_copy(post) : NULL;
    call.x_scale = scale, call.is_bare = is_bare;
    call.weight.at = gpu_copy(weight);
    if (is_bf16) call.weight = {gpu_copy(halves), true, plus};
    call.y = take_rows(code, rows, shape->stride);
    call.width = (uint32_t)width;
    call.rows = (uint32_t)rows;
    call.epsilon = EPSILON;
    MUST_BE_OK(cuda_norm(&call, stream, error));
    gpu_settle();
    bool is_well = are_rows(&call.y, rows, width, want_y);
    std::vector<float> got = gpu_read(call.x, rows * shape->x_stride);
    for (size_t i = 0; i < rows * width && is_well; i++) {
        double value = got[i / width * shape->x_stride + i % width];
        double size = fabs(want_x[i]) + fabs((double)x[i / width * shape->x_stride + i % width]);
        is_well = fabs(value - want_x[i]) <= 1e-5 * (size + 1);
        if (!is_well) note("residual %zu: %g, not %g", i, value, want_x[i]);
    }
    if (!is_well) note("rows %zu, width %zu, stride %zu", rows, width, shape->stride);
    gpu_release();
    return is_well;
}

/* What stands beside a row changes no bit of it, and a NaN stays in its row. */
static void check_alone(struct rng *rng) {
    const size_t rows = 33, width = 2560;
    std::vector<float> x = random_floats(rng, rows * width, 1.0f);
    std::vector<float> weight = random_floats(rng, width, 1.0f);
    x[7 * width + 5] = NAN;
    struct cuda_norm call = {};
    call.weight.at = gpu_copy(weight);
    call.x_stride = width, call.width = width, call.epsilon = EPSILON;
    call.y = take_rows(CUDA_BF16, rows, width);
    call.x = gpu_copy(x), call.rows = rows;
    MUST_BE_OK(cuda_norm(&call, stream, error));
    gpu_settle();
    std::vector<uint16_t> all = gpu_read((uint16_t *)call.y.codes, rows * width);
    call.x += 11 * width, call.rows = 1;
    MUST_BE_OK(cuda_norm(&call, stream, error));
    gpu_settle();
    std::vector<uint16_t> one = gpu_read((uint16_t *)call.y.codes, width);
    report(memcmp(one.data(), &all[11 * width], width * 2) == 0,
           "norm: a row alone is the same row");
    bool is_nan = true, is_number = true;
    for (size_t i = 0; i < width; i++) {
        is_nan = is_nan && std::isnan(bf16_to_f32(all[7 * width + i]));
        is_number = is_number && !std::isnan(bf16_to_f32(all[8 * width + i]));
    }
    report(is_nan && is_number, "norm: NaN fills its row and no other");
    gpu_release();
}

/* Whether a call of many rows, which has a kernel of its own on some GPUs, and calls of one row
 * leave the same bits: codes, scale and residual. */
static bool are_alone_the_same(struct rng *rng, size_t width, enum product_form form,
                               enum cuda_code code, bool has_post) {
    /* More than blocks that stay on an H200, so that a block has two rows; with 2,560 numbers four,
     * so that a ring of three comes to its first place again. */
    const size_t rows = width == 2560 ? 1700 : 700;
    const size_t row_bytes = width * code_bytes(code);
    if (rng_below(rng, check_one_in) != 0) return true;
    struct random_product h = random_product(rng, form, rows, width, width, 0.5f);
    const std::vector<float> x = random_floats(rng, rows * width, 2.0f);
    const std::vector<float> post = random_floats(rng, width, 1.0f);
    const std::vector<float> bias = random_floats(rng, width, 0.5f);
    const std::vector<uint16_t> weight = random_bf16(rng, width, 1.0f);
    struct cuda_norm call = {};
    call.x = gpu_copy(x), call.x_stride = width;
    call.h = h.product;
    if (rng_below(rng, 2)) call.h.bias = gpu_copy(bias);
    call.post = has_post ? gpu_copy(post) : NULL;
    call.x_scale = 0.37f;
    call.weight = {gpu_copy(weight), true, 1.0f};
    call.y = take_rows(code, rows, width);
    call.width = (uint32_t)width, call.rows = rows, call.epsilon = EPSILON;
    MUST_BE_OK(cuda_norm(&call, stream, error));
    gpu_settle();
    const std::vector<float> all_x = gpu_read(call.x, rows * width);
    const std::vector<uint8_t> all = gpu_read((uint8_t *)call.y.codes, rows * row_bytes);
    const std::vector<float> scales = gpu_read(call.y.scale, rows);
    bool is_same = true;
    for (size_t row : {(size_t)0, (size_t)11, (size_t)527, (size_t)528, (size_t)660, rows - 1}) {
        struct cuda_norm alone = call;
        alone.x = gpu_copy(x.data() + row * width, width);
        alone.h.sums = (const uint16_t *)call.h.sums + row * width;
        if (call.h.row_scale) alone.h.row_scale = call.h.row_scale + row;
        alone.y = take_rows(code, 1, width), alone.rows = 1;
        MUST_BE_OK(cuda_norm(&alone, stream, error));
        gpu_settle();
        const std::vector<float> one_x = gpu_read(alone.x, width);
        const std::vector<uint8_t> one = gpu_read((uint8_t *)alone.y.codes, row_bytes);
        const std::vector<float> scale = gpu_read(alone.y.scale, 1);
        bool is_equal = memcmp(one_x.data(), &all_x[row * width], width * 4) == 0 &&
                        memcmp(one.data(), &all[row * row_bytes], row_bytes) == 0 &&
                        memcmp(scale.data(), &scales[row], 4) == 0;
        if (!is_equal) note("row %zu of %zu, width %zu", row, rows, width);
        is_same = is_same && is_equal;
    }
    gpu_release();
    return is_same;
}

void check_norm(void) {
    struct rng rng = random_of("norm");
    for (int form = 0; form < FORM_COUNT; form++)
        for (int code = 0; code < 3; code++)
            for (int post = 0; post < (form == FORM_NONE ? 1 : 2); post++) {
                bool is_well = true;
                for (const struct norm_case &shape : cases)
                    is_well &= check_case(&rng, &shape, (enum product_form)form,
                                          (enum cuda_code)code, post);
                report(is_well, "norm: %s%s to %s", form_names[form], post ? ", normed," : "",
                       code_names[code]);
            }
    check_alone(&rng);
    static const struct {
        enum product_form form;
        enum cuda_code code;
    } pairs[] = {{FORM_BF16, CUDA_BF16},
                 {FORM_BF16, CUDA_INT8},
                 {FORM_BF16_SCALED, CUDA_E4M3},
                 {FORM_BF16_SCALED, CUDA_INT8}};
    for (const auto &pair : pairs)
        for (bool has_post : {false, true})
            report(are_alone_the_same(&rng, 2048, pair.form, pair.code, has_post) &&
                       are_alone_the_same(&rng, 2560, pair.form, pair.code, has_post) &&
                       are_alone_the_same(&rng, 2552, pair.form, pair.code, has_post) &&
                       are_alone_the_same(&rng, 4096, pair.form, pair.code, has_post),
                   "norm: a row of many, %s%s to %s, is the same row alone", form_names[pair.form],
                   has_post ? ", normed," : "", code_names[pair.code]);
}

static void bench_one(uint32_t rows, uint32_t width, enum cuda_code code, bool is_scaled,
                      bool has_post, bool is_bf16) {
    size_t count = (size_t)rows * width;
    double bytes = (double)count * (4 + 4 + 2 + code_bytes(code));
    int copies = cold_copies((size_t)bytes);
    float *x = gpu_take<float>(count * copies), *weight = gpu_take<float>(width);
    uint16_t *h = gpu_take<uint16_t>(count * copies), *columns = gpu_take<uint16_t>(width);
    uint8_t *y = gpu_take<uint8_t>(count * copies * code_bytes(code));
    float *row_scale = gpu_take<float>(rows), *y_scale = gpu_take<float>(rows);
    fill_f32(x, count * copies, 1, 1.0f), fill_bf16(h, count * copies, 2, 0.1f);
    fill_bf16(weight, width, 3, 1.0f), fill_f32(row_scale, rows, 4, 1.0f);
    fill_bf16(columns, width, 5, 1.0f);
    double us = time_us([&](int i) {
        size_t at = (size_t)(i % copies) * count;
        struct cuda_norm call = {};
        call.x = x + at, call.x_stride = width;
        call.h.sums = h + at, call.h.stride = width;
        if (is_scaled) call.h.row_scale = row_scale, call.h.column_scale = columns;
        call.weight = {weight, is_bf16, 0}, call.width = width, call.rows = rows,
        call.epsilon = EPSILON;
        if (has_post) call.post = weight, call.x_scale = 1;
        call.y = {y + at * code_bytes(code), code, width, y_scale};
        MUST_BE_OK(cuda_norm(&call, stream, error));
    });
    bench_moved("norm", us, bytes, "%u x %u %s%s -> %s%s", rows, width,
                is_scaled ? "scaled bf16" : "bf16", has_post ? " post" : "", code_names[code],
                is_bf16 ? "" : " (f32 weights)");
    gpu_release();
}

void bench_norm(void) {
    for (uint32_t width : {2048u, 2560u, 4096u})
        for (uint32_t rows : {64u, 512u, 1024u, 2048u}) {
            bench_one(rows, width, CUDA_BF16, false, false, true);
            if (rows < 512) continue;
            bench_one(rows, width, CUDA_E4M3, true, false, true);
            bench_one(rows, width, CUDA_INT8, false, false, true); /* as in scaled.h */
        }
    for (uint32_t rows : {64u, 1024u, 2048u}) {
        bench_one(rows, 2560, CUDA_BF16, false, true, true);
        bench_one(rows, 2560, CUDA_E4M3, true, true, true);
        bench_one(rows, 2560, CUDA_INT8, false, true, true);
    }
    bench_one(2048, 2560, CUDA_BF16, false, false, false);
    bench_one(1024, 4096, CUDA_INT8, true, false, true);
}
