/* SPDX-License-Identifier: Apache-2.0 */

/* conv_short: the gated short convolution of LFM2. Rows of prompts go by tiles. Rows that are alone
 * have a block for some channels each: a tile of them, one after the other, would wait for each
 * tail. */

#include "gpu/cuda/recurrent_rows.cuh"

#define TAPS 3
#define GRID_ROWS_MAX 65535u /* limit of a grid's second dimension */

/* What is convolved, of four channels. */
__device__ static inline struct numbers<4> short_input(const struct cuda_short_conv &call,
                                                       size_t row, uint32_t channel) {
    struct numbers<4> v = four_sums(call.in, row, channel);
    const struct numbers<4> by = four_sums(call.in, row, channel + 2 * call.width);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v.at[i] *= by.at[i];
        if (call.tails.is_bf16) v.at[i] = bf16_float(bf16_bits(v.at[i]));
    }
    return v;
}

__device__ static inline void
short_output(const struct cuda_short_conv &call, size_t row, uint32_t channel,
             struct numbers<4> v) {
    const struct numbers<4> gate = four_sums(call.in, row, channel + call.width);
#pragma unroll
    for (int i = 0; i < 4; i++) v.at[i] *= gate.at[i];
    write_bf16(v, call.y + row * call.y_stride + channel);
}

/* `items` are those behind the decoded ones. */
__global__ void __launch_bounds__(TILE_THREADS) conv_short(struct cuda_short_conv call) {
    CUDA_SHARED uint32_t owners[TILE_SPAN<TAPS>];
    const uint32_t first = blockIdx.y * TILE_ROWS;
    const uint32_t channel = blockIdx.x * TILE_CHANNELS + threadIdx.x * 4;
    const uint32_t own = channel < call.width ? channel : 0;
    const struct cuda_state_item *items = call.items + call.decoded_count;
    const struct row_conv conv = {items, call.tails, call.conv, NULL, call.width};
    wait_for_before();
    let_next_start();
    find_owners<TAPS>(items, call.item_count - call.decoded_count, first, owners);
    auto input = [&](uint32_t row) { return short_input(call, row, own); };
    auto output = [&](uint32_t row, struct numbers<4> v, bool is_there) {
        if (is_there) short_output(call, row, channel, v);
    };
    walk_rows<TAPS>(conv, first, owners, channel, input, output);
}

/* Block: some channels of an item. */
__global__ void __launch_bounds__(TILE_THREADS) short_alone(struct cuda_short_conv call) {
    const uint32_t channel = blockIdx.x * TILE_CHANNELS + threadIdx.x * 4;
    const struct row_conv conv = {call.items, call.tails, call.conv, NULL, call.width};
    wait_for_before();
    let_next_start();
    if (channel >= call.width) return;
    const struct cuda_state_item item = call.items[blockIdx.y];
    const struct numbers<4> own = short_input(call, item.row, channel);
    short_output(call, item.row, channel, convolve_alone<TAPS>(conv, item, channel, own));
}

enum err cuda_short_conv(const struct cuda_short_conv *call, struct CUstream_st *stream,
                         struct error *error) {
    const uint32_t others = call->item_count - call->decoded_count;
    if (call->width == 0 || call->width % 4 != 0 || !is_product_by_fours(&call->in) ||
        !is_states_well(&call->tails) || !is_at_16(call->y) || call->y_stride % 4 != 0 ||
        !is_at_16(call->conv) || call->decoded_count > call->item_count ||
        call->decoded_count > GRID_ROWS_MAX)
        return err_set(error, ERR_INVALID, "conv_short: width %u, an address or a distance",
                       call->width);
    enum err err = launch_dependent("conv_short", error, stream,
                                    tile_blocks(call->width, 0, others > 0 ? call->rows : 0),
                                    TILE_THREADS, 0, conv_short, *call);
    if (err != OK) return err;
    const dim3 alone((call->width + TILE_CHANNELS - 1) / TILE_CHANNELS, call->decoded_count);
    return launch_dependent("conv_short of rows that are alone", error, stream,
                            call->decoded_count > 0 ? alone : dim3(0), TILE_THREADS, 0, short_alone,
                            *call);
}

CUDA_MODULE(conv_short, conv_short)
