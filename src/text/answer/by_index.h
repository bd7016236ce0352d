/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* by_index: which element of a list is its first: the one whose member `index` is lowest.
 *
 * Servers give choices and embeddings in any order. An element without an index has its place, and
 * of equal ones the earlier is first, as json_first_by_index has it for trees.
 *
 * Thread: any; pure.
 * Memory: owns nothing. */

#include "base/str.h"

struct by_index {
    uint64_t count, lowest;
};

/* Takes the next element by its raw `index`, which may be absent. True if it is the first one so
 * far. */
bool by_index_take(struct by_index *list, struct str index);
/* True if no later element can be before the first one. */
bool by_index_is_settled(const struct by_index *list);
