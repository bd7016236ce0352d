/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"

#include "kernels/draw.h"

#include <assert.h>
#include <math.h>

static float largest_of(const float *x, size_t count) {
    float largest = -INFINITY;
    for (size_t i = 0; i < count; i++)
        if (x[i] > largest) largest = x[i];
    return largest;
}

uint64_t ref_weigh(const float *x, size_t count, const struct weighing *how,
                   uint32_t *ret_weights) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        ret_weights[i] = x[i] >= how->least ? draw_weight(x[i], how->max, how->factor) : 0;
        total += ret_weights[i];
    }
    return total;
}

float ref_log_sum_exp(const float *x, size_t count) {
    assert(count > 0);
    float largest = largest_of(x, count);
    double total = 0; /* 10⁵ terms would cost five bits in float */
    if (isinf(largest)) return largest;
    for (size_t i = 0; i < count; i++) total += (double)expf(x[i] - largest);
    return largest + (float)log(total);
}

uint32_t ref_argmax(const float *x, size_t count) {
    size_t best = 0;
    float largest = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (x[i] > largest) {
            largest = x[i];
            best = i;
        }
    }
    return (uint32_t)best;
}

/* Whether `a` stands behind `b` in the order of the result. */
static bool is_behind(struct scored a, struct scored b) {
    return a.value < b.value || (a.value == b.value && a.index > b.index);
}

void top_sink(struct scored *heap, size_t count, size_t at, struct scored entry) {
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && is_behind(heap[child + 1], heap[child])) child++;
        if (!is_behind(heap[child], entry)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
}

void top_begin(const float *x, size_t count, struct scored *ret_heap) {
    for (size_t i = 0; i < count; i++)
        ret_heap[i] = (struct scored){isnan(x[i]) ? -INFINITY : x[i], (uint32_t)i};
    for (size_t i = count / 2; i-- > 0;) top_sink(ret_heap, count, i, ret_heap[i]);
}

void top_end(struct scored *heap, size_t count) {
    for (size_t end = count; end-- > 1;) {
        struct scored hindmost = heap[0];
        top_sink(heap, end, 0, heap[end]);
        heap[end] = hindmost;
    }
}

size_t ref_top_k(const float *x, size_t count, size_t k, struct scored *ret_top) {
    size_t size = k < count ? k : count;
    if (size == 0) return 0;
    top_begin(x, size, ret_top);
    for (size_t i = size; i < count; i++)
        if (x[i] > ret_top[0].value) /* an equal one stands behind: its index is higher */
            top_sink(ret_top, size, 0, (struct scored){x[i], (uint32_t)i});
    top_end(ret_top, size);
    return size;
}
