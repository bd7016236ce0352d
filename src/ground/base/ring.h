/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ring: the bounded queue in which threads meet. A message changes owner when it is put.
 *
 * Thread: any number on both sides, under one mutex.
 * Memory: ring_open allocates all slots; messages are copied in and out.
 * Invariant: first in, first out. */

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct ring;

enum err ring_open(struct ring **ret_ring, size_t capacity, size_t message_bytes,
                   struct error *error) MUST_CHECK;
void ring_close(struct ring *ring); /* no thread may be inside; NULL is allowed */
/* Waits while the ring is full. False, and nothing put, once the ring is stopped. */
bool ring_put(struct ring *ring, const void *message);
/* Never waits: false when full or stopped. */
bool ring_try_put(struct ring *ring, const void *message);
/* Waits up to `timeout_ms` for a message, without limit if it is negative. False after that time,
 * or if the ring is stopped and empty. */
bool ring_take(struct ring *ring, void *ret_message, int64_t timeout_ms);
/* Ends every waiting and later put; takers still get the messages inside. */
void ring_stop(struct ring *ring);
bool ring_is_stopped(struct ring *ring);
size_t ring_count(struct ring *ring);
