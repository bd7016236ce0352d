/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* field_figures: what one field's values in two files add to the comparison: row by row, and at the
 * end over all rows.
 *
 * Thread: any.
 * Memory: the field's pairs grow in the field. */

#include "compare/comparison.h"

/* How far one row's answers differ, while fields are added up. */
struct row_distance {
    float sum;       /* sum over labels */
    float words_sum; /* words in long texts */
    uint16_t count;  /* labels and scores that were compared */
    uint16_t words_count;
};

/* Adds one row: its values in the two files, of which one may be NULL: the answer has no such
 * field. Returns whether they are equal. */
bool field_figures_add(struct comparison_field *field, uint32_t row, const json_t *a,
                       const json_t *b, struct row_distance *distance);
/* Measures the pairs, and adds the scores' part to the distances of all rows. */
void field_figures_end(struct comparison_field *field, struct row_distance *distances);
/* Jaccard's distance of the sets of words of two texts; 0 for two texts without words. */
double field_words_distance(struct str a, struct str b);
