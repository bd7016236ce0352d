/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* copy: what a server has committed, in object storage, before anyone is told of it.
 *
 * The store tells each durable change (store/mirror.h). One thread gathers them and writes an entry
 * of the chain (chain.h): of results every 200 ms or 1 MiB, and at once for whoever waits to
 * acknowledge a change. One entry is under way; what comes meanwhile is the next one. A base, a
 * whole state in the same form, is written at each start and when the log has grown; what no base
 * needs is removed then. Large files that never change are objects of their own.
 *
 * A server leads by the entry with which it begins. One that another server has followed cannot
 * write the next entry: it is fenced, acknowledges nothing more, and ends.
 *
 * Thread: any, except where a function says otherwise; two threads of its own.
 * Memory: what is not stored yet; a path and 40 bytes per large file.
 * Invariant: copy_wait is true only for what is stored. */

#include "copy/chain.h"
#include "store/mirror.h"

struct copy;

struct copy_options {
    const char *place; /* as for bucket_open */
    const char *state_dir;
    const volatile bool *stop; /* ends calls that wait at the start, with ERR_CANCELLED */
};

#define COPY_SENTENCE_BYTES 400

struct copy_status {
    bool is_fenced;
    int64_t behind_ms; /* age of the oldest change that is not stored; 0: all is */
    bool is_away;      /* it is older than COPY_AWAY_MS */
    uint64_t entries, entry_bytes;
    uint64_t bases;
    uint64_t failures; /* writes that failed and were tried again */
    uint64_t waiting_bytes;
    char sentence[COPY_SENTENCE_BYTES]; /* why the storage takes nothing; empty: it does */
};

#define COPY_AWAY_MS 10000
#define COPY_FRESH_MS 10000 /* an entry is written at least each 3 s */

/* Makes no call to the storage. */
enum err copy_open(struct copy **ret_copy, const struct copy_options *options,
                   struct error *error) MUST_CHECK;
/* Waits until nothing was added to the chain for `silence_ms`, leads, and fills the new or empty
 * state directory. ERR_NOT_FOUND if the storage has no copy. */
enum err copy_stand_by(struct copy *copy, int64_t silence_ms, struct error *error) MUST_CHECK;
/* Leads, unless copy_stand_by did, stores a whole base, and is told all changes of the store from
 * then on. ERR_CONFLICT if another directory's server leads. Before the store has other users. */
enum err copy_attach(struct copy *copy, struct store *store, struct error *error) MUST_CHECK;
/* Waits until all that the store has committed is stored; false: not until then, or never again.
 * With `also_results` false the results of lines are not waited for, and the next entry is due at
 * once: a client waits. */
bool copy_wait(struct copy *copy, bool also_results, int64_t until_ns);
/* Tells small files that other rooms or other processes have changed, such as keys. */
void copy_look_at_files(struct copy *copy);
bool copy_is_fenced(struct copy *copy);
/* True if the copy took an entry within the last COPY_FRESH_MS: no other server leads it, since a
 * standby waits for longer. */
bool copy_is_fresh(struct copy *copy);
/* A name that all servers have which lead this copy one after another, on whatever machine; empty:
 * none is known. From copy_attach on. */
const char *copy_name(const struct copy *copy);
void copy_status(struct copy *copy, struct copy_status *ret_status);
/* Stores what waits, for at most 5 s. After the store is closed. NULL is allowed. */
void copy_close(struct copy *copy);
