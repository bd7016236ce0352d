/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erased: the lines of ended batches that were erased, and the transaction that erases them
 * (docs/adr/0033-erasure-of-a-batch.md).
 *
 * An erasure makes new files with new ids, in which the lines are empty (batch/erase.h). One
 * transaction adds their rows, names them in the row of each batch, marks the old ones as deleted,
 * removes the judgements of the lines, takes their salts out, and keeps which lines were erased. A
 * kill before it leaves bytes that no row names, and one after it leaves old files that a sweep
 * removes, so nothing has to be rolled forward.
 *
 * A line is known by the number of its request, from 1, as a judgement is. Its custom_id is not
 * kept.
 *
 * Thread: any.
 * Memory: store_erased_lines_release frees the list.
 * Invariant: a line is erased once, and a judgement of it is never kept. */

#include "store/batches.h"
#include "store/proofs.h"

/* Where the result of an erased line was counted. */
enum erased_result { ERASED_COMPLETED, ERASED_FAILED, ERASED_UNRUN, ERASED_RESULT_COUNT };

struct store_erased_line {
    uint64_t line; /* number of the request, from 1 */
    enum erased_result result;
};

struct store_erased_lines {
    struct store_erased_line *at; /* (count) in the order of their numbers */
    size_t count, capacity;
};

/* The lines of a batch that were erased so far. */
enum err store_erased_lines(struct store *store, const char *batch_id,
                            struct store_erased_lines *ret_lines, struct error *error) MUST_CHECK;
void store_erased_lines_release(struct store_erased_lines *lines);
/* Moves *number, which counts requests from 0, past those of the list that stand there. *at is the
 * place in the list: the caller sets it to 0 before the first call. */
void store_erased_skip(const struct store_erased_lines *lines, size_t *at, uint64_t *number);

/* What an erasure changes of one batch. */
struct store_erasing {
    const struct store_batch *batch; /* the row as it was read */
    char input_id[STORE_ID_BYTES];   /* its files from now on */
    char output_id[STORE_ID_BYTES];
    char error_id[STORE_ID_BYTES];
    const struct store_erased_line *lines; /* (line_count) */
    size_t line_count;
    const struct store_proofs *proofs; /* the rows from now on */
    const char *record;                /* a JSON object without its end: `others` follow */
    uint64_t judgements;               /* set: rows that were removed */
};

/* Batches of one input and one owner. */
struct store_erasure {
    struct store_erasing *batches; /* (batch_count) */
    size_t batch_count;
    struct store_file *files; /* (file_count) new ones, placed by store_spool_place */
    size_t file_count;
    int64_t now_unix_s;
};

/* ERR_CONFLICT, and nothing has changed: a batch has other files by now, is being deleted, or a
 * batch that is not among them has one of the old files, which the sentence names. The bytes of new
 * files are removed after an error. */
enum err store_erase(struct store *store, struct store_erasure *erasure,
                     struct error *error) MUST_CHECK;
/* Removes what label_studio/ has of the batch: links name custom_ids, and what was judged. */
enum err store_erase_notes(struct store *store, const char *batch_id,
                           struct error *error) MUST_CHECK;
