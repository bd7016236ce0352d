/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* line_ids: the `custom_id`s whose lines are wanted, and where each of them was asked for.
 *
 * Thread: one.
 * Memory: the ids; line_ids_release frees them. */

#include "base/buf.h"
#include "base/map.h"

#define LINE_IDS_MAX 100000

struct line_ids {
    struct map found; /* id: 1 if a line of the input has it */
    struct line_id *list;
    size_t count, capacity;
    struct buf scratch;
};

void line_ids_init(struct line_ids *ids);
void line_ids_release(struct line_ids *ids);
/* Adds one; one that is there is no error. ERR_INVALID for an empty one, ERR_LIMIT for too many. */
enum err line_ids_add(struct line_ids *ids, struct str id, const char *place,
                      struct error *error) MUST_CHECK;
/* Adds those of a file, one in a line. Errors name the file and the line. */
enum err line_ids_add_file(struct line_ids *ids, const char *path, struct error *error) MUST_CHECK;
/* One of them, below `count`. */
const char *line_ids_at(const struct line_ids *ids, size_t at);
/* Whether an id is one of them; notes it as found if `notes`. */
bool line_ids_have_id(struct line_ids *ids, struct str id, bool notes);
/* Whether a line of JSONL has one of them as its custom_id; notes it as found if `notes`. */
bool line_ids_have(struct line_ids *ids, struct str line, bool notes);
/* ERR_NOT_FOUND if one was not found, with the place where it was asked for. */
enum err line_ids_check_found(const struct line_ids *ids, const char *file,
                              struct error *error) MUST_CHECK;
/* Whether any was found. */
bool line_ids_found_one(const struct line_ids *ids);
