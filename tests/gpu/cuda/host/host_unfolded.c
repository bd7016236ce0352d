/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/attention_unfolded.h in plain C. */

#include "gpu/cuda/attention_unfolded.h"

#include "host_kernels.h"

#include <assert.h>
#include <math.h>
#include <string.h>

bool cuda_has_unfolded(void) {
    return true;
}

HOST_AGAIN(cuda_entry_rows)
enum err cuda_entry_rows(const struct cuda_entry_rows *call, cuda_stream stream,
                         struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_entry_rows, call, sizeof *call, NULL, 0)) return OK;
    const size_t dim = call->rank + call->turned_dim;
    for (size_t row = 0; row < (size_t)call->page_count * CUDA_PAGE_TOKENS; row++) {
        const size_t slot =
            call->pages[row / CUDA_PAGE_TOKENS] * (size_t)CUDA_PAGE_TOKENS + row % CUDA_PAGE_TOKENS;
        memcpy((uint16_t *)call->y + row * call->rank, (const uint16_t *)call->entries + slot * dim,
               call->rank * sizeof(uint16_t));
    }
    return OK;
}

HOST_AGAIN(cuda_unfold_heads)
enum err cuda_unfold_heads(const struct cuda_unfold_heads *call, cuda_stream stream,
                           struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_unfold_heads, call, sizeof *call, NULL, 0)) return OK;
    const size_t rank = call->rank, each = CUDA_UNFOLDED_STILL;
    const uint16_t *k_b = call->k_b, *v_b = call->v_b;
    uint16_t *to = call->kv_b;
    for (size_t head = 0; head < call->heads; head++)
        for (size_t i = 0; i < each; i++)
            for (size_t r = 0; r < rank; r++) {
                to[((2 * head) * each + i) * rank + r] = k_b[(head * rank + r) * each + i];
                to[((2 * head + 1) * each + i) * rank + r] = v_b[(head * each + i) * rank + r];
            }
    return OK;
}

static float product(const uint16_t *a, const uint16_t *b, uint32_t count) {
    float sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += host_from_bf16(a[i]) * host_from_bf16(b[i]);
    return sum;
}

/* A row and head over the keys of its item that it sees. */
static void attend(const struct cuda_unfolded *call, const struct gpu_tile_item *item, size_t first,
                   size_t row, size_t head) {
    const size_t at = row * call->heads + head, each = CUDA_UNFOLDED_HEAD;
    const uint16_t *still = (const uint16_t *)call->still + at * CUDA_UNFOLDED_STILL;
    const uint16_t *turned = (const uint16_t *)call->turned + at * call->turned_stride;
    const uint32_t seen = call->positions[row] + 1, end = seen < item->end ? seen : item->end;
    float sums[CUDA_UNFOLDED_VALUE] = {0}, most = -INFINITY, all = 0;
    for (uint32_t t = item->begin; t < end; t++) {
        const uint16_t *key =
            (const uint16_t *)call->unfolded + ((first + t) * call->heads + head) * each;
        const size_t slot =
            call->pages[item->pages + t / CUDA_PAGE_TOKENS] * (size_t)CUDA_PAGE_TOKENS +
            t % CUDA_PAGE_TOKENS;
        const uint16_t *entry =
            (const uint16_t *)call->entries + (slot + 1) * call->entry_dim - CUDA_UNFOLDED_TURNED;
        const float score = call->scale * (product(still, key, CUDA_UNFOLDED_STILL) +
                                           product(turned, entry, CUDA_UNFOLDED_TURNED));
        const float now = fmaxf(most, score), before = expf(most - now), own = expf(score - now);
        for (uint32_t i = 0; i < CUDA_UNFOLDED_VALUE; i++)
            sums[i] = sums[i] * before + own * host_from_bf16(key[CUDA_UNFOLDED_STILL + i]);
        all = all * before + own;
        most = now;
    }
    uint16_t *y = (uint16_t *)call->y + row * call->y_stride + head * CUDA_UNFOLDED_VALUE;
    for (uint32_t i = 0; i < CUDA_UNFOLDED_VALUE; i++) y[i] = host_to_bf16(sums[i] / all);
}

HOST_AGAIN_ITEMS(cuda_attention_unfolded)
enum err cuda_attention_unfolded(const struct cuda_unfolded *call,
                                 const struct cuda_tile_items *items, cuda_stream stream,
                                 struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_attention_unfolded, call, sizeof *call, items,
                    sizeof *items))
        return OK;
    for (uint32_t n = 0; n < items->item_count; n++) {
        const struct gpu_tile_item *item = &items->items[n];
        assert(item->row_count <= CUDA_UNFOLDED_ROWS && !items->rows);
        for (uint32_t i = 0; i < item->row_count; i++)
            for (uint32_t head = 0; head < call->heads; head++)
                attend(call, item, call->firsts[n], item->row + i, head);
    }
    return OK;
}
