/* SPDX-License-Identifier: Apache-2.0 */

/* Attention of the GPU: decode as a share of a linear read, tiles as a share of the best bf16
 * product. */

#include "attention_load.h"

#include "gpu/cuda/ptx.cuh"

static const char *name_of(const struct attention_load_shape *shape) {
    return shape->type == CUDA_KV_BF16 ? "bf16" : "e4m3";
}

static void bench_decode(const struct attention_load_shape *shape, uint32_t sequences,
                         uint32_t shortest, uint32_t longest) {
    struct attention_load load = decode_load(shape, sequences, shortest, longest);
    double us = time_us([&](int i) {
        const struct cuda_attention *layer = &load.layers[i % load.layers.size()];
        MUST_BE_OK(cuda_attention_decode(layer, &load.decode, stream, error));
        MUST_BE_OK(cuda_attention_merge(layer, &load.merges, stream, error));
    });
    bench_bytes("attention decode", us, load.bytes, ceiling_read(),
                "%s head %u, %u KV heads x %u, %u of %u-%u", name_of(shape), shape->head_dim,
                shape->kv_heads, shape->group, sequences, shortest, longest);
    gpu_release();
}

static void bench_tiles(const struct attention_load_shape *shape, struct attention_load load,
                        const char *what, uint32_t count, uint32_t tokens) {
    double us = time_us([&](int i) {
        MUST_BE_OK(
            cuda_attention_tiles(&load.layers[i % load.layers.size()], &load.tiles, stream, error));
    });
    bench_flops(what, us, load.flops, ceiling_product(PRODUCT_BF16),
                "%s head %u, %u KV heads x %u, %u x %u", name_of(shape), shape->head_dim,
                shape->kv_heads, shape->group, count, tokens);
    gpu_release();
}

/* What mma.sync alone can do: no wgmma, so no more than this is to be had on Hopper. */
__global__ void __launch_bounds__(128) products_alone(float *ret, int count) {
    float sums[16][4] = {};
    uint32_t a[4] = {threadIdx.x * 0x3f80u, 0x3f803f81u, 0x3f833f80u, threadIdx.x};
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int j = 0; j < 16; j++) cuda_mma(sums[j], a, a[j % 4], a[(j + 1) % 4]);
    float all = 0;
    for (int j = 0; j < 16; j++) all += sums[j][0] + sums[j][1] + sums[j][2] + sums[j][3];
    if (all == 1.2345f) *ret = all;
}

static void bench_products_alone(void) {
    int blocks = card.multiProcessorCount * 4, count = 2000;
    float *ret = gpu_take<float>(1);
    double us = time_us([&](int) { products_alone<<<blocks, 128, 0, stream>>>(ret, count); });
    double flops = 2.0 * 16 * 8 * 16 * 16 * count * blocks * 4;
    bench_flops("mma.sync alone", us, flops, ceiling_product(PRODUCT_BF16), "bf16 from registers");
    gpu_release();
}

void bench_attention(void) {
    static const uint32_t head_dims[] = {64, 128, 256};
    bench_products_alone();
    for (enum cuda_kv_type type : {CUDA_KV_BF16, CUDA_KV_E4M3})
        for (uint32_t head_dim : head_dims) {
            struct attention_load_shape shape = {type, head_dim, head_dim == 256 ? 4u : 8u, 4};
            uint32_t most = cuda_tile_rows(shape.group);
            bench_decode(&shape, 512, 300, 1500);
            bench_decode(&shape, 64, 300, 1500);
            bench_decode(&shape, 8, 8192, 8192);
            bench_tiles(&shape, prefix_load(&shape, 512, 1024, 2, most), "attention prefix", 512,
                        1024);
            bench_tiles(&shape, prefix_load(&shape, 2048, 1024, 1, most), "attention prefix", 2048,
                        1024);
            bench_tiles(&shape, prefill_load(&shape, 8, 777, most), "attention prefill", 8, 777);
            bench_tiles(&shape, prefill_load(&shape, 4, 4096, most), "attention prefill", 4, 4096);
        }
}
