/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/ranks.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One row in the merge sort by `b`. */
struct item {
    double b;
    double rank_a; /* mean rank of the row's `a`, from 0 */
};

static int by_a_then_b(const void *left, const void *right) {
    const struct rank_pair *x = left, *y = right;
    if (x->a != y->a) return x->a < y->a ? -1 : 1;
    if (x->b != y->b) return x->b < y->b ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static uint64_t pairs_of(uint64_t count) {
    return count * (count - 1) / 2;
}

/* The end of the run of rows that have the `a` of row `from`. */
static size_t end_of_run(const struct rank_pair *pairs, size_t count, size_t from) {
    size_t end = from + 1;
    while (end < count && pairs[end].a == pairs[from].a) end++;
    return end;
}

/* Counts the ties of `a` and of both lists, and gives each row its mean rank in `a`. */
static void rank_a(const struct rank_pair *pairs, size_t count, struct item *items,
                   struct ranks *is) {
    for (size_t i = 0, end; i < count; i = end) {
        end = end_of_run(pairs, count, i);
        is->tied_a += pairs_of(end - i);
        for (size_t k = i, same = i; k < end; k++) {
            items[k] = (struct item){pairs[k].b, (double)(i + end - 1) / 2};
            if (pairs[k].b != pairs[same].b) same = k;
            is->tied_both += k - same;
        }
    }
}

/* Merges two sorted halves. Returns how many items of the left half stand behind smaller ones of
 * the right half, pair by pair. */
static uint64_t merge(struct item *into, const struct item *left, size_t left_count,
                      const struct item *right, size_t right_count) {
    uint64_t inversions = 0;
    size_t i = 0, k = 0;
    while (i < left_count && k < right_count) {
        bool takes_right = right[k].b < left[i].b;
        if (takes_right) inversions += left_count - i;
        into[i + k] = takes_right ? right[k] : left[i];
        k += takes_right;
        i += !takes_right;
    }
    memcpy(into + i + k, left + i, (left_count - i) * sizeof *into);
    memcpy(into + left_count + k, right + k, (right_count - k) * sizeof *into);
    return inversions;
}

/* Sorts by `b`, bottom up. Returns the pairs that stood in the opposite order. */
static uint64_t sort_by_b(struct item **items, struct item **spare, size_t count) {
    uint64_t inversions = 0;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            size_t left = count - at < width ? count - at : width;
            size_t right = count - at - left < width ? count - at - left : width;
            inversions += merge(*spare + at, *items + at, left, *items + at + left, right);
        }
        struct item *sorted = *spare;
        *spare = *items;
        *items = sorted;
    }
    return inversions;
}

/* For items sorted by `b`: the ties, and the sums of Pearson's correlation of ranks. */
static void correlate(const struct item *items, size_t count, struct ranks *is) {
    double middle = (double)(count - 1) / 2, both = 0, squares_a = 0, squares_b = 0;
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && items[end].b == items[i].b;) end++;
        is->tied_b += pairs_of(end - i);
        double from_middle = (double)(i + end - 1) / 2 - middle;
        for (size_t k = i; k < end; k++) {
            double a = items[k].rank_a - middle;
            both += a * from_middle;
            squares_a += a * a;
            squares_b += from_middle * from_middle;
        }
    }
    is->is_known = squares_a > 0 && squares_b > 0;
    if (is->is_known) is->spearman = both / sqrt(squares_a) / sqrt(squares_b);
}

struct ranks ranks_measure(struct rank_pair *pairs, size_t count) {
    struct ranks is = {0};
    if (count < 2) return is;
    struct item *items = mem_new(2 * count, sizeof *items), *all = items, *spare = items + count;
    qsort(pairs, count, sizeof *pairs, by_a_then_b);
    is.pairs = pairs_of(count);
    rank_a(pairs, count, items, &is);
    uint64_t opposite = sort_by_b(&items, &spare, count);
    correlate(items, count, &is);
    free(all);
    if (!is.is_known) return is;
    /* C = P - A - B + both - D, since a pair that both lists tie is counted in A and in B. */
    double free_a = (double)(is.pairs - is.tied_a), free_b = (double)(is.pairs - is.tied_b);
    double same = (double)(is.pairs - is.tied_a) - (double)(is.tied_b - is.tied_both);
    is.kendall = (same - 2 * (double)opposite) / sqrt(free_a) / sqrt(free_b);
    return is;
}

bool ranks_interval(double spearman, size_t count, double *ret_low, double *ret_high) {
    if (count < 4) return false;
    double middle = atanh(fmax(-1, fmin(1, spearman)));
    double reach = NORMAL_95 * sqrt((1 + spearman * spearman / 2) / (double)(count - 3));
    *ret_low = tanh(middle - reach);
    *ret_high = tanh(middle + reach);
    return true;
}
