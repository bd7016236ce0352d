/* SPDX-License-Identifier: Apache-2.0 */
/* A list of token ids that grows. */
#include "base/mem.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>

void ids_add(struct ids *ids, int32_t id) {
    if (ids->count == ids->capacity) {
        size_t capacity = ids->capacity ? ids->capacity * 2 : 64;
        int32_t *at = mem_resize(ids->at, capacity, sizeof *at);
        ids->at = at;
        ids->capacity = capacity;
    }
    ids->at[ids->count++] = id;
}

void ids_release(struct ids *ids) {
    free(ids->at);
    *ids = (struct ids){0};
}
