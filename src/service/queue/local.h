/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* local: the queue of one server, in memory. After a restart the runner adds its batches again and
 * steps over lines that have a result, so nothing needs to be kept.
 *
 * Thread: one at a time (the runner's lock).
 * Memory: the free places of each batch as ranges. */

#include "queue/queue.h"

enum err queue_local_open(struct queue **ret_queue, struct error *error) MUST_CHECK;
