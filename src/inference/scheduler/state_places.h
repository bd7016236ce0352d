/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* state_places: which places for states (backend.h, STATES) are free, taken and stored, and which
 * stored states are forgotten when places run out.
 *
 * A place is taken by a running sequence, or for a state that a step under way will leave there. A
 * stored state stands for a prefix: the tokens of a node of the prefix tree, and up to 15 tokens
 * after it, the tail. It serves each sequence that begins with that prefix, and is forgotten with
 * its node. When no place is free, the stored state that was used longest ago is forgotten. Who
 * uses a state touches it first and the states of its shorter prefixes after it, so that a chain
 * loses its longest prefix first.
 *
 * Copies are made inside steps, in no order among the sequences of one step. So a place that a step
 * touches is not taken for another writer in that step, nor while that step is under way and an
 * urgent one may pass it.
 *
 *              take                store
 *     free ───────────▶ taken ────────────▶ stored ──▶ taken   take, when none is free
 *       ▲                 │ free              │ forget with the node
 *       └─────────────────┴───────────────────┘
 *
 * Thread: the scheduler's only.
 * Memory: allocated once, in state_places_open.
 * Invariant: each place is in one state; a pinned place is stored; no two stored states stand for
 *     the same tail after the same node. */

#include "base/err.h"
#include "scheduler/backend.h"

#include <stdbool.h>
#include <stdint.h>

#define STATE_TAIL_MAX (BACKEND_BLOCK_TOKENS - 1)
#define STATE_NONE UINT32_MAX

struct state_places;

/* The numbers of the steps whose places must not be written: the one that is composed, and the one
 * under way that it passes, or 0. */
struct state_steps {
    uint64_t composed;
    uint64_t passed;
};

/* A prefix: the tokens of a node of the tree, or of PREFIX_ROOT, and the tokens of `tail`. */
struct state_prefix {
    uint32_t node;
    uint64_t salt; /* tells prefixes apart; counts only after PREFIX_ROOT */
    uint32_t tail_count;
    int32_t tail[STATE_TAIL_MAX];
};

/* `block_count` is the number of nodes that can be. ERR_LIMIT without memory. */
enum err state_places_open(struct state_places **ret_places, uint32_t place_count,
                           uint32_t block_count, struct error *error) MUST_CHECK;
void state_places_close(struct state_places *places); /* NULL is allowed */

/* Whether state_places_take would find one, and would spare the stored state `but` or STATE_NONE. */
bool state_places_can_take(const struct state_places *places, struct state_steps steps,
                           uint32_t but);
/* Takes a free place, or that of the stored state that is not pinned and was used longest ago. */
bool state_places_take(struct state_places *places, struct state_steps steps,
                       uint32_t *ret_place) MUST_CHECK;
/* Frees a taken place. */
void state_places_free(struct state_places *places, uint32_t place);
/* Makes a taken place the stored state of a prefix which has none. */
void state_places_store(struct state_places *places, uint32_t place,
                        const struct state_prefix *prefix);

/* The stored states of a node, in no order; STATE_NONE after the last. */
uint32_t state_places_first(const struct state_places *places, uint32_t node);
uint32_t state_places_next(const struct state_places *places, uint32_t place);
/* Tokens of a stored state's tail if it begins with them: tail[0..count) are those of a sequence
 * after the node, and `salt` is its salt. False for the state of another prefix. */
bool state_places_has_tail(const struct state_places *places, uint32_t place, uint64_t salt,
                           const int32_t *tail, uint32_t count, uint32_t *ret_tail_count);
/* The stored state of this very prefix, or STATE_NONE. */
uint32_t state_places_find(const struct state_places *places, const struct state_prefix *prefix);
/* Makes a stored state the one that was used last. */
void state_places_touch(struct state_places *places, uint32_t place);
/* A pinned state is not forgotten. Its node stays in the tree meanwhile. */
void state_places_pin(struct state_places *places, uint32_t place);
void state_places_unpin(struct state_places *places, uint32_t place);
/* Frees the places of all states of a node, which leaves the tree. */
void state_places_forget_node(struct state_places *places, uint32_t node);

/* Notes that the step that is composed reads, or writes, a place. */
void state_places_note_read(struct state_places *places, uint32_t place, struct state_steps steps);
void state_places_note_written(struct state_places *places, uint32_t place,
                               struct state_steps steps);
/* The last step that writes a place. */
uint64_t state_places_written_in(const struct state_places *places, uint32_t place);

uint32_t state_places_free_count(const struct state_places *places);
uint32_t state_places_stored_count(const struct state_places *places);
uint64_t state_places_evictions(const struct state_places *places); /* stored states forgotten */
/* Asserts the invariants: O(places). Returns the number of pins. */
uint32_t state_places_check(const struct state_places *places);
