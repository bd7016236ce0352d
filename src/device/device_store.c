/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device_store.h"

#include "base/log.h"
#include "base/mem.h"
#include "device/device_notes.h"

#include <stdlib.h>

struct device_store {
    struct device_store_options options;
    struct device_matrix *matrices; /* (count) */
    size_t count, capacity;
};

static enum device_form form_of(const struct device_store *store,
                                const struct weight_matrix *from) {
    enum device_form form = store->options.form;
    return from->is_looked_up && form != DEVICE_F32 ? DEVICE_BF16 : form;
}

static enum err store_open(void *self, const struct weight_matrix *from, struct matrix **ret_matrix,
                           bool *ret_is_filled, struct error *error) {
    (void)error; /* the device takes its memory in prepare */
    struct device_store *store = self;
    struct matrix *matrix = mem_new(1, sizeof *matrix);
    for (uint32_t i = 0; i < from->part_count; i++) matrix->rows += from->parts[i].rows;
    matrix->cols = from->cols;
    matrix->handle = (uint32_t)store->count;
    store->matrices =
        vec_grow(store->matrices, store->count, &store->capacity, sizeof *store->matrices);
    store->matrices[store->count++] = (struct device_matrix){
        .rows = matrix->rows, .cols = matrix->cols, .form = form_of(store, from)};
    *ret_matrix = matrix;
    *ret_is_filled = false;
    return OK;
}

static enum err store_fill(void *self, struct matrix *matrix, const struct weight_matrix *from,
                           struct error *error) {
    struct device_store *store = self;
    enum err err = OK;
    uint32_t row = 0;
    for (uint32_t i = 0; i < from->part_count && err == OK; i++) {
        const struct matrix_part *part = &from->parts[i];
        const struct device_rows rows = {.matrix = matrix->handle,
                                         .row_first = row,
                                         .rows = part->rows,
                                         .type = part->type,
                                         .blocks = part->blocks,
                                         .row_order = part->row_order};
        err = store->options.table->fill(store->options.device, &rows, error);
        row += part->rows;
    }
    return err;
}

/* Tells what warm made so that steps of few rows start with one call. */
static enum err tell_graphs(const struct device_store_options *options, struct error *error) {
    struct device_counters counters = {0};
    enum err err = options->table->counters(options->device, &counters, error);
    if (err != OK) return err;
    const unsigned long long kib = counters.graph_bytes >> 10;
    if (counters.graph_refusal)
        log_warn("event=device_graphs graphs=%u kib=%llu reason=\"%s\"", counters.graphs, kib,
                 counters.graph_refusal);
    else if (counters.graphs > 0)
        log_debug("event=device_graphs graphs=%u kib=%llu", counters.graphs, kib);
    return OK;
}

static enum err store_finish(void *self, struct error *error) {
    const struct device_store_options *options = &((struct device_store *)self)->options;
    device_notes_recall(options->table, options->device, options->notes_dir, options->card_uuid);
    enum err err = options->table->warm(options->device, error);
    if (err == OK)
        device_notes_keep(options->table, options->device, options->notes_dir, options->card_uuid);
    return err == OK ? tell_graphs(options, error) : err;
}

struct weight_store device_store_interface(struct device_store *store) {
    static const struct weight_store_ops ops = {
        .open = store_open, .fill = store_fill, .finish = store_finish};
    return (struct weight_store){.ops = &ops, .self = store};
}

struct device_store *device_store_open(const struct device_store_options *options) {
    struct device_store *store = mem_new(1, sizeof *store);
    store->options = *options;
    return store;
}

void device_store_close(struct device_store *store) {
    if (!store) return;
    free(store->matrices);
    free(store);
}

const struct device_matrix *device_store_matrices(const struct device_store *store,
                                                  uint32_t *ret_count) {
    *ret_count = (uint32_t)store->count;
    return store->matrices;
}
