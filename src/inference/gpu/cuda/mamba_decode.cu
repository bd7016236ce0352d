/* SPDX-License-Identifier: Apache-2.0 */

/* mamba_decode: one token of each sequence through a Mamba-2 layer.
 *
 * All heads of a group share B and C, so the convolution, which moves their tail on, is a kernel of
 * its own: its bytes are 1 % of the states'. Then a block has a head of a sequence. Its warps
 * stream rows of the state, one per element of x, and share nothing. */

#include "gpu/cuda/recurrent_rows.cuh"

#define TAPS 4
#define WARPS 4
#define DEPTH 2 /* turns of rows under way */

__global__ void __launch_bounds__(TILE_THREADS)
    mamba_rows(struct cuda_mamba call, uint32_t channels) {
    CUDA_SHARED uint32_t owners[TILE_SPAN<TAPS>];
    const uint32_t first = blockIdx.y * TILE_ROWS;
    const uint32_t channel = blockIdx.x * TILE_CHANNELS + threadIdx.x * 4;
    const uint32_t own = channel < channels ? channel : 0;
    const struct row_conv conv = {call.items, call.tails, call.conv, call.conv_bias, channels};
    wait_for_before();
    let_next_start();
    find_owners<TAPS>(call.items, call.item_count, first, owners);
    auto input = [&](uint32_t row) { return four_bf16(call.xbc, row, own); };
    auto output = [&](uint32_t row, struct numbers<4> v, bool is_there) {
        if (!is_there) return;
#pragma unroll
        for (int i = 0; i < 4; i++) v.at[i] = silu(v.at[i]);
        write_f32(v, call.room + (size_t)row * channels + channel);
    };
    walk_rows<TAPS>(conv, first, owners, channel, input, output);
}

template <bool IS_BF16, int N>
__global__ void __launch_bounds__(WARPS * 32, 5)
    mamba_decode(struct cuda_mamba call, uint32_t channels) {
    constexpr int LANES = N / LANE_NUMBERS, ROWS = 32 / LANES * WARPS;
    constexpr uint32_t ROW_BYTES = N * (IS_BF16 ? 2 : 4);
    const uint32_t head = blockIdx.x % call.heads, P = call.head_dim;
    const uint32_t group = head / (call.heads / call.groups), own_row = threadIdx.x / LANES;
    wait_for_before();
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
    const float *row = call.room + (size_t)item.row * channels;
    const float *b_at = row + call.heads * P + group * N;
    const struct numbers<LANE_NUMBERS> b = lane_vector<IS_BF16, N>(b_at);
    const struct numbers<LANE_NUMBERS> c = lane_vector<IS_BF16, N>(b_at + call.groups * N);
    float step = softplus(sum_at(call.dt, item.row, head) + call.dt_bias[head]);
    step = fminf(fmaxf(step, call.dt_min), call.dt_max);
    const float decay = expf(-step * expf(call.a_log[head])), d_of_head = call.d[head];
    for (uint32_t turn = 0; turn * ROWS < P; turn += DEPTH) {
#pragma unroll
        for (uint32_t d = 0; d < DEPTH; d++) {
            const uint32_t first = (turn + d) * ROWS, p = first + own_row;
            const bool is_there = p < P;
            const float x = is_there ? row[head * P + p] : 0.0f, in = step * x;
            struct numbers<LANE_NUMBERS> state = lane_numbers<IS_BF16>(words[d]);
            float sum = 0;
#pragma unroll
            for (int i = 0; i < LANE_NUMBERS; i++) {
                state.at[i] = fmaf(in, b.at[i], decay * state.at[i]);
                sum = fmaf(state.at[i], c.at[i], sum);
            }
            sum = sum_lanes<LANES>(sum);
            if (is_there) write_lane<IS_BF16, N>(state, to + (size_t)first * ROW_BYTES);
            if (is_there && threadIdx.x % LANES == 0)
                call.y[item.row * call.y_stride + head * P + p] =
                    (sum + d_of_head * x) * silu(sum_at(call.z, item.row, head * P + p));
            read_lane<IS_BF16, N>(&words[d], from + (size_t)(first + DEPTH * ROWS) * ROW_BYTES,
                                  is_old && p + DEPTH * ROWS < P);
        }
    }
}

/* ---- the choice ---- */

template <int N>
static enum err launch(const struct cuda_mamba *call, uint32_t channels, cudaStream_t stream,
                       struct error *error) {
    const enum err code =
        launch_dependent("mamba_rows", error, stream, tile_blocks(channels, 0, call->rows),
                         TILE_THREADS, 0, mamba_rows, *call, channels);
    if (code != OK) return code;
    return launch_dependent(
        "mamba_decode", error, stream, call->item_count * call->heads, WARPS * 32, 0,
        call->states.is_bf16 ? mamba_decode<true, N> : mamba_decode<false, N>, *call, channels);
}

enum err cuda_mamba_decode(const struct cuda_mamba *call, struct CUstream_st *stream,
                           struct error *error) {
    if (call->item_count == 0) return OK;
    const uint32_t channels = call->heads * call->head_dim + 2 * call->groups * call->state_dim;
    if (call->groups == 0 || call->heads % call->groups != 0 || call->head_dim % 4 != 0 ||
        !is_product_by_fours(&call->xbc) || !call->z.sums || !call->dt.sums ||
        !is_states_well(&call->states) || !is_states_well(&call->tails) || !is_at_16(call->room) ||
        !is_at_16(call->conv_bias) || !call->room)
        return err_set(error, ERR_INVALID,
                       "mamba: %u heads of %u in %u groups, an address or a distance", call->heads,
                       call->head_dim, call->groups);
    switch (call->state_dim) {
    case 32: return launch<32>(call, channels, stream, error);
    case 64: return launch<64>(call, channels, stream, error);
    case 128: return launch<128>(call, channels, stream, error);
    case 256: return launch<256>(call, channels, stream, error);
    default:
        return err_set(error, ERR_INVALID, "mamba: a state of %u, not 32, 64, 128 or 256",
                       call->state_dim);
    }
}

CUDA_MODULE(mamba_decode, mamba_rows)
