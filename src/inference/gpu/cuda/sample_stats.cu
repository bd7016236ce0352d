/* SPDX-License-Identifier: Apache-2.0 */

/* sample_stats: the highest logit and the sum of exponentials of every row, in one walk. */

#include "gpu/cuda/modules.h"
#include "gpu/cuda/sample.cuh"

#include "gpu/cuda/vec.cuh"

#define CHUNK_THREADS 512
#define CHUNK_WARPS (CHUNK_THREADS / 32)
#define ROW_THREADS 256
#define QUADS (CUDA_STATS_CHUNK / CHUNK_THREADS / 4) /* 16-byte reads of a thread */

struct partial {
    uint64_t best; /* ranked(); 0: nothing above -inf */
    double sum;    /* Σ e^(logit - logit of best); its sign is set when a logit is NaN or +inf */
};

size_t cuda_sample_partial_bytes(uint32_t rows, uint32_t vocab) {
    size_t chunks = (vocab + CUDA_STATS_CHUNK - 1) / CUDA_STATS_CHUNK;
    return rows * chunks * sizeof(struct partial);
}

/* Makes logits of what an 8-bit product left, and caps them. */
__device__ static inline float finish(const struct cuda_logits &logits, float row_scale,
                                      uint32_t id, float value) {
    if (logits.is_int32) value = (float)__float_as_int(value);
    if (logits.row_scale) value *= row_scale * bf16_float(logits.column_scale[id]);
    if (logits.softcap > 0) value = logits.softcap * tanhf(value / logits.softcap);
    return value;
}

template <bool FINISH>
__device__ static inline struct four read_chunk(const struct cuda_logits &logits, size_t row,
                                                uint32_t id, bool *is_bad) {
    struct four v = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    const uint32_t end = FINISH ? logits.finished : logits.vocab;
    if (id >= end) return v;
    float *from = logits.logits + row * logits.stride + id;
    float4 raw = *(const float4 *)from;
    v = {{raw.x, raw.y, raw.z, raw.w}};
    if (FINISH) {
        float row_scale = logits.row_scale ? logits.row_scale[row] : 1.0f;
        for (uint32_t i = 0; i < 4 && id + i < end; i++)
            from[i] = v.at[i] = finish(logits, row_scale, id + i, v.at[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        *is_bad |= id + i < logits.vocab && !(v.at[i] <= FLT_MAX);
        v.at[i] = id + i < logits.vocab ? cleaned(v.at[i]) : -INFINITY;
    }
    return v;
}

/* The result of one warp over its logits of a chunk. */
struct gathered {
    float most;
    uint32_t id;
    float sum;
};

/* Reads and cleans the logits of this thread; returns the highest. In a chunk that the vocabulary
 * fills, finished logits need one instruction each to find the highest, and any NaN or +inf. */
template <bool FINISH>
__device__ static inline float read_own(const struct cuda_logits &logits, size_t row,
                                        uint32_t begin, bool is_whole, struct four (&v)[QUADS],
                                        bool *ret_is_bad) {
    float most = -INFINITY;
    bool is_bad = false;
    if (!FINISH && is_whole) {
        const float *from = logits.logits + row * logits.stride + begin;
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            float4 raw = *(const float4 *)(from + q * CHUNK_THREADS * 4);
            v[q] = {{raw.x, raw.y, raw.z, raw.w}};
        }
        let_next_start();
#pragma unroll
        for (int q = 0; q < QUADS; q++)
#pragma unroll
            for (int i = 0; i < 4; i++) most = cuda_max_or_nan(most, v[q].at[i]);
        if (most <= FLT_MAX) return most;
        is_bad = true;
#pragma unroll
        for (int q = 0; q < QUADS; q++)
#pragma unroll
            for (int i = 0; i < 4; i++) v[q].at[i] = cleaned(v[q].at[i]);
    } else {
#pragma unroll
        for (int q = 0; q < QUADS; q++)
            v[q] = read_chunk<FINISH>(logits, row, begin + q * CHUNK_THREADS * 4, &is_bad);
        let_next_start();
    }
    most = -INFINITY;
#pragma unroll
    for (int q = 0; q < QUADS; q++)
#pragma unroll
        for (int i = 0; i < 4; i++) most = fmaxf(most, v[q].at[i]);
    *ret_is_bad = is_bad;
    return most;
}

template <bool FINISH>
__global__ void __launch_bounds__(CHUNK_THREADS, 3)
    stats_chunks(struct cuda_logits logits, const uint32_t *rows, struct partial *partials) {
    CUDA_SHARED struct gathered parts[CHUNK_WARPS];
    const uint32_t begin = blockIdx.x * CUDA_STATS_CHUNK + threadIdx.x * 4;
    const bool is_whole = (blockIdx.x + 1) * CUDA_STATS_CHUNK <= logits.vocab; /* see read_own */
    struct four v[QUADS];
    bool is_bad = false;
    wait_for_before();
    const size_t row = rows ? rows[blockIdx.y] : blockIdx.y;
    const float own = read_own<FINISH>(logits, row, begin, is_whole, v, &is_bad);
    float most = own;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        most = fmaxf(most, __shfl_xor_sync(CUDA_ALL_LANES, most, apart));
    uint32_t id = UINT32_MAX;
    float sum = 0;
    if (most > -INFINITY) { /* the same in all lanes */
        if (own == most) {
#pragma unroll
            for (int q = QUADS - 1; q >= 0; q--)
#pragma unroll
                for (int i = 3; i >= 0; i--)
                    if (v[q].at[i] == most) id = begin + q * CHUNK_THREADS * 4 + i;
        }
        id = __reduce_min_sync(CUDA_ALL_LANES, id);
#pragma unroll
        for (int q = 0; q < QUADS; q++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum += __expf(v[q].at[i] - most);
        sum = warp_sum(sum);
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = {most, id, sum};
    is_bad = __syncthreads_or(is_bad);
    if (threadIdx.x >= 32) return;
    struct gathered mine = {-INFINITY, UINT32_MAX, 0};
    if (threadIdx.x < CHUNK_WARPS) mine = parts[threadIdx.x];
    most = mine.most;
#pragma unroll
    for (int apart = CHUNK_WARPS / 2; apart > 0; apart /= 2)
        most = fmaxf(most, __shfl_xor_sync(CUDA_ALL_LANES, most, apart));
    double total = mine.sum > 0 ? (double)mine.sum * (double)__expf(mine.most - most) : 0;
#pragma unroll
    for (int apart = CHUNK_WARPS / 2; apart > 0; apart /= 2)
        total += __shfl_xor_sync(CUDA_ALL_LANES, total, apart);
    const bool is_of_best = threadIdx.x < CHUNK_WARPS && mine.most == most;
    id = __reduce_min_sync(CUDA_ALL_LANES, is_of_best ? mine.id : UINT32_MAX);
    if (threadIdx.x > 0) return;
    uint64_t best = most > -INFINITY ? ranked(draw_key(most), id) : 0;
    partials[blockIdx.y * gridDim.x + blockIdx.x] = {best, is_bad ? -total : total};
}

/* Puts the chunks of each row together in their order, with one warp per row. */
__global__ void __launch_bounds__(ROW_THREADS)
    stats_rows(struct cuda_sample call, uint32_t count, uint32_t chunks) {
    uint32_t place = blockIdx.x * (ROW_THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    wait_for_before();
    let_next_start();
    if (place >= count) return;
    const uint32_t row = call.bare_count > 0 ? call.summed[place] : place;
    const struct partial *partials = (const struct partial *)call.partial + (size_t)place * chunks;
    uint64_t best = 0;
    for (uint32_t c = lane; c < chunks; c += 32)
        best = partials[c].best > best ? partials[c].best : best;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        uint64_t other = __shfl_xor_sync(CUDA_ALL_LANES, best, apart);
        best = other > best ? other : best;
    }
    float max = best ? logit_of((uint32_t)(best >> 32)) : -INFINITY;
    double sum = 0;
    bool is_bad = false;
    for (uint32_t c = lane; c < chunks; c += 32) {
        is_bad |= signbit(partials[c].sum);
        if (partials[c].best)
            sum += fabs(partials[c].sum) *
                   exp((double)logit_of((uint32_t)(partials[c].best >> 32)) - (double)max);
    }
    sum = warp_sum(sum);
    is_bad = __any_sync(CUDA_ALL_LANES, is_bad);
    if (lane > 0) return;
    if (is_bad && call.nonfinite) atomicAdd(call.nonfinite, 1u);
    uint32_t id = best ? 0xffffffffu - (uint32_t)best : 0;
    call.stats[row] = {max, id, best ? (double)max + log(sum) : -INFINITY};
    const struct gpu_draw *draw = &call.draws[row];
    if (draw->factor > 0 || draw->mask >= 0 || draw->edit_count > 0) return;
    call.tokens[row] = (int32_t)id;
    if (call.last_token && draw->slot >= 0) call.last_token[draw->slot] = (int32_t)id;
}

enum err cuda_sample_stats(const struct cuda_sample *call, struct CUstream_st *stream,
                           struct error *error) {
    const struct cuda_logits *logits = &call->logits;
    const uint32_t count = call->bare_count > 0 ? call->summed_count : logits->rows;
    if (count == 0) return OK;
    const bool is_to_finish = logits->row_scale || logits->softcap > 0;
    if (logits->vocab == 0 || logits->stride % 4 != 0 || !is_at_16(logits->logits) ||
        count > 65535 || logits->finished < logits->vocab || logits->finished > logits->stride ||
        (is_to_finish && call->bare_count > 0))
        return err_set(error, ERR_INVALID, "%u rows of %u logits cannot be sampled", count,
                       logits->vocab);
    uint32_t chunks = ((is_to_finish ? logits->finished : logits->vocab) + CUDA_STATS_CHUNK - 1) /
                      CUDA_STATS_CHUNK;
    enum err err =
        launch_dependent("logits", error, stream, dim3(chunks, count), CHUNK_THREADS, 0,
                         is_to_finish ? stats_chunks<true> : stats_chunks<false>, *logits,
                         call->bare_count > 0 ? call->summed : (const uint32_t *)NULL,
                         (struct partial *)call->partial);
    if (err != OK) return err;
    uint32_t blocks = (count + ROW_THREADS / 32 - 1) / (ROW_THREADS / 32);
    return launch_dependent("logits", error, stream, blocks, ROW_THREADS, 0, stats_rows, *call,
                            count, chunks);
}

CUDA_MODULE(sample_stats, stats_rows)
