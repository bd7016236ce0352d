/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* query: filters, the order of rows, and cursors over one table.
 *
 * It knows rows and cells only. A search in texts, or a long text, needs the result itself: the row
 * then counts as one that fits, and find.c reads the result.
 *
 * Thread: any; the caller holds the lock of the table's rows.
 * Memory: a filter with ANSWERS_HAS has one byte per text of the dictionary; the caller owns the
 *     keys of first_rows.
 * Invariant: the keys of two rows differ, because a key has the line. */

#include "answers/table.h"
#include "answers/text_search.h"

struct filter {
    const struct answers_filter *from;
    uint32_t column; /* TABLE_NO_COLUMN: every row lacks the field */
    bool is_line;    /* ".line", which has no column */
    bool is_number;
    double number;
    int boolean;          /* 1, 0, or -1 for any other value */
    uint32_t text;        /* number of the value in the dictionary; 0: absent */
    uint64_t hash;        /* hash of the value, for long texts */
    unsigned char *known; /* ANSWERS_HAS, per text: 0 not looked at, 1 no, 2 yes */
    struct text_search *search;
    uint64_t *steps; /* bytes of texts that all filters may still look at */
};

/* `steps` must outlive the filter. After them, the result of a row with a text must be read. */
void filter_open(struct filter *ret_filter, const struct answers_filter *from,
                 const struct table *table, uint64_t *steps);
void filter_release(struct filter *filter);

struct order {
    bool is_line;
    bool descending;
    uint32_t column; /* unless is_line; TABLE_NO_COLUMN: every row lacks the field */
};

/* The place of a row in an order. */
struct order_key {
    enum cell_kind kind;
    double number;
    struct str text; /* borrowed */
    uint32_t line;
};

/* The first rows of an order that fit all filters. */
struct first_rows {
    const struct order *order;
    size_t room;
    struct order_key *keys; /* (room) */
    size_t count;
    const struct answers_marks *marks;
    uint64_t matched; /* rows that fit, in the whole table */
    uint64_t unseen;  /* rows of `matched` that are not marked as seen */
    uint64_t behind;  /* rows for this page and later ones */
    bool has_unknown; /* for one of the rows, a result must be read */
};

/* Finds the rows behind `after` (NULL: from the start) that fit. */
void first_rows_find(struct first_rows *first, const struct table *table, struct filter *filters,
                     size_t filter_count, const struct order_key *after);

/* The key of a row that exists. */
struct order_key order_key_of(const struct order *order, const struct table *table, uint32_t row);

void cursor_write(struct buf *buf, const struct order *order, const struct order_key *key);
/* False if the text is no cursor of this order. `room` keeps the text of the key. */
bool cursor_read(struct str text, const struct order *order, struct buf *room,
                 struct order_key *ret_key);
