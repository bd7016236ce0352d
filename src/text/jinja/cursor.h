/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cursor: a walk over any value that Python iterates.
 *
 * Thread: as render.
 * Memory: a plain struct; the value must outlive it. */

#include "jinja/render.h"

struct cursor {
    struct value over;
    size_t position; /* items given so far; for a text, bytes */
};

bool cursor_can_walk(struct value value);
/* ERR_INVALID for a value that cannot be walked. */
enum err cursor_open(struct render *render, struct value over, struct cursor *ret_cursor);
/* Gives the next item. *ret_more is false at the end, and *ret_item is not written then. */
enum err cursor_next(struct render *render, struct cursor *cursor, bool *ret_more,
                     struct value *ret_item);
/* All items as a new list (the list itself when `over` is a list or tuple). */
enum err cursor_list(struct render *render, struct value over, struct list **ret_list);
