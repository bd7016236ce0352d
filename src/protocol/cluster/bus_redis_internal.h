/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bus_redis_internal: the inside of the bus over Redis: its commands, which bus_redis.c has, and
 * leading, which is bus_redis_lead.c's.
 *
 * Thread: that of the bus.
 * Memory: see bus_redis.h. */

#include "cluster/bus_redis.h"

#include <stdint.h>

#define KEY_BYTES (REDIS_NAME_BYTES + BUS_NODE_BYTES + 32)
#define STREAM_TTL_MS "600000"
#define SIGN_TTL_MS "15000" /* beats and the key `server` live so long */
#define GEN_BYTES 33

struct redis_bus {
    struct bus bus;
    struct redis *redis;
    const char *cluster;
    uint64_t epoch;   /* this server's */
    char leader[320]; /* value of the key `server` */
    char gen[GEN_BYTES];
    char work_id[48]; /* the last pack of work that was told */
    size_t queued;    /* commands of the next flush */
    struct told {
        char (*ids)[48];
        size_t count, capacity;
    } told;             /* packs of results that were told and not settled */
    char result_id[48]; /* the last pack of results that was told */
    uint64_t now_ms;    /* the time of Redis at the last read of results; 0: not known */
    uint32_t at_once;   /* packs of the next read; fewer after one that was too large */
};

struct key {
    char text[KEY_BYTES];
};

/* Words of a command, for bus_redis_add and bus_redis_ask. */
#define COMMAND(...)                                                                               \
    (const char *const[]) {                                                                        \
        __VA_ARGS__, NULL                                                                          \
    }

struct key bus_redis_key(const struct redis_bus *own, const char *kind, const char *name);
/* The stream of results of an epoch. */
struct key bus_redis_results_key(const struct redis_bus *own, uint64_t epoch);
/* Queues a command of words, the last one NULL. */
void bus_redis_add(struct redis_bus *own, const char *const *words);
/* Sends what is queued and takes the results of `count` commands. The first error counts. */
enum err bus_redis_run(struct redis_bus *own, size_t count, struct error *error);
/* Sends one command and takes its result; what waits for a flush goes before it. */
enum err bus_redis_ask(struct redis_bus *own, const char *const *words,
                       const struct reply_value **ret_reply, struct error *error);

/* As bus_ops.lead. */
enum err bus_redis_lead(struct redis_bus *own, const char *id, uint64_t *ret_epoch,
                        bool *ret_follows, struct error *error);
/* Makes sure that this server leads still. */
enum err bus_redis_keep_leading(struct redis_bus *own, struct error *error);
/* Keeps the stream of results alive, or makes it: nodes put into one that is there. So none is left
 * of a server that has ended, however late a node's pack comes. */
enum err bus_redis_keep_results(struct redis_bus *own, struct error *error);
