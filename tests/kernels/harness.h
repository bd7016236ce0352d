/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* harness: the common parts of the checks and the bench of tests/kernels: seeded numbers,
 * exact-size memory (so that a sanitizer sees an overrun) and random weights. Lines of TAP are
 * those of tap.h; the first failures of a check print a `note` before its report.
 *
 * Thread: one.
 * Memory: the caller frees the blocks of make_*; running out aborts. */

#include "base/rng.h"
#include "kernels/kernels.h"
#include "tap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

void *make_bytes(size_t bytes); /* aligned to 64, contents undefined, never NULL */
float *make_floats(size_t count);
float random_float(struct rng *rng); /* [-1, 1), a few larger */
float *make_random(struct rng *rng, size_t count);
void poison(float *at, size_t count); /* NaN */

/* `rows` rows of `cols` elements of `type` with sane scales. */
unsigned char *make_weights(struct rng *rng, enum tensor_type type, uint32_t rows, uint32_t cols);
struct matrix *make_matrix(const struct kernels *kernels, const struct matrix_part *parts,
                           uint32_t part_count, uint32_t cols); /* opened and packed */

/* CPU time of this thread in nanoseconds: other processes of the machine count only through caches
 * and memory. */
int64_t spent_ns(void);

/* Bitwise. */
bool same_floats(const float *a, const float *b, size_t count);

void check_matmul(const struct kernels *kernels);
void check_rows(const struct kernels *kernels);
void check_attention(const struct kernels *kernels, enum tensor_type type);
void check_latent(const struct kernels *kernels);
void check_recurrent(const struct kernels *kernels);
void check_logits(const struct kernels *kernels);
typedef void (*bench_fn)(void *context);
double seconds_of(bench_fn function, void *context); /* the best of several tries */
/* The time of `rows` queries at the end of each of some sequences of `length` tokens over entries of
 * 512 + 64, and its billions of operations. */
double bench_latent(const struct kernels *kernels, uint32_t heads, uint32_t sequences,
                    uint32_t rows, uint32_t length, double *ret_gop);
void bench_fill(const struct kernels *kernels);
void bench_recurrent(const struct kernels *kernels);
void bench(const struct kernels *kernels);
