/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bus: how packs travel between one server and its nodes.
 *
 * A node has a stream of work that only the server puts into. All nodes put their packs of results
 * into one stream, which only the server reads. Both streams may lose packs, all of them at once
 * too, and may show a pack of results twice. They never change the order of one writer's packs, and
 * a pack of work comes once at most. Whoever needs more counts the packs (pack.h).
 *
 * Every call may fail with ERR_UNAVAILABLE, ERR_LIMIT (the bus is full) or ERR_DENIED; then it may
 * have happened, in part too, and later calls may succeed.
 *
 * Thread: a bus belongs to one thread; any number of them reach the same streams.
 * Memory: packs are borrowed for the call. */

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

#define BUS_NODE_BYTES 96 /* name of a node with its NUL: letters, digits, ".", "_", "-" */
#define BUS_BEAT_TTL_MS 15000
#define BUS_LEAD_TTL_MS 15000
#define BUS_NODES_MAX 1024

struct bus;

/* `node` is the name of the node that put the pack, or that the beat is of. */
typedef void (*bus_fn)(void *context, struct str node, struct str bytes);

struct bus_ops {
    /* --- the server's side --- */
    /* Becomes the server of this bus. `id` names the state directory: a server with the same id
     * takes over at once, one with another waits until the first has been silent for
     * BUS_LEAD_TTL_MS: ERR_CONFLICT. *ret_epoch is higher than that of each server before.
     * *ret_follows: the server before had this id. Packs of results that it had not settled are
     * packs of this epoch now, and none can be put for the epoch before. */
    enum err (*lead)(struct bus *bus, const char *id, uint64_t *ret_epoch, bool *ret_follows,
                     struct error *error);
    /* Stays the server: ERR_CONFLICT if another one leads now. Tells all beats. *ret_was_emptied:
     * the streams have lost what they held since the look before. */
    enum err (*look)(struct bus *bus, bus_fn beat, void *context, bool *ret_was_emptied,
                     struct error *error);
    /* Ends being the server. Packs of results that were not settled stay for a while. */
    enum err (*resign)(struct bus *bus, struct error *error);
    /* These three are done by the next `flush`, in this order. A round and number that is not
     * higher than the last one of the node is refused by the stream. */
    void (*put)(struct bus *bus, const char *node, uint64_t round, uint64_t seq, struct str pack);
    /* Packs up to this one were read. */
    void (*trim)(struct bus *bus, const char *node, uint64_t round, uint64_t seq);
    /* The node has ended. */
    void (*forget)(struct bus *bus, const char *node);
    enum err (*flush)(struct bus *bus, struct error *error);
    /* Tells packs of results behind those told before; waits up to `wait_ms` for the first. With
     * `from_start` it tells all that are there, and none counts as told before. */
    enum err (*results)(struct bus *bus, uint64_t epoch, bool from_start, int64_t wait_ms,
                        bus_fn pack, void *context, struct error *error);
    /* Drops the first `count` packs that were told and not dropped, by the next call of `results`
     * or `flush`. */
    void (*settle)(struct bus *bus, uint64_t epoch, size_t count);
    /* --- a node's side --- */
    /* *ret_was_emptied as for `look`. */
    enum err (*beat)(struct bus *bus, const char *node, struct str beat, bool *ret_was_emptied,
                     struct error *error);
    /* Tells packs of work behind those told before (all that are there, with `from_start`); waits
     * up to `wait_ms` for the first. */
    enum err (*work)(struct bus *bus, const char *node, bool from_start, int64_t wait_ms,
                     bus_fn pack, void *context, struct error *error);
    /* ERR_NOT_FOUND: no server reads the results of this epoch, or it has not seen yet that the bus
     * was emptied. */
    enum err (*answer)(struct bus *bus, const char *node, uint64_t epoch, struct str pack,
                       struct error *error);
    /* Its beat ends. */
    enum err (*leave)(struct bus *bus, const char *node, struct error *error);
    void (*close)(struct bus *bus);
};

struct bus {
    const struct bus_ops *ops;
    uint64_t bytes, bytes_max; /* memory of the bus at the last look; 0: not known, no limit */
    /* While a pack of results is told: since it was put, by the clock of the bus. */
    int64_t waited_ms;
};

/* One more bus to the same streams. */
struct bus_place {
    void *context;
    struct bus *(*open)(void *context);
};
