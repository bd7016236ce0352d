/* SPDX-License-Identifier: Apache-2.0 */

/* Times of the kernels of recurrent.h. Bytes are those that must move: each state once in and once
 * out, and each row. */

#include "harness.h"

extern "C" {
#include "gpu/cuda/recurrent.h"
}

#define ROOM_MOST (24ull << 30) /* bytes for the states of a shape */

/* ---- Gated DeltaNet: 16 key and 32 value heads of 128 are those of Qwen3.5-4B ---- */

struct delta_load {
    uint32_t k_heads, v_heads, sequences, rows; /* rows per sequence */
    bool is_bf16;
};

/* A layer with random numbers. Slots are twice the sequences, and an item goes to the other half.
 */
static struct cuda_delta delta_of(const struct delta_load &load, uint32_t slots) {
    const uint32_t D = 128, rows = load.sequences * load.rows;
    const size_t values = load.v_heads * D, channels = 2 * load.k_heads * D + values;
    const size_t state = values * D;
    const float bytes = load.is_bf16 ? 2 : 4;
    struct cuda_delta call = {};
    uint16_t *qkv = gpu_take<uint16_t>(rows * channels), *z = gpu_take<uint16_t>(rows * values);
    uint16_t *gates = gpu_take<uint16_t>(2 * rows * load.v_heads);
    float *vectors = gpu_take<float>(channels * 4 + 2 * load.v_heads + D);
    fill_bf16(qkv, rows * channels, 1, 1.0f), fill_bf16(z, rows * values, 2, 1.0f);
    fill_bf16(gates, 2 * rows * load.v_heads, 3, 1.0f);
    fill_f32(vectors, channels * 4 + 2 * load.v_heads + D, 4, 0.5f);
    call.qkv.sums = qkv, call.qkv.stride = channels;
    call.z.sums = z, call.z.stride = values;
    call.a.sums = gates, call.b.sums = gates + rows * load.v_heads;
    call.a.stride = call.b.stride = load.v_heads;
    call.conv = vectors, call.norm = vectors + channels * 4;
    call.a_log = call.norm + D, call.dt_bias = call.a_log + load.v_heads;
    call.epsilon = 1e-6f;
    call.states = {gpu_take_bytes((size_t)(slots * state * bytes)), (size_t)(state * bytes),
                   load.is_bf16};
    call.tails = {gpu_take_bytes(slots * 6 * channels), 6 * channels, true};
    if (load.is_bf16)
        fill_bf16(call.states.at, slots * state, 5, 0.1f);
    else
        fill_f32((float *)call.states.at, slots * state, 5, 0.1f);
    fill_bf16(call.tails.at, slots * 3 * channels, 6, 1.0f);
    call.y = gpu_take<uint16_t>(rows * values), call.y_stride = values;
    call.item_count = load.sequences, call.rows = rows;
    call.k_heads = load.k_heads, call.v_heads = load.v_heads, call.k_dim = call.v_dim = D;
    return call;
}

/* Items of `sets` calls after one another, each in slots of its own, in place. */
static const struct cuda_state_item *items_of(uint32_t sequences, uint32_t rows, uint32_t sets) {
    std::vector<cuda_state_item> items;
    for (uint32_t set = 0; set < sets; set++)
        for (uint32_t i = 0; i < sequences; i++) {
            const uint32_t slot = set * sequences + (i * 7919u) % sequences;
            items.push_back({i * rows, rows, slot, slot, CUDA_STATE_NONE, 0});
        }
    return gpu_copy(items);
}

static void bench_decode(const struct delta_load &load) {
    const size_t values = load.v_heads * 128, channels = 2 * load.k_heads * 128 + values;
    const double state = (double)values * 128 * (load.is_bf16 ? 2 : 4);
    const double each = 2 * state + 12.0 * channels + 2.0 * channels + 4.0 * values;
    const double bytes = load.sequences * each;
    const uint32_t sets = (uint32_t)std::min<double>(
        cold_copies((size_t)bytes), std::max(1.0, ROOM_MOST / (load.sequences * state)));
    struct cuda_delta call = delta_of(load, sets * load.sequences);
    const struct cuda_state_item *items = items_of(load.sequences, 1, sets);
    const double us = time_us([&](int i) {
        call.items = items + (size_t)(i % sets) * load.sequences;
        MUST_BE_OK(cuda_delta_decode(&call, stream, error));
    });
    bench_moved("delta_decode", us, bytes, "%u of %u and %u heads, states in %s", load.sequences,
                load.k_heads, load.v_heads, load.is_bf16 ? "bf16" : "float32");
    gpu_release();
}

/* Operations of a row and value head: the state is asked twice and changed once; of the products
 * within a chunk, the half below the diagonal counts. */
static void bench_chunk(const struct delta_load &load) {
    const double D = 128, each = 6 * D * D + 8 * 32.5 * D, rows = load.sequences * load.rows;
    struct cuda_delta call = delta_of(load, load.sequences);
    call.items = items_of(load.sequences, load.rows, 1);
    call.room = gpu_take_bytes(cuda_delta_room(call.rows, load.k_heads, load.v_heads, 128));
    const double us = time_us([&](int) { MUST_BE_OK(cuda_delta_chunk(&call, stream, error)); });
    bench_flops("delta_chunk", us, rows * load.v_heads * each, ceiling_product(PRODUCT_BF16),
                "%u of %u rows, %u and %u heads, states in %s", load.sequences, load.rows,
                load.k_heads, load.v_heads, load.is_bf16 ? "bf16" : "float32");
    gpu_release();
}

/* ---- LFM2-1.2B has a width of 2,048 ---- */

static void bench_short_conv(uint32_t sequences, uint32_t each) {
    const uint32_t width = 2048, rows = sequences * each;
    const double bytes = rows * 8.0 * width + sequences * 16.0 * width;
    const uint32_t copies = (uint32_t)cold_copies((size_t)bytes);
    uint16_t *in = gpu_take<uint16_t>((size_t)copies * rows * 3 * width);
    uint16_t *y = gpu_take<uint16_t>((size_t)copies * rows * width);
    float *taps = gpu_take<float>(3 * width), *tails = gpu_take<float>(sequences * 2 * width);
    fill_bf16(in, (size_t)copies * rows * 3 * width, 1, 1.0f), fill_f32(taps, 3 * width, 2, 0.5f);
    fill_f32(tails, sequences * 2 * width, 3, 1.0f);
    struct cuda_short_conv call = {};
    call.in.stride = 3 * width, call.conv = taps, call.tails = {tails, 8 * width, false};
    call.items = items_of(sequences, each, 1), call.item_count = sequences;
    call.rows = rows, call.width = width, call.y_stride = width;
    call.decoded_count = each == 1 ? sequences : 0;
    const double us = time_us([&](int i) {
        call.in.sums = in + (size_t)(i % copies) * rows * 3 * width;
        call.y = y + (size_t)(i % copies) * rows * width;
        MUST_BE_OK(cuda_short_conv(&call, stream, error));
    });
    bench_moved("short_conv", us, bytes, "%u of %u rows, %u wide", sequences, each, width);
    gpu_release();
}

/* ---- Granite-4.0-H-Micro has 64 heads of 64 and states of 128 ---- */

/* `sequences` of `each` rows. */
static void bench_mamba(uint32_t sequences, uint32_t each, bool is_bf16) {
    const uint32_t heads = 64, P = 64, N = 128, D = heads * P, channels = D + 2 * N;
    const uint32_t rows = sequences * each;
    const size_t state = (size_t)D * N * (is_bf16 ? 2 : 4);
    const double bytes =
        sequences * (2.0 * state + 12.0 * channels) + rows * (10.0 * channels + 12.0 * D);
    const uint32_t sets = (uint32_t)cold_copies((size_t)bytes), slots = sets * sequences;
    uint16_t *sums = gpu_take<uint16_t>((size_t)rows * (D + channels + heads));
    float *vectors = gpu_take<float>(5 * channels + 3 * heads + D);
    fill_bf16(sums, (size_t)rows * (D + channels + heads), 1, 1.0f);
    fill_f32(vectors, 5 * channels + 3 * heads + D, 2, 0.5f);
    struct cuda_mamba call = {};
    call.z.sums = sums, call.z.stride = D;
    call.xbc.sums = sums + (size_t)rows * D, call.xbc.stride = channels;
    call.dt.sums = sums + (size_t)rows * (D + channels), call.dt.stride = heads;
    call.conv = vectors, call.conv_bias = vectors + 4 * channels;
    call.dt_bias = vectors + 5 * channels, call.a_log = call.dt_bias + heads;
    call.d = call.a_log + heads, call.norm = call.d + heads, call.dt_max = 1e30f;
    call.dt_factor = call.z_factor = call.y_factor = 1.0f, call.epsilon = 1e-5f;
    call.states = {gpu_take_bytes(slots * state), state, is_bf16};
    call.tails = {gpu_take_bytes(slots * 6 * (size_t)channels), 6 * channels, true};
    if (is_bf16)
        fill_bf16(call.states.at, slots * state / 2, 3, 0.1f);
    else
        fill_f32((float *)call.states.at, slots * state / 4, 3, 0.1f);
    fill_bf16(call.tails.at, slots * 3 * (size_t)channels, 4, 1.0f);
    call.item_count = sequences, call.rows = rows, call.heads = heads, call.groups = 1;
    call.decoded_count = each == 1 ? sequences : 0;
    call.head_dim = P, call.state_dim = N;
    call.y = gpu_take<uint16_t>((size_t)rows * D), call.y_stride = D;
    call.room = (float *)gpu_take_bytes(cuda_mamba_room(rows, heads, 1, P, N));
    const struct cuda_state_item *items = items_of(sequences, each, sets);
    const double us = time_us([&](int i) {
        call.items = items + (size_t)(i % sets) * sequences;
        MUST_BE_OK(cuda_mamba(&call, stream, error));
    });
    bench_moved("mamba", us, bytes, "%u of %u rows, %u heads of %u and %u, %s", sequences, each,
                heads, P, N, is_bf16 ? "bf16" : "float32");
    gpu_release();
}

/* ---- copies: 24 layers of Qwen3.5-4B, state and tail ---- */

static void bench_copies(uint32_t count) {
    const uint32_t places = 24, slots = 64;
    const size_t bytes = 32 * 128 * 128 * 4 + 3 * 8192 * 2;
    struct cuda_state_copies call = {};
    call.at = gpu_take_bytes(places * slots * bytes);
    fill_u32((uint32_t *)call.at, places * slots * bytes / 4, 1, ~0u);
    call.slot_stride = call.bytes = bytes, call.place_stride = slots * bytes, call.places = places;
    std::vector<cuda_state_copy> copies;
    for (uint32_t i = 0; i < slots / 2; i++) copies.push_back({i, slots / 2 + i});
    const struct cuda_state_copy *all = gpu_copy(copies);
    call.copy_count = count;
    const double us = time_us([&](int i) {
        call.copies = all + (size_t)i * count % (slots / 2);
        MUST_BE_OK(cuda_copy_states(&call, stream, error));
    });
    bench_moved("copy_states", us, 2.0 * count * places * (double)bytes, "%u of %u layers", count,
                places);
    gpu_release();
}

void bench_recurrent(void) {
    for (bool is_bf16 : {false, true})
        for (uint32_t sequences : {1u, 16u, 64u, 256u, 512u, 817u, 1024u})
            bench_decode({16, 32, sequences, 1, is_bf16});
    bench_decode({16, 64, 512, 1, false});
    for (const auto &load :
         {delta_load{16, 32, 1, 2048, false}, delta_load{16, 32, 4, 512, false},
          delta_load{16, 32, 4, 512, true}, delta_load{16, 32, 16, 128, false},
          delta_load{16, 32, 64, 32, false}, delta_load{16, 32, 16, 1024, false}})
        bench_chunk(load);
    bench_short_conv(1024, 1), bench_short_conv(4, 512);
    for (bool is_bf16 : {false, true})
        for (uint32_t sequences : {64u, 512u, 1024u}) bench_mamba(sequences, 1, is_bf16);
    bench_mamba(16, 1024, false), bench_mamba(4, 512, false), bench_mamba(1, 2048, false);
    for (uint32_t count : {1u, 4u, 16u}) bench_copies(count);
}
