/* SPDX-License-Identifier: Apache-2.0 */
#include "rows_of.h"

const char *const form_names[FORM_COUNT] = {"nothing",     "bf16",         "bf16 + bias",
                                            "scaled bf16", "scaled int32", "scaled int32 + bias"};
const char *const code_names[3] = {"bf16", "e4m3", "int8"};

size_t code_bytes(enum cuda_code code) {
    return code == CUDA_BF16 ? 2 : 1;
}

static void scale_product(struct rng *rng, struct random_product *made, size_t rows, size_t columns,
                          float deviation) {
    std::vector<float> row_scale(rows);
    std::vector<uint16_t> column_scale(columns);
    for (float &scale : row_scale) scale = deviation * (float)(0.5 + rng_unit(rng));
    for (uint16_t &scale : column_scale)
        scale = bf16_from_f32((float)(0.001 + 0.01 * rng_unit(rng)));
    for (size_t i = 0; i < rows * columns; i++)
        made->values[i] *= (double)row_scale[i / columns] * bf16_to_f32(column_scale[i % columns]);
    made->product.row_scale = gpu_copy(row_scale);
    made->product.column_scale = gpu_copy(column_scale);
}

struct random_product random_product(struct rng *rng, enum product_form form, size_t rows,
                                     size_t columns, size_t stride, float deviation) {
    struct random_product made = {};
    if (form == FORM_NONE) return made;
    bool is_int = form == FORM_INT32 || form == FORM_INT32_BIAS;
    bool is_scaled = is_int || form == FORM_BF16_SCALED;
    std::vector<int32_t> ints(rows * stride, 0x7fffffff);
    std::vector<uint16_t> halves(rows * stride, 0x7fc0); /* NaN between the rows */
    made.values.resize(rows * columns);
    for (size_t i = 0; i < rows * columns; i++) {
        size_t at = i / columns * stride + i % columns;
        float value = random_normal(rng) * (is_scaled ? 150.0f : deviation);
        ints[at] = (int32_t)lrintf(value * 10);
        halves[at] = bf16_from_f32(value);
        made.values[i] = is_int ? (double)ints[at] : (double)bf16_to_f32(halves[at]);
    }
    made.product.sums = is_int ? (void *)gpu_copy(ints) : (void *)gpu_copy(halves);
    made.product.type = is_int ? CUDA_SUMS_INT32 : CUDA_SUMS_BF16;
    made.product.stride = stride;
    if (is_scaled) scale_product(rng, &made, rows, columns, deviation);
    if (form == FORM_BF16_BIAS || form == FORM_INT32_BIAS) {
        std::vector<float> bias = random_floats(rng, columns, deviation);
        for (size_t i = 0; i < rows * columns; i++) made.values[i] += bias[i % columns];
        made.product.bias = gpu_copy(bias);
    }
    return made;
}

struct cuda_rows take_rows(enum cuda_code code, size_t rows, size_t stride) {
    struct cuda_rows y = {};
    y.codes = gpu_take_bytes(rows * stride * code_bytes(code));
    y.type = code;
    y.stride = stride;
    y.scale = gpu_take<float>(rows);
    return y;
}

double bf16_room(double want) {
    return want == 0 ? 1e-30 : ldexp(1, std::max(std::ilogb(want), -126) - 8);
}

/* The most a rightly rounded value may be away, with room for float32 sums in another order. */
static double tolerance_of(enum cuda_code code, double want, double scale) {
    double size = fabs(want);
    if (code == CUDA_BF16) return bf16_room(want) * 1.02 + 1e-12;
    if (code == CUDA_E4M3) return std::max(size * 0x1p-4, scale * 0x1p-10) * 1.001;
    return scale * 0.5 * 1.001;
}

static double code_at(const struct cuda_rows *y, const std::vector<uint8_t> &codes, size_t at) {
    if (y->type == CUDA_E4M3) return e4m3_to_f32(codes[at]);
    if (y->type == CUDA_INT8) return (int8_t)codes[at];
    uint16_t bits;
    memcpy(&bits, &codes[2 * at], 2);
    return bf16_to_f32(bits);
}

std::vector<double> mixed(const std::vector<double> &values, size_t width, double factor) {
    static const int signs[4][4] = {{1, 1, 1, 1}, {1, -1, 1, -1}, {1, 1, -1, -1}, {1, -1, -1, 1}};
    std::vector<double> made = values;
    for (size_t at = 0; at < values.size(); at++) {
        size_t column = at % width, first = at - column % 4;
        if (column / 4 * 4 + 4 > width) continue;
        made[at] = 0;
        for (size_t i = 0; i < 4; i++) made[at] += signs[column % 4][i] * values[first + i];
        made[at] *= factor;
    }
    return made;
}

bool are_rows(const struct cuda_rows *y, size_t rows, size_t width,
              const std::vector<double> &values) {
    const std::vector<double> want = y->type == CUDA_INT8 ? mixed(values, width, 1) : values;
    size_t bytes = code_bytes(y->type);
    std::vector<uint8_t> codes = gpu_read((const uint8_t *)y->codes, rows * y->stride * bytes);
    std::vector<float> scales = gpu_read(y->scale, rows);
    for (size_t row = 0; row < rows; row++) {
        double most = 0, scale = 1;
        for (size_t i = 0; i < width; i++) most = std::max(most, fabs(want[row * width + i]));
        if (y->type != CUDA_BF16) {
            scale = scales[row];
            double wanted = std::max(most / (y->type == CUDA_E4M3 ? 448 : 127), 1e-20);
            if (!(fabs(scale - wanted) <= 2e-5 * wanted)) {
                note("row %zu of %zu: scale %g, not %g", row, rows, scale, wanted);
                return false;
            }
        }
        for (size_t i = 0; i < width; i++) {
            double got = code_at(y, codes, row * y->stride + i) * scale,
                   right = want[row * width + i];
            if (std::isnan(right)
                    ? std::isnan(got)
                    : fabs(got - right) <= tolerance_of(y->type, right, scale) + 2e-6 * most)
                continue;
            note("row %zu of %zu, column %zu of %zu: %g, not %g (scale %g)", row, rows, i, width,
                 got, right, scale);
            return false;
        }
    }
    return true;
}

void norm_wants(std::vector<double> *x, const std::vector<double> &h, const float *post,
                float scale, bool is_bare, const std::vector<float> &weight, size_t rows,
                size_t width, std::vector<double> *ret_y) {
    for (size_t row = 0; row < rows; row++) {
        double *to = x->data() + row * width, squares = 0;
        const double *add = h.empty() ? NULL : h.data() + row * width;
        for (size_t i = 0; add && i < width; i++) squares += add[i] * add[i];
        double factor = 1 / sqrt(squares / (double)width + NORM_EPSILON);
        for (size_t i = 0; add && i < width; i++)
            to[i] = post ? (to[i] + add[i] * factor * post[i]) * scale : to[i] + add[i];
        squares = 0;
        for (size_t i = 0; i < width; i++) squares += to[i] * to[i];
        factor = is_bare ? 1 : 1 / sqrt(squares / (double)width + NORM_EPSILON);
        for (size_t i = 0; i < width; i++) (*ret_y)[row * width + i] = to[i] * factor * weight[i];
    }
}
