/* SPDX-License-Identifier: Apache-2.0 */
/* Result lines with foreign answers. Every line gives few fields with short names, which differ
 * from the names of the line's own fields, and a table takes them all. */
#include "answers/record.h"
#include "answers/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const unsigned char key[16];

static void put(struct table *table, uint32_t column, const struct record_value *value) {
    if (value->kind == RECORD_TEXT)
        table_set_text(table, 0, column, value->text);
    else if (value->kind == RECORD_BOOL)
        table_set_bool(table, 0, column, value->number != 0);
    else
        table_set_number(table, 0, column, value->number);
    assert(table_kind(table->columns[column].cells[0]) != CELL_ABSENT);
}

static void put_fixed(void *context, unsigned field, const struct record_value *value) {
    assert(field < TABLE_FIXED_COUNT);
    put(context, field, value);
}

static void put_field(void *context, struct str name, const struct record_value *value) {
    uint32_t column = table_column_of(context, name, 0);
    assert(column >= TABLE_FIXED_COUNT);
    if (column != TABLE_NO_COLUMN) put(context, column, value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct record record;
    struct table table;
    struct record_walk walk = {&table, put_fixed, put_field, NULL};
    record_init(&record);
    table_init(&table, 1, key);
    if (record_read(&record, (struct str){copy, bytes})) record_each(&record, &walk);
    assert(table.column_count <= TABLE_COLUMNS_MAX && record.fields <= RECORD_FIELDS_MAX);
    table_release(&table);
    record_release(&record);
    free(copy);
    return 0;
}
