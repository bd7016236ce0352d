/* SPDX-License-Identifier: Apache-2.0 */
#include "rows_of.h"

extern "C" {
#include "gpu/cuda/texts.h"
}

/* ---- layer_norm ---- */

struct layer_norm_case {
    size_t rows, width, stride;
    bool has_bias, replaces;
};

static const struct layer_norm_case norm_cases[] = {
    {0, 64, 64, true, true},       {1, 8, 8, false, false},       {3, 104, 112, true, false},
    {17, 768, 768, true, true},    {33, 1024, 1032, false, true}, {5, 3072, 3072, true, true},
    {2, 8192, 8192, false, false}, {9, 384, 384, true, true},     {515, 256, 264, true, true},
};

static bool check_layer_norm_case(struct rng *rng, const struct layer_norm_case *shape,
                                  enum product_form form, enum cuda_code code) {
    const size_t rows = shape->rows, width = shape->width, stride = shape->stride;
    if (rng_below(rng, check_one_in) != 0) return true;
    const float epsilon = 1e-5f;
    struct random_product h = random_product(rng, form, rows, width, stride, 1.0f);
    std::vector<float> x = random_floats(rng, rows * stride, 2.0f);
    for (size_t i = 0; i < x.size(); i++) x[i] += 3; /* a mean that is not 0 */
    const std::vector<float> weight = random_floats(rng, width, 1.0f);
    const std::vector<float> bias = random_floats(rng, width, 0.5f);
    std::vector<double> want(rows * width), left(rows * width);
    for (size_t row = 0; row < rows; row++) {
        double sum = 0, squares = 0;
        double *y = &left[row * width];
        for (size_t i = 0; i < width; i++) {
            y[i] =
                (double)x[row * stride + i] + (form == FORM_NONE ? 0 : h.values[row * width + i]);
            sum += y[i];
        }
        for (size_t i = 0; i < width; i++) squares += pow(y[i] - sum / width, 2);
        for (size_t i = 0; i < width; i++)
            want[row * width + i] =
                (y[i] - sum / width) / sqrt(squares / width + epsilon) * weight[i] +
                (shape->has_bias ? bias[i] : 0);
    }
    if (shape->replaces) left = want;
    struct cuda_layer_norm call = {};
    call.x = gpu_copy(x), call.x_stride = stride;
    call.h = h.product;
    call.weight = gpu_copy(weight), call.bias = shape->has_bias ? gpu_copy(bias) : NULL;
    call.replaces = shape->replaces;
    call.y = take_rows(code, rows, stride);
    call.width = (uint32_t)width, call.rows = (uint32_t)rows, call.epsilon = epsilon;
    MUST_BE_OK(cuda_layer_norm(&call, stream, error));
    gpu_settle();
    bool is_well = are_rows(&call.y, rows, width, want);
    const std::vector<float> after = gpu_read(call.x, rows * stride);
    for (size_t i = 0; i < after.size(); i++) {
        const size_t row = i / stride, column = i % stride;
        if (column >= width)
            is_well &= after[i] == x[i];
        else
            is_well &= fabs(after[i] - left[row * width + column]) <=
                       1e-5 * (1 + fabs(left[row * width + column]));
    }
    if (!is_well) note("rows %zu, width %zu, stride %zu", rows, width, stride);
    gpu_release();
    return is_well;
}

static void check_layer_norms(struct rng *rng) {
    for (int form = FORM_NONE; form < FORM_COUNT; form++)
        for (int code = CUDA_BF16; code <= CUDA_INT8; code++) {
            bool is_well = true;
            for (const struct layer_norm_case &shape : norm_cases)
                is_well &= check_layer_norm_case(rng, &shape, (enum product_form)form,
                                                 (enum cuda_code)code);
            report(is_well, "layer_norm: %s to %s", form_names[form], code_names[code]);
        }
}

/* ---- gelu ---- */

static bool check_gelu_case(struct rng *rng, size_t rows, size_t width, enum product_form form,
                            enum cuda_code code, bool is_gated) {
    if (rng_below(rng, check_one_in) != 0) return true;
    const size_t columns = (is_gated ? 2 : 1) * width;
    struct random_product in = random_product(rng, form, rows, columns, columns + 8, 3.0f);
    std::vector<double> want(rows * width);
    for (size_t i = 0; i < want.size(); i++) {
        const double *at = &in.values[i / width * columns + i % width];
        want[i] = at[0] / 2 * erfc(-at[0] / sqrt(2.0)) * (is_gated ? at[width] : 1);
    }
    struct cuda_gelu call = {};
    call.in = in.product, call.is_gated = is_gated;
    call.y = take_rows(code, rows, width + 16);
    call.width = (uint32_t)width, call.rows = (uint32_t)rows;
    MUST_BE_OK(cuda_gelu(&call, stream, error));
    gpu_settle();
    const bool is_well = are_rows(&call.y, rows, width, want);
    if (!is_well) note("rows %zu, width %zu, gated %d", rows, width, is_gated);
    gpu_release();
    return is_well;
}

static void check_gelus(struct rng *rng) {
    static const size_t shapes[][2] = {{0, 64},    {1, 8},    {3, 104},
                                       {17, 3072}, {5, 4104}, {2, 16384}};
    for (int form = FORM_BF16; form < FORM_COUNT; form++)
        for (int code = CUDA_BF16; code <= CUDA_INT8; code++) {
            bool is_well = true;
            for (const size_t *shape : shapes)
                for (int is_gated = 0; is_gated < 2; is_gated++)
                    is_well &= check_gelu_case(rng, shape[0], shape[1], (enum product_form)form,
                                               (enum cuda_code)code, is_gated);
            report(is_well, "gelu: %s to %s, alone and as a gate", form_names[form],
                   code_names[code]);
        }
    const std::vector<uint16_t> in = {bf16_from_f32(100),
                                      bf16_from_f32(-100),
                                      bf16_from_f32(3e38f),
                                      bf16_from_f32(-3e38f),
                                      0,
                                      0x8000,
                                      bf16_from_f32(1e-30f),
                                      bf16_from_f32(-1e-30f)};
    struct cuda_gelu call = {};
    call.in.sums = gpu_copy(in), call.in.stride = 8;
    call.y = take_rows(CUDA_BF16, 1, 8);
    call.width = 8, call.rows = 1;
    MUST_BE_OK(cuda_gelu(&call, stream, error));
    gpu_settle();
    const std::vector<float> got = floats_of_bf16(gpu_read((uint16_t *)call.y.codes, 8));
    report(got[0] == 100 && got[1] == 0 && got[2] > 2.9e38f && got[3] == 0 && got[4] == 0 &&
               got[5] == 0 && fabsf(got[6] - 5e-31f) < 1e-32f && fabsf(got[7] + 5e-31f) < 1e-32f,
           "gelu: 100, 3e38, 0, 1e-30 and their negatives");
    gpu_release();
}

/* ---- pool, and positions of embed ---- */

static bool check_pool_case(struct rng *rng, size_t rows, size_t width, size_t stride) {
    std::vector<uint16_t> from = random_bf16(rng, rows * stride, 1.0f);
    std::vector<struct gpu_pool> pools;
    for (uint32_t row = 0; row < rows;) {
        const uint32_t most = (uint32_t)rows - row;
        const uint32_t count = 1 + (uint32_t)rng_below(rng, rng_below(rng, 2) ? most : 1);
        pools.push_back({row, count});
        row += count;
    }
    struct cuda_pool call = {};
    call.from = gpu_copy(from), call.from_stride = stride;
    call.pools = gpu_copy(pools), call.count = (uint32_t)pools.size();
    call.y = gpu_take<float>(pools.size() * stride), call.y_stride = stride;
    call.width = (uint32_t)width;
    MUST_BE_OK(cuda_pool(&call, stream, error));
    gpu_settle();
    const std::vector<float> got = gpu_read(call.y, pools.size() * stride);
    bool is_well = true;
    for (size_t i = 0; i < pools.size(); i++)
        for (size_t k = 0; k < width; k++) {
            double sum = 0, size = 0;
            for (uint32_t row = pools[i].row; row < pools[i].row + pools[i].rows; row++) {
                sum += bf16_to_f32(from[row * stride + k]);
                size += fabs(bf16_to_f32(from[row * stride + k]));
            }
            is_well &= fabs(got[i * stride + k] - sum) <= 1e-6 * size;
        }
    gpu_release();
    return is_well;
}

static bool check_places_case(struct rng *rng, uint32_t rows, uint32_t width) {
    const uint32_t vocabulary = 31, positions = 19;
    const std::vector<uint16_t> table = random_bf16(rng, (size_t)vocabulary * width, 1.0f);
    const std::vector<float> added = random_floats(rng, (size_t)positions * width, 1.0f);
    std::vector<int32_t> tokens(rows);
    std::vector<uint32_t> places(rows);
    for (uint32_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)rng_below(rng, vocabulary);
        places[i] = (uint32_t)rng_below(rng, positions);
    }
    struct cuda_embed call = {};
    call.table = gpu_copy(table), call.tokens = gpu_copy(tokens), call.scale = 1.5f;
    call.positions = gpu_copy(added), call.places = gpu_copy(places);
    call.x = gpu_take<float>((size_t)rows * width), call.x_stride = width;
    call.width = width, call.rows = rows;
    MUST_BE_OK(cuda_embed(&call, stream, error));
    gpu_settle();
    const std::vector<float> got = gpu_read(call.x, (size_t)rows * width);
    bool is_well = true;
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < width; i++)
            is_well &= got[(size_t)row * width + i] ==
                       bf16_to_f32(table[(size_t)tokens[row] * width + i]) * 1.5f +
                           added[(size_t)places[row] * width + i];
    gpu_release();
    return is_well;
}

void check_texts(void) {
    struct rng rng = random_of("texts");
    check_layer_norms(&rng);
    check_gelus(&rng);
    report(check_pool_case(&rng, 1, 8, 8) && check_pool_case(&rng, 40, 768, 776) &&
               check_pool_case(&rng, 333, 264, 264) && check_pool_case(&rng, 9, 2568, 2568),
           "pool: sums of one row and of many");
    report(check_places_case(&rng, 1, 8) && check_places_case(&rng, 40, 768) &&
               check_places_case(&rng, 5, 5384),
           "embed: rows of the table, and of positions");
}

static void bench_layer_norm(uint32_t rows, uint32_t width) {
    const size_t count = (size_t)rows * width;
    const int copies = cold_copies(count * 12);
    float *x = gpu_take<float>(count * copies), *vector = gpu_take<float>(width);
    uint16_t *h = gpu_take<uint16_t>(count * copies), *y = gpu_take<uint16_t>(count * copies);
    fill_f32(x, count * copies, 1, 1.0f);
    fill_f32(vector, width, 2, 1.0f);
    fill_bf16(h, count * copies, 3, 1.0f);
    const double us = time_us([&](int i) {
        const size_t at = (size_t)(i % copies) * count;
        struct cuda_layer_norm call = {};
        call.x = x + at, call.x_stride = width, call.replaces = true;
        call.h.sums = h + at, call.h.stride = width, call.h.bias = vector;
        call.weight = call.bias = vector;
        call.y.codes = y + at, call.y.stride = width;
        call.width = width, call.rows = rows, call.epsilon = 1e-12f;
        MUST_BE_OK(cuda_layer_norm(&call, stream, error));
    });
    bench_moved("layer_norm", us, (double)count * 12, "%u x %u", rows, width);
    gpu_release();
}

static void bench_gelu(uint32_t rows, uint32_t width) {
    const size_t count = (size_t)rows * width;
    const int copies = cold_copies(count * 4);
    float *bias = gpu_take<float>(width);
    uint16_t *in = gpu_take<uint16_t>(count * copies), *y = gpu_take<uint16_t>(count * copies);
    fill_f32(bias, width, 2, 1.0f);
    fill_bf16(in, count * copies, 3, 1.0f);
    const double us = time_us([&](int i) {
        const size_t at = (size_t)(i % copies) * count;
        struct cuda_gelu call = {};
        call.in.sums = in + at, call.in.stride = width, call.in.bias = bias;
        call.y.codes = y + at, call.y.stride = width;
        call.width = width, call.rows = rows;
        MUST_BE_OK(cuda_gelu(&call, stream, error));
    });
    bench_moved("gelu", us, (double)count * 4, "%u x %u", rows, width);
    gpu_release();
}

void bench_texts(void) {
    for (uint32_t rows : {2048u, 8192u}) {
        bench_layer_norm(rows, 768);
        bench_gelu(rows, 3072);
    }
}
