/* SPDX-License-Identifier: Apache-2.0 */
#include "base/span.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

void spans_add(struct spans *spans, size_t start, size_t end) {
    if (start == end) return;
    struct span *last = spans->count > 0 ? &spans->at[spans->count - 1] : NULL;
    assert(start < end && (!last || last->end <= start));
    if (last && last->end == start) {
        last->end = end;
        return;
    }
    if (spans->count == spans->capacity) {
        size_t capacity = spans->capacity ? spans->capacity * 2 : 16;
        struct span *at = mem_resize(spans->at, capacity, sizeof *at);
        spans->at = at;
        spans->capacity = capacity;
    }
    spans->at[spans->count++] = (struct span){start, end};
}

void spans_truncate(struct spans *spans, size_t end) {
    while (spans->count > 0 && spans->at[spans->count - 1].start >= end) spans->count--;
    if (spans->count == 0) return;
    struct span *last = &spans->at[spans->count - 1];
    if (last->end > end) last->end = end;
}

void spans_release(struct spans *spans) {
    free(spans->at);
    *spans = (struct spans){0};
}
