/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erased_copy: a copy of a file of an ended batch in which the lines of some custom_ids are empty.
 *
 * The whole file is read, and it must be the one that the batch's proof is of: else an erasure
 * would put the sum of damaged bytes in the place of the right one.
 *
 * Thread: one.
 * Memory: the largest line of the file, and 128 bytes per erased line. */

#include "base/map.h"
#include "batch/proofs.h"
#include "store/erased.h"

/* The custom_ids whose lines go. */
struct erased_ids {
    struct map numbers; /* their places in `requests` */
    size_t *places;     /* (count) where each stands in the list that was given */
    uint64_t *requests; /* (count) number of the request, from 1; 0: not found in any file yet */
    size_t count;
    struct buf scratch;
};

/* Repeated texts count once. */
void erased_ids_init(struct erased_ids *ids, const struct str *texts, size_t count);
void erased_ids_release(struct erased_ids *ids);
/* Begins with another batch: none of them is found. */
void erased_ids_restart(struct erased_ids *ids);

struct erased_spot {
    struct line_erased proof;
    uint64_t offset;           /* where the line begins in the old file */
    uint64_t bytes;            /* with its LF, there */
    uint64_t request;          /* from 1 */
    enum erased_result result; /* for a line of results */
};

struct erased_copy {
    struct store_spool *spool; /* NULL: the file has none of the lines, or no copy was wanted */
    struct erased_spot *spots; /* (count) in the order of the file */
    size_t count, capacity;
};

struct erased_copy_wish {
    struct store *store;
    const struct store_file *file;
    int fd;
    const char *what;                         /* "input", "output" or "errors" */
    struct batch_proofs *proofs;              /* it is not changed */
    struct erased_ids *ids;                   /* notes of the input which request each is */
    const struct store_erased_lines *earlier; /* lines that were erased before */
    bool is_written;                          /* else the file is only read */
};

/* ERR_CORRUPT: the file is not what its proof says. After OK the caller releases the copy. */
enum err erased_copy_make(const struct erased_copy_wish *wish, struct erased_copy *ret_copy,
                          struct error *error) MUST_CHECK;
/* Drops a spool that was not placed. */
void erased_copy_release(struct erased_copy *copy);
