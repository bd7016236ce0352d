/* SPDX-License-Identifier: Apache-2.0 */

/* mamba_decode: one token of each sequence through the states of a Mamba-2 layer. A block has a run
 * of a group's rows of the state, one row per element of x, which its warps stream past B and C.
 * Heads of a run follow one another without a pause: what a row is multiplied by is in shared
 * memory. */

#include "gpu/cuda/mamba.cuh"

#define WARPS 4
#define RUN_ROWS 256u

/* What a block has. */
struct mamba_run {
    uint32_t item, group, first, count; /* first: of the item's rows */
};
__device__ static inline struct mamba_run run_of(const struct cuda_mamba &call) {
    const uint32_t width = call.heads / call.groups * call.head_dim;
    const uint32_t runs = (width + RUN_ROWS - 1) / RUN_ROWS, own = blockIdx.x / runs;
    const uint32_t first = blockIdx.x % runs * RUN_ROWS, group = own % call.groups;
    return {own / call.groups, group, group * width + first, min(RUN_ROWS, width - first)};
}

/* What rows are multiplied by: state = decay · state + in · B, y = state · C + rest. */
struct mamba_factors {
    float decay[RUN_ROWS], in[RUN_ROWS], rest[RUN_ROWS];
};

__device__ static inline void prepare(const struct cuda_mamba &call, const struct mamba_run &run,
                                      uint32_t token, const float *x,
                                      struct mamba_factors *factors) {
    for (uint32_t at = threadIdx.x; at < run.count; at += WARPS * 32) {
        const uint32_t head = (run.first + at) / call.head_dim;
        const struct mamba_rate rate = mamba_rate_of(call, head, fresh_sum(call.dt, token, head));
        const float own = __ldcg(x + run.first + at);
        factors->decay[at] = rate.decay, factors->in[at] = rate.step * own;
        factors->rest[at] = call.d[head] * own;
    }
}

template <bool IS_BF16, int N, int DEPTH, int BLOCKS, bool ARE_MANY>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    mamba_decode(struct cuda_mamba call, uint32_t channels, bool is_next) {
    constexpr int LANES = N / LANE_NUMBERS, ROWS = 32 / LANES * WARPS;
    constexpr uint32_t ROW_BYTES = N * (IS_BF16 ? 2 : 4);
    CUDA_SHARED __align__(16) mamba_factors factors;
    const struct mamba_run run = run_of(call);
    const uint32_t own_row = threadIdx.x / LANES;
    if (!is_next) wait_for_before();
    let_next_start();
    const struct cuda_state_item item = call.items[run.item];
    const bool is_old = item.from != CUDA_STATE_NONE;
    const size_t begin = ((size_t)run.first + own_row) * ROW_BYTES;
    const char *from = slot_at(call.states, is_old ? item.from : item.to) + begin;
    char *to = slot_at(call.states, item.to) + begin;
    lane_words<IS_BF16> words[DEPTH];
#pragma unroll
    for (uint32_t d = 0; d < DEPTH; d++)
        read_lane<IS_BF16, N, ARE_MANY>(&words[d], from + (size_t)d * ROWS * ROW_BYTES,
                                        is_old && d * ROWS + own_row < run.count);
    float *row = call.room + (size_t)item.row * channels;
    const float *b_at = row + call.heads * call.head_dim + run.group * N;
    const struct numbers<LANE_NUMBERS> b = fresh_vector<IS_BF16, N>(b_at);
    const struct numbers<LANE_NUMBERS> c = fresh_vector<IS_BF16, N>(b_at + call.groups * N);
    prepare(call, run, item.row, row, &factors);
    __syncthreads();
    for (uint32_t turn = 0; turn * ROWS < run.count; turn += DEPTH) {
#pragma unroll
        for (uint32_t d = 0; d < DEPTH; d++) {
            const uint32_t first = (turn + d) * ROWS, p = first + own_row;
            const bool is_there = p < run.count;
            const uint32_t at = is_there ? p : 0;
            struct numbers<LANE_NUMBERS> state = lane_numbers<IS_BF16>(words[d]);
            const float sum =
                sum_lanes<LANES>(mamba_advance(&state, factors.decay[at], factors.in[at], b, c));
            if (is_there) write_lane<IS_BF16, N, ARE_MANY>(state, to + (size_t)first * ROW_BYTES);
            if (is_there && threadIdx.x % LANES == 0) factors.rest[p] += sum;
            read_lane<IS_BF16, N, ARE_MANY>(&words[d],
                                            from + (size_t)(first + DEPTH * ROWS) * ROW_BYTES,
                                            is_old && p + DEPTH * ROWS < run.count);
        }
    }
    __syncthreads();
    for (uint32_t at = threadIdx.x; at < run.count; at += WARPS * 32)
        row[run.first + at] = factors.rest[at];
    /* One block is enough: this launch then ends after the prompts. */
    if (is_next && blockIdx.x == gridDim.x - 1) wait_for_before();
}

/* ---- the choice ---- */

template <int N, bool IS_BF16>
static enum err launch_as(const struct cuda_mamba *call, cudaStream_t stream, struct error *error) {
    constexpr int DEPTH = IS_BF16 ? 4 : 2, BLOCKS = IS_BF16 ? 4 : 5; /* measured on an H200 */
    const uint32_t width = call->heads / call->groups * call->head_dim;
    const uint32_t runs = (width + RUN_ROWS - 1) / RUN_ROWS;
    const uint64_t bytes =
        (uint64_t)call->decoded_count * call->heads * call->head_dim * N * (IS_BF16 ? 2 : 4);
    return launch_dependent(
        "mamba_decode", error, stream, call->decoded_count * call->groups * runs, WARPS * 32, 0,
        bytes >= STATES_OF_MANY ? mamba_decode<IS_BF16, N, DEPTH, BLOCKS, true>
                                : mamba_decode<IS_BF16, N, DEPTH, BLOCKS, false>,
        *call, mamba_channels(call), call->decoded_count < call->item_count);
}

template <int N>
static enum err launch(const struct cuda_mamba *call, cudaStream_t stream, struct error *error) {
    return call->states.is_bf16 ? launch_as<N, true>(call, stream, error)
                                : launch_as<N, false>(call, stream, error);
}

enum err mamba_launch_decode(const struct cuda_mamba *call, cudaStream_t stream,
                             struct error *error) {
    switch (call->state_dim) {
    case 16: return launch<16>(call, stream, error);
    case 32: return launch<32>(call, stream, error);
    case 64: return launch<64>(call, stream, error);
    case 128: return launch<128>(call, stream, error);
    default: return launch<256>(call, stream, error);
    }
}

CUDA_MODULE(mamba_decode, mamba_decode<false, 128, 2, 5, false>)
