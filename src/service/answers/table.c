/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/table.h"

#include "base/mem.h"

#include <sodium/crypto_shorthash.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX ((size_t)2 << 20) /* 1,000,000 custom_ids and as many other texts */
#define TEXT_BYTES_MAX ((size_t)64 << 20)
#define HASH_BITS 0xFFFFFFFFFFFFu
#define NAN_TAG 0xFFF8000000000000u /* cells are kept XOR this NaN, so that absent is 0 */
#define TAG_TEXT ((uint64_t)1 << 48)
#define TAG_LONG ((uint64_t)2 << 48)
#define TAG_BOOL ((uint64_t)3 << 48)
#define TAG_LIST ((uint64_t)4 << 48)
#define LISTS_MAX ((size_t)16 << 20) /* counts and numbers of texts, 64 MiB */

const char *const table_fixed_names[TABLE_FIXED_COUNT] = {
    [TABLE_CUSTOM_ID] = ".custom_id",
    [TABLE_OUTCOME] = ".outcome",
    [TABLE_STATUS] = ".status",
    [TABLE_PROMPT_TOKENS] = ".prompt_tokens",
    [TABLE_COMPLETION_TOKENS] = ".completion_tokens",
    [TABLE_CHARACTERS] = ".characters",
    [TABLE_ENTROPY] = ".entropy",
};

static void add_column(struct table *table, struct str name) {
    table->columns[table->column_count++] =
        (struct table_column){name, mem_new(table->row_count, sizeof(uint64_t))};
}

void table_init(struct table *table, uint32_t row_count, const unsigned char *key) {
    *table = (struct table){.row_count = row_count, .key = key};
    size_t fit = TABLE_BYTES_MAX / sizeof(uint64_t) / (row_count ? row_count : 1);
    table->columns_max = fit < TABLE_COLUMNS_MAX ? (uint32_t)fit : TABLE_COLUMNS_MAX;
    if (table->columns_max < TABLE_FIXED_COUNT) table->columns_max = TABLE_FIXED_COUNT;
    table->sequences = mem_new((size_t)row_count + 1, sizeof *table->sequences);
    table->labels = mem_new((size_t)row_count + 1, sizeof *table->labels);
    for (table->id_slots = 16; table->id_slots < 2 * (size_t)row_count;) table->id_slots *= 2;
    table->ids = mem_new(table->id_slots, sizeof *table->ids);
    table->texts = vec_grow(NULL, 0, &table->text_capacity, sizeof *table->texts);
    table->text_count = 1; /* text 0 is not used */
    arena_init(&table->bytes, TEXT_BYTES_MAX);
    for (size_t i = 0; i < TABLE_FIXED_COUNT; i++)
        add_column(table, str_from(table_fixed_names[i]));
}

void table_release(struct table *table) {
    for (uint32_t i = 0; i < table->column_count; i++) free(table->columns[i].cells);
    free(table->sequences);
    free(table->labels);
    free(table->ids);
    free(table->texts);
    free(table->lists);
    free(table->slots);
    arena_release(&table->bytes);
    *table = (struct table){0};
}

size_t table_bytes(const struct table *table) {
    return (size_t)table->row_count *
               (sizeof(uint32_t) + sizeof(uint64_t) + table->column_count * sizeof(uint64_t)) +
           table->id_slots * sizeof *table->ids + table->text_capacity * sizeof *table->texts +
           table->slot_count * sizeof *table->slots + table->list_capacity * sizeof *table->lists +
           table->bytes.bytes_used;
}

/* --- columns --- */

uint32_t table_find_column(const struct table *table, struct str name) {
    for (uint32_t i = 0; i < table->column_count; i++)
        if (str_equals(table->columns[i].name, name)) return i;
    return TABLE_NO_COLUMN;
}

uint32_t table_column_of(struct table *table, struct str name, uint32_t hint) {
    if (hint < table->column_count && str_equals(table->columns[hint].name, name)) return hint;
    uint32_t found = table_find_column(table, name);
    if (found != TABLE_NO_COLUMN) return found;
    struct str copy = {NULL, 0};
    if (table->column_count < table->columns_max && name.bytes <= TABLE_NAME_BYTES)
        copy = arena_copy(&table->bytes, name);
    if (!copy.at) {
        table->left_out++;
        return TABLE_NO_COLUMN;
    }
    add_column(table, copy);
    return table->column_count - 1;
}

/* --- the dictionary --- */

static uint64_t hash_of(const struct table *table, struct str text) {
    uint64_t hash;
    unsigned char bytes[crypto_shorthash_BYTES];
    crypto_shorthash(bytes, (const unsigned char *)text.at, text.bytes, table->key);
    memcpy(&hash, bytes, sizeof hash);
    return hash;
}

uint64_t table_hash(const struct table *table, struct str text) {
    return hash_of(table, text) & HASH_BITS;
}

/* The slot that has the text, or the free one where it would be. */
static size_t slot_of(const struct table *table, struct str text, uint64_t hash) {
    size_t at = (size_t)hash & (table->slot_count - 1);
    while (table->slots[at]) {
        const struct table_text *found = &table->texts[table->slots[at]];
        if (found->hash == hash && str_equals(found->text, text)) break;
        at = (at + 1) & (table->slot_count - 1);
    }
    return at;
}

uint32_t table_find_text(const struct table *table, struct str text) {
    if (table->slot_count == 0) return 0;
    return table->slots[slot_of(table, text, hash_of(table, text))];
}

static void grow_slots(struct table *table) {
    size_t count = table->slot_count ? 2 * table->slot_count : 1024;
    free(table->slots);
    table->slots = mem_new(count, sizeof *table->slots);
    table->slot_count = count;
    for (size_t i = 1; i < table->text_count; i++) {
        size_t at = (size_t)table->texts[i].hash & (count - 1);
        while (table->slots[at]) at = (at + 1) & (count - 1);
        table->slots[at] = (uint32_t)i;
    }
}

/* The number of the text, which is added if there is room; 0 if there is none. */
static uint32_t add_text(struct table *table, struct str text, uint64_t hash) {
    if (2 * table->text_count >= table->slot_count) grow_slots(table);
    size_t slot = slot_of(table, text, hash);
    if (table->slots[slot]) return table->slots[slot];
    struct str copy = {NULL, 0};
    if (table->text_count < TEXTS_MAX) copy = arena_copy(&table->bytes, text);
    if (!copy.at) return 0;
    table->texts =
        vec_grow(table->texts, table->text_count, &table->text_capacity, sizeof *table->texts);
    table->texts[table->text_count] = (struct table_text){copy, hash};
    table->slots[slot] = (uint32_t)table->text_count++;
    return table->slots[slot];
}

/* --- custom_ids --- */

/* A custom_id by the hash of its text: 64 bits for a text in the dictionary, 48 for a long text. */
struct id {
    uint64_t hash;
    bool is_long;
};

static struct id id_of(const struct table *table, uint32_t row) {
    uint64_t cell = table->columns[TABLE_CUSTOM_ID].cells[row];
    if (table_kind(cell) != CELL_TEXT) return (struct id){table_payload(cell), true};
    return (struct id){table->texts[table_payload(cell)].hash, false};
}

static bool is_same_id(struct id a, struct id b) {
    return ((a.hash ^ b.hash) & (a.is_long || b.is_long ? HASH_BITS : UINT64_MAX)) == 0;
}

void table_note_id(struct table *table, uint32_t row) {
    size_t at = (size_t)id_of(table, row).hash & (table->id_slots - 1);
    while (table->ids[at]) at = (at + 1) & (table->id_slots - 1);
    table->ids[at] = row + 1;
}

static uint32_t find_id(const struct table *table, struct id wanted) {
    for (size_t at = (size_t)wanted.hash;; at++) {
        uint32_t slot = table->ids[at & (table->id_slots - 1)];
        if (!slot) return TABLE_NO_ROW;
        if (is_same_id(id_of(table, slot - 1), wanted)) return slot - 1;
    }
}

uint32_t table_find_id(const struct table *table, struct str custom_id) {
    return find_id(table, (struct id){hash_of(table, custom_id), false});
}

uint32_t table_match_id(const struct table *table, const struct table *other, uint32_t row) {
    struct id wanted = id_of(table, row);
    /* Runs of one file have a custom_id on the same line. */
    if (row < other->row_count && other->sequences[row] && is_same_id(id_of(other, row), wanted))
        return row;
    return find_id(other, wanted);
}

/* --- cells --- */

double table_number(uint64_t cell) {
    double number;
    uint64_t bits = cell ^ NAN_TAG;
    memcpy(&number, &bits, sizeof number);
    return number;
}

void table_set_number(struct table *table, uint32_t row, uint32_t column, double number) {
    uint64_t bits;
    if (number == 0) number = 0; /* and not -0, which would be another value */
    memcpy(&bits, &number, sizeof bits);
    table->columns[column].cells[row] = bits ^ NAN_TAG;
}

void table_set_bool(struct table *table, uint32_t row, uint32_t column, bool value) {
    table->columns[column].cells[row] = TAG_BOOL | (value ? 1 : 0);
}

void table_set_text(struct table *table, uint32_t row, uint32_t column, struct str text) {
    uint64_t hash = hash_of(table, text);
    uint32_t number = text.bytes <= TABLE_TEXT_BYTES ? add_text(table, text, hash) : 0;
    table->columns[column].cells[row] = number ? TAG_TEXT | number : TAG_LONG | (hash & HASH_BITS);
}

static void add_number(struct table *table, uint32_t number) {
    table->lists =
        vec_grow(table->lists, table->list_count, &table->list_capacity, sizeof *table->lists);
    table->lists[table->list_count++] = number;
}

/* The numbers of different texts; returns their count, and counts the texts that have no room. */
static size_t list_numbers(struct table *table, const struct str *texts, size_t count,
                           uint32_t ret_numbers[TABLE_LIST_MAX]) {
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t number = 0;
        size_t at = 0;
        if (texts[i].bytes <= TABLE_TEXT_BYTES)
            number = add_text(table, texts[i], hash_of(table, texts[i]));
        while (at < used && ret_numbers[at] != number) at++;
        if (number && at < used) continue;
        if (!number || used == TABLE_LIST_MAX)
            table->left_out++;
        else
            ret_numbers[used++] = number;
    }
    return used;
}

void table_set_list(struct table *table, uint32_t row, uint32_t column, const struct str *texts,
                    size_t count) {
    uint32_t numbers[TABLE_LIST_MAX];
    size_t used = list_numbers(table, texts, count, numbers);
    if (table->list_count == 0) add_number(table, 0); /* list 0 is not used */
    if (used == 0) return;
    if (table->list_count + used + 1 > LISTS_MAX) {
        table->left_out += used;
        return;
    }
    table->columns[column].cells[row] = TAG_LIST | table->list_count;
    add_number(table, (uint32_t)used);
    for (size_t i = 0; i < used; i++) add_number(table, numbers[i]);
}

const uint32_t *table_list(const struct table *table, uint64_t cell, size_t *ret_count) {
    const uint32_t *list = &table->lists[table_payload(cell)];
    *ret_count = list[0];
    return list + 1;
}

void table_clear_row(struct table *table, uint32_t row) {
    for (uint32_t i = 0; i < table->column_count; i++) table->columns[i].cells[row] = 0;
}

struct cell_value table_cell(const struct table *table, uint64_t cell) {
    struct cell_value found = {.kind = table_kind(cell)};
    switch (found.kind) {
    case CELL_ABSENT: break;
    case CELL_NUMBER: found.number = table_number(cell); break;
    case CELL_BOOL: found.number = (double)(cell & 1); break;
    case CELL_TEXT: found.text = table->texts[table_payload(cell)].text; break;
    case CELL_LONG:
    case CELL_LIST: break;
    }
    return found;
}
