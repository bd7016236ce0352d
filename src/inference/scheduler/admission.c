/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/admission.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define PRIOR_MEAN_TOKENS 400.0
#define PRIOR_WEIGHT 8.0
/* Above this weight all buckets are halved, so that a new workload shows after some thousand
 * outputs. */
#define WEIGHT_MAX 4096.0
#define LEARNED_MAX 16u
/* Bucket sums below this count as empty: halving leaves small rests. */
#define WEIGHT_MIN 1e-9

static uint32_t bucket_of(uint32_t tokens) {
    if (tokens < 1024) return tokens / 16;
    uint32_t octave = 31u - (uint32_t)__builtin_clz(tokens);
    return 64 + (octave - 10) * 16 + ((tokens >> (octave - 4)) & 15);
}

static double bucket_start(uint32_t bucket) {
    if (bucket <= 64) return bucket * 16.0;
    uint32_t octave = 10 + (bucket - 64) / 16;
    return ldexp(1.0 + (bucket - 64) % 16 / 16.0, (int)octave);
}

/* Sums the buckets from the longest down, so that the sums of all longer outputs are one
 * look-up. */
static void sum_up(struct admission *admission) {
    struct admission_sums sum = {0, 0, 0};
    admission->above[ADMISSION_BUCKETS] = sum;
    for (uint32_t i = ADMISSION_BUCKETS; i-- > 0;) {
        sum.weight += admission->buckets[i].weight;
        sum.length += admission->buckets[i].length;
        sum.square += admission->buckets[i].square;
        admission->above[i] = sum;
    }
    admission->learned = 0;
}

/* Adds `scale` times the prior. */
static void add_prior(struct admission *admission, double scale) {
    for (uint32_t i = 0; i < ADMISSION_BUCKETS; i++) {
        double start = bucket_start(i);
        double end = bucket_start(i + 1);
        double weight = scale * PRIOR_WEIGHT *
                        (exp(-start / PRIOR_MEAN_TOKENS) - exp(-end / PRIOR_MEAN_TOKENS));
        double middle = (start + end) / 2;
        admission->buckets[i].weight += weight;
        admission->buckets[i].length += weight * middle;
        admission->buckets[i].square += weight * middle * middle;
    }
    admission->weight += scale * PRIOR_WEIGHT;
}

void admission_init(struct admission *admission) {
    memset(admission, 0, sizeof *admission);
    add_prior(admission, 1);
    sum_up(admission);
}

void admission_learn(struct admission *admission, uint32_t tokens) {
    struct admission_sums *bucket = &admission->buckets[bucket_of(tokens)];
    bucket->weight += 1;
    bucket->length += tokens;
    bucket->square += (double)tokens * tokens;
    admission->weight += 1;
    if (admission->weight > WEIGHT_MAX) {
        for (uint32_t i = 0; i < ADMISSION_BUCKETS; i++) {
            admission->buckets[i].weight /= 2;
            admission->buckets[i].length /= 2;
            admission->buckets[i].square /= 2;
        }
        admission->weight /= 2;
        add_prior(admission, 0.5);
    }
    if (++admission->learned >= LEARNED_MAX) sum_up(admission);
}

void admission_expect(const struct admission *admission, uint32_t generated, uint32_t generated_max,
                      double *ret_mean, double *ret_variance) {
    assert(generated < generated_max);
    double rest = generated_max - generated;
    const struct admission_sums *now = &admission->above[bucket_of(generated)];
    const struct admission_sums *cap = &admission->above[bucket_of(generated_max)];
    if (now == cap) { /* too near to the limit for the histogram to tell */
        *ret_mean = rest;
        *ret_variance = 0;
        return;
    }
    if (now->weight < WEIGHT_MIN) { /* longer than all that was seen: as the prior has it */
        *ret_mean = fmin(rest, PRIOR_MEAN_TOKENS);
        *ret_variance = *ret_mean * *ret_mean;
        return;
    }
    /* Outputs as long as the cap end at the cap. */
    double cap_tokens = generated_max;
    double length = now->length - cap->length + cap->weight * cap_tokens;
    double square = now->square - cap->square + cap->weight * cap_tokens * cap_tokens;
    double mean = length / now->weight;
    *ret_mean = fmin(rest, fmax(1, mean - generated));
    *ret_variance = fmax(0, square / now->weight - mean * mean);
}

bool admission_fits(const struct admission_load *load, uint32_t block_count) {
    return load->used + load->mean + 2 * sqrt(load->variance) <= block_count;
}
