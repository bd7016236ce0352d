/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention: the operations HEADS and ATTENTION of a pass on the CPU: heads are normed, turned and
 * stored, then the items of a step attend in groups.
 *
 * Thread: that of the pass; tasks run on its pool.
 * Memory: the pass's. */

#include "cpu/forward.h"

struct op;

void attention_run_heads(struct forward *forward, const struct op *op);
void attention_run(struct forward *forward, const struct op *op);
/* Makes a group of items for each task, once per step. With few items a task has one KV head
 * instead of all, so that groups can still be of several items. */
void attention_group_items(struct forward *forward);
