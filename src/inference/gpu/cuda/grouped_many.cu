/* SPDX-License-Identifier: Apache-2.0 */

/* grouped_many: rows as codes of int8 in groups, and their product with weights of four bits
 * (grouped.h), by mma.sync, on sm_80 and later.
 *
 * A block has a tile of 128 lines by 32, 64 or 128 rows, and its eight warps, four by two, 32 lines
 * by half of the rows each. Codes of weights go from memory to registers, the next stage's during
 * the products of this one, and become int8 by three logical instructions for eight of them; those
 * of rows come by cp.async into a ring of four stages of two groups. A group is one mma.sync of 32
 * inputs, whose sums of whole numbers begin at 1.5 · 2^23 as float32 has it, so that they are
 * floats without a conversion; a row's scale has so few bits that its product with that beginning
 * is exact, and one fused multiplication takes it off and scales. */

#include "gpu/cuda/grouped.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256
#define LINE_WARPS 4
#define ROW_WARPS 2
#define TILE_LINES (LINE_WARPS * (int)GROUPED_LINES)
#define STAGE_GROUPS 2
#define STAGES 4
#define FLOAT_BEGIN 0x4b400000 /* 1.5 · 2^23: adding whole numbers to its bits adds them to it */

/* ---- rows ---- */

/* Codes of eight numbers in the order of the weights' words: those of even places of the nibbles,
 * then those of odd ones. */
__device__ static inline uint2 ordered_codes(const float (&v)[8], float factor, int *sum) {
    static const uint8_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t code = cuda_int8(v[order[i]] * factor);
        words[i / 4] |= code << (i % 4 * 8);
        *sum += (int)(int8_t)code;
    }
    return make_uint2(words[0], words[1]);
}

/* The least number with 16 bits of mantissa that makes the largest code 127 at most. */
__device__ static inline float short_scale(float most) {
    const float scale = fmaxf(__fmul_rn(most, 1.0f / 127.0f), 1e-20f);
    return __uint_as_float((__float_as_uint(scale) + 0xffu) & 0xffffff00u);
}

/* Four lanes have a group of a row. */
__global__ void __launch_bounds__(THREADS) grouped_quantise(struct cuda_grouped_quantise call) {
    const uint32_t groups = call.width / GROUPED_INPUTS, t = threadIdx.x % 4;
    const size_t index = (blockIdx.x * (size_t)THREADS + threadIdx.x) / 4;
    const uint32_t row = (uint32_t)(index / groups), group = (uint32_t)(index % groups);
    const bool is_there = row < call.rows;
    uint4 raw = make_uint4(0, 0, 0, 0);
    wait_for_before();
    let_next_start();
    if (is_there)
        raw = *(const uint4 *)(call.from + row * call.from_stride + group * GROUPED_INPUTS + t * 8);
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    const eight v = bf16_numbers<8>(words);
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(v.at[i]));
    most = fmaxf(most, __shfl_xor_sync(CUDA_ALL_LANES, most, 1));
    most = fmaxf(most, __shfl_xor_sync(CUDA_ALL_LANES, most, 2));
    const float scale = short_scale(most);
    int sum = 0;
    const uint2 codes = ordered_codes(v.at, 1.0f / scale, &sum);
    sum += __shfl_xor_sync(CUDA_ALL_LANES, sum, 1);
    sum += __shfl_xor_sync(CUDA_ALL_LANES, sum, 2);
    if (!is_there) return;
    const size_t at = (size_t)group * call.to.rows_most + row;
    *(uint2 *)((char *)call.to.codes + at * GROUPED_INPUTS + t * 8) = codes;
    if (t == 0) ((float2 *)call.to.scales)[at] = make_float2(scale, scale * (float)sum);
}

enum err cuda_grouped_quantise(const struct cuda_grouped_quantise *call, struct CUstream_st *stream,
                               struct error *error) {
    const uint64_t lanes = (uint64_t)call->rows * (call->width / GROUPED_INPUTS) * 4;
    if (lanes == 0) return OK;
    if (call->width % GROUPED_INPUTS != 0 || call->from_stride % 8 != 0 ||
        ((uintptr_t)call->from & 15u) != 0 || call->to.rows_most < call->rows ||
        call->to.rows_most % 2 != 0)
        return err_set(error, ERR_INVALID, "rows of %u numbers have no codes in groups",
                       call->width);
    return launch_dependent("grouped quantise", error, stream,
                            (uint32_t)((lanes + THREADS - 1) / THREADS), THREADS, 0,
                            grouped_quantise, *call);
}

/* ---- the product ---- */

template <int KIND_, int EIGHTS_> struct many_shape {
    static constexpr int KIND = KIND_, EIGHTS = EIGHTS_; /* eights of rows of a warp */
    static constexpr int ROWS = ROW_WARPS * EIGHTS * 8;
    static constexpr int GROUP_BYTES = ROWS * (int)(GROUPED_INPUTS + sizeof(float2));
    static constexpr uint32_t SHARED_BYTES = STAGES * STAGE_GROUPS * GROUP_BYTES;
};

/* A stage of rows on its way: codes, then pairs of scales, of two groups. Zeros behind the last. */
template <class S>
__device__ static inline void many_fetch(const struct cuda_grouped_many &call, uint32_t memory,
                                         uint32_t stage, uint32_t first_row, uint32_t groups) {
    const uint32_t to = memory + stage % STAGES * STAGE_GROUPS * S::GROUP_BYTES;
    constexpr uint32_t CHUNKS = S::ROWS * 2, PAIRS = S::ROWS / 2; /* 16 B each, in a group */
    for (uint32_t i = threadIdx.x; i < STAGE_GROUPS * (CHUNKS + PAIRS); i += THREADS) {
        const uint32_t part = i / (CHUNKS + PAIRS), chunk = i % (CHUNKS + PAIRS);
        const uint32_t group = stage * STAGE_GROUPS + part;
        const bool is_code = chunk < CHUNKS;
        const uint32_t row = first_row + (is_code ? chunk / 2 : (chunk - CHUNKS) * 2);
        const size_t at = (size_t)group * call.in.rows_most + row;
        const char *from = is_code
                               ? (const char *)call.in.codes + at * GROUPED_INPUTS + chunk % 2 * 16
                               : (const char *)call.in.scales + at * sizeof(float2);
        const bool is_there = group < groups && row < call.rows;
        cuda_copy16_if(to + part * S::GROUP_BYTES + chunk * 16,
                       is_there ? from : (const char *)call.in.codes, is_there);
    }
    cuda_copy_commit();
}

struct many_weights {
    uint4 codes[STAGE_GROUPS], scales[STAGE_GROUPS];
};

template <class S>
__device__ static inline void bring_weights(struct many_weights *to, const char *block,
                                            uint32_t stage, uint32_t groups) {
#pragma unroll
    for (int i = 0; i < STAGE_GROUPS; i++) {
        const uint32_t group = stage * STAGE_GROUPS + i;
        const bool is_there = block && group < groups;
        const uint4 none = make_uint4(0, 0, 0, 0);
        to->codes[i] = is_there ? *grouped_codes<S::KIND>(block, group) : none;
        to->scales[i] = is_there ? *grouped_scales<S::KIND>(block, groups, group) : none;
    }
}

/* A warp's 32 lines by its rows, of a group. */
template <class S>
__device__ static inline void many_multiply(float (&sums)[2][S::EIGHTS][4], const uint4 &raw,
                                            const uint4 &scale_words, const char *group,
                                            uint32_t first) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t codes[4] = {raw.x, raw.y, raw.z, raw.w};
    const uint32_t words[4] = {scale_words.x, scale_words.y, scale_words.z, scale_words.w};
    uint32_t lines[2][4];
    struct grouped_factors by[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        lines[i / 2][i % 2] = codes[i] & 0x0f0f0f0fu;
        lines[i / 2][i % 2 + 2] = codes[i] >> 4 & 0x0f0f0f0fu;
        by[i] = grouped_factors((enum grouping)S::KIND, words[i]);
    }
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        const uint32_t row = first + e * 8;
        const uint2 b = *(const uint2 *)(group + (row + g) * GROUPED_INPUTS + t * 8);
        const float4 pair =
            *(const float4 *)(group + S::ROWS * GROUPED_INPUTS + (row + 2 * t) * sizeof(float2));
        const float scale[2] = {pair.x, pair.z}, sum[2] = {pair.y, pair.w};
        const float begin[2] = {scale[0] * -__uint_as_float(FLOAT_BEGIN),
                                scale[1] * -__uint_as_float(FLOAT_BEGIN)};
#pragma unroll
        for (int m = 0; m < 2; m++) {
            int32_t c[4];
            cuda_mma_int8_anew(c, lines[m], b.x, b.y, FLOAT_BEGIN);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const struct grouped_factors &line = by[2 * m + i / 2];
                const float scaled =
                    __fmaf_rn(__uint_as_float((uint32_t)c[i]), scale[i % 2], begin[i % 2]);
                sums[m][e][i] = __fmaf_rn(line.scale, scaled,
                                          __fmaf_rn(line.minimum, sum[i % 2], sums[m][e][i]));
            }
        }
    }
}

/* Eight rows of a warp's 32 lines: a thread has two rows of each of its lines; transposed words are
 * two lines of each of its rows. */
template <class S>
__device__ static inline void leave_eight(const struct cuda_grouped_many &call,
                                          const float (&sums)[2][S::EIGHTS][4], int e, uint32_t row,
                                          uint32_t line) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint16_t *to = call.y + (size_t)(row + g) * call.y_stride + line + 2 * t;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *pair = &sums[i / 2][e][i % 2 * 2];
        const uint32_t word = cuda_transpose(cuda_pack_bf16(pair[0], pair[1]));
        if (row + g >= call.rows) continue;
        const uint32_t at = line + 8 * i + 2 * t;
        if (at + 1 < call.weights.lines)
            *(uint32_t *)(to + 8 * i) = word;
        else if (at < call.weights.lines)
            to[8 * i] = (uint16_t)word;
    }
}

template <class S>
__global__ void __launch_bounds__(THREADS, 2)
    grouped_many(struct cuda_grouped_many call, uint32_t row_tiles) {
    extern __shared__ __align__(1024) char cuda_memory[];
    const uint32_t memory = cuda_shared_address(cuda_memory), warp = threadIdx.x / 32;
    const uint32_t groups = call.weights.inputs / GROUPED_INPUTS;
    const uint32_t stages = (groups + STAGE_GROUPS - 1) / STAGE_GROUPS;
    const uint32_t first_row = blockIdx.x % row_tiles * S::ROWS;
    const uint32_t line = blockIdx.x / row_tiles * TILE_LINES + warp / ROW_WARPS * GROUPED_LINES;
    const uint32_t row = warp % ROW_WARPS * (S::EIGHTS * 8);
    const char *block = line < call.weights.lines
                            ? (const char *)call.weights.at +
                                  line / GROUPED_LINES * grouped_block_bytes<S::KIND>(groups)
                            : NULL;
    struct many_weights now, next;
    float sums[2][S::EIGHTS][4] = {};
    bring_weights<S>(&next, block, 0, groups);
    wait_for_before();
    let_next_start();
    for (uint32_t s = 0; s < STAGES - 1; s++) {
        if (s < stages)
            many_fetch<S>(call, memory, s, first_row, groups);
        else
            cuda_copy_commit();
    }
    for (uint32_t s = 0; s < stages; s++) {
        now = next;
        bring_weights<S>(&next, block, s + 1, groups);
        cuda_copy_wait<STAGES - 2>();
        __syncthreads(); /* the stage is there, and nobody reads the one before any more */
        if (s + STAGES - 1 < stages)
            many_fetch<S>(call, memory, s + STAGES - 1, first_row, groups);
        else
            cuda_copy_commit();
        const char *stage = cuda_memory + s % STAGES * STAGE_GROUPS * S::GROUP_BYTES;
#pragma unroll
        for (int i = 0; i < STAGE_GROUPS; i++)
            many_multiply<S>(sums, now.codes[i], now.scales[i], stage + i * S::GROUP_BYTES, row);
    }
    cuda_copy_wait<0>();
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++)
        leave_eight<S>(call, sums, e, first_row + row + e * 8, line);
}

template <class S>
static enum err launch_many(const struct cuda_grouped_many *call, cudaStream_t stream,
                            struct error *error) {
    const uint32_t row_tiles = (call->rows + S::ROWS - 1) / S::ROWS;
    const uint32_t line_tiles = (call->weights.lines + TILE_LINES - 1) / TILE_LINES;
    return cuda_launch<grouped_many<S>>("grouped product", row_tiles * line_tiles, THREADS,
                                        S::SHARED_BYTES, stream, error, *call, row_tiles);
}

template <int KIND>
static enum err launch_kind(const struct cuda_grouped_many *call, cudaStream_t stream,
                            struct error *error) {
    if (call->rows <= 32) return launch_many<many_shape<KIND, 2>>(call, stream, error);
    if (call->rows <= 64) return launch_many<many_shape<KIND, 4>>(call, stream, error);
    return launch_many<many_shape<KIND, 8>>(call, stream, error);
}

enum err cuda_grouped_many(const struct cuda_grouped_many *call, struct CUstream_st *stream,
                           struct error *error) {
    const enum grouping kind = call->weights.kind;
    if (call->rows == 0 || call->weights.lines == 0) return OK;
    if ((kind != GROUPED_MINIMA && kind != GROUPED_ZEROS) ||
        call->weights.inputs % GROUPED_INPUTS != 0 || call->y_stride % 8 != 0 ||
        ((uintptr_t)call->y & 3u) != 0)
        return err_set(error, ERR_INVALID, "no product of %u rows with %u x %u codes here",
                       call->rows, call->weights.lines, call->weights.inputs);
    return kind == GROUPED_MINIMA ? launch_kind<GROUPED_MINIMA>(call, stream, error)
                                  : launch_kind<GROUPED_ZEROS>(call, stream, error);
}

CUDA_MODULE(grouped_many, grouped_many<many_shape<GROUPED_MINIMA, 8>>)
