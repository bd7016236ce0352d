/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* admission: whether one more sequence may begin, from what is known of output lengths.
 *
 * Reserving every sequence's max_tokens leaves most of the pool idle; reserving nothing makes
 * running sequences throw each other out. So a histogram of the lengths of finished outputs gives
 * mean and variance of what a running sequence still needs, given how far it got, and one more is
 * admitted while used + sum(mean) + 2 sqrt(sum(variance)) <= blocks of the pool, the lengths taken
 * as independent. With a hundred sequences the sum varies by a few per cent only.
 *
 * Knows lengths and counts, no sequences and no blocks by number.
 * Thread: one.  Memory: the caller's struct, nothing else. */

#include <stdbool.h>
#include <stdint.h>

/* 64 buckets of 16 tokens, then 16 to the octave, up to 2^32. */
#define ADMISSION_BUCKETS (64u + 22u * 16u)

struct admission_sums {
    double weight; /* outputs, fading with age */
    double length; /* sum of weight * tokens */
    double square; /* sum of weight * tokens^2 */
};

struct admission {
    struct admission_sums buckets[ADMISSION_BUCKETS];
    struct admission_sums
        above[ADMISSION_BUCKETS + 1]; /* sums over this bucket and all later ones */
    uint32_t learned;                 /* since `above` was made */
    double weight;                    /* of all buckets */
};

/* Starts from a prior: an exponential distribution of mean 400 tokens (1.3 times the mean output of
 * the workload quern is planned for) with the weight of eight observed outputs. */
void admission_init(struct admission *admission);
/* A sequence has finished by itself with `tokens` generated. */
void admission_learn(struct admission *admission, uint32_t tokens);
/* Mean and variance of how many more tokens come from a sequence with `generated` tokens that stops
 * at `generated_max` (above `generated`) if not before. */
void admission_expect(const struct admission *admission, uint32_t generated, uint32_t generated_max,
                      double *ret_mean, double *ret_variance);

/* What is spoken for, in blocks. Zero is none. */
struct admission_load {
    double used;
    double mean;
    double variance;
};

bool admission_fits(const struct admission_load *load, uint32_t block_count);
