/* SPDX-License-Identifier: Apache-2.0 */

/* mamba: a Mamba-2 layer. All heads of a group share B and C, so the convolution, which moves their
 * tails on, is a kernel of its own, and another for rows that are alone: its bytes are 1 % of the
 * states'. So is the norm behind the
 * states, whose groups have many heads. */

#include "gpu/cuda/mamba.cuh"
#include "gpu/cuda/recurrent_rows.cuh"

#define TAPS 4
#define NORM_THREADS 256
#define GRID_ROWS_MAX 65535u /* limit of a grid's second dimension */

__global__ void __launch_bounds__(TILE_THREADS)
    mamba_rows(struct cuda_mamba call, uint32_t channels) {
    CUDA_SHARED uint32_t owners[TILE_SPAN<TAPS>];
    const uint32_t first = blockIdx.y * TILE_ROWS;
    const uint32_t channel = blockIdx.x * TILE_CHANNELS + threadIdx.x * 4;
    const uint32_t own = channel < channels ? channel : 0;
    const struct cuda_state_item *items = call.items + call.decoded_count;
    const struct row_conv conv = {items, call.tails, call.conv, call.conv_bias, channels};
    wait_for_before();
    let_next_start();
    find_owners<TAPS>(items, call.item_count - call.decoded_count, first, owners);
    auto input = [&](uint32_t row) { return four_bf16(call.xbc, row, own); };
    auto output = [&](uint32_t row, struct numbers<4> v, bool is_there) {
        if (!is_there) return;
#pragma unroll
        for (int i = 0; i < 4; i++) v.at[i] = silu(v.at[i]);
        write_f32(v, call.room + (size_t)row * channels + channel);
    };
    walk_rows<TAPS>(conv, first, owners, channel, input, output);
}

/* Rows that are alone: a tile of them, one after the other, would wait for each tail. Block: some
 * channels of an item. */
__global__ void __launch_bounds__(TILE_THREADS)
    mamba_alone(struct cuda_mamba call, uint32_t channels) {
    const uint32_t channel = blockIdx.x * TILE_CHANNELS + threadIdx.x * 4;
    const struct row_conv conv = {call.items, call.tails, call.conv, call.conv_bias, channels};
    wait_for_before();
    let_next_start();
    if (channel >= channels) return;
    const struct cuda_state_item item = call.items[blockIdx.y];
    struct numbers<4> v =
        convolve_alone<TAPS>(conv, item, channel, four_bf16(call.xbc, item.row, channel));
#pragma unroll
    for (int i = 0; i < 4; i++) v.at[i] = silu(v.at[i]);
    write_f32(v, call.room + (size_t)item.row * channels + channel);
}

/* Four outputs before the factor of the norm; `gate` becomes that of the factors behind it. */
__device__ static inline struct numbers<4> read_outputs(const struct cuda_mamba &call,
                                                        const float *from, size_t row, uint32_t at,
                                                        struct numbers<4> *gate) {
    struct numbers<4> v = read_f32<4>(from + at);
    *gate = four_sums(call.z, row, at);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        gate->at[i] = silu(gate->at[i] * call.z_factor);
        if (call.norm_is_first) continue;
        v.at[i] *= gate->at[i];
        gate->at[i] = 1.0f;
    }
    return v;
}

/* Block: a row of a group. */
__global__ void
__launch_bounds__(NORM_THREADS) mamba_norm(struct cuda_mamba call, uint32_t channels) {
    CUDA_SHARED float2 parts[32];
    const uint32_t width = call.heads / call.groups * call.head_dim, first = blockIdx.x * width;
    const size_t row = blockIdx.y;
    const float *from = call.room + row * channels;
    struct numbers<4> gate;
    float factor = call.y_factor;
    wait_for_before();
    let_next_start();
    if (call.norm) {
        float squares = 0;
        for (uint32_t at = threadIdx.x * 4; at < width; at += NORM_THREADS * 4) {
            const struct numbers<4> v = read_outputs(call, from, row, first + at, &gate);
#pragma unroll
            for (int i = 0; i < 4; i++) squares = fmaf(v.at[i], v.at[i], squares);
        }
        squares = block_sum_max(make_float2(squares, 0.0f), parts).x;
        factor /= sqrtf(squares / (float)width + call.epsilon);
    }
    for (uint32_t at = threadIdx.x * 4; at < width; at += NORM_THREADS * 4) {
        struct numbers<4> v = read_outputs(call, from, row, first + at, &gate);
        struct numbers<4> weight = {
            1.0f, 1.0f, 1.0f, 1.0f
        };
        if (call.norm) weight = read_f32<4>(call.norm + first + at);
#pragma unroll
        for (int i = 0; i < 4; i++) v.at[i] *= factor * weight.at[i] * gate.at[i];
        write_bf16(v, call.y + row * call.y_stride + first + at);
    }
}

/* ---- the host ---- */

enum err cuda_mamba_supports(uint32_t heads, uint32_t groups, uint32_t head_dim, uint32_t state_dim,
                             struct error *error) {
    if (groups == 0 || heads == 0 || heads % groups != 0 || head_dim == 0 || head_dim % 4 != 0)
        return err_set(error, ERR_INVALID, "mamba: %u heads of %u in %u groups", heads, head_dim,
                       groups);
    if (state_dim == 16 || state_dim == 32 || state_dim == 64 || state_dim == 128 ||
        state_dim == 256)
        return OK;
    return err_set(error, ERR_INVALID, "mamba: a state of %u, not 16, 32, 64, 128 or 256",
                   state_dim);
}

size_t cuda_mamba_room(uint32_t rows, uint32_t heads, uint32_t groups, uint32_t head_dim,
                       uint32_t state_dim) {
    return (size_t)rows * (heads * head_dim + 2 * groups * state_dim) * sizeof(float);
}

static enum err check(const struct cuda_mamba *call, struct error *error) {
    const enum err code =
        cuda_mamba_supports(call->heads, call->groups, call->head_dim, call->state_dim, error);
    if (code != OK) return code;
    if (!is_product_by_fours(&call->xbc) || !is_product_by_fours(&call->z) || !call->dt.sums ||
        !is_states_well(&call->states) || !is_states_well(&call->tails) || !call->room ||
        !is_at_16(call->room) || !is_at_16(call->conv) || !is_at_16(call->conv_bias) ||
        !is_at_16(call->norm) || !is_at_16(call->y) || call->y_stride % 4 != 0 ||
        call->rows > GRID_ROWS_MAX || call->decoded_count > call->item_count)
        return err_set(error, ERR_INVALID, "mamba: %u of %u items, an address or a distance",
                       call->decoded_count, call->item_count);
    return OK;
}

enum err cuda_mamba(const struct cuda_mamba *call, struct CUstream_st *stream,
                    struct error *error) {
    const uint32_t rows = call->item_count > 0 ? call->rows : 0;
    enum err code = check(call, error);
    if (code != OK) return code;
    const uint32_t channels = mamba_channels(call), decoded = call->decoded_count;
    const dim3 tiles = tile_blocks(channels, 0, call->item_count > decoded ? rows : 0);
    code = launch_dependent("mamba_rows", error, stream, tiles, TILE_THREADS, 0, mamba_rows, *call,
                            channels);
    const dim3 alone(decoded > 0 ? tile_blocks(channels, 0, 1).x : 0, decoded);
    if (code == OK)
        code = launch_dependent("mamba_alone", error, stream, alone, TILE_THREADS, 0, mamba_alone,
                                *call, channels);
    if (code == OK) code = mamba_launch_prompts(call, stream, error);
    if (code == OK) code = mamba_launch_decode(call, stream, error);
    if (code != OK) return code;
    return launch_dependent("mamba_norm", error, stream,
                            rows > 0 ? dim3(call->groups, rows) : dim3(0), NORM_THREADS, 0,
                            mamba_norm, *call, channels);
}

CUDA_MODULE(mamba, mamba_rows)
