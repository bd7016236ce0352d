/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/peak.h"

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHAINS 12 /* more than latency times throughput of any of them */
#define ROUNDS 100000
#define TRIES 20

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* A function that runs ROUNDS * CHAINS times `expression` on x, each chain in a register. */
#define PEAK_LOOP(name, features, type, zero, expression)                                          \
    __attribute__((target(features))) static void name(void) {                                     \
        type chains[CHAINS];                                                                       \
        UNROLL for (int i = 0; i < CHAINS; i++) chains[i] = zero;                                  \
        for (int round = 0; round < ROUNDS; round++) {                                             \
            UNROLL for (int i = 0; i < CHAINS; i++) {                                              \
                type x = chains[i];                                                                \
                chains[i] = expression;                                                            \
                __asm__ volatile("" : "+v"(chains[i]));                                            \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"v"(chains[i]));             \
    }

#define AVX512 "avx512f,avx512bw,avx512vl,avx512vnni"
PEAK_LOOP(vnni_512, AVX512, __m512i, _mm512_setzero_si512(), _mm512_dpbusd_epi32(x, x, x))
PEAK_LOOP(fma_512, AVX512, __m512, _mm512_set1_ps(0.5f), _mm512_fmadd_ps(x, x, x))
PEAK_LOOP(bf16_512, AVX512 ",avx512bf16", __m512, _mm512_set1_ps(0.5f),
          _mm512_dpbf16_ps(x, (__m512bh)_mm512_castps_si512(x), (__m512bh)_mm512_castps_si512(x)))
PEAK_LOOP(fma_256, "avx2,fma", __m256, _mm256_set1_ps(0.5f), _mm256_fmadd_ps(x, x, x))
PEAK_LOOP(maddubs_256, "avx2", __m256i, _mm256_setzero_si256(),
          _mm256_add_epi16(_mm256_maddubs_epi16(x, x), x))

static int64_t spent_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return 0;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double time_loop(void (*loop)(void), double operations) {
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        int64_t begin_ns = spent_ns();
        loop();
        int64_t this_ns = spent_ns() - begin_ns;
        if (this_ns < best_ns) best_ns = this_ns;
    }
    return operations * ROUNDS * CHAINS / (double)(best_ns > 0 ? best_ns : 1);
}

struct peak peak_of(const struct kernels *kernels, enum matrix_layout layout) {
    bool is_512 = strncmp(kernels->name, "avx512", 6) == 0;
    if (layout == MATRIX_BF16_PAIRS) return (struct peak){"vdpbf16ps", time_loop(bf16_512, 64)};
    if (layout == MATRIX_BYTES && is_512)
        return (struct peak){"vpdpbusd", time_loop(vnni_512, 128)};
    if (layout == MATRIX_BYTES)
        return (struct peak){"vpmaddubsw+vpaddw", time_loop(maddubs_256, 64)};
    if (is_512) return (struct peak){"fma", time_loop(fma_512, 32)};
    if (__builtin_cpu_supports("fma")) return (struct peak){"fma", time_loop(fma_256, 16)};
    return (struct peak){"nothing", 0};
}

static void add_in_turn(void) {
    uint64_t sum = 0;
    for (int i = 0; i < ROUNDS * CHAINS / 16; i++)
        UNROLL for (int k = 0; k < 16; k++) __asm__ volatile("add $1, %0" : "+r"(sum));
}

double peak_frequency_ghz(void) {
    return time_loop(add_in_turn, 1);
}

__attribute__((target("avx2"))) static void read_all(const unsigned char *at, size_t bytes) {
    __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                       _mm256_setzero_si256()};
    for (size_t i = 0; i < bytes; i += 128)
        UNROLL for (int lane = 0; lane < 4; lane++) sums[lane] = _mm256_or_si256(
            sums[lane], _mm256_load_si256((const void *)(at + i + 32 * (size_t)lane)));
    UNROLL for (int lane = 0; lane < 4; lane++) __asm__ volatile("" ::"x"(sums[lane]));
}

double peak_read_gb_s(size_t bytes) {
    if (!__builtin_cpu_supports("avx2")) return 0;
    unsigned char *memory = kernels_memory(bytes);
    if (!memory) return 0;
    memset(memory, 1, bytes);
    size_t repeats = bytes < (1u << 24) ? (1u << 25) / bytes : 1;
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < 6; i++) {
        int64_t begin_ns = spent_ns();
        for (size_t r = 0; r < repeats; r++) read_all(memory, bytes);
        int64_t this_ns = spent_ns() - begin_ns;
        if (this_ns < best_ns) best_ns = this_ns;
    }
    free(memory);
    return (double)bytes * (double)repeats / (double)(best_ns > 0 ? best_ns : 1);
}

__attribute__((target("avx2"))) static void update_all(float *at, size_t count) {
    const __m256 factor = _mm256_set1_ps(0.999f);
    for (size_t i = 0; i < count; i += 8)
        _mm256_store_ps(at + i, _mm256_mul_ps(_mm256_load_ps(at + i), factor));
}

double peak_update_gb_s(size_t bytes) {
    if (!__builtin_cpu_supports("avx2")) return 0;
    float *memory = kernels_memory(bytes);
    if (!memory) return 0;
    memset(memory, 0, bytes);
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        int64_t begin_ns = spent_ns();
        update_all(memory, bytes / sizeof *memory);
        int64_t this_ns = spent_ns() - begin_ns;
        if (this_ns < best_ns) best_ns = this_ns;
    }
    free(memory);
    return 2 * (double)bytes / (double)(best_ns > 0 ? best_ns : 1);
}
