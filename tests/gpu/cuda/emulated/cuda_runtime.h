/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Enough of CUDA's runtime to run the kernels of src/inference/gpu/cuda on a machine without a GPU,
 * to find wrong indices and missing waits before a GPU's time is spent on them. Slow, and no proof:
 * a thread here runs until it waits for others, and memory is what it seems.
 *
 * Threads of a block are contexts that take turns. What a warp does together waits for its 32
 * lanes, checks that they all do the same, and gives each what the others brought. GPU memory is
 * host memory (a sanitizer sees what leaves it). Shared memory begins as 0xff. A thread of the host
 * is a GPU: kernels that wait for those of another GPU are launched by a thread per GPU. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#define __global__
#define __device__
#define __host__
#define __shared__ thread_local
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __maxnreg__(count)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

using std::max;
using std::min;

struct uint4 {
    uint32_t x, y, z, w;
};
struct uint2 {
    uint32_t x, y;
};
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
struct int2 {
    int x, y;
};
static inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
static inline uint2 make_uint2(uint32_t x, uint32_t y) {
    return {x, y};
}
static inline int2 make_int2(int x, int y) {
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y) {
    return {x, y};
}

/* ---- threads ---- */

struct dim3 {
    uint32_t x, y, z;
    constexpr dim3(uint32_t columns = 1, uint32_t rows = 1, uint32_t layers = 1)
        : x(columns), y(rows), z(layers) {
    }
};
extern __thread dim3 threadIdx, blockIdx; /* place in the context that runs */
extern __thread dim3 blockDim, gridDim;   /* __thread: no call makes them */
extern thread_local char cuda_memory[];   /* shared */

void emulated_block(uint32_t index, uint32_t threads, void (*body)(void *), void *context);
void __syncthreads(void);
static inline void __threadfence(void) {
}
/* Gives `mine` to the other lanes of `lanes`; returns what all of them brought, `bytes` apart, at
 * the place of each lane. `what` must be the same in all of them. */
const void *emulated_meet_in(uint32_t lanes, int what, const void *mine, size_t bytes);
static inline const void *emulated_meet(int what, const void *mine, size_t bytes) {
    return emulated_meet_in(~0u, what, mine, bytes);
}

static inline void __syncwarp(uint32_t lanes = ~0u) {
    (void)emulated_meet_in(lanes, 1, NULL, 0);
}
template <class T> static inline T __shfl_xor_sync(uint32_t lanes, T value, int apart) {
    const T *all = (const T *)emulated_meet_in(lanes, 2 + apart, &value, sizeof value);
    return all[(threadIdx.x % 32) ^ (uint32_t)apart];
}
template <class T>
static inline T __shfl_sync(uint32_t lanes, T value, uint32_t from, uint32_t width = 32) {
    const T *all = (const T *)emulated_meet_in(lanes, 60, &value, sizeof value);
    return all[threadIdx.x % 32 / width * width + from % width];
}
template <class T> static inline T __shfl_up_sync(uint32_t, T value, int apart) {
    const T *all = (const T *)emulated_meet(70 + apart, &value, sizeof value);
    const int lane = (int)(threadIdx.x % 32);
    return all[lane < apart ? lane : lane - apart];
}
static inline uint32_t __ballot_sync(uint32_t, bool is_so) {
    const bool *all = (const bool *)emulated_meet(61, &is_so, sizeof is_so);
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < 32; i++) lanes |= (uint32_t)all[i] << i;
    return lanes;
}
static inline int __any_sync(uint32_t, bool is_so) {
    const bool *all = (const bool *)emulated_meet(40, &is_so, sizeof is_so);
    return std::any_of(all, all + 32, [](bool one) { return one; });
}
static inline uint32_t __reduce_max_sync(uint32_t, uint32_t value) {
    const uint32_t *all = (const uint32_t *)emulated_meet(41, &value, sizeof value);
    return *std::max_element(all, all + 32);
}
static inline uint32_t __reduce_min_sync(uint32_t, uint32_t value) {
    const uint32_t *all = (const uint32_t *)emulated_meet(42, &value, sizeof value);
    return *std::min_element(all, all + 32);
}
int __syncthreads_or(int is_so);
/* Threads take turns, and none is interrupted. */
static inline uint32_t atomicAdd(uint32_t *at, uint32_t value) {
    *at += value;
    return *at - value;
}
static inline uint32_t atomicMin(uint32_t *at, uint32_t value) {
    uint32_t before = *at;
    *at = std::min(before, value);
    return before;
}
template <class T> static inline T __ldg(const T *at) {
    return *at;
}
template <class T> static inline T __ldcg(const T *at) {
    return *at;
}

template <class T> static inline T __ldcs(const T *at) {
    return *at;
}
template <class T> static inline void __stcg(T *at, T value) {
    *at = value;
}
template <class T> static inline void __stcs(T *at, T value) {
    *at = value;
}

/* ---- arithmetic ---- */

static inline float __uint_as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline int __float_as_int(float value) {
    return (int)__float_as_uint(value);
}
static inline float rsqrtf(float x) {
    return 1 / sqrtf(x);
}
static inline float __frcp_rn(float x) {
    return 1 / x;
}
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t ret = 0;
    for (int i = 0; i < 4; i++)
        ret |= (uint32_t)(bytes >> (selector >> (4 * i) & 7) * 8 & 255) << (8 * i);
    return ret;
}
#define __expf expf /* the C library has a function of that name */
static inline int __clz(int bits) {
    return bits ? __builtin_clz((unsigned)bits) : 32;
}
static inline int __ffs(int bits) {
    return __builtin_ffs(bits);
}
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
    return (uint64_t)((unsigned __int128)a * b >> 64);
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}

/* ---- the runtime ---- */

enum cudaError_t { cudaSuccess };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
typedef struct CUstream_st *cudaStream_t;
#define cudaStreamNonBlocking 0
struct cudaDeviceProp {
    char name[32];
    int major, minor, multiProcessorCount, l2CacheSize;
};
static inline const char *cudaGetErrorString(cudaError_t) {
    return "no error";
}
static inline cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}
#define EMULATED_GPUS 4
static inline cudaError_t cudaGetDeviceCount(int *ret) {
    *ret = EMULATED_GPUS;
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceCanAccessPeer(int *ret, int, int) {
    *ret = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
    return cudaSuccess;
}
#define cudaHostAllocPortable 1u
#define cudaHostAllocMapped 2u
static inline cudaError_t cudaHostAlloc(void **ret, size_t bytes, unsigned) {
    *ret = malloc(bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaFreeHost(void *at) {
    free(at);
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int) {
    return cudaSuccess;
}
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *ret, int) {
    *ret = {"no GPU: emulated", 8, 0, 4, 1 << 20};
    return cudaSuccess;
}
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, int) {
    *ret = NULL;
    return cudaSuccess;
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t) {
    return cudaSuccess;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceSynchronize(void) {
    return cudaSuccess;
}
struct cudaFuncAttributes {
    int binaryVersion, ptxVersion;
};
template <class K>
static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *ret, K) {
    ret->binaryVersion = ret->ptxVersion = 90;
    return cudaSuccess;
}
static inline cudaError_t cudaGetDevice(int *ret) {
    *ret = 0;
    return cudaSuccess;
}
typedef int cudaDeviceAttr;
#define cudaDevAttrComputeCapabilityMajor 75
#define cudaDevAttrMultiProcessorCount 16
extern int emulated_major; /* 9: a GPU with products of warpgroups */
static inline cudaError_t cudaDeviceGetAttribute(int *ret, int attribute, int) {
    *ret = attribute == cudaDevAttrMultiProcessorCount ? 4 : emulated_major;
    return cudaSuccess;
}
template <class T> static inline cudaError_t cudaMalloc(T **ret, size_t bytes) {
    *ret = (T *)aligned_alloc(256, (bytes + 255) / 256 * 256);
    return cudaSuccess;
}
static inline cudaError_t cudaFree(void *at) {
    free(at);
    return cudaSuccess;
}
static inline cudaError_t cudaMemset(void *at, int value, size_t bytes) {
    memset(at, value, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t) {
    return cudaMemset(at, value, bytes);
}
static inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                          cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy(to, from, bytes, kind);
}
