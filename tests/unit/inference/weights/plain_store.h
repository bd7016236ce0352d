/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plain_store: a store that keeps the rows of `ref` and notes the calls of the loader. */

#include "program/weight_store.h"

#include <assert.h>
#include <string.h>

#define PLAIN_CALLS_MAX 64

struct plain_call {
    char name[64];
    uint32_t part_count;
    uint32_t rows; /* rows in all parts */
    uint32_t cols;
    bool is_looked_up, is_multiplied;
};

struct plain_store {
    struct plain_call opened[PLAIN_CALLS_MAX];
    uint32_t open_count;
    struct matrix *filled[PLAIN_CALLS_MAX];
    uint32_t fill_count;
    uint32_t finish_count;
    /* what it shall do */
    const char *has;    /* the name of a matrix whose rows it has already */
    const char *misses; /* the name of a matrix that it cannot open */
};

static inline enum err plain_open(void *self, const struct weight_matrix *from,
                                  struct matrix **ret_matrix, bool *ret_is_filled,
                                  struct error *error) {
    struct plain_store *store = self;
    assert(store->fill_count == 0 && store->open_count < PLAIN_CALLS_MAX);
    struct plain_call *call = &store->opened[store->open_count++];
    assert(strlen(from->name) < sizeof call->name);
    memcpy(call->name, from->name, strlen(from->name) + 1);
    call->part_count = from->part_count;
    call->cols = from->cols;
    call->is_looked_up = from->is_looked_up;
    call->is_multiplied = from->is_multiplied;
    for (uint32_t i = 0; i < from->part_count; i++) {
        assert(!from->parts[i].blocks);
        call->rows += from->parts[i].rows;
    }
    if (store->misses && strcmp(store->misses, from->name) == 0)
        return err_set(error, ERR_LIMIT, "no room for %s", from->name);
    *ret_is_filled = store->has && strcmp(store->has, from->name) == 0;
    return matrix_open(ret_matrix, kernels_choose("ref"), from->parts, from->part_count, from->cols,
                       error);
}

static inline enum err plain_fill(void *self, struct matrix *matrix,
                                  const struct weight_matrix *from, struct error *error) {
    (void)error;
    struct plain_store *store = self;
    for (uint32_t i = 0; i < from->part_count; i++) assert(from->parts[i].blocks);
    matrix_fill(matrix, from->parts, 0, matrix->tile_count);
    store->filled[store->fill_count++] = matrix;
    return OK;
}

static inline enum err plain_finish(void *self, struct error *error) {
    (void)error;
    struct plain_store *store = self;
    store->finish_count++;
    return OK;
}

static inline struct weight_store plain_store_interface(struct plain_store *store) {
    static const struct weight_store_ops ops = {
        .open = plain_open, .fill = plain_fill, .finish = plain_finish};
    return (struct weight_store){.ops = &ops, .self = store};
}
