/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* server: a process with a copy: the product's own copy/, on a store that is made up.
 *
 * Thread: each process is a group of the rig's threads, number `index` + 1.
 * Memory: a struct for all processes of a server, one after another. */

#include "base/rng.h"
#include "copy/copy.h"
#include "ledger.h"

#include <pthread.h>

struct server {
    uint32_t index;
    bool is_standby;
    uint32_t folder; /* a server that another one has followed goes on in a new one */
    char dir[100];
    /* its process */
    uint32_t life;
    volatile bool stop;
    struct copy *copy;
    const struct store_mirror *mirror;
    pthread_mutex_t lock; /* the database's; guards `state` */
    struct state state;
    uint32_t served;
    bool is_open;
    uint32_t next_file, keys, clients;
};

extern struct server servers[PLAN_SERVERS_MAX];

/* Starts its process anew. */
void server_start(uint32_t index);
/* Its log has grown so much that a base is due. */
void server_want_base(uint32_t index);
/* The server of the calling thread. */
struct server *server_of_copy(void);

/* --- made-up store (store.c) --- */

/* Opens the state directory, or makes one. */
void store_open_simulated(struct server *server);
/* One transaction. Returns its commit; 0 if a file could not be copied. */
uint32_t store_commit_simulated(struct server *server, struct rng *rng);
/* Appends results. Returns how much text there is now. */
uint32_t store_append_simulated(struct server *server, struct rng *rng);
/* Changes the file of keys. Returns its version. */
uint32_t store_keys_simulated(struct server *server);
