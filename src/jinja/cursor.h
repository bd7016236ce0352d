/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cursor: walking over whatever Python would iterate.  Thread: as render.  Memory: a plain struct;
 * the value it walks over must outlive it. */

#include "jinja/render.h"

struct cursor {
    struct value over;
    size_t position; /* items given; bytes for a text */
};

bool cursor_can_walk(struct value value);
/* ERR_INVALID for a value that cannot be walked. */
enum err cursor_open(struct render *render, struct value over, struct cursor *ret_cursor);
/* *ret_more false at the end, and then nothing else is written. */
enum err cursor_next(struct render *render, struct cursor *cursor, bool *ret_more,
                     struct value *ret_item);
/* All items as a new list (the list itself when `over` is a list or tuple). */
enum err cursor_list(struct render *render, struct value over, struct list **ret_list);
