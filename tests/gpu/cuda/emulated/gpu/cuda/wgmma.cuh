/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wgmma, emulated: what src/inference/gpu/cuda/wgmma.cuh promises, in plain C. A product reads its
 * operands at once, or not before somebody waits for it: by turns of the runs. */

#include <cuda_runtime.h>

static inline uint64_t cuda_matrix_at(uint32_t address) {
    return address;
}
static inline uint64_t cuda_matrix_after(uint64_t matrix, uint32_t bytes) {
    return matrix + bytes;
}
static inline void cuda_show_products(void) {
}
static inline void cuda_products_begin(void) {
}
template <int N> static inline void cuda_products_pin(float (*)[4]) {
}
void cuda_products_commit(void);
void emulated_products_wait(int count);
template <int COUNT> static inline void cuda_products_wait(void) {
    emulated_products_wait(COUNT);
}
void emulated_scores(float (*sum)[4], int columns, uint64_t a, uint64_t b, int is_added);
template <int N>
static inline void cuda_product(float (*sum)[4], uint64_t a, uint64_t b, int is_added) {
    emulated_scores(sum, N, a, b, is_added);
}
void cuda_product_from(float (*sum)[4], const uint32_t a[4], uint64_t b);

void emulated_int8(int32_t (*sum)[4], int columns, uint64_t a, uint64_t b, int is_added);
template <int N>
static inline void cuda_product_int8(int32_t (*sum)[4], uint64_t a, uint64_t b, int is_added) {
    emulated_int8(sum, N, a, b, is_added);
}
template <int N> static inline void cuda_sums_pin(int32_t (*)[4]) {
}
void emulated_group_wait(int count);
template <int COUNT> static inline void cuda_group_wait(void) {
    emulated_group_wait(COUNT);
}
