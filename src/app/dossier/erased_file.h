/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erased_file: a copy of a file in which some lines are empty: of JSONL those of some ids, of a
 * table those of some rows. A row has as many lines as its cells have ends of lines in quotes, and
 * one more; each becomes an empty line.
 *
 * The copy lies next to the file as NAME.erasing, with its mode, and is synced.
 *
 * Thread: one.
 * Memory: the largest line of the file, at most LINES_BYTES_MAX, and the erased lines. */

#include "dossier/erased_rows.h"
#include "proof/run_salts.h"

#define ERASED_FILE_NAME "%s.erasing" /* for printf, of the file */

struct erased_file {
    struct line_erased *lines;
    size_t count, capacity;
};

/* What becomes empty: the lines of `ids`, which are noted as found if `notes`; or `rows`. */
struct erased_choice {
    struct line_ids *ids;
    bool notes;
    const struct erased_rows *rows; /* NULL: the file is JSONL */
};

/* Writes the copy. `salts` make the leaves of the lines; NULL: the leaves stay empty. ERR_INVALID:
 * a line is no JSON object, or a row shares a line with another one. After an error a part of the
 * copy may be there. After OK the caller releases it. */
enum err erased_file_write(struct erased_file *ret_file, const char *path,
                           const struct erased_choice *choice, struct run_salts_file *salts,
                           struct error *error) MUST_CHECK;
void erased_file_release(struct erased_file *file);
