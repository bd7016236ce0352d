/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* admission: whether one more sequence may begin, judged by the lengths of finished outputs.
 *
 * Reserving max_tokens for every sequence leaves most of the pool idle; reserving nothing makes
 * running sequences preempt each other. So a histogram of the lengths of finished outputs gives
 * mean and variance of the blocks that a running sequence still needs, given the tokens it has. One
 * more sequence is admitted while used + sum(mean) + 2 sqrt(sum(variance)) <= blocks of the pool.
 * Lengths are taken as independent; with a hundred sequences the sum varies by a few per cent.
 *
 * It knows lengths and counts, no sequences and no numbers of blocks.
 *
 * Thread: one.
 * Memory: the caller's struct, no other. */

#include <stdbool.h>
#include <stdint.h>

/* 64 buckets of 16 tokens, then 16 buckets per octave, up to 2^32 tokens. */
#define ADMISSION_BUCKETS (64u + 22u * 16u)

struct admission_sums {
    double weight; /* number of outputs; older ones count less */
    double length; /* sum of weight * tokens */
    double square; /* sum of weight * tokens^2 */
};

struct admission {
    struct admission_sums buckets[ADMISSION_BUCKETS];
    struct admission_sums above[ADMISSION_BUCKETS + 1]; /* sums over a bucket and all later ones */
    uint32_t learned;                                   /* outputs since `above` was computed */
    double weight;                                      /* sum over all buckets */
};

/* Starts from a prior: an exponential distribution of mean 400 tokens (1.3 times the mean output of
 * the workload quern is planned for) with the weight of eight observed outputs. */
void admission_init(struct admission *admission);
/* Notes that a sequence has finished by itself with `tokens` generated. */
void admission_learn(struct admission *admission, uint32_t tokens);
/* Mean and variance of the tokens that a sequence with `generated` tokens still generates, when it
 * stops at `generated_max` (above `generated`) at the latest. */
void admission_expect(const struct admission *admission, uint32_t generated, uint32_t generated_max,
                      double *ret_mean, double *ret_variance);

/* Blocks in use and expected to be used. All zero is an empty load. */
struct admission_load {
    double used;
    double mean;
    double variance;
};

bool admission_fits(const struct admission_load *load, uint32_t block_count);
