/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* rows_of: random products and expected rows, for the checks of gpu/cuda/rows.h. */

#include "harness.h"

extern "C" {
#include "gpu/cuda/rows.h"
}

enum product_form {
    FORM_NONE,
    FORM_BF16,
    FORM_BF16_BIAS,
    FORM_BF16_SCALED,
    FORM_INT32,
    FORM_INT32_BIAS,
    FORM_COUNT
};
extern const char *const form_names[FORM_COUNT];
extern const char *const code_names[3]; /* by enum cuda_code */

/* A product on the GPU and, as the kernels are to read it, its values on the host. */
struct random_product {
    struct cuda_product product;
    std::vector<double> values; /* (rows, columns) */
};
struct random_product random_product(struct rng *rng, enum product_form form, size_t rows,
                                     size_t columns, size_t stride, float deviation);

/* Rows of `width` values as INT8 codes mean them, times `factor` (struct cuda_rows). */
std::vector<double> mixed(const std::vector<double> &values, size_t width, double factor);

/* Rows on the GPU to be written, and the test whether they have `values` (rows, width), mixed
 * where the code is INT8. False after a note that names the place. */
struct cuda_rows take_rows(enum cuda_code code, size_t rows, size_t stride);
bool are_rows(const struct cuda_rows *y, size_t rows, size_t width,
              const std::vector<double> &values);

/* x (rows, width) and y as norm is to leave them; `h` may be empty, `post` NULL. `scale` is that of
 * x behind a norm of h; a bare norm leaves x · weight. */
#define NORM_EPSILON 1e-6f
void norm_wants(std::vector<double> *x, const std::vector<double> &h, const float *post,
                float scale, bool is_bare, const std::vector<float> &weight, size_t rows,
                size_t width, std::vector<double> *ret_y);

double bf16_room(double want); /* half of the last place */
size_t code_bytes(enum cuda_code code);
