/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result_check: whether the result lines of an ended batch are as many as the server says that it
 * has requests: a file that was cut, or that the server does not name, is then no whole result.
 *
 * A server that says no counts cannot be checked. Lines that are no results do not count, nor does
 * a second line with the custom_id of an earlier one.
 *
 * Thread: main.
 * Memory: the custom_ids. */

#include "base/map.h"
#include "cli/session.h"

struct result_check {
    struct map ids;
    struct buf id;
    uint64_t lines;
    uint64_t unreadable, first_unreadable; /* lines that are no results; the number of the first */
    uint64_t repeated;
};

void result_check_init(struct result_check *check);
void result_check_release(struct result_check *check);
void result_check_add(struct result_check *check, struct str line);
/* Adds all lines of a file, from its beginning on. */
enum err result_check_add_file(struct result_check *check, int fd, struct error *error) MUST_CHECK;
/* True if nothing is missing. Else sentences say what is. */
bool result_check_say(const struct result_check *check, struct session *session,
                      const struct batch_object *batch);
