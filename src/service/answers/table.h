/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* table: rows and columns of one index, and the dictionary of its texts.
 *
 * Row i is line i of the batch, so that an order by line needs no sort. A cell has 8 bytes: a
 * number as it is, or a NaN whose payload is a truth value, the number of a text in the dictionary,
 * or the hash of a long text. An absent cell is 0 in memory. Columns are made with room for all
 * rows and zeroed by the kernel, so that a column that few answers have takes the pages of those
 * rows only.
 *
 * The table is bounded whatever the answers are: in columns, in bytes of a name, in bytes of a kept
 * text, in texts. A value that has no room is left out and counted.
 *
 * Thread: one writer and no reader, or readers: `rows` of struct answers_index is their lock.
 * Memory: its own; table_release frees it. The bytes of a text and of a name never move.
 * Invariant: equal short texts have the same number, unless the dictionary is full. */

#include "answers/answers.h"
#include "base/arena.h"

#define TABLE_COLUMNS_MAX 64
#define TABLE_BYTES_MAX ((size_t)256 << 20) /* limit for cells; 1,000,000 lines have 33 columns */
#define TABLE_NAME_BYTES 96                 /* a field with a longer name is left out */
#define TABLE_TEXT_BYTES 96                 /* a longer text is kept as its hash */
#define TABLE_LIST_MAX 32                   /* different values of one array */
#define TABLE_NO_COLUMN UINT32_MAX
#define TABLE_NO_ROW UINT32_MAX

/* The columns that every table has, in this order. */
enum table_fixed {
    TABLE_CUSTOM_ID,
    TABLE_OUTCOME,
    TABLE_STATUS,
    TABLE_PROMPT_TOKENS,
    TABLE_COMPLETION_TOKENS,
    TABLE_CHARACTERS,
    TABLE_ENTROPY,
    TABLE_FIXED_COUNT
};
extern const char *const table_fixed_names[TABLE_FIXED_COUNT];

struct table_column {
    struct str name;
    uint64_t *cells; /* (row_count) */
};

struct table_text {
    struct str text;
    uint64_t hash;
};

struct table {
    uint32_t row_count;
    uint32_t indexed;    /* rows that have a sequence */
    uint32_t *sequences; /* (row_count) number of the line's record; 0: no row yet */
    uint64_t *labels;    /* (row_count) hash of the line's answer (record.h); 0: it has none */
    uint32_t *ids;       /* row + 1 by the hash of its custom_id; 0: free */
    size_t id_slots;     /* slots in `ids`, a power of 2 */
    struct table_column columns[TABLE_COLUMNS_MAX];
    uint32_t column_count, columns_max;
    uint64_t left_out; /* values that had no room */
    /* The dictionary; text 0 is not used. */
    struct table_text *texts;
    size_t text_count, text_capacity;
    uint32_t *slots; /* numbers of texts, by hash; 0: free */
    size_t slot_count;
    uint32_t *lists; /* lists of texts: a count, then their numbers; list 0 is not used */
    size_t list_count, list_capacity;
    struct arena bytes;       /* holds texts and names */
    const unsigned char *key; /* key for the hash, 16 bytes; borrowed */
};

void table_init(struct table *table, uint32_t row_count, const unsigned char *key);
void table_release(struct table *table);
size_t table_bytes(const struct table *table); /* the most that it can take by now */

/* The column of a name, which is made if there is room; TABLE_NO_COLUMN if there is none.
 * `hint` is tried first. */
uint32_t table_column_of(struct table *table, struct str name, uint32_t hint);
uint32_t table_find_column(const struct table *table, struct str name);

void table_set_number(struct table *table, uint32_t row, uint32_t column, double number);
void table_set_bool(struct table *table, uint32_t row, uint32_t column, bool value);
void table_set_text(struct table *table, uint32_t row, uint32_t column, struct str text);
/* Sets the cell to texts. Those without room are left out and counted: texts of more than
 * TABLE_TEXT_BYTES, and those behind TABLE_LIST_MAX. Texts may be there twice. */
void table_set_list(struct table *table, uint32_t row, uint32_t column, const struct str *texts,
                    size_t count);
/* Empties the row: its line has run again. */
void table_clear_row(struct table *table, uint32_t row);

/* --- custom_ids --- */

/* Notes the custom_id of a new row, whose cell is set. */
void table_note_id(struct table *table, uint32_t row);
/* The row with this custom_id; TABLE_NO_ROW if there is none. Custom_ids are compared by their
 * keyed hashes: 64 bits, or 48 bits of a long text. */
uint32_t table_find_id(const struct table *table, struct str custom_id);
/* The row that has the custom_id of `row` in another table with the same key. */
uint32_t table_match_id(const struct table *table, const struct table *other, uint32_t row);

/* --- cells --- */

enum cell_kind {
    CELL_ABSENT, /* the line has no result yet, or its answer lacks the field, or has null */
    CELL_NUMBER,
    CELL_BOOL, /* `number` is 1 or 0 */
    CELL_TEXT,
    CELL_LONG, /* a text over TABLE_TEXT_BYTES: its hash alone is kept */
    CELL_LIST, /* texts of the dictionary, each once: the values of an array */
};

struct cell_value {
    enum cell_kind kind;
    double number;
    struct str text;
};

static inline enum cell_kind table_kind(uint64_t cell) {
    static const enum cell_kind kinds[8] = {CELL_ABSENT, CELL_TEXT, CELL_LONG, CELL_BOOL,
                                            CELL_LIST};
    return cell >> 51 ? CELL_NUMBER : kinds[cell >> 48 & 7];
}

static inline uint64_t table_payload(uint64_t cell) {
    return cell & 0xFFFFFFFFFFFFu;
}

double table_number(uint64_t cell);
struct cell_value table_cell(const struct table *table, uint64_t cell);
/* The texts of a CELL_LIST by their numbers. */
const uint32_t *table_list(const struct table *table, uint64_t cell, size_t *ret_count);
/* The number of a text; 0 if no cell has it. */
uint32_t table_find_text(const struct table *table, struct str text);
/* The 48 bits by which a long text is known. */
uint64_t table_hash(const struct table *table, struct str text);
