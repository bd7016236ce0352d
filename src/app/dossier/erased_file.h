/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erased_file: a copy of a JSONL file in which the lines of some ids are empty.
 *
 * The copy lies next to the file as NAME.erasing, with its mode, and is synced.
 *
 * Thread: one.
 * Memory: the largest line of the file, at most LINES_BYTES_MAX, and the erased lines. */

#include "dossier/line_ids.h"
#include "proof/run_salts.h"

#define ERASED_FILE_NAME "%s.erasing" /* for printf, of the file */

struct erased_file {
    struct line_erased *lines;
    size_t count, capacity;
};

/* Writes the copy. `salts` make the leaves of the lines; NULL: the leaves stay empty. With
 * `is_input` the ids that are found are noted. ERR_INVALID: a line is no JSON object. After an error
 * a part of the copy may be there. After OK the caller releases it. */
enum err erased_file_write(struct erased_file *ret_file, const char *path, struct line_ids *ids,
                           struct run_salts_file *salts, bool is_input,
                           struct error *error) MUST_CHECK;
void erased_file_release(struct erased_file *file);
