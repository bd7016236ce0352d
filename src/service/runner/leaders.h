/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* leaders: the lines in flight for whose answers equal lines wait (reuse.h).
 *
 * Thread: the runner's lock, except as said.
 * Memory: the waiting lines are allocated; they end with their leader's slot or their batch.
 * Invariant: a slot is in the table while it is_leader. */

#include "runner/reuse.h"
#include "runner/slot.h"

/* The leader of a key; NULL: none. */
struct slot *leader_find(struct reuse *reuse, const unsigned char *key);
void leader_add(struct reuse *reuse, struct slot *slot, const unsigned char *key);
/* The line of `slot` waits for its leader; the caller frees the slot. */
void leader_follow(struct reuse *reuse, struct slot *leader, const struct slot *slot);
/* Keeps the answer of a leader in the cache, before its record is put, with how it keeps its shape.
 * Any thread; without the lock. */
void leader_keep(struct runner *runner, const struct slot *slot, struct str body,
                 enum shape_end shape);
/* The slot is about to be free: its followers may run. */
void leader_leave(struct runner *runner, struct slot *slot);
/* The batch stops: its followers are forgotten. */
void leaders_forget(struct runner *runner, struct active_batch *batch);
