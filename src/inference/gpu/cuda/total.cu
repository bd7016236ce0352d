/* SPDX-License-Identifier: Apache-2.0 */

/* total: the sums of all ranks' parts as bf16, for a product that a norm of the residual does not
 * read: Gemma 4's feed-forward beside experts, and halves that are added with a factor. A thread
 * has eight numbers of a row. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/meeting.cuh"
#include "gpu/cuda/modules.h"

#define THREADS 256

template <int RANKS>
__global__ void __launch_bounds__(THREADS)
    total_rows(const __grid_constant__ struct cuda_total call) {
    const uint32_t places = call.width / EACH; /* in a row */
    const uint64_t place = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t row = place / places;
    const uint32_t at = (uint32_t)(place % places) * EACH;
    wait_for_before();
    say_there(call.meeting);
    const bool are_there = await_all(call.meeting);
    let_next_start();
    if (!are_there || row >= call.rows) return;
    const size_t from = row * call.stride + at;
    const struct raw_parts<RANKS> raw = read_parts<RANKS>(call.meeting, from);
    write_bf16(sum_of_parts<RANKS>(call.meeting, call.bias, at, raw), call.to + from);
}

enum err cuda_total(const struct cuda_total *call, struct CUstream_st *stream,
                    struct error *error) {
    const uint32_t ranks = call->meeting.ranks;
    const uint64_t places = (uint64_t)call->rows * (call->width / EACH);
    if (!is_meeting_fit(&call->meeting) || call->width % EACH != 0 || call->stride % EACH != 0 ||
        call->stride < call->width || !call->to || !is_at_16(call->to) || !is_at_16(call->bias))
        return err_set(error, ERR_INVALID,
                       "total: rank %u of %u, %u rows of %u, a stride or an address",
                       call->meeting.rank, ranks, call->rows, call->width);
    return launch_dependent("total", error, stream, (uint32_t)((places + THREADS - 1) / THREADS),
                            THREADS, 0,
                            ranks <= 2   ? total_rows<2>
                            : ranks <= 4 ? total_rows<4>
                                         : total_rows<8>,
                            *call);
}

CUDA_MODULE(total, total_rows<2>)
