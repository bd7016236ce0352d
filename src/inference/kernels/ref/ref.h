/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ref: every operation of kernels.h in plain C and float32; kernels.h has their contracts. Other
 * tables borrow the operations that need no speed.
 *
 * Thread: any.
 * Memory: none. */

#include "kernels/kernels.h"

void ref_activate(const struct matrix *matrix, const float *x, size_t x_stride, size_t rows,
                  void *ret_activations);
void ref_matmul(const struct matmul *call, uint32_t tile_begin, uint32_t tile_end);
void ref_rms_norm(const struct norm *call);
void ref_layer_norm(const struct norm *call);
void ref_rope(const struct rope *call);
void ref_silu_mul(const struct gate *call);
void ref_gelu_tanh_mul(const struct gate *call);
void ref_sigmoid_mul(const struct gate *call);
void ref_clamped_mul(const struct gate *call);
void ref_relu2(float *x, size_t x_stride, size_t width, size_t rows);
void ref_xielu(const struct xielu *call);
void ref_gelu_erf(float *x, size_t x_stride, size_t width, size_t rows);
void ref_add(const float *x, float *y, size_t count);
void ref_route(const struct route *call);
void ref_short_conv(const struct short_conv *call, const struct recurrent_item *item,
                    uint32_t channel_begin, uint32_t channel_end);
void ref_delta_rule(const struct delta_rule *call, const struct recurrent_item *item,
                    uint32_t head_begin, uint32_t head_end);
void ref_mamba(const struct mamba *call, const struct recurrent_item *item, uint32_t head_begin,
               uint32_t head_end);
void ref_gated_norm(const struct gated_norm *call);
void ref_kv_store(const struct kv_store *call, uint32_t kv_head_begin, uint32_t kv_head_end);
void ref_attention(const struct attention *call, const struct attention_group *group,
                   uint32_t kv_head_begin, uint32_t kv_head_end);
void ref_latent_store(const struct latent_store *call);
void ref_latent_attend(const struct latent_attention *call, const struct attention_item *item,
                       uint32_t head_begin, uint32_t head_end);
uint64_t ref_weigh(const float *x, size_t count, const struct weighing *how, uint32_t *ret_weights);
float ref_log_sum_exp(const float *x, size_t count);
uint32_t ref_argmax(const float *x, size_t count);
size_t ref_top_k(const float *x, size_t count, size_t k, struct scored *ret_top);

/* The heap of top_k, for tables that only scan faster. Its first entry leaves the heap next. Begin
 * with the first `count` values, sink in each value above heap[0].value at 0, end by sorting. */
void top_begin(const float *x, size_t count, struct scored *ret_heap);
void top_sink(struct scored *heap, size_t count, size_t at, struct scored entry);
void top_end(struct scored *heap, size_t count);

extern const struct kernels ref_kernels;
