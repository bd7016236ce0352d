/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* judged: the lines of a batch that have judgements, each with the newest one of every curator.
 *
 * A skipped judgement says that a curator saw the line and has no opinion. It counts as judged, but
 * has no part in an agreement.
 *
 * Thread: one per walk.
 * Memory: a walk holds 256 rows and the rows of one line; judged_close frees them.
 * Invariant: a walk tells each line once, in the order of the input. */

#include "base/buf.h"
#include "store/judgements.h"

struct judged;

/* A walk over lines `first` to `last`, numbers from 1 on, in the order of the input. */
void judged_open(struct judged **ret_judged, struct store *store, const char *batch_id,
                 uint64_t first, uint64_t last);
void judged_close(struct judged *judged); /* NULL is allowed */

/* The newest judgements of one line, in the order of their curators. */
struct judged_line {
    uint64_t line;
    const struct store_judgement *rows; /* valid until the next call */
    size_t count;
};

/* Moves to the next line; *ret_line->count is 0 behind the last. */
enum err judged_next(struct judged *judged, struct judged_line *ret_line,
                     struct error *error) MUST_CHECK;

/* True if all opinions have one verdict and the same fields. */
bool judged_is_agreed(const struct judged_line *line);

extern const char *const judged_verdicts[]; /* by enum verdict; NULL at the end */
/* Appends a judgement as the API shows it. */
void judged_write(struct buf *buf, const struct store_judgement *judgement);
/* Appends the answer of GET …/judgements/summary: counts of judgements and of agreements. */
enum err judged_write_summary(struct buf *buf, struct store *store, const char *batch_id,
                              struct error *error) MUST_CHECK;
