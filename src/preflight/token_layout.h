/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* layout: where the text that requests share stands in them. What stands in front of everything
 * private is computed once by a prefix cache; what stands behind it, once a request, although it is
 * the same. A sample of the requests is looked at, line of text by line of text.
 *
 * Thread: one at a time.  Memory: 16 bytes a line of text, at most 256 of a request. */

#include "base/str.h"
#include "json/json.h"

/* Zero is empty. */
struct layout {
    struct layout_piece *pieces;
    size_t count, capacity;
    uint32_t requests;
};

/* Adds a request: its messages, or its prompt; the other is NULL. */
void layout_add(struct layout *layout, const json_t *messages, const json_t *prompt);

struct layout_advice {
    double late_bytes_mean; /* of text that others share too, behind text that is private */
    double late_share;      /* of the requests that have more than a little of it */
};

/* What the sample says; leaves it as it is. */
struct layout_advice layout_look(const struct layout *layout);
void layout_release(struct layout *layout);
