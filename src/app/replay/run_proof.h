/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* run_proof: a run that is to be checked: its manifest, and where its files are now.
 *
 * A run is named by its output or its manifest. The output is the one that is named, or else has
 * the manifest's name for it in the folder of the manifest. The input is the one that is named, or
 * the manifest's name for it from that folder or from the current one, or a file of that name in
 * that folder. A manifest of version 2 has salts next to it.
 *
 * Thread: one.
 * Memory: the caller's struct; run_proof_release frees what it owns. */

#include "proof/run_salts.h"

#include <limits.h>

#define RUN_PROOF_KEYS_MAX 8

struct run_proof_options {
    const char *run;                                             /* output or manifest */
    const char *input, *output;                                  /* NULL: found as above */
    unsigned char trusted[RUN_PROOF_KEYS_MAX][SSH_PUBLIC_BYTES]; /* whose signatures count */
    size_t trusted_count;
};

struct run_proof {
    struct manifest manifest;
    char path[PATH_MAX]; /* the manifest */
    char sha256[SHA256_HEX_BYTES];
    bool wants_salts, has_salts; /* by its version; whether they are there */
    bool has_others_salts;       /* they are there, and belong to another manifest */
    struct run_salts salts;
    char salts_path[PATH_MAX];
    /* Empty: the run has none. `errors` are the failed lines of a batch. */
    char input[PATH_MAX], output[PATH_MAX], rest[PATH_MAX], errors[PATH_MAX];
};

/* Reads the manifest and finds the files, which may be missing. ERR_NOT_FOUND: there is no
 * manifest; ERR_CORRUPT: it is damaged, or its salts are. After OK the caller releases it. */
enum err run_proof_read(struct run_proof *ret_proof, const struct run_proof_options *options,
                        struct error *error) MUST_CHECK;
void run_proof_release(struct run_proof *proof);
/* ERR_CORRUPT, with a sentence, if it or its salts are not signed by one of the trusted keys. */
enum err run_proof_check_signer(const struct run_proof *proof,
                                const struct run_proof_options *options,
                                struct error *error) MUST_CHECK;

/* Where the list of an erasure, or a note of it, would be: MANIFEST.erasing, without links. False
 * if the name is too long. */
bool run_proof_erasing_path(const struct run_proof *proof, char ret_path[PATH_MAX]);
/* Whether an erasure was cut short that has been committed, with that path. A note whose list has
 * gone is none. */
bool run_proof_has_erasing(const struct run_proof *proof, char ret_path[PATH_MAX]);

/* A text of an object's member; "" if it has none. */
const char *run_proof_text(const json_t *object, const char *name);
