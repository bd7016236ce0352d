/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* harness: the common parts of the checks and benches of the CUDA kernels.
 *
 * The program `cuda-kernels` is main.cu, this, and one file per family of kernels (test_*.cu) that
 * offers `void check_NAME(void)` and `void bench_NAME(void)`. To add a family: declare the two at
 * the end of this file, give them a line in the table of main.cu, and name the file in meson.build.
 *
 *   A check draws its inputs from random_of(), a generator of its own that starts from the seed of
 *   the run (printed, repeated with --seed N) and the family's name; puts them on the GPU with
 *   gpu_copy(); takes outputs with gpu_take(), which fills them with 0xff (NaN in every float
 *   format used here, also in e4m3) and puts a guard before and behind; launches on `stream`; calls
 *   gpu_settle(), which waits and dies of any error; reads back with gpu_read(); compares
 *   with a plain C reference in double or with the table `ref` of kernels.h; report()s one sentence
 *   for each shape or property; and calls gpu_release(), which reports any guard written to.
 *
 *   A bench takes inputs larger than the L2 or rotates copies of them (cold_copies()), times a
 *   launch with time_us() and prints one line with bench_bytes(), bench_moved() or bench_flops():
 *   the share is of a ceiling measured in this process on first use. Inputs are random, never
 *   zeros: products of zeros run 13 % faster than those of numbers.
 *
 * CUDA_MUST(call) ends the program with the place and the error. A launcher under test that
 * returns an enum err goes into MUST_BE_OK(). There is no sleeping and no host clock in any time.
 *
 * Thread: one.
 * Memory: gpu_release() frees everything taken; host vectors are std. */

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "base/err.h"
#include "base/rng.h"
#include "kernels/kernels.h"
}

#include "tap.h"

/* ---- errors ---- */

void cuda_must(cudaError_t error, const char *file, int line, const char *what);
void be_ok(enum err code, const struct error *error, const char *file, int line, const char *what);
#define CUDA_MUST(call) cuda_must(call, __FILE__, __LINE__, #call)
/* `call` may use `error`, a struct error * of its own. */
#define MUST_BE_OK(call)                                                                           \
    do {                                                                                           \
        struct error error_ = {}, *error = &error_;                                                \
        enum err code_ = (call);                                                                   \
        be_ok(code_, error, __FILE__, __LINE__, #call);                                            \
    } while (0)

/* ---- random numbers ---- */

extern uint64_t run_seed;
extern uint64_t check_one_in; /* share of the shapes, at random; 1 is all */
struct rng random_of(const char *family);
float random_normal(struct rng *rng); /* deviation 1 */
std::vector<float> random_floats(struct rng *rng, size_t count, float deviation);
std::vector<uint16_t> random_bf16(struct rng *rng, size_t count, float deviation);
/* For benches: fills GPU memory with normal numbers, on `stream`. */
void fill_f32(float *at, size_t count, uint64_t seed, float deviation);
void fill_bf16(void *at, size_t count, uint64_t seed, float deviation);
void fill_e4m3(void *at, size_t count, uint64_t seed, float deviation);
void fill_int8(void *at, size_t count, uint64_t seed, float deviation);
void fill_u32(uint32_t *at, size_t count, uint64_t seed, uint32_t below);
/* Lifts 20 logits of each row above all others, as a model does. */
void lift_tokens(float *logits, uint32_t rows, size_t stride, uint32_t vocab);

/* ---- the GPU ---- */

extern cudaStream_t stream; /* not the default stream */
extern cudaDeviceProp card;

void *gpu_take_bytes(size_t bytes); /* poisoned and guarded; 0 bytes are allowed */
void gpu_settle(void);              /* waits for `stream`; any error ends the program */
void gpu_release(void);             /* checks the guards, frees all that was taken */

template <class T> T *gpu_take(size_t count) {
    return (T *)gpu_take_bytes(count * sizeof(T));
}
template <class T> T *gpu_copy(const T *from, size_t count) {
    T *at = gpu_take<T>(count);
    if (count > 0) CUDA_MUST(cudaMemcpy(at, from, count * sizeof(T), cudaMemcpyHostToDevice));
    CUDA_MUST(cudaStreamSynchronize(0)); /* it may return before the last bytes are there */
    return at;
}
template <class T> T *gpu_copy(const std::vector<T> &from) {
    return gpu_copy(from.data(), from.size());
}
template <class T> std::vector<T> gpu_read(const T *from, size_t count) {
    std::vector<T> at(count);
    if (count > 0)
        CUDA_MUST(cudaMemcpy(at.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return at;
}

/* ---- comparing ---- */

struct difference {
    double relative;   /* |got - want| / |want|, Euclidean; infinite when anything is NaN */
    double worst;      /* the largest |got - want| */
    size_t worst_at;   /* where */
    size_t wrong_bits; /* entries that are not equal; NaN equals NaN */
};
struct difference differ(const float *got, const float *want, size_t count);
std::vector<float> floats_of_bf16(const std::vector<uint16_t> &values);
float e4m3_to_f32(uint8_t value);   /* 0x7f and 0xff are NaN */
uint8_t e4m3_from_f32(float value); /* nearest even, beyond 448 becomes 448; NaN 0x7f */
std::vector<float> floats_of_e4m3(const std::vector<uint8_t> &values);

/* ---- timing ---- */

/* Copies of `bytes` to rotate through so that none is found in the L2; at least 2. */
int cold_copies(size_t bytes);
double timed_batch_us(void (*launch)(void *context, int index), void *context, int count);
double timed_us(void (*launch)(void *context, int index), void *context);

/* Median microseconds of launch(i), i counting up: batches of launches queued behind a kernel that
 * spins, between two events, so that the host's own time is never in it. */
template <class F> double time_us(F launch) {
    return timed_us([](void *context, int index) { (*(F *)context)(index); }, &launch);
}

/* Microseconds per launch without a pause, once the GPU is as warm as launches make it in 0.1 s: at
 * its limit of power, where bursts are faster. */
double timed_steady_us(void (*launch)(void *context, int index), void *context);
template <class F> double steady_us(F launch) {
    return timed_steady_us([](void *context, int index) { (*(F *)context)(index); }, &launch);
}

/* Ceilings, measured on first use. */
double ceiling_read(void); /* GB/s of a linear read of 2 GiB */
double ceiling_copy(void); /* GB/s read plus written, 1 GiB to 1 GiB */
enum product_kind { PRODUCT_BF16, PRODUCT_E4M3, PRODUCT_INT8 };
double ceiling_product(enum product_kind kind); /* TFLOP/s of cuBLASLt's best; 0 without it */

/* One line: name, shape, µs, GB/s or TFLOP/s, share of `ceiling`. */
void bench_bytes(const char *name, double us, double bytes, double ceiling, const char *shape, ...)
    PRINTF_LIKE(5, 6);
/* The same for a kernel that reads and writes: its share of ceiling_copy(), and of a copy of as
 * many bytes, which has the same launch, first read and last write. */
void bench_moved(const char *name, double us, double bytes, const char *shape, ...)
    PRINTF_LIKE(4, 5);
void bench_flops(const char *name, double us, double flops, double ceiling, const char *shape, ...)
    PRINTF_LIKE(5, 6);

/* ---- the families ---- */

void check_norm(void);
void bench_norm(void);
void check_gate(void);
void bench_gate(void);
void check_scaled(void);
void bench_scaled(void);
void check_experts(void);
void bench_experts(void);
void check_grouped(void);
void bench_grouped(void);
void check_heads(void);
void bench_heads(void);
void check_latent(void);
void bench_latent(void);
void check_unfolded(void);
void bench_unfolded(void);
void check_side(void);
void bench_side(void);
void check_embed(void);
void bench_embed(void);
void check_reduce(void);
void bench_reduce(void);
void check_pages(void);
void bench_pages(void);
void check_quantise(void);
void bench_quantise(void);
void check_products(void);
void bench_products(void);
void check_sample(void);
void bench_sample(void);
void check_unpack(void);
void bench_unpack(void);
void check_recurrent(void);
void bench_recurrent(void);
void check_texts(void);
void bench_texts(void);
void check_attention(void);
void bench_attention(void);
