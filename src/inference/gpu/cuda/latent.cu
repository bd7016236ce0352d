/* SPDX-License-Identifier: Apache-2.0 */

/* latent: a warp has a row of entries, whose lanes have eight numbers and the eight that stand half
 * a rank of 512 behind; a block has a row of q. */

#include "gpu/cuda/latent.h"

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/heads_parts.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256
#define ROWS (THREADS / 32) /* rows of entries in a block */
#define TURNS 2             /* eights of a lane: 512 numbers of a warp */

struct pair {
    eight low, high;
};

/* Turns eight pairs of a part, of which `at` is the first. */
__device__ static inline struct pair turned(const struct cuda_turns &turns, size_t row, uint32_t at,
                                            uint32_t half, const struct pair &v) {
    const size_t angle = (size_t)turns.positions[row] * half + at;
    const eight cosine = read_f32(turns.cosines + angle), sine = read_f32(turns.sines + angle);
    struct pair to;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        to.low.at[i] = v.low.at[i] * cosine.at[i] - v.high.at[i] * sine.at[i];
        to.high.at[i] = v.high.at[i] * cosine.at[i] + v.low.at[i] * sine.at[i];
    }
    return to;
}

template <int IN>
__device__ static inline eight read_at(const struct cuda_product &in, size_t row, float row_scale,
                                       uint32_t at) {
    return sums_of<IN>(in, row_scale, at, read_sums<IN>(in, row, at));
}

/* Eight pairs of a part that begins at column `first`. */
template <int IN>
__device__ static inline struct pair read_pair(const struct cuda_product &in, size_t row,
                                               float row_scale, uint32_t first, uint32_t half) {
    return {read_at<IN>(in, row, row_scale, first), read_at<IN>(in, row, row_scale, first + half)};
}

template <int IN>
__global__ void __launch_bounds__(THREADS) latent_entry(struct cuda_latent_entry call) {
    const size_t row = (size_t)blockIdx.x * ROWS + threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32, half = call.turned_dim / 2;
    wait_for_before();
    let_next_start();
    if (row >= call.rows) return;
    const float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
    const uint32_t slot = call.slots[row]; /* pages have no gaps */
    uint16_t *to = call.entries + (size_t)slot * (call.rank + call.turned_dim);
    eight v[TURNS] = {};
    float squares = 0;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        const uint32_t at = (turn * 32 + lane) * EACH;
        if (at < call.rank) v[turn] = read_at<IN>(call.in, row, row_scale, at);
#pragma unroll
        for (int i = 0; i < EACH; i++) squares = fmaf(v[turn].at[i], v[turn].at[i], squares);
    }
    const float mean = lanes_sum<32>(CUDA_ALL_LANES, squares) / (float)call.rank;
    const float factor = cuda_rsqrt(mean + call.epsilon);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        const uint32_t at = (turn * 32 + lane) * EACH;
        if (at >= call.rank) continue;
        const eight weight = read_f32(call.norm + at);
#pragma unroll
        for (int i = 0; i < EACH; i++) v[turn].at[i] *= factor * weight.at[i];
        write_bf16(v[turn], to + at);
    }
    const uint32_t at = lane * EACH;
    if (at >= half) return;
    const struct pair part = turned(call.turns, row, at, half,
                                    read_pair<IN>(call.in, row, row_scale, call.rank + at, half));
    write_bf16(part.low, to + call.rank + at), write_bf16(part.high, to + call.rank + at + half);
}

template <int IN> __global__ void __launch_bounds__(THREADS) latent_q(struct cuda_latent_q call) {
    const size_t row = blockIdx.x, dim = call.rank + call.turned_dim;
    const uint32_t half = call.turned_dim / 2, still = call.still_dim / EACH;
    const uint32_t each = still + half / EACH, width = call.still_dim + call.turned_dim;
    wait_for_before();
    let_next_start();
    const size_t from = call.in_rows ? call.in_rows[row] : row;
    const float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[from] : 1.0f;
    for (uint32_t i = threadIdx.x; i < call.heads * each; i += THREADS) {
        const uint32_t head = i / each, part = i % each;
        if (part < still) {
            const eight v = read_at<IN>(call.in, from, row_scale, head * width + part * EACH);
            write_bf16(v, call.still + (row * call.heads + head) * call.still_dim + part * EACH);
            continue;
        }
        const uint32_t at = (part - still) * EACH, first = head * width + call.still_dim + at;
        const struct pair v =
            turned(call.turns, row, at, half, read_pair<IN>(call.in, from, row_scale, first, half));
        uint16_t *to = call.q + (row * call.heads + head) * dim + call.rank + at;
        write_bf16(v.low, to), write_bf16(v.high, to + half);
    }
}

static bool turns_are_wide(const struct cuda_turns *turns, uint32_t turned_dim) {
    return turned_dim % (2 * EACH) == 0 && is_at_16(turns->cosines) && is_at_16(turns->sines);
}

enum err cuda_latent_entry(const struct cuda_latent_entry *call, struct CUstream_st *stream,
                           struct error *error) {
    if (call->rank == 0 || call->rank % 16 != 0 || call->rank > TURNS * 32 * EACH ||
        call->turned_dim > 2 * 32 * EACH || !turns_are_wide(&call->turns, call->turned_dim) ||
        !is_product_wide(&call->in) || !is_at_16(call->norm) || !is_at_16(call->entries))
        return err_set(error, ERR_INVALID, "latent: entries of %u + %u, or an address", call->rank,
                       call->turned_dim);
    const int in = in_kind_of(&call->in);
    return launch_dependent("latent_entry", error, stream, dim3((call->rows + ROWS - 1) / ROWS),
                            THREADS, 0,
                            in == IN_INT32         ? latent_entry<IN_INT32>
                            : in == IN_BF16_SCALED ? latent_entry<IN_BF16_SCALED>
                                                   : latent_entry<IN_BF16>,
                            *call);
}

enum err cuda_latent_q(const struct cuda_latent_q *call, struct CUstream_st *stream,
                       struct error *error) {
    if (call->still_dim % EACH != 0 || call->rank % EACH != 0 ||
        !turns_are_wide(&call->turns, call->turned_dim) || !is_product_wide(&call->in) ||
        !is_at_16(call->still) || !is_at_16(call->q))
        return err_set(error, ERR_INVALID, "latent: heads of %u + %u, or an address",
                       call->still_dim, call->turned_dim);
    const int in = in_kind_of(&call->in);
    return launch_dependent("latent_q", error, stream, dim3(call->rows), THREADS, 0,
                            in == IN_INT32         ? latent_q<IN_INT32>
                            : in == IN_BF16_SCALED ? latent_q<IN_BF16_SCALED>
                                                   : latent_q<IN_BF16>,
                            *call);
}

CUDA_MODULE(latent, latent_entry<IN_BF16>)
