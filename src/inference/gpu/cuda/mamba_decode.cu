/* SPDX-License-Identifier: Apache-2.0 */

/* mamba_decode: one token of each sequence through the states of a Mamba-2 layer. A block has a
 * head of a sequence. Its warps stream rows of the state, one per element of x, and share nothing.
 */

#include "gpu/cuda/mamba.cuh"

#define WARPS 4
#define DEPTH 2 /* turns of rows under way */

template <bool IS_BF16, int N>
__global__ void __launch_bounds__(WARPS * 32, 5)
    mamba_decode(struct cuda_mamba call, uint32_t channels, bool is_next) {
    constexpr int LANES = N / LANE_NUMBERS, ROWS = 32 / LANES * WARPS;
    constexpr uint32_t ROW_BYTES = N * (IS_BF16 ? 2 : 4);
    const uint32_t head = blockIdx.x % call.heads, P = call.head_dim;
    const uint32_t group = head / (call.heads / call.groups), own_row = threadIdx.x / LANES;
    if (!is_next) wait_for_before();
    let_next_start();
    const struct cuda_state_item item = call.items[blockIdx.x / call.heads];
    const bool is_old = item.from != CUDA_STATE_NONE;
    const size_t begin = ((size_t)head * P + own_row) * ROW_BYTES;
    const char *from = slot_at(call.states, is_old ? item.from : item.to) + begin;
    char *to = slot_at(call.states, item.to) + begin;
    lane_words<IS_BF16> words[DEPTH];
#pragma unroll
    for (uint32_t d = 0; d < DEPTH; d++)
        read_lane<IS_BF16, N>(&words[d], from + (size_t)d * ROWS * ROW_BYTES,
                              is_old && d * ROWS + own_row < P);
    float *row = call.room + (size_t)item.row * channels;
    const float *b_at = row + call.heads * P + group * N;
    const struct numbers<LANE_NUMBERS> b = fresh_vector<IS_BF16, N>(b_at);
    const struct numbers<LANE_NUMBERS> c = fresh_vector<IS_BF16, N>(b_at + call.groups * N);
    const struct mamba_rate rate = mamba_rate_of(call, head, fresh_sum(call.dt, item.row, head));
    const float d_of_head = call.d[head];
    for (uint32_t turn = 0; turn * ROWS < P; turn += DEPTH) {
#pragma unroll
        for (uint32_t d = 0; d < DEPTH; d++) {
            const uint32_t first = (turn + d) * ROWS, p = first + own_row;
            const bool is_there = p < P;
            const float x = is_there ? __ldcg(row + head * P + p) : 0.0f;
            struct numbers<LANE_NUMBERS> state = lane_numbers<IS_BF16>(words[d]);
            const float sum =
                sum_lanes<LANES>(mamba_advance(&state, rate.decay, rate.step * x, b, c));
            if (is_there) write_lane<IS_BF16, N>(state, to + (size_t)first * ROW_BYTES);
            __syncwarp(); /* every lane has read x, whose place the output takes */
            if (is_there && threadIdx.x % LANES == 0) row[head * P + p] = fmaf(d_of_head, x, sum);
            read_lane<IS_BF16, N>(&words[d], from + (size_t)(first + DEPTH * ROWS) * ROW_BYTES,
                                  is_old && p + DEPTH * ROWS < P);
        }
    }
    /* One block is enough: this launch then ends after the prompts. */
    if (is_next && blockIdx.x == gridDim.x - 1) wait_for_before();
}

/* ---- the choice ---- */

template <int N>
static enum err launch(const struct cuda_mamba *call, cudaStream_t stream, struct error *error) {
    return launch_dependent("mamba_decode", error, stream, call->decoded_count * call->heads,
                            WARPS * 32, 0,
                            call->states.is_bf16 ? mamba_decode<true, N> : mamba_decode<false, N>,
                            *call, mamba_channels(call), call->decoded_count < call->item_count);
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

CUDA_MODULE(mamba_decode, mamba_decode<false, 128>)
