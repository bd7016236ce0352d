/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline_proof: the manifest of a run (proof/manifest.h), next to its output, and the salts of its
 * sums (proof/run_salts.h).
 *
 * Each call of a run that goes on notes what it computes with (run_record.h) in the folder of the
 * run before it computes anything, so that the manifest names all of them. The manifest is made
 * when the output has its name. A manifest that cannot be made is a warning: the results are good
 * without it.
 *
 * Thread: main.
 * Memory: borrows the options. */

#include "node/node.h"
#include "server/offline_input.h"
#include "store/files.h"

#include <jansson.h>

struct offline_proof {
    const char *path;       /* the manifest; NULL: none is made */
    const char *key;        /* file of the key that signs; empty: none is known */
    const char *input;      /* the input as the user names it */
    const json_t *settings; /* as run_record_make takes them */
};

/* What has been made. */
struct offline_made {
    const struct offline_input *input;
    const struct store_file *requests;
    int requests_fd;
    const char *output, *rest; /* files with their final names; rest NULL: there is none */
    const char *folder;        /* the state of the run */
    uint64_t completed, failed;
};

/* Notes what computes from now on. */
void offline_proof_note(const struct offline_proof *proof, struct node *node,
                        const struct node_options *options, const char *folder);
void offline_proof_write(const struct offline_proof *proof, const struct offline_made *made);
