/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* avx2: the operations of the table "avx2"; kernels.h has their contracts. Call them only on a CPU
 * with AVX2, FMA and F16C.
 *
 * Thread: any.
 * Memory: none. */

#include "kernels/kernels.h"

bool avx2_fill_tile(const struct matrix *matrix, const struct matrix_tile *tile,
                    const unsigned char *const *rows);
void avx2_activate(const struct matrix *matrix, const float *x, size_t x_stride, size_t rows,
                   void *ret_activations);
void avx2_matmul(const struct matmul *call, uint32_t tile_begin, uint32_t tile_end);

void avx2_rms_norm(const struct norm *call);
void avx2_layer_norm(const struct norm *call);
void avx2_rope(const struct rope *call);
void avx2_silu_mul(const struct gate *call);
void avx2_gelu_tanh_mul(const struct gate *call);
void avx2_sigmoid_mul(const struct gate *call);
void avx2_clamped_mul(const struct gate *call);
void avx2_relu2(float *x, size_t x_stride, size_t width, size_t rows);
void avx2_xielu(const struct xielu *call);
void avx2_gelu_erf(float *x, size_t x_stride, size_t width, size_t rows);
void avx2_add(const float *x, float *y, size_t count);

void avx2_short_conv(const struct short_conv *call, const struct recurrent_item *item,
                     uint32_t channel_begin, uint32_t channel_end);
void avx2_delta_rule(const struct delta_rule *call, const struct recurrent_item *item,
                     uint32_t head_begin, uint32_t head_end);
void avx2_mamba(const struct mamba *call, const struct recurrent_item *item, uint32_t head_begin,
                uint32_t head_end);
void avx2_gated_norm(const struct gated_norm *call);

void avx2_kv_store(const struct kv_store *call, uint32_t kv_head_begin, uint32_t kv_head_end);
void avx2_attention(const struct attention *call, const struct attention_group *group,
                    uint32_t kv_head_begin, uint32_t kv_head_end);

void avx2_bytes_kv_store(const struct kv_store *call, uint32_t kv_head_begin, uint32_t kv_head_end);
void avx2_bytes_attention(const struct attention *call, const struct attention_group *group,
                          uint32_t kv_head_begin, uint32_t kv_head_end);

void avx2_latent_store(const struct latent_store *call);
void avx2_latent_attend(const struct latent_attention *call, const struct attention_item *item,
                        uint32_t head_begin, uint32_t head_end);

uint64_t avx2_weigh(const float *x, size_t count, const struct weighing *how,
                    uint32_t *ret_weights);
float avx2_log_sum_exp(const float *x, size_t count);
uint32_t avx2_argmax(const float *x, size_t count);
size_t avx2_top_k(const float *x, size_t count, size_t k, struct scored *ret_top);
