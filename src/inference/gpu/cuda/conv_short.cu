/* SPDX-License-Identifier: Apache-2.0 */

/* conv_short: the gated short convolution of LFM2, rows of prompts and single tokens alike. */

#include "gpu/cuda/recurrent_rows.cuh"

#define TAPS 3

__global__ void __launch_bounds__(TILE_THREADS) conv_short(struct cuda_short_conv call) {
    CUDA_SHARED uint32_t owners[TILE_SPAN<TAPS>];
    const uint32_t first = blockIdx.y * TILE_ROWS;
    const uint32_t channel = blockIdx.x * TILE_CHANNELS + threadIdx.x * 4;
    const uint32_t own = channel < call.width ? channel : 0;
    const struct row_conv conv = {call.items, call.tails, call.conv, NULL, call.width};
    wait_for_before();
    let_next_start();
    find_owners<TAPS>(call.items, call.item_count, first, owners);
    auto input = [&](uint32_t row) {
        struct numbers<4> v = four_sums(call.in, row, own);
        const struct numbers<4> by = four_sums(call.in, row, own + 2 * call.width);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v.at[i] *= by.at[i];
            if (call.tails.is_bf16) v.at[i] = bf16_float(bf16_bits(v.at[i]));
        }
        return v;
    };
    auto output = [&](uint32_t row, struct numbers<4> v, bool is_there) {
        if (!is_there) return;
        const struct numbers<4> gate = four_sums(call.in, row, channel + call.width);
#pragma unroll
        for (int i = 0; i < 4; i++) v.at[i] *= gate.at[i];
        write_bf16(v, call.y + row * call.y_stride + channel);
    };
    walk_rows<TAPS>(conv, first, owners, channel, input, output);
}

enum err cuda_short_conv(const struct cuda_short_conv *call, struct CUstream_st *stream,
                         struct error *error) {
    if (call->width == 0 || call->width % 4 != 0 || !is_product_by_fours(&call->in) ||
        !is_states_well(&call->tails) || !is_at_16(call->y) || call->y_stride % 4 != 0)
        return err_set(error, ERR_INVALID, "conv_short: width %u, an address or a distance",
                       call->width);
    return launch_dependent("conv_short", error, stream,
                            tile_blocks(call->width, 0, call->item_count > 0 ? call->rows : 0),
                            TILE_THREADS, 0, conv_short, *call);
}

CUDA_MODULE(conv_short, conv_short)
