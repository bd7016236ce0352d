/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/reduce.h in plain C. A rank's call runs at once, so the parts of the others
 * must be there: the host code makes the calls of all ranks operation by operation. */

#include "gpu/cuda/reduce.h"

#include "host_kernels.h"

#include <assert.h>
#include <stdlib.h>

/* Says the number to the other ranks; none of them is a call ahead. */
static void say(const struct cuda_reduce *call) {
    for (uint32_t i = 0; i < call->ranks; i++) {
        if (i == call->rank) continue;
        const uint32_t said = call->words[call->rank][i];
        assert((int32_t)(said - call->number) <= 0);
        assert((int32_t)(call->words[i][call->rank] - call->number) < 0);
        call->words[i][call->rank] = call->number;
    }
}

HOST_AGAIN(cuda_part)
enum err cuda_part(const struct cuda_part *call, struct CUstream_st *stream, struct error *error) {
    (void)error;
    assert(!call->from.bias && call->from.sums != call->to);
    if (host_record(stream, again_cuda_part, call, sizeof *call, NULL, 0)) return OK;
    for (size_t row = 0; row < call->rows; row++)
        for (uint32_t i = 0; i < call->width; i++)
            call->to[row * call->from.stride + i] = host_to_bf16(host_sum_at(&call->from, row, i));
    return OK;
}

HOST_AGAIN(cuda_reduce)
enum err cuda_reduce(const struct cuda_reduce *call, struct CUstream_st *stream,
                     struct error *error) {
    const struct cuda_norm *norm = &call->norm;
    (void)error;
    if (host_record(stream, again_cuda_reduce, call, sizeof *call, NULL, 0)) return OK;
    for (uint32_t i = 0; i < call->ranks; i++)
        if (!host_can_read(call->parts[i]) || !host_can_read(call->words[i])) return OK;
    float *h = malloc(norm->width * sizeof *h), *y = malloc(norm->width * sizeof *y);
    say(call);
    host_waits_while(call->given_up);
    for (size_t row = 0; row < norm->rows; row++) {
        for (uint32_t i = 0; i < norm->width; i++) {
            h[i] = norm->h.bias ? norm->h.bias[i] : 0;
            for (uint32_t k = 0; k < call->ranks; k++)
                h[i] += host_from_bf16(call->parts[k][row * norm->h.stride + i]);
        }
        host_norm_row(norm, row, h, y);
    }
    free(h);
    free(y);
    return OK;
}

uint32_t host_ranks_of(host_again *again, const void *call) {
    return again == again_cuda_reduce ? ((const struct cuda_reduce *)call)->ranks : 1;
}
