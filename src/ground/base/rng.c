/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#define GOLDEN_GAMMA 0x9E3779B97F4A7C15ull

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

uint64_t rng_next(struct rng *rng) {
    rng->state += GOLDEN_GAMMA;
    return mix(rng->state);
}

uint64_t rng_below(struct rng *rng, uint64_t bound) {
    return (uint64_t)(((__uint128_t)rng_next(rng) * bound) >> 64);
}

static double unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

double rng_unit(struct rng *rng) {
    return unit(rng_next(rng));
}

uint64_t rng_at(uint64_t seed, uint64_t counter) {
    return mix(mix(seed + GOLDEN_GAMMA) + counter * GOLDEN_GAMMA);
}

double rng_unit_at(uint64_t seed, uint64_t counter) {
    return unit(rng_at(seed, counter));
}
