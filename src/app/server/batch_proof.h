/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* batch_proof: the manifests of a server's batches (proof/manifest.h).
 *
 * The server notes what it computes with (run_record.h) in computed_by.jsonl of its state directory
 * before it begins a line, unless it did so with the same at its last start. The manifest of a
 * batch is made when a client asks: the sums over the lines of its files are in rows of its end
 * (batch/proofs.h), and the notes say which records held while it ran. So it has the same bytes
 * each time. The salts are a second file, made of the same rows. A batch without these rows has a
 * manifest of version 1, with the sums of whole files, and no salts.
 *
 *   {"from": UNIX_S, "record": {…}}    a line; the last one of a `from` counts, and it counts until
 *                                      the next `from`
 *
 * The sums of the models' files take seconds where no note of them exists (proof/file_sum.h), so a
 * thread of its own adds them; until then there is no manifest.
 *
 * Thread: batch_proof_begin and batch_proof_close main; the others any.
 * Memory: one struct of the caller's. */

#include "node/node.h"
#include "proof/ssh_key.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

/* Zero is a valid start: no manifest is made. */
struct batch_proof {
    struct store *store;
    struct ssh_key key;
    bool has_key, has_thread;
    json_t *record; /* the thread's, while it runs */
    int64_t from_unix_s;
    pthread_t thread;
    volatile bool stop;   /* the thread ends soon */
    atomic_bool is_ready; /* the notes have all sums; what stands above changes no more */
};

/* Notes what computes from now on. `key` is the file of the key that signs; NULL: the one in the
 * state directory. Trouble is a warning: then there are no manifests, or they are not signed. */
void batch_proof_begin(struct batch_proof *proof, struct node *node,
                       const struct node_options *options, const json_t *settings, const char *key);
void batch_proof_close(struct batch_proof *proof);
/* Appends the manifest of a batch; `context` is the struct. ERR_CONFLICT: it has not ended;
 * ERR_UNAVAILABLE: the server is not ready for it. */
enum err batch_proof_write(void *context, const struct store_batch *batch, struct buf *out,
                           struct error *error) MUST_CHECK;
/* Likewise the salts of that manifest (proof/run_salts.h). ERR_NOT_FOUND: it has version 1. */
enum err batch_proof_write_salts(void *context, const struct store_batch *batch, struct buf *out,
                                 struct error *error) MUST_CHECK;
