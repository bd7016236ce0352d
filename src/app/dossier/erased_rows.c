/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/erased_rows.h"

#include "base/mem.h"
#include "json/span.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 24

/* --- numbers --- */

void row_numbers_release(struct row_numbers *numbers) {
    free(numbers->list);
    *numbers = (struct row_numbers){.list = NULL};
}

static void add_number(struct row_numbers *numbers, uint64_t number) {
    numbers->list =
        vec_grow(numbers->list, numbers->count, &numbers->capacity, sizeof *numbers->list);
    numbers->list[numbers->count++] = number;
}

size_t row_numbers_up_to(const struct row_numbers *numbers, uint64_t most) {
    size_t low = 0, high = numbers->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (numbers->list[middle] <= most)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool row_numbers_have(const struct row_numbers *numbers, uint64_t number) {
    size_t end = row_numbers_up_to(numbers, number);
    return end > 0 && numbers->list[end - 1] == number;
}

static int by_number(const void *a, const void *b) {
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

enum err row_numbers_read(struct row_numbers *ret_numbers, const json_t *erasures,
                          struct error *error) {
    const json_t *erasure, *value;
    size_t i, k;
    bool is_good = true;
    *ret_numbers = (struct row_numbers){.list = NULL};
    json_array_foreach(erasures, i, erasure) {
        const json_t *rows = json_object_get(erasure, "rows");
        is_good = is_good && (!rows || json_is_array(rows));
        json_array_foreach(rows, k, value) {
            is_good = is_good && json_is_integer(value) && json_integer_value(value) > 0;
            add_number(ret_numbers, (uint64_t)json_integer_value(value));
        }
    }
    if (ret_numbers->count > 1)
        qsort(ret_numbers->list, ret_numbers->count, sizeof *ret_numbers->list, by_number);
    for (i = 1; i < ret_numbers->count; i++)
        is_good = is_good && ret_numbers->list[i] != ret_numbers->list[i - 1];
    if (is_good) return OK;
    row_numbers_release(ret_numbers);
    return err_set(error, ERR_CORRUPT, "the numbers of erased rows in its record are damaged");
}

json_t *row_numbers_json(const struct row_numbers *numbers) {
    json_t *list = json_array();
    for (size_t i = 0; i < numbers->count; i++)
        json_array_append_new(list, json_integer((json_int_t)numbers->list[i]));
    return list;
}

/* --- tables --- */

enum err run_table_read(struct run_table *ret_table, const json_t *entry, struct error *error) {
    const json_t *table = json_object_get(entry, "table");
    const char *kind = json_string_value(json_object_get(table, "kind"));
    const char *separator = json_string_value(json_object_get(table, "delimiter"));
    *ret_table = (struct run_table){.kind = TABLE_NONE};
    if (!table) return OK;
    *ret_table = (struct run_table){.kind = kind ? table_kind_named(kind) : TABLE_NONE,
                                    .separator = separator ? separator[0] : '\0',
                                    .id = json_string_value(json_object_get(table, "id"))};
    if (ret_table->kind != TABLE_NONE && (!separator || strlen(separator) == 1)) return OK;
    return err_set(error, ERR_INVALID, "the manifest has a table of a kind that is not known");
}

/* --- rows --- */

/* A table on its way. */
struct finding {
    const struct erased_rows_wish *wish;
    struct erased_rows *found;
    struct table_rows rows;
    struct buf id;
    uint64_t number; /* that of the latest row */
};

/* The id of the latest row, as table/requests.h makes it a custom_id. */
static struct str id_of(struct finding *is) {
    buf_clear(&is->id);
    if (!is->wish->table->id) {
        buf_printf(&is->id, "%" PRIu64, is->number);
        return buf_str(&is->id);
    }
    struct str raw = json_span_get(buf_str(&is->rows.json), is->wish->table->id);
    if (!raw.at) return (struct str){NULL, 0};
    return json_span_is_string(raw) ? json_span_text(raw, &is->id) : raw;
}

static bool is_wanted(struct finding *is) {
    if (is->wish->numbers) return row_numbers_have(is->wish->numbers, is->number);
    struct str id = id_of(is);
    return id.at && line_ids_have_id(is->wish->ids, id, true);
}

static void take_row(struct finding *is) {
    struct erased_rows *found = is->found;
    do is->number++;
    while (row_numbers_have(is->wish->gone, is->number));
    found->rows++;
    if (!is_wanted(is)) return;
    found->spans = vec_grow(found->spans, found->count, &found->capacity, sizeof *found->spans);
    found->spans[found->count++] = (struct erased_span){is->rows.from, is->rows.end};
    if (found->count == 1) buf_add_str(&found->first, buf_str(&is->rows.json));
    add_number(&found->numbers, is->number);
}

static enum err take_rows(struct finding *is, struct error *error) {
    bool has_row = true;
    for (;;) {
        enum err err = table_rows_next(&is->rows, &has_row, error);
        if (err != OK || !has_row) return err;
        if (is->wish->stop && *is->wish->stop)
            return err_set(error, ERR_CANCELLED, "stopped; nothing was erased");
        take_row(is);
    }
}

enum err erased_rows_find(struct erased_rows *ret_rows, const char *path,
                          const struct erased_rows_wish *wish, struct error *error) {
    struct finding is = {.wish = wish, .found = ret_rows};
    *ret_rows = (struct erased_rows){.spans = NULL};
    buf_init(&ret_rows->first, BUF_UNLIMITED);
    enum err err =
        table_rows_open(&is.rows, path, wish->table->kind, wish->table->separator, error);
    if (err != OK) return err_prefix(error, "%s", path);
    buf_init(&is.id, BUF_UNLIMITED);
    err = take_rows(&is, error);
    buf_release(&is.id);
    table_rows_close(&is.rows);
    if (err == OK) return OK;
    erased_rows_release(ret_rows);
    return err == ERR_CANCELLED ? err : err_prefix(error, "%s", path);
}

void erased_rows_release(struct erased_rows *rows) {
    free(rows->spans);
    row_numbers_release(&rows->numbers);
    buf_release(&rows->first);
    *rows = (struct erased_rows){.spans = NULL};
}
