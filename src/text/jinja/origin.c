/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/origin.h"

#include "jinja/render.h"

#include <assert.h>
#include <string.h>

/* Never written to: only an origin that was made for a text of two parts grows. */
static struct text_range everything = {0, SIZE_MAX};
const struct origin origin_given = {&everything, 1, 1};

enum err origin_add(struct render *render, struct origin *origin, size_t start, size_t end) {
    if (start == end) return OK;
    struct text_range *last = origin->count > 0 ? &origin->at[origin->count - 1] : NULL;
    assert(start < end && (!last || last->end <= start));
    if (last && last->end == start) {
        last->end = end;
        return OK;
    }
    if (origin->count == origin->capacity) {
        size_t capacity = origin->capacity ? origin->capacity * 2 : 4;
        struct text_range *at = render_array(render, capacity, sizeof *at);
        if (!at) return ERR_LIMIT;
        if (origin->count > 0) memcpy(at, origin->at, origin->count * sizeof *at);
        origin->at = at;
        origin->capacity = capacity;
    }
    origin->at[origin->count++] = (struct text_range){start, end};
    return OK;
}

/* The first span that ends after `from`. */
static size_t first_after(const struct origin *origin, size_t from) {
    size_t low = 0, high = origin->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (origin->at[middle].end > from)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

enum err origin_add_part(struct render *render, struct origin *origin, size_t to,
                         const struct origin *of, size_t from, size_t bytes) {
    enum err err = OK;
    if (!of) return OK;
    for (size_t i = first_after(of, from); !err && i < of->count; i++) {
        struct text_range span = of->at[i];
        if (span.start >= from + bytes) break;
        size_t start = span.start > from ? span.start - from : 0;
        size_t end = span.end - from < bytes ? span.end - from : bytes;
        err = origin_add(render, origin, to + start, to + end);
        if (!err) err = render_charge(render, sizeof span);
    }
    return err;
}

bool origin_has(const struct origin *origin, size_t from, size_t bytes) {
    if (!origin || bytes == 0) return false;
    size_t first = first_after(origin, from);
    return first < origin->count && origin->at[first].start < from + bytes;
}

void origin_truncate(struct origin *origin, size_t end) {
    while (origin->count > 0 && origin->at[origin->count - 1].start >= end) origin->count--;
    if (origin->count > 0 && origin->at[origin->count - 1].end > end)
        origin->at[origin->count - 1].end = end;
}
