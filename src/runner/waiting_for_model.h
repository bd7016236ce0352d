/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* waiting: lines of a batch of several models that were read and found no room at their own model's
 * worker. They wait here by model, each model's in their order, while lines of the other models go
 * on: what is full is asked again once there may be room, and not for every line.
 *
 * "Progress" is the runner's count of what may have made room: a model found full at one count is
 * not worth asking until it is another.
 *
 * Knows no worker and no batch.  Thread: one at a time (the runner's lock).
 * Memory: 4 bytes a line, WAITING_LINES_MAX of them at most.
 * Invariant: a line that is waiting is in no slot, no lease and no retry list. */

#include "base/str.h"

#define WAITING_MODELS_MAX 64
#define WAITING_LINES_MAX (1u << 17)

struct waiting_for_model;

struct waiting_for_model *waiting_for_model_open(void);
void waiting_for_model_close(struct waiting_for_model *waiting); /* NULL is allowed */
/* Forgets the lines; the models keep their numbers. NULL is allowed. */
void waiting_for_model_clear(struct waiting_for_model *waiting);

/* The number of a model, made when it is new; false when WAITING_MODELS_MAX others have one. */
bool waiting_for_model_number(struct waiting_for_model *waiting, struct str model,
                              uint32_t *ret_model);
/* The model has no room. */
void waiting_for_model_block(struct waiting_for_model *waiting, uint32_t model, uint64_t progress);
bool waiting_for_model_is_blocked(const struct waiting_for_model *waiting, uint32_t model,
                                  uint64_t progress);

/* Whether there is no place for one more line. NULL: there is. */
bool waiting_for_model_is_full(const struct waiting_for_model *waiting);
/* Behind the model's others, or, when it is one that was just taken, before them. */
void waiting_for_model_put(struct waiting_for_model *waiting, uint32_t model, uint32_t line,
                           bool is_first);
/* The first line of a model that is not blocked; false when there is none. NULL is allowed. */
bool waiting_for_model_take(struct waiting_for_model *waiting, uint64_t progress,
                            uint32_t *ret_line);
