/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/attention.h"

#include "gpu/cuda/attention_of.cuh"
#include "gpu/cuda/attention_share.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/ptx.cuh"

#define MERGE_THREADS 128

static enum err is_latent_known(const struct cuda_attention *call, struct error *error) {
    if (cuda_has_latent(call->head_dim, call->turned_dim, call->head_count) &&
        call->kv_heads == 1 && call->type == CUDA_KV_BF16)
        return OK;
    return err_set(error, ERR_INVALID, "no attention kernel has entries of %u + %u for %u heads",
                   call->head_dim, call->turned_dim, call->head_count);
}

static enum err is_known(const struct cuda_attention *call, struct error *error) {
    if (call->turned_dim > 0) return is_latent_known(call, error);
    const bool is_wide = call->head_dim == CUDA_HEAD_WIDE && call->type == CUDA_KV_BF16;
    if (!cuda_has_head_size(call->head_dim) && !is_wide)
        return err_set(error, ERR_INVALID, "no attention kernel has head size %u", call->head_dim);
    if (call->kv_heads == 0 || call->head_count % call->kv_heads != 0 ||
        call->head_count / call->kv_heads > CUDA_GROUP_MAX || call->head_count == 0)
        return err_set(error, ERR_INVALID, "no attention kernel has %u heads over %u KV heads",
                       call->head_count, call->kv_heads);
    return OK;
}

uint32_t cuda_tile_rows(uint32_t group) {
    return CUDA_TILE_ROWS / group;
}

enum err cuda_attention_decode(const struct cuda_attention *call,
                               const struct cuda_decode_items *items, cuda_stream stream,
                               struct error *error) {
    enum err err = is_known(call, error);
    if (err != OK) return err;
    if (call->turned_dim > 0) return cuda_decode_latent(call, items, stream, error);
    if (call->head_dim == CUDA_HEAD_WIDE) return cuda_decode_wide(call, items, stream, error);
    return call->type == CUDA_KV_E4M3 ? cuda_decode_e4m3(call, items, stream, error)
                                      : cuda_decode_bf16(call, items, stream, error);
}

enum err cuda_attention_tiles(const struct cuda_attention *call,
                              const struct cuda_tile_items *items, cuda_stream stream,
                              struct error *error) {
    enum err err = is_known(call, error);
    if (err != OK) return err;
    if (call->turned_dim > 0) return cuda_tiles_latent(call, items, stream, error);
    if (call->head_dim == CUDA_HEAD_WIDE) return cuda_tiles_wide(call, items, stream, error);
    if (cuda_has_groups()) return cuda_tiles_grouped(call, items, stream, error);
    return call->type == CUDA_KV_E4M3 ? cuda_tiles_e4m3(call, items, stream, error)
                                      : cuda_tiles_bf16(call, items, stream, error);
}

/* One block a row and head: few rows are ever cut. */
__global__ void __launch_bounds__(MERGE_THREADS)
    cuda_merge(struct cuda_attention call, struct cuda_merge_items items) {
    const uint32_t index = blockIdx.x / call.head_count, head = blockIdx.x % call.head_count;
    const struct gpu_merge_item item = items.items[index];
    wait_for_before();
    const float *ml = call.partial_ml + ((size_t)item.first * call.head_count + head) * 2;
    const float *o = call.partial_o + ((size_t)item.first * call.head_count + head) * call.head_dim;
    const size_t next = (size_t)call.head_count * call.head_dim;
    float m = -1e30f, l = 0;
    for (uint32_t i = 0; i < item.count; i++) m = fmaxf(m, ml[i * call.head_count * 2]);
    for (uint32_t i = 0; i < item.count; i++)
        l += ml[i * call.head_count * 2 + 1] * cuda_exp2(ml[i * call.head_count * 2] - m);
    const float share = cuda_share(&call, head, m, l);
    uint32_t *y = (uint32_t *)call.y + (item.row * call.y_stride + head * call.head_dim) / 2;
    for (uint32_t e = threadIdx.x; e < call.head_dim / 2; e += MERGE_THREADS) {
        float2 sum = make_float2(0, 0);
        for (uint32_t i = 0; i < item.count; i++) {
            float factor = cuda_exp2(ml[i * call.head_count * 2] - m) * share;
            float2 more = *(const float2 *)(o + i * next + 2 * e);
            sum.x += more.x * factor, sum.y += more.y * factor;
        }
        y[e] = cuda_pack_bf16(sum.x, sum.y);
    }
}

enum err cuda_attention_merge(const struct cuda_attention *call,
                              const struct cuda_merge_items *items, cuda_stream stream,
                              struct error *error) {
    enum err err = is_known(call, error);
    if (err != OK) return err;
    return cuda_launch<cuda_merge>("attention merge", items->item_count * call->head_count,
                                   MERGE_THREADS, 0, stream, error, *call, *items);
}

CUDA_MODULE(attention, cuda_merge)
