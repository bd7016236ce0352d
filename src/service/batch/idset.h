/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* idset: finds a custom_id that an earlier request has, with 10 to 20 bytes per id.
 *
 * It keeps 44 bits of a keyed hash and the index of the request. Equal hashes are only a hint: the
 * caller then compares the real ids, so no duplicate is false.
 *
 * Thread: one.
 * Memory: one table; idset_release frees it.
 * Invariant: at most 4 of 5 slots are taken. */

#include "base/str.h"

#define IDSET_LINES_MAX (1u << 20)

struct idset {
    uint64_t *slots; /* hash << 20 | line; 0 is free */
    unsigned bits;   /* log2 of the number of slots */
    uint32_t count;
    unsigned char key[16];
};

/* True if the request at `line` really has the id in question. */
typedef bool (*idset_same_fn)(void *context, uint32_t line);

void idset_init(struct idset *set);
void idset_release(struct idset *set);
/* Adds the id of request `line` (below IDSET_LINES_MAX). False, with the earlier request in
 * *ret_first, if another request has it already. */
bool idset_add(struct idset *set, struct str id, uint32_t line, idset_same_fn same, void *context,
               uint32_t *ret_first);
