/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kappa: how far two lists of labels of the same rows agree beyond what chance gives: Cohen's kappa
 * ("A coefficient of agreement for nominal scales", 1960), with the interval of 95 % from its large
 * sample variance (Fleiss, Cohen, Everitt 1969).
 *
 * Thread: one.
 * Memory: about 60 bytes per different pair of labels, and the labels; kappa_release frees them. */

#include "base/map.h"

#include <stdbool.h>

#define KAPPA_LABELS_MAX 256 /* with more, kappa is not known: these are no labels */

/* Rows by their pair of labels. Zero is no valid start: kappa_init. */
struct kappa_counts {
    struct map label_of; /* label → its number */
    struct map cell_of;  /* the two numbers → place in `cells` */
    struct kappa_cell *cells;
    size_t cell_count, cell_capacity;
    uint32_t label_count;
    uint64_t rows;
    bool has_too_many;
};

struct kappa {
    bool is_known; /* false: fewer than two rows, one label alone, or too many labels */
    uint64_t rows;
    double value, low, high; /* the interval may reach beyond 1 */
};

void kappa_init(struct kappa_counts *counts);
void kappa_release(struct kappa_counts *counts);
/* Adds a row with its label in each list. */
void kappa_add(struct kappa_counts *counts, struct str a, struct str b);
struct kappa kappa_measure(const struct kappa_counts *counts);
