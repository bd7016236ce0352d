/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* judged: what people have judged, in the forms in which they keep it, as a file of results that
 * answers can be compared with.
 *
 *   {"custom_id", "judgement": VALUE}     VALUE is right: an object of fields, or the whole text; a
 *                                         number, or another value, of the field `field`
 *   {"custom_id", "judgement": {"verdict"}, "answer", "text"}
 *                                         as the curation page exports them (JSONL)
 *   {"custom_id", "verdict", "fields"}    as `quern label-studio pull -o` and GET …/judgements have
 *                                         them: accepted or corrected answers of the file `answers`
 *   a column of the table                 the cell of the request's `row` is right for a field
 *
 * The newest judgement of each curator counts, that is the last one of the file. A line on which
 * curators differ is in dispute and left out, as are skipped ones and empty cells. The file has
 * only the fields that were judged: a comparison asks for no others.
 *
 * Thread: one.
 * Memory: all judgements and the answers that they are about, at most `memory_max`, and one line
 * more; at most JUDGED_MAX lines of a file. Time is linear in what is read and kept. */

#include "base/err.h"
#include "base/str.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JUDGED_MAX 1000000
#define JUDGED_MEMORY_MAX ((size_t)4 << 30)
#define JUDGED_NAME_BYTES 256

struct judged {
    /* Set by the caller; NULL and 0: not given. */
    const char *from; /* the file of judgements; NULL: the evaluation's reference */
    const char *answers;
    const char *field;
    const char *const *columns; /* (column_count) COLUMN, or COLUMN=FIELD */
    size_t column_count;
    size_t memory_max; /* 0: JUDGED_MEMORY_MAX */

    bool is_made;
    char path[PATH_MAX];          /* the file of results */
    char name[JUDGED_NAME_BYTES]; /* for a reader: the columns */
    uint64_t lines;               /* with a judgement */
    uint64_t disputed, skipped;   /* lines that are left out */
};

/* Whether the file has judgements, by its first line. */
bool judged_is(const char *path);
/* Makes the file `path` of the judgements in the file `from`. ERR_INVALID, with the line, for one
 * that is no judgement, or if no line is judged; ERR_LIMIT for more than the bounds above. */
enum err judged_from_file(struct judged *judged, const char *from, const char *path,
                          struct error *error) MUST_CHECK;
/* Whether the request's row has a value in one of the columns. */
bool judged_has_cell(const struct judged *judged, struct str line);
/* Makes it of the columns of the requests. ERR_INVALID for a column that no request has. */
enum err judged_from_columns(struct judged *judged, const char *requests, const char *path,
                             struct error *error) MUST_CHECK;
