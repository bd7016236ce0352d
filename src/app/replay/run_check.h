/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* run_check: whether the files of a run are still the bytes that its manifest names.
 *
 * Lines that were erased are those of the record in the salts, and empty; all others are as they
 * were. Each file is read whole, models as well, whatever notes of their sums exist.
 *
 * Thread: one.
 * Memory: 1 MiB while a file is read. */

#include "replay/run_proof.h"

enum run_file_state {
    RUN_FILE_GOOD,
    RUN_FILE_DIFFERS,
    RUN_FILE_MISSING,
    RUN_FILE_UNKNOWN, /* the manifest has no sum of it */
};
extern const char *const run_file_states[];

struct run_file {
    const char *what; /* "erasing", "salts", "input", "output", "rest", "errors", "model" */
    const char *path;
    enum run_file_state state;
    const char *why; /* a sentence; "" of a good file */
};

struct run_check_options {
    bool skips_models;
    const volatile bool *stop;
    void *context;
    void (*file)(void *context, const struct run_file *file);
};

/* Calls `file` for each file. *ret_wrong: the number of those that differ or are missing.
 * ERR_CANCELLED if *stop became true. */
enum err run_check(struct run_proof *proof, const struct run_check_options *options,
                   size_t *ret_wrong, struct error *error) MUST_CHECK;
/* The state of a file of the run against the member `what` of its manifest, erased lines excepted.
 * `ret_why` gets a sentence. */
enum run_file_state run_check_file(struct run_proof *proof, const char *what, const char *path,
                                   const volatile bool *stop, char ret_why[ERROR_TEXT_BYTES]);
