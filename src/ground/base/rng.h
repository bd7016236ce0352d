/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* rng: small seeded generators. rng_next is SplitMix64 (Steele, Lea, Flood 2014) for tests and
 * jitter; rng_at is counter-based (the same mix over seed and counter) for sampling, where the n-th
 * number of a sequence must not depend on other requests. Secrets come from base/id instead.
 *
 * Thread: one struct, one thread; rng_at is pure.
 * Memory: the caller's struct. */

#include <stdint.h>

struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t bound); /* bound > 0 */
double rng_unit(struct rng *rng);                    /* [0, 1) */
uint64_t rng_at(uint64_t seed, uint64_t counter);
double rng_unit_at(uint64_t seed, uint64_t counter); /* [0, 1) with 53 bits */
