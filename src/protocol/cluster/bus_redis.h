/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bus_redis: the bus on a Redis or Valkey server. All keys of a cluster begin with {quern:NAME}:,
 * so they lie in one slot.
 *
 *   server      "ID EPOCH" of the server that leads, for BUS_LEAD_TTL_MS
 *   gen         random; missing or another: the server was emptied or replaced
 *   nodes       set of the names of nodes
 *   node:NODE   its beat, for BUS_BEAT_TTL_MS
 *   w:NODE      stream of packs of work; their ids are ROUND-NUMBER, so that the stream itself
 *               refuses a server whose epoch is over
 *   r:EPOCH     stream of packs of results
 *
 * Streams that nobody uses any more end after ten minutes. bus_redis_rights has the rights of both
 * sides.
 *
 * Thread: as in bus.h.
 * Memory: replies that came, at most 256 MiB. */

#include "base/buf.h"
#include "cluster/bus.h"
#include "redis/redis.h"

/* Appends the command that makes a user with no more than the rights of one side (Redis 7.0). A
 * node can read work and the key gen, add results, and write its beats. It cannot add work, read
 * results or see another cluster. SECRET stands for the password. */
enum bus_side { BUS_SERVER, BUS_NODE };
void bus_redis_rights(struct buf *out, const char *cluster, enum bus_side side);
/* For opening buses; `options` is borrowed as long as they are open. */
struct bus_place bus_redis_place(struct redis_options *options);
