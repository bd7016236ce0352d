/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/reduce.h in plain C. A rank's call runs when the others have come to theirs
 * (host_streams.h), so their parts are there. */

#include "gpu/cuda/reduce.h"

#include "host_kernels.h"

#include "gpu/table.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* Says the number to the other ranks; none of them is a call ahead. */
static void say(const struct cuda_meeting *call) {
    for (uint32_t i = 0; i < call->ranks; i++) {
        if (i == call->rank) continue;
        const uint32_t said = call->words[call->rank][i];
        assert((int32_t)(said - call->number) <= 0);
        assert((int32_t)(call->words[i][call->rank] - call->number) < 0);
        call->words[i][call->rank] = call->number;
    }
}

/* Streams whose kernel waits for a rank that has not begun its own. */
static const struct CUstream_st *waiting[GPU_RANKS_MAX];
static uint32_t waiting_count;

void host_forget_waits(const struct CUstream_st *stream) {
    for (uint32_t i = 0; i < waiting_count; i++)
        if (waiting[i] == stream) waiting[i] = waiting[--waiting_count], i--;
}

void host_launches_on(const struct CUstream_st *stream) {
    for (uint32_t i = 0; i < waiting_count; i++) {
        if (waiting[i] != stream) continue;
        (void)fprintf(stderr,
                      "host: a launch on GPU %d behind a kernel that waits for a rank: "
                      "loading its code may wait for both\n",
                      host_card());
        abort();
    }
}

void host_meets_on(const struct CUstream_st *stream, uint32_t ranks) {
    waiting[waiting_count++] = stream;
    if (waiting_count == ranks) waiting_count = 0;
}

/* Meets the other ranks. False: the GPU cannot read what they have, which it has told. */
static bool meet(const struct cuda_meeting *meeting) {
    for (uint32_t i = 0; i < meeting->ranks; i++)
        if (!host_can_read(meeting->parts[i]) || !host_can_read(meeting->words[i])) return false;
    say(meeting);
    return true;
}

/* The sum of number `at` of the row that begins there. */
static float sum_of_parts(const struct cuda_meeting *meeting, const float *bias, size_t row,
                          uint32_t at) {
    float sum = bias ? bias[at] : 0;
    for (uint32_t i = 0; i < meeting->ranks; i++)
        sum += host_from_bf16(meeting->parts[i][row + at]);
    return sum;
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
    float *h = malloc(norm->width * sizeof *h), *y = malloc(norm->width * sizeof *y);
    const bool is_met = meet(&call->meeting);
    for (size_t row = 0; row < norm->rows && is_met; row++) {
        for (uint32_t i = 0; i < norm->width; i++)
            h[i] = sum_of_parts(&call->meeting, norm->h.bias, row * norm->h.stride, i);
        host_norm_row(norm, row, h, y);
    }
    free(h);
    free(y);
    return OK;
}

HOST_AGAIN(cuda_total)
enum err cuda_total(const struct cuda_total *call, struct CUstream_st *stream,
                    struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_total, call, sizeof *call, NULL, 0)) return OK;
    const bool is_met = meet(&call->meeting);
    for (size_t row = 0; row < call->rows && is_met; row++)
        for (uint32_t i = 0; i < call->width; i++)
            call->to[row * call->stride + i] =
                host_to_bf16(sum_of_parts(&call->meeting, call->bias, row * call->stride, i));
    return OK;
}

const struct cuda_meeting *host_meeting_of(host_again *again, const void *call) {
    return again == again_cuda_reduce  ? &((const struct cuda_reduce *)call)->meeting
           : again == again_cuda_total ? &((const struct cuda_total *)call)->meeting
                                       : NULL;
}
