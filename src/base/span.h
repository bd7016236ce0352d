/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* span: stretches of a text, as byte offsets: a growing list of them in ascending order.
 *
 * Thread: one at a time.  Memory: owns `at`; spans_release frees it. No memory means abort.
 * Invariant: every span has bytes, and ends before the next one starts. */

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

/* Appends start..end, which lies behind all that are there; one that touches the last extends it.
 * An empty one adds nothing. */
void spans_add(struct spans *spans, size_t start, size_t end);
/* Drops what lies at or after `end`. */
void spans_truncate(struct spans *spans, size_t end);
void spans_release(struct spans *spans);
