/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* text_ranges: a growing list of stretches of a text, as byte offsets in ascending order.
 *
 * Thread: one at a time.
 * Memory: owns `at`; text_ranges_release frees it. Out of memory aborts.
 * Invariant: no span is empty, and each ends before the next one starts. */

#include <stddef.h>

struct text_range {
    size_t start;
    size_t end;
};

/* Zero is a valid start. */
struct text_ranges {
    struct text_range *at;
    size_t count;
    size_t capacity;
};

/* Appends start..end, which lies behind all spans of the list. A span that touches the last one
 * extends it; an empty span adds nothing. */
void text_ranges_add(struct text_ranges *spans, size_t start, size_t end);
/* Drops all bytes at or after `end`. */
void text_ranges_truncate(struct text_ranges *spans, size_t end);
void text_ranges_release(struct text_ranges *spans);
