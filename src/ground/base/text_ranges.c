/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text_ranges.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

void text_ranges_add(struct text_ranges *spans, size_t start, size_t end) {
    if (start == end) return;
    struct text_range *last = spans->count > 0 ? &spans->at[spans->count - 1] : NULL;
    assert(start < end && (!last || last->end <= start));
    if (last && last->end == start) {
        last->end = end;
        return;
    }
    if (spans->count == spans->capacity) {
        size_t capacity = spans->capacity ? spans->capacity * 2 : 16;
        struct text_range *at = mem_resize(spans->at, capacity, sizeof *at);
        spans->at = at;
        spans->capacity = capacity;
    }
    spans->at[spans->count++] = (struct text_range){start, end};
}

void text_ranges_truncate(struct text_ranges *spans, size_t end) {
    while (spans->count > 0 && spans->at[spans->count - 1].start >= end) spans->count--;
    if (spans->count == 0) return;
    struct text_range *last = &spans->at[spans->count - 1];
    if (last->end > end) last->end = end;
}

void text_ranges_release(struct text_ranges *spans) {
    free(spans->at);
    *spans = (struct text_ranges){0};
}
