/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* held: lines of a batch of several models that were read and found no room at their own model's
 * worker. They wait here by model, each model's in their order, while lines of the other models go
 * on: what is full is asked again once there may be room, and not for every line.
 *
 * "Progress" is the runner's count of what may have made room: a model found full at one count is
 * not worth asking until it is another.
 *
 * Knows no worker and no batch.  Thread: one at a time (the runner's lock).
 * Memory: 4 bytes a line, HELD_LINES_MAX of them at most.
 * Invariant: a line that is held is in no slot, no lease and no retry list. */

#include "base/str.h"

#define HELD_MODELS_MAX 64
#define HELD_LINES_MAX (1u << 17)

struct held;

struct held *held_open(void);
void held_close(struct held *held); /* NULL is allowed */
/* Forgets the lines; the models keep their numbers. NULL is allowed. */
void held_clear(struct held *held);

/* The number of a model, made when it is new; false when HELD_MODELS_MAX others have one. */
bool held_model(struct held *held, struct str model, uint32_t *ret_model);
/* The model has no room. */
void held_block(struct held *held, uint32_t model, uint64_t progress);
bool held_is_blocked(const struct held *held, uint32_t model, uint64_t progress);

/* Whether there is no place for one more line. NULL: there is. */
bool held_is_full(const struct held *held);
/* Behind the model's others, or, when it is one that was just taken, before them. */
void held_put(struct held *held, uint32_t model, uint32_t line, bool is_first);
/* The first line of a model that is not blocked; false when there is none. NULL is allowed. */
bool held_take(struct held *held, uint64_t progress, uint32_t *ret_line);
