/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* span: a growing list of stretches of a text, as byte offsets in ascending order.
 *
 * Thread: one at a time.
 * Memory: owns `at`; spans_release frees it. Out of memory aborts.
 * Invariant: no span is empty, and each ends before the next one starts. */

#include <stddef.h>

struct span {
    size_t start;
    size_t end;
};

/* Zero is a valid start. */
struct spans {
    struct span *at;
    size_t count;
    size_t capacity;
};

/* Appends start..end, which lies behind all spans of the list. A span that touches the last one
 * extends it; an empty span adds nothing. */
void spans_add(struct spans *spans, size_t start, size_t end);
/* Drops all bytes at or after `end`. */
void spans_truncate(struct spans *spans, size_t end);
void spans_release(struct spans *spans);
