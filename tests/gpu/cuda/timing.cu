/* SPDX-License-Identifier: Apache-2.0 */

/* Times, ceilings and random data on the device. */

#include "harness.h"

#include "gpu/cuda/dependent.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

/* ---- random data ---- */

__device__ static uint32_t mix(uint64_t x) {
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull;
    return (uint32_t)(x ^ x >> 33);
}

/* Nearly normal, deviation 1: the sum of four even numbers. */
__device__ static float normal_at(uint64_t index, uint64_t seed) {
    uint32_t a = mix(index * 2 + seed * 0x9e3779b97f4a7c15ull);
    uint32_t b = mix(index * 2 + 1 + seed * 0x9e3779b97f4a7c15ull);
    float sum = (float)(a & 0xffff) + (float)(a >> 16) + (float)(b & 0xffff) + (float)(b >> 16);
    return (sum * (1.0f / 65536) - 2.0f) * 1.7320508f;
}

__device__ static void put(float *at, float value) {
    *at = value;
}
__device__ static void put(__nv_bfloat16 *at, float value) {
    *at = __float2bfloat16(value);
}
__device__ static void put(__nv_fp8_e4m3 *at, float value) {
    *at = __nv_fp8_e4m3(value);
}
__device__ static void put(int8_t *at, float value) {
    *at = (int8_t)rintf(fminf(fmaxf(value, -127), 127));
}

template <class T> __global__ void fill(T *at, size_t count, uint64_t seed, float deviation) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step)
        put(at + i, normal_at(i, seed) * deviation);
}

__global__ static void fill_even(uint32_t *at, size_t count, uint64_t seed, uint32_t below) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step)
        at[i] = (uint32_t)((uint64_t)mix(i + seed * 0x9e3779b97f4a7c15ull) * below >> 32);
}

void fill_f32(float *at, size_t count, uint64_t seed, float deviation) {
    fill<<<2048, 256, 0, stream>>>(at, count, seed, deviation);
}
void fill_bf16(void *at, size_t count, uint64_t seed, float deviation) {
    fill<<<2048, 256, 0, stream>>>((__nv_bfloat16 *)at, count, seed, deviation);
}
void fill_e4m3(void *at, size_t count, uint64_t seed, float deviation) {
    fill<<<2048, 256, 0, stream>>>((__nv_fp8_e4m3 *)at, count, seed, deviation);
}
void fill_int8(void *at, size_t count, uint64_t seed, float deviation) {
    fill<<<2048, 256, 0, stream>>>((int8_t *)at, count, seed, deviation);
}
void fill_u32(uint32_t *at, size_t count, uint64_t seed, uint32_t below) {
    fill_even<<<2048, 256, 0, stream>>>(at, count, seed, below);
}

__global__ static void lift(float *logits, size_t stride, uint32_t vocab) {
    uint32_t id = (blockIdx.x * 7919u + threadIdx.x * 104729u) % vocab;
    logits[blockIdx.x * stride + id] = 24.0f - 0.5f * (float)threadIdx.x;
}
void lift_tokens(float *logits, uint32_t rows, size_t stride, uint32_t vocab) {
    lift<<<rows, 20, 0, stream>>>(logits, stride, vocab);
}

/* ---- times ---- */

#define BATCHES 7
#define BATCH_US 800.0
#define HOST_US 8.0 /* a launch takes the host 3–8 µs: docs/internals/inference/gpu.md */

__global__ static void spin(long long ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

#define STEADY_US 100e3

double timed_batch_us(void (*launch)(void *context, int index), void *context, int count) {
    static cudaEvent_t begin, end;
    static int index;
    if (!begin) {
        CUDA_MUST(cudaEventCreate(&begin));
        CUDA_MUST(cudaEventCreate(&end));
    }
    spin<<<1, 1, 0, stream>>>((long long)((30 + count * HOST_US) * 1000));
    CUDA_MUST(cudaEventRecord(begin, stream));
    for (int i = 0; i < count; i++) launch(context, index++);
    CUDA_MUST(cudaEventRecord(end, stream));
    CUDA_MUST(cudaGetLastError());
    CUDA_MUST(cudaEventSynchronize(end));
    float ms;
    CUDA_MUST(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1000.0 / count;
}

double timed_us(void (*launch)(void *context, int index), void *context) {
    (void)timed_batch_us(launch, context, 1); /* loads the kernel */
    double once = timed_batch_us(launch, context, 2);
    int count = (int)std::min(60.0, std::max(3.0, BATCH_US / once));
    std::vector<double> all;
    for (int i = 0; i < BATCHES; i++) all.push_back(timed_batch_us(launch, context, count));
    std::sort(all.begin(), all.end());
    return all[BATCHES / 2];
}

double timed_steady_us(void (*launch)(void *context, int index), void *context) {
    const int count = (int)(STEADY_US / timed_us(launch, context)) + 1;
    (void)timed_batch_us(launch, context, count);
    return timed_batch_us(launch, context, count);
}

int cold_copies(size_t bytes) {
    size_t enough = 6 * (size_t)card.l2CacheSize + (64u << 20);
    return (int)std::max<size_t>(2, (enough + bytes - 1) / std::max<size_t>(bytes, 1));
}

/* ---- ceilings ---- */

#define READ_BYTES (2ull << 30)

__global__ static void read_all(const uint4 *from, size_t count, uint32_t *ret) {
    uint32_t sum = 0;
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    for (; i + 7 * step < count; i += 8 * step) {
        uint4 some[8];
#pragma unroll
        for (int k = 0; k < 8; k++) some[k] = __ldcs(from + i + k * step);
#pragma unroll
        for (int k = 0; k < 8; k++) sum += some[k].x ^ some[k].y ^ some[k].z ^ some[k].w;
    }
    for (; i < count; i += step) sum += from[i].x;
    if (sum == 0x12345678u) *ret = sum;
}

__global__ static void copy_all(const uint4 *from, size_t count, uint4 *to) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    wait_for_before();
    let_next_start();
    for (; i + 3 * step < count; i += 4 * step) {
        uint4 some[4];
#pragma unroll
        for (int k = 0; k < 4; k++) some[k] = __ldcs(from + i + k * step);
#pragma unroll
        for (int k = 0; k < 4; k++) __stcs(to + i + k * step, some[k]);
    }
    for (; i < count; i += step) to[i] = from[i];
}

static double measure(bool is_copy) {
    char *memory;
    double best = 0;
    CUDA_MUST(cudaMalloc(&memory, READ_BYTES + 16));
    fill_u32((uint32_t *)memory, READ_BYTES / 4, 1, ~0u);
    size_t count = READ_BYTES / 16;
    for (int blocks = 2; blocks <= 16; blocks *= 2) {
        int grid = card.multiProcessorCount * blocks;
        double us = time_us([&](int) {
            if (is_copy)
                copy_all<<<grid, 512, 0, stream>>>((uint4 *)memory, count / 2,
                                                   (uint4 *)memory + count / 2);
            else
                read_all<<<grid, 512, 0, stream>>>((uint4 *)memory, count,
                                                   (uint32_t *)(memory + READ_BYTES));
        });
        best = std::max(best, (double)READ_BYTES / us / 1e3);
    }
    if (is_copy) {
        double us = time_us([&](int) {
            CUDA_MUST(cudaMemcpyAsync(memory + READ_BYTES / 2, memory, READ_BYTES / 2,
                                      cudaMemcpyDeviceToDevice, stream));
        });
        best = std::max(best, (double)READ_BYTES / us / 1e3);
    }
    CUDA_MUST(cudaFree(memory));
    (void)printf("# ceiling: %s %.0f GB/s\n", is_copy ? "read + write" : "linear read", best);
    return best;
}

double ceiling_read(void) {
    static double value;
    if (value == 0) value = measure(false);
    return value;
}

double ceiling_copy(void) {
    static double value;
    if (value == 0) value = measure(true);
    return value;
}

/* Microseconds of the best copy that reads and writes `bytes` together, cold and launched as the
 * kernels are; kept by size. Its blocks are a few per multiprocessor, or enough for each thread to
 * move one, two or four chunks. */
static double copy_us(double bytes) {
    static std::vector<std::pair<double, double>> known;
    for (const auto &one : known)
        if (one.first == bytes) return one.second;
    const size_t count = std::max<size_t>((size_t)(bytes / 2) / 16, 1), step = 2 * count;
    const int copies = cold_copies(step * 16);
    uint4 *memory;
    CUDA_MUST(cudaMalloc(&memory, step * 16 * (size_t)copies));
    fill_u32((uint32_t *)memory, step * 4 * (size_t)copies, 1, ~0u);
    double best = 0;
    for (int threads : {128, 256, 512}) {
        const int held = card.multiProcessorCount, whole = (int)((count + threads - 1) / threads);
        for (int blocks : {2 * held, 4 * held, 8 * held, whole, (whole + 1) / 2, (whole + 3) / 4}) {
            double us = time_us([&](int i) {
                const uint4 *from = memory + (size_t)(i % copies) * step;
                MUST_BE_OK(launch_dependent("copy", error, stream, blocks, threads, 0, copy_all,
                                            from, count, (uint4 *)from + count));
            });
            if (best == 0 || us < best) best = us;
        }
    }
    CUDA_MUST(cudaFree(memory));
    known.push_back({bytes, best});
    return best;
}

/* ---- lines ---- */

/* bench/gpu/kernels reads these lines. */
static void print_line(const char *name, double us, double rate, const char *unit, double ceiling,
                       double share_of_copy, const char *shape, va_list arguments) {
    char text[128];
    (void)vsnprintf(text, sizeof text, shape, arguments);
    (void)printf("%-10s %-52s %10.2f us %9.1f %-7s", name, text, us, rate, unit);
    if (ceiling > 0) (void)printf(" %5.1f %%", 100 * rate / ceiling);
    if (share_of_copy > 0) (void)printf(" (%.0f %% of a copy as large)", 100 * share_of_copy);
    (void)printf("\n");
    (void)fflush(stdout);
}

void bench_bytes(const char *name, double us, double bytes, double ceiling, const char *shape,
                 ...) {
    va_list arguments;
    va_start(arguments, shape);
    print_line(name, us, bytes / us / 1e3, "GB/s", ceiling, 0, shape, arguments);
    va_end(arguments);
}

void bench_moved(const char *name, double us, double bytes, const char *shape, ...) {
    va_list arguments;
    va_start(arguments, shape);
    print_line(name, us, bytes / us / 1e3, "GB/s", ceiling_copy(), copy_us(bytes) / us, shape,
               arguments);
    va_end(arguments);
}

void bench_flops(const char *name, double us, double flops, double ceiling, const char *shape,
                 ...) {
    va_list arguments;
    va_start(arguments, shape);
    print_line(name, us, flops / us / 1e6, "TFLOP/s", ceiling, 0, shape, arguments);
    va_end(arguments);
}
