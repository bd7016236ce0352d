/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fake_backend: a model that has no weights but remembers what its KV cache stands for.
 *
 * Each slot of a page holds the rolling hash of the whole token prefix up to it. A row computes
 * its hash from the slot before it, as attention would from all of them, and every sampled row
 * reads back all that it sees, in the pages of every group, and compares. So a page that is reused
 * too early, shared wrongly or not filled shows at once. The next token is a function of that hash,
 * the seed and the counter; whoever knows prompt and seed can tell what every token must be
 * (fake_next_token).
 *
 * It works in slices: a step needs `slices` calls of advance, and an urgent step may pass in
 * between. Rows of a step are computed when its last slice is, at the earliest, so that whoever
 * reads a slot before it is written finds the wrong hash.
 *
 * With steps_max 2 it copies a step in submit and computes it in wait, in the order of submits. It
 * keeps the token sampled last in each slot, which one row alone may take.
 *
 * Each place for a state holds the hash of the tokens that the state has seen. A sequence's rows go
 * on from the hash that its keys have, and from no other. Sequences of a step are computed in any
 * order, so none may touch the place that another writes.
 *
 * It also asserts all that scheduler/backend.h promises a backend.
 *
 * Thread: one.
 * Memory: its own; nothing of a step is kept after wait. */

#include "scheduler/backend.h"

#define FAKE_END_TOKEN 0

struct fake_options {
    struct backend_caps caps;
    uint32_t slices;     /* rows of an urgent step; 0: steps cannot be passed */
    uint32_t end_one_in; /* mean number of tokens between two FAKE_END_TOKEN; 0: none comes */
    uint32_t period;     /* seven of eight tokens repeat after so many; 0: none do */
};

/* ret_backend->self is owned by the caller, who calls ops->close. */
void fake_backend_open(struct backend *ret_backend, const struct fake_options *options);
uint64_t fake_copies(const struct backend *backend); /* pages copied so far */
/* States saved, and sequences that went on from a stored one, so far. */
void fake_states(const struct backend *backend, uint64_t *ret_saves, uint64_t *ret_restores);

#define FAKE_HASH_START 0x51ED270B0A1F39C1ull
uint64_t fake_hash(uint64_t hash, int32_t token);
/* The token that follows the prefix with this hash. Greedy sampling ignores the seed. */
int32_t fake_next_token(const struct fake_options *options, uint64_t hash,
                        const struct sampling *sampling, uint64_t seed, uint32_t counter,
                        const uint32_t *allowed);
