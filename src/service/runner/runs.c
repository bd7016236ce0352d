/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runs.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void runs_make(struct runs *ret_runs, const struct line_index *index) {
    uint32_t places = index_count(index);
    size_t capacity = 0;
    *ret_runs = (struct runs){0};
    for (uint32_t first = 0, end; first < places && ret_runs->count < RUNS_MAX; first = end) {
        uint32_t group = index_group_at(index, first);
        for (end = first + 1; end < places && index_group_at(index, end) == group;) end++;
        if (end - first < RUN_PLACES_MIN) continue;
        ret_runs->at = vec_grow(ret_runs->at, ret_runs->count, &capacity, sizeof *ret_runs->at);
        ret_runs->at[ret_runs->count++] =
            (struct run){.first = first, .count = end - first, .group = group};
    }
}

void runs_release(struct runs *runs) {
    free(runs->at);
    *runs = (struct runs){0};
}

/* The first run that ends after the place; runs->count if none does. */
static uint32_t run_behind(const struct runs *runs, uint32_t place) {
    uint32_t low = 0, high = runs->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (runs->at[middle].first + runs->at[middle].count > place)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool runs_are_inside(const struct runs *runs, uint32_t place) {
    uint32_t at = run_behind(runs, place);
    return at < runs->count && runs->at[at].first < place;
}

uint32_t runs_next(const struct runs *runs, const struct runs_warm *warm, uint32_t place) {
    for (uint32_t i = 0; i < RUNS_WARM_MAX && warm->groups[i]; i++)
        for (uint32_t k = 0; k < runs->count; k++)
            if (runs->at[k].group == warm->groups[i] && !runs->at[k].is_begun)
                return runs->at[k].first;
    for (uint32_t at = run_behind(runs, place); at < runs->count; at++) {
        const struct run *run = &runs->at[at];
        if (run->first > place || !run->is_begun) break;
        place = run->first + run->count;
    }
    return place;
}

static void make_warm(struct runs_warm *warm, uint32_t group) {
    uint32_t at = 0;
    while (at < RUNS_WARM_MAX - 1 && warm->groups[at] != group) at++;
    memmove(&warm->groups[1], &warm->groups[0], at * sizeof *warm->groups);
    warm->groups[0] = group;
}

uint32_t runs_lease(struct runs *runs, struct runs_warm *warm, uint32_t first, uint32_t count,
                    uint32_t *ret_end) {
    uint32_t at = run_behind(runs, first);
    if (at == runs->count) return count;
    struct run *run = &runs->at[at];
    uint32_t stretch = run->first + run->count - first;
    if (run->first > first) {
        stretch = run->first - first;
    } else {
        run->is_begun = true;
        make_warm(warm, run->group);
        *ret_end = run->first + run->count;
    }
    return count < stretch ? count : stretch;
}
