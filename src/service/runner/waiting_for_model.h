/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* waiting_for_model: lines of a batch of several models that were read when no worker of their
 * model had room.
 *
 * They wait here by model, in their order, while lines of the other models run. A model that was
 * found full is blocked until there may be room again, so that it is not asked for every line.
 * `progress` is the runner's count of events that may have made room: a model that was found full
 * at one count stays blocked until the count changes.
 *
 * Knows no worker and no batch.
 *
 * Thread: one at a time (the runner's lock).
 * Memory: 4 bytes per line, for at most WAITING_LINES_MAX lines.
 * Invariant: a waiting line is in no slot and is no pending line. */

#include "base/str.h"

#define WAITING_MODELS_MAX 64
#define WAITING_LINES_MAX (1u << 17)

struct waiting_for_model;

struct waiting_for_model *waiting_for_model_open(void);
void waiting_for_model_close(struct waiting_for_model *waiting); /* NULL is allowed */
/* Forgets the lines; the models keep their numbers. NULL is allowed. */
void waiting_for_model_clear(struct waiting_for_model *waiting);

/* The number of a model, made if it is new. False if WAITING_MODELS_MAX others have one. */
bool waiting_for_model_number(struct waiting_for_model *waiting, struct str model,
                              uint32_t *ret_model);
/* The model has no room. */
void waiting_for_model_block(struct waiting_for_model *waiting, uint32_t model, uint64_t progress);
bool waiting_for_model_is_blocked(const struct waiting_for_model *waiting, uint32_t model,
                                  uint64_t progress);

/* Whether no further line can wait. False for NULL. */
bool waiting_for_model_is_full(const struct waiting_for_model *waiting);
/* Puts the line behind the others of its model, or before them if it was just taken from there. */
void waiting_for_model_put(struct waiting_for_model *waiting, uint32_t model, uint32_t line,
                           bool is_first);
/* Takes the first line of a model that is not blocked; false if no line may go. NULL is allowed. */
bool waiting_for_model_take(struct waiting_for_model *waiting, uint64_t progress,
                            uint32_t *ret_line);
