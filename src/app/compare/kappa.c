/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/kappa.h"

#include "base/mem.h"
#include "compare/ranks.h"

#include <math.h>
#include <stdlib.h>

struct kappa_cell {
    uint32_t a, b; /* numbers of labels */
    uint64_t rows;
};

void kappa_init(struct kappa_counts *counts) {
    *counts = (struct kappa_counts){.label_count = 0};
    map_init(&counts->label_of);
    map_init(&counts->cell_of);
}

void kappa_release(struct kappa_counts *counts) {
    map_release(&counts->label_of);
    map_release(&counts->cell_of);
    free(counts->cells);
    counts->cells = NULL;
}

/* The number of a label, a new one if there is room. */
static bool find_label(struct kappa_counts *counts, struct str label, uint32_t *ret_number) {
    uint64_t number = counts->label_count;
    if (!map_get(&counts->label_of, label, &number)) {
        if (number == KAPPA_LABELS_MAX) return false;
        map_put(&counts->label_of, label, number);
        counts->label_count++;
    }
    *ret_number = (uint32_t)number;
    return true;
}

void kappa_add(struct kappa_counts *counts, struct str a, struct str b) {
    uint32_t pair[2];
    uint64_t place = counts->cell_count;
    if (!find_label(counts, a, &pair[0]) || !find_label(counts, b, &pair[1])) {
        counts->has_too_many = true;
        return;
    }
    const struct str key = {(const char *)pair, sizeof pair};
    if (!map_get(&counts->cell_of, key, &place)) {
        map_put(&counts->cell_of, key, place);
        counts->cells =
            vec_grow(counts->cells, place, &counts->cell_capacity, sizeof *counts->cells);
        counts->cells[counts->cell_count++] = (struct kappa_cell){pair[0], pair[1], 0};
    }
    counts->cells[place].rows++;
    counts->rows++;
}

/* Shares of the rows. */
struct shares {
    double of_a[KAPPA_LABELS_MAX], of_b[KAPPA_LABELS_MAX]; /* per label */
    double observed, expected;                             /* equal labels */
};

static struct shares count_shares(const struct kappa_counts *counts) {
    struct shares shares = {.observed = 0};
    double rows = (double)counts->rows;
    for (size_t i = 0; i < counts->cell_count; i++) {
        const struct kappa_cell *cell = &counts->cells[i];
        double share = (double)cell->rows / rows;
        shares.of_a[cell->a] += share;
        shares.of_b[cell->b] += share;
        if (cell->a == cell->b) shares.observed += share;
    }
    for (uint32_t i = 0; i < counts->label_count; i++)
        shares.expected += shares.of_a[i] * shares.of_b[i];
    return shares;
}

/* The variance of kappa times the number of rows (Fleiss, Cohen, Everitt 1969, equation 13). */
static double variance(const struct kappa_counts *counts, const struct shares *shares,
                       double kappa) {
    double equal = 0, unequal = 0, rows = (double)counts->rows, rest = 1 - kappa;
    for (size_t i = 0; i < counts->cell_count; i++) {
        const struct kappa_cell *cell = &counts->cells[i];
        double share = (double)cell->rows / rows;
        if (cell->a == cell->b)
            equal += share * pow(1 - (shares->of_a[cell->a] + shares->of_b[cell->a]) * rest, 2);
        else
            unequal += share * pow(shares->of_b[cell->a] + shares->of_a[cell->b], 2);
    }
    double centre = pow(kappa - shares->expected * rest, 2);
    return fmax(0, equal + rest * rest * unequal - centre) / pow(1 - shares->expected, 2);
}

struct kappa kappa_measure(const struct kappa_counts *counts) {
    struct kappa is = {.rows = counts->rows};
    if (counts->rows < 2 || counts->has_too_many) return is;
    struct shares shares = count_shares(counts);
    if (shares.expected >= 1) return is;
    is.is_known = true;
    is.value = (shares.observed - shares.expected) / (1 - shares.expected);
    double reach = NORMAL_95 * sqrt(variance(counts, &shares, is.value) / (double)counts->rows);
    is.low = is.value - reach;
    is.high = is.value + reach;
    return is;
}
