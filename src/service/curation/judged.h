/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* judged: the lines of a batch that have judgements, each with the newest one of every curator.
 *
 * A skipped judgement says that a curator saw the line and has no opinion. It counts as judged, but
 * has no part in an agreement.
 *
 * A line may have many judgements, and each many bytes, so that a walk gives them one after another
 * and keeps none.
 *
 * Thread: one per walk.
 * Memory: a walk holds rows of JUDGEMENT_PIECE_BYTES, one row more, and the first opinion on the
 *     line; judged_close frees them.
 * Invariant: a walk tells each line once, in the order of the input. */

#include "base/buf.h"
#include "store/judgements.h"

struct judged;

/* A walk over lines `first` to `last`, numbers from 1 on, in the order of the input. */
void judged_open(struct judged **ret_judged, struct store *store, const char *batch_id,
                 uint64_t first, uint64_t last);
void judged_close(struct judged *judged); /* NULL is allowed */

/* Takes the newest judgements of a line, one per curator, in the order of their curators; another
 * value than OK ends the walk. */
typedef enum err (*judged_row_fn)(void *context, const struct store_judgement *row,
                                  struct error *error);

/* A line whose judgements were all given. */
struct judged_line {
    uint64_t line;
    size_t count;                          /* its newest judgements; 0: after the last line */
    size_t opinions;                       /* those that are not skipped */
    bool is_agreed;                        /* all opinions have one verdict and the same fields */
    const struct store_judgement *opinion; /* the first one, until the next call; NULL: none */
};

/* Moves to the next line and gives its judgements to `each`, which may be NULL. */
enum err judged_next(struct judged *judged, judged_row_fn each, void *context,
                     struct judged_line *ret_line, struct error *error) MUST_CHECK;

extern const char *const judged_verdicts[]; /* by enum verdict; NULL at the end */
/* Appends a judgement as the API shows it. */
void judged_write(struct buf *buf, const struct store_judgement *judgement);
/* Appends the answer of GET …/judgements/summary: counts of judgements and of agreements.
 * ERR_CANCELLED once `is_gone` is true; NULL: it never is. */
enum err judged_write_summary(struct buf *buf, struct store *store, const char *batch_id,
                              bool (*is_gone)(void *context), void *context,
                              struct error *error) MUST_CHECK;
