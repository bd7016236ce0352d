/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* proof_options: the options about a run that is checked, shared by `quern verify` and `quern
 * replay`: where its files are, and whose signature counts.
 *
 * Thread: main.
 * Memory: the caller's struct. */

#include "cli/options.h"
#include "replay/run_proof.h"

struct proof_choice {
    struct option_list public_keys; /* "ssh-ed25519 AAAA…", or a file with such a line */
    const char *signing_key;        /* its public key counts as well */
    struct run_proof_options options;
    char signing_key_usual[PATH_MAX];
};

extern const struct option proof_option_rows[];

/* Reads the keys and sets the run. ERR_INVALID, naming the option. */
enum err proof_options_check(struct proof_choice *choice, const char *run,
                             struct error *error) MUST_CHECK;
