/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* avx512: the operations of the tables "avx512" and "avx512-bf16"; kernels.h has their contracts.
 * Call them only on a CPU with AVX-512 F, BW, DQ, VL and VNNI, those named bf16 only with BF16 too.
 *
 * Thread: any.
 * Memory: none. */

#include "kernels/kernels.h"

void avx512_activate(const struct matrix *matrix, const float *x, size_t x_stride, size_t rows,
                     void *ret_activations);
void avx512_matmul(const struct matmul *call, uint32_t tile_begin, uint32_t tile_end);
void avx512_bf16_activate(const struct matrix *matrix, const float *x, size_t x_stride, size_t rows,
                          void *ret_activations);
void avx512_bf16_matmul(const struct matmul *call, uint32_t tile_begin, uint32_t tile_end);

void avx512_rms_norm(const struct norm *call);
void avx512_layer_norm(const struct norm *call);
void avx512_rope(const struct rope *call);
void avx512_silu_mul(const struct gate *call);
void avx512_gelu_tanh_mul(const struct gate *call);
void avx512_sigmoid_mul(const struct gate *call);
void avx512_clamped_mul(const struct gate *call);
void avx512_relu2(float *x, size_t x_stride, size_t width, size_t rows);
void avx512_xielu(const struct xielu *call);
void avx512_gelu_erf(float *x, size_t x_stride, size_t width, size_t rows);
void avx512_add(const float *x, float *y, size_t count);

void avx512_short_conv(const struct short_conv *call, const struct recurrent_item *item,
                       uint32_t channel_begin, uint32_t channel_end);
void avx512_delta_rule(const struct delta_rule *call, const struct recurrent_item *item,
                       uint32_t head_begin, uint32_t head_end);
void avx512_mamba(const struct mamba *call, const struct recurrent_item *item, uint32_t head_begin,
                  uint32_t head_end);
void avx512_gated_norm(const struct gated_norm *call);

void avx512_kv_store(const struct kv_store *call, uint32_t kv_head_begin, uint32_t kv_head_end);
void avx512_attention(const struct attention *call, const struct attention_group *group,
                      uint32_t kv_head_begin, uint32_t kv_head_end);
void avx512_bf16_kv_store(const struct kv_store *call, uint32_t kv_head_begin,
                          uint32_t kv_head_end);
void avx512_bf16_attention(const struct attention *call, const struct attention_group *group,
                           uint32_t kv_head_begin, uint32_t kv_head_end);

void avx512_bytes_kv_store(const struct kv_store *call, uint32_t kv_head_begin,
                           uint32_t kv_head_end);
void avx512_bytes_attention(const struct attention *call, const struct attention_group *group,
                            uint32_t kv_head_begin, uint32_t kv_head_end);

void avx512_latent_store(const struct latent_store *call);
void avx512_latent_attend(const struct latent_attention *call, const struct attention_item *item,
                          uint32_t head_begin, uint32_t head_end);

uint64_t avx512_weigh(const float *x, size_t count, const struct weighing *how,
                      uint32_t *ret_weights);
float avx512_log_sum_exp(const float *x, size_t count);
uint32_t avx512_argmax(const float *x, size_t count);
size_t avx512_top_k(const float *x, size_t count, size_t k, struct scored *ret_top);
