/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* recurrent_rows: causal convolutions over the rows of items, in blocks that each take some rows.
 *
 * A thread has four channels and goes down the rows. A new sequence may begin at any row, so a
 * block first finds out whose its rows are. The first rows of an item need the tail of its slot,
 * which may be the slot that the item's last rows leave theirs in. So the block that has an item's
 * first row computes all rows that need the old tail, and then leaves the new one itself. */

#include "gpu/cuda/recurrent.cuh"

#define TILE_ROWS 16 /* rows in a block */
#define TILE_THREADS 128
#define TILE_CHANNELS (TILE_THREADS * 4) /* channels in a block */
#define ROWS_AHEAD 4                     /* whose inputs are asked for together */

/* Rows whose item a block knows: its own, and those that need a tail. */
template <int TAPS>
constexpr int TILE_SPAN = (TILE_ROWS + TAPS - 2 + ROWS_AHEAD - 1) / ROWS_AHEAD *ROWS_AHEAD;

/* Names the item of each row from `first` on that this block has. All threads come. */
template <int TAPS>
__device__ static inline void find_owners(const struct cuda_state_item *items, uint32_t count,
                                          uint32_t first, uint32_t *owners) {
    const uint32_t end = first + TILE_ROWS;
    if (threadIdx.x < TILE_SPAN<TAPS>) owners[threadIdx.x] = CUDA_STATE_NONE;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        const uint32_t row = items[i].row, past = row + items[i].rows;
        if (row >= end || past <= first) continue;
        const uint32_t from = row < first ? max(first, row + TAPS - 1) : row;
        const uint32_t to = min(past, row < first ? end : max(end, row + TAPS - 1));
        for (uint32_t at = from; at < to; at++) owners[at - first] = i;
    }
    __syncthreads();
}

/* ---- tails: (TAPS - 1, channels), four channels at a time ---- */

__device__ static inline struct numbers<4> read_four(const struct cuda_states &states,
                                                     uint32_t slot, size_t at) {
    if (slot == CUDA_STATE_NONE) return {};
    const char *from = slot_at(states, slot);
    return states.is_bf16 ? read_bf16<4>((const uint16_t *)from + at)
                          : read_f32<4>((const float *)from + at);
}

__device__ static inline void
write_four(const struct cuda_states &states, uint32_t slot, size_t at, const struct numbers<4> &v) {
    char *to = slot_at(states, slot);
    if (states.is_bf16)
        write_bf16(v, (uint16_t *)to + at);
    else
        write_f32(v, (float *)to + at);
}

/* What a convolution is over. `input` and `output` below are a thread's own. */
struct row_conv {
    const struct cuda_state_item *items;
    struct cuda_states tails;
    const float *taps; /* (channels, TAPS) */
    const float *bias; /* (channels) or NULL */
    uint32_t channels;
};

/* Leaves the tail after the first `rows` rows of an item. What is left of the tail before them is
 * read from its slot again; in the same slot it moves towards the beginning, to a place already
 * read. */
template <int TAPS, class INPUT>
__device__ static __forceinline__ void leave_tail(const struct row_conv &conv, uint32_t slot,
                                                  const struct cuda_state_item &item, uint32_t rows,
                                                  uint32_t channel, const INPUT &input) {
#pragma unroll 1
    for (uint32_t i = 0; i < TAPS - 1; i++) {
        const uint32_t after = rows + i; /* column of the old tail with these rows behind it */
        const struct numbers<4> v =
            after < TAPS - 1
                ? read_four(conv.tails, item.from, (size_t)after * conv.channels + channel)
                : input(item.row + after - (TAPS - 1));
        write_four(conv.tails, slot, (size_t)i * conv.channels + channel, v);
    }
}

/* The inputs before row `row` of an item, and, with its first row, the new tails. `save` comes
 * first, for `to` may be the slot with the old tail. */
template <int TAPS, class INPUT>
__device__ static __forceinline__ void
begin_item(const struct row_conv &conv, const struct cuda_state_item &item, uint32_t row,
           uint32_t channel, const INPUT &input, struct numbers<4> *window) {
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++)
        window[i] = row == item.row
                        ? read_four(conv.tails, item.from, (size_t)i * conv.channels + channel)
                        : input(row - (TAPS - 1) + i);
    if (row != item.row) return;
    if (item.save != CUDA_STATE_NONE)
        leave_tail<TAPS>(conv, item.save, item, item.save_rows, channel, input);
    leave_tail<TAPS>(conv, item.to, item, item.rows, channel, input);
}

/* Convolves this thread's channels, from `channel` on, of the block's rows: `input(row)` are four
 * numbers, output(row, four, is_there) takes the results. All lanes of a warp come to each output.
 */
template <int TAPS, class INPUT, class OUTPUT>
__device__ static __forceinline__ void walk_rows(const struct row_conv &conv, uint32_t first,
                                                 const uint32_t *owners, uint32_t channel,
                                                 const INPUT &input, const OUTPUT &output) {
    const bool is_there = channel < conv.channels;
    if (!is_there) channel = 0; /* reads for nothing, and leaves no tail */
    struct numbers<4> taps[TAPS], window[TAPS - 1] = {}, bias = {};
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < TAPS; i++) taps[i].at[j] = conv.taps[((size_t)channel + j) * TAPS + i];
    if (conv.bias) bias = read_f32<4>(conv.bias + channel);
    uint32_t owner = CUDA_STATE_NONE;
    for (uint32_t begin = 0; begin < TILE_SPAN<TAPS>; begin += ROWS_AHEAD) {
        struct numbers<4> own[ROWS_AHEAD];
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++)
            if (owners[begin + i] != CUDA_STATE_NONE) own[i] = input(first + begin + i);
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++) {
            const uint32_t row = first + begin + i, mine = owners[begin + i];
            if (mine == CUDA_STATE_NONE) continue;
            if (mine != owner && is_there)
                begin_item<TAPS>(conv, conv.items[mine], row, channel, input, window);
            owner = mine;
            struct numbers<4> sum = bias;
#pragma unroll
            for (int j = 0; j < 4; j++) {
#pragma unroll
                for (int t = 0; t < TAPS - 1; t++)
                    sum.at[j] = fmaf(taps[t].at[j], window[t].at[j], sum.at[j]);
                sum.at[j] = fmaf(taps[TAPS - 1].at[j], own[i].at[j], sum.at[j]);
            }
#pragma unroll
            for (int t = 0; t + 1 < TAPS - 1; t++) window[t] = window[t + 1];
            window[TAPS - 2] = own[i];
            output(row, sum, is_there);
        }
    }
}

/* The same of an item's only row, whose inputs are `own`; leaves the tail, and keeps nothing in
 * `save`. */
template <int TAPS>
__device__ static __forceinline__ struct numbers<4>
convolve_alone(const struct row_conv &conv, const struct cuda_state_item &item, uint32_t channel,
               const struct numbers<4> &own) {
    struct numbers<4> window[TAPS], sum = {};
#pragma unroll
    for (uint32_t i = 0; i < TAPS - 1; i++)
        window[i] = read_four(conv.tails, item.from, (size_t)i *conv.channels + channel);
    window[TAPS - 1] = own;
#pragma unroll
    for (uint32_t i = 0; i < TAPS - 1; i++)
        write_four(conv.tails, item.to, (size_t)i *conv.channels + channel, window[i + 1]);
    if (conv.bias) sum = read_f32<4>(conv.bias + channel);
    const float *taps = conv.taps + (size_t)channel * TAPS; /* a channel's stand together */
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float own_taps[TAPS];
        if constexpr (TAPS == 4) {
            const struct numbers<4> four = read_f32<4>(taps + 4 * j);
#pragma unroll
            for (int t = 0; t < TAPS; t++) own_taps[t] = four.at[t];
        } else {
#pragma unroll
            for (int t = 0; t < TAPS; t++) own_taps[t] = taps[j * TAPS + t];
        }
#pragma unroll
        for (int t = 0; t < TAPS; t++) sum.at[j] = fmaf(own_taps[t], window[t].at[j], sum.at[j]);
    }
    return sum;
}

/* Blocks of a call: slabs of channels, `more` other blocks, tiles of rows. None without rows. */
static inline dim3
tile_blocks(uint32_t channels, uint32_t more, uint32_t rows) {
    if (rows == 0) return dim3(0);
    return dim3((channels + TILE_CHANNELS - 1) / TILE_CHANNELS + more,
                (rows + TILE_ROWS - 1) / TILE_ROWS);
}
