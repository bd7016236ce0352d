/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erasure: one person's lines taken out of the files of some runs, so that their manifests still
 * prove all others (docs/adr/0032-erasure.md).
 *
 * The lines of some custom_ids become empty in the input, the output and other files of JSONL, and
 * so do their rows in tables; the salts of their sums go, and a signed record of the erasure comes,
 * without any id. All files of all runs change or none (erasure_list.h). A file may be the output
 * of one run and the input of the next.
 *
 * Thread: main.
 * Memory: one line, and the numbers of erased ones. */

#include "dossier/erasure_list.h"
#include "dossier/line_ids.h"
#include "replay/run_proof.h"

#define ERASURE_OTHERS_MAX 16
#define ERASURE_RUNS_MAX ERASURE_LIST_RUNS_MAX
#define ERASURE_REASON_BYTES_MAX 2000

struct erasure_options {
    struct line_ids *ids;
    const char *reason;        /* a text; it must not tell the person */
    const char *const *others; /* (other_count) further files of JSONL, such as judgements */
    size_t other_count;
    const char *requests;                    /* those of a table, made again; NULL: none */
    const struct ssh_key *key;               /* signs the record */
    const struct run_proof_options *trusted; /* whose signature of the run counts */
    const volatile bool *stop;
};

struct erasure {
    uint64_t requests; /* lines or rows of the inputs */
    uint64_t lines;    /* in all files together */
};

/* Keeps other erasures of this run away until *ret_fd is closed. ERR_CONFLICT: one is under way. */
enum err erasure_lock(const struct run_proof *proof, int *ret_fd, struct error *error) MUST_CHECK;
/* Ends an erasure that was cut short, if there is one; then the runs are to be read again. */
enum err erasure_end(const struct run_proof *proof, bool *ret_was_one,
                     struct error *error) MUST_CHECK;
/* After erasure_lock and erasure_end of each run. Nothing has changed after ERR_NOT_FOUND: an id
 * has no line in any run; ERR_CORRUPT: the files are not those of the manifest, or no trusted key
 * has signed it; ERR_INVALID: a run is of a kind that no line is erased of, or shares a file with
 * one that is not among them, with the reason; ERR_CANCELLED: *stop became true. After another
 * error the same call goes on. */
enum err erasure_run(struct run_proof *proofs, size_t count, const struct erasure_options *options,
                     struct erasure *ret_erasure, struct error *error) MUST_CHECK;
