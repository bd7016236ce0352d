/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* compare: equality, order and membership, as Python's == < in.
 *
 * Thread: as render.
 * Memory: as render. */

#include "jinja/render.h"

enum err compare_equal(struct render *render, struct value left, struct value right,
                       bool *ret_equal);
/* Negative, 0 or positive. ERR_INVALID for values that have no order. NaN counts as larger. */
enum err compare_order(struct render *render, struct value left, struct value right,
                       int *ret_order);
/* A text in lower case; any other value unchanged. */
enum err compare_fold(struct render *render, struct value value, struct value *ret_value);
/* True for `item in whole`. */
enum err compare_contains(struct render *render, struct value whole, struct value item,
                          bool *ret_contains);

/* The key by which an item is sorted, and the item. */
struct sort_item {
    struct value key;
    struct value item;
};
/* Sorts in place, keeping the order of equal keys (merge sort). */
enum err compare_sort(struct render *render, struct sort_item *items, size_t count, bool reverse);
