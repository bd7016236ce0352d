/* SPDX-License-Identifier: Apache-2.0 */

/* Pages of rows. One pass over the columns counts the rows that fit and keeps the first ones by the
 * order of the query in a heap, so that a page costs no sort. A cursor holds the value and the line
 * of the last row, so that it stays right while rows come in, and after the index was made
 * again. */

#include "answers/query.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- filters --- */

/* Unknown: the result must be read, for a long text or after the steps of a pass. */
enum filter_end { FILTER_NO, FILTER_YES, FILTER_UNKNOWN };

static bool read_double(struct str text, double *ret_number) {
    char copy[64], *end;
    if (text.bytes == 0 || text.bytes >= sizeof copy) return false;
    for (size_t i = 0; i < text.bytes; i++) /* excludes "inf", "0x10" and spaces */
        if (!strchr("+-.0123456789eE", text.at[i]) || !text.at[i]) return false;
    memcpy(copy, text.at, text.bytes);
    copy[text.bytes] = '\0';
    *ret_number = strtod(copy, &end);
    return *end == '\0';
}

void filter_open(struct filter *ret_filter, const struct answers_filter *from,
                 const struct table *table, uint64_t *steps) {
    struct filter filter = {
        .from = from, .column = table_find_column(table, from->name), .steps = steps};
    filter.is_line = str_is(from->name, ".line");
    filter.is_number = read_double(from->value, &filter.number);
    filter.text = table_find_text(table, from->value);
    filter.hash = table_hash(table, from->value);
    filter.boolean = str_is(from->value, "true") ? 1 : str_is(from->value, "false") ? 0 : -1;
    if (from->op == ANSWERS_HAS) {
        filter.known = mem_new(table->text_count + 1, 1);
        text_search_open(&filter.search, from->value);
    }
    *ret_filter = filter;
}

void filter_release(struct filter *filter) {
    free(filter->known);
    text_search_close(filter->search);
}

static bool has_end(enum answers_op op, int order) {
    switch (op) {
    case ANSWERS_LT: return order < 0;
    case ANSWERS_LE: return order <= 0;
    case ANSWERS_GT: return order > 0;
    case ANSWERS_GE: return order >= 0;
    case ANSWERS_EQ: return order == 0;
    case ANSWERS_NE: return order != 0;
    default: return false;
    }
}

static bool number_fits(const struct filter *filter, double number) {
    if (!filter->is_number) return filter->from->op == ANSWERS_NE;
    return has_end(filter->from->op, (number > filter->number) - (number < filter->number));
}

/* Whether the text contains the value. The answer is kept per text of the dictionary, because many
 * rows have the same text. */
static enum filter_end text_has(struct filter *filter, const struct table *table, uint64_t number) {
    unsigned char *known = &filter->known[number];
    struct str text = table->texts[number].text;
    if (!*known) {
        if (*filter->steps < text.bytes) return FILTER_UNKNOWN;
        *filter->steps -= text.bytes;
        *known = text_search_finds(filter->search, text) ? 2 : 1;
    }
    return *known == 2 ? FILTER_YES : FILTER_NO;
}

static bool text_fits(struct filter *filter, const struct table *table, uint64_t number) {
    enum answers_op op = filter->from->op;
    if (op == ANSWERS_EQ || op == ANSWERS_NE)
        return (filter->text != 0 && filter->text == number) == (op == ANSWERS_EQ);
    if (filter->is_number) return false;
    return has_end(op, str_compare(table->texts[number].text, filter->from->value));
}

/* Whether one of the texts of a list fits; "is not" holds if none is equal. */
static enum filter_end list_fits(struct filter *filter, const struct table *table, uint64_t cell) {
    enum answers_op op = filter->from->op;
    enum filter_end end = FILTER_NO;
    size_t count;
    const uint32_t *list = table_list(table, cell, &count);
    if (op != ANSWERS_EQ && op != ANSWERS_NE && op != ANSWERS_HAS) return FILTER_NO;
    for (size_t i = 0; i < count; i++) {
        enum filter_end one = FILTER_NO;
        if (op == ANSWERS_HAS)
            one = text_has(filter, table, list[i]);
        else if (filter->text != 0 && filter->text == list[i])
            one = FILTER_YES;
        if (one == FILTER_YES) return op == ANSWERS_NE ? FILTER_NO : FILTER_YES;
        if (one == FILTER_UNKNOWN) end = FILTER_UNKNOWN;
    }
    return op == ANSWERS_NE ? FILTER_YES : end;
}

static enum filter_end cell_fits(struct filter *filter, const struct table *table, uint64_t cell) {
    enum answers_op op = filter->from->op;
    bool fits = false;
    switch (table_kind(cell)) {
    case CELL_ABSENT: fits = op == ANSWERS_IS_NULL; break;
    case CELL_NUMBER: fits = number_fits(filter, table_number(cell)); break;
    case CELL_TEXT:
        if (op == ANSWERS_HAS) return text_has(filter, table, table_payload(cell));
        fits = text_fits(filter, table, table_payload(cell));
        break;
    case CELL_BOOL:
        if (op == ANSWERS_EQ || op == ANSWERS_NE)
            fits = (filter->boolean == (int)(cell & 1)) == (op == ANSWERS_EQ);
        break;
    case CELL_LIST: return list_fits(filter, table, cell);
    case CELL_LONG:
        if (op == ANSWERS_HAS) return FILTER_UNKNOWN;
        if (op == ANSWERS_EQ || op == ANSWERS_NE)
            fits = (table_payload(cell) == filter->hash) == (op == ANSWERS_EQ);
        break;
    }
    return fits ? FILTER_YES : FILTER_NO;
}

/* Decides whether a row fits all filters; FILTER_UNKNOWN if its result must be read first. */
static enum filter_end row_fits(struct filter *filters, size_t count, const struct table *table,
                                uint32_t row) {
    enum filter_end end = FILTER_YES;
    for (size_t i = 0; i < count; i++) {
        struct filter *filter = &filters[i];
        enum filter_end one;
        if (filter->is_line)
            one = number_fits(filter, (double)row + 1) ? FILTER_YES : FILTER_NO;
        else if (filter->column == TABLE_NO_COLUMN)
            one = filter->from->op == ANSWERS_IS_NULL ? FILTER_YES : FILTER_NO;
        else
            one = cell_fits(filter, table, table->columns[filter->column].cells[row]);
        if (one == FILTER_NO) return FILTER_NO;
        if (one == FILTER_UNKNOWN) end = FILTER_UNKNOWN;
    }
    return end;
}

/* --- order --- */

/* The kinds in the order of a sort: numbers, truth values, texts, long texts, lists; absent ones
 * last. */
static int rank_of(enum cell_kind kind) {
    static const int ranks[] = {[CELL_NUMBER] = 0, [CELL_BOOL] = 1, [CELL_TEXT] = 2,
                                [CELL_LONG] = 3,   [CELL_LIST] = 4, [CELL_ABSENT] = 5};
    return ranks[kind];
}

static int compare(const struct order_key *a, const struct order_key *b, bool descending) {
    int rank_a = rank_of(a->kind), rank_b = rank_of(b->kind), order = 0;
    if (rank_a != rank_b) {
        order = rank_a < rank_b ? -1 : 1;
        bool is_last = a->kind == CELL_ABSENT || b->kind == CELL_ABSENT;
        return descending && !is_last ? -order : order;
    }
    if (a->kind == CELL_NUMBER || a->kind == CELL_BOOL)
        order = (a->number > b->number) - (a->number < b->number);
    else if (a->kind == CELL_TEXT)
        order = str_compare(a->text, b->text);
    if (order != 0) return descending ? -order : order;
    return (a->line > b->line) - (a->line < b->line);
}

struct order_key order_key_of(const struct order *order, const struct table *table, uint32_t row) {
    struct order_key key = {.kind = CELL_NUMBER, .number = (double)row + 1, .line = row};
    if (order->is_line) return key;
    uint64_t cell = order->column == TABLE_NO_COLUMN ? 0 : table->columns[order->column].cells[row];
    struct cell_value found = table_cell(table, cell);
    return (struct order_key){found.kind, found.number, found.text, row};
}

/* --- the first rows --- */

static void sift_down(struct first_rows *first, size_t at) {
    for (;;) {
        size_t largest = at, left = 2 * at + 1, right = left + 1;
        bool down = first->order->descending;
        if (left < first->count && compare(&first->keys[left], &first->keys[largest], down) > 0)
            largest = left;
        if (right < first->count && compare(&first->keys[right], &first->keys[largest], down) > 0)
            largest = right;
        if (largest == at) return;
        struct order_key kept = first->keys[at];
        first->keys[at] = first->keys[largest];
        first->keys[largest] = kept;
        at = largest;
    }
}

static void sift_up(struct first_rows *first, size_t at) {
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (compare(&first->keys[at], &first->keys[parent], first->order->descending) <= 0) return;
        struct order_key kept = first->keys[at];
        first->keys[at] = first->keys[parent];
        first->keys[parent] = kept;
        at = parent;
    }
}

/* Keeps the key if it is one of the first `room`. */
static void keep(struct first_rows *first, const struct order_key *key) {
    if (first->count < first->room) {
        first->keys[first->count] = *key;
        sift_up(first, first->count++);
    } else if (first->room > 0 && compare(key, &first->keys[0], first->order->descending) < 0) {
        first->keys[0] = *key;
        sift_down(first, 0);
    }
}

/* Turns the heap into a list in the order of the query. */
static void put_in_order(struct first_rows *first) {
    size_t count = first->count;
    while (first->count > 1) {
        struct order_key last = first->keys[0];
        first->keys[0] = first->keys[--first->count];
        sift_down(first, 0);
        first->keys[first->count] = last;
    }
    first->count = count;
}

static bool is_marked(const unsigned char *marks, uint32_t row, uint32_t count, bool otherwise) {
    return marks ? row < count && marks[row] : otherwise;
}

void first_rows_find(struct first_rows *first, const struct table *table, struct filter *filters,
                     size_t filter_count, const struct order_key *after) {
    const struct answers_marks *marks = first->marks;
    first->count = first->matched = first->unseen = first->behind = 0;
    first->has_unknown = false;
    for (uint32_t row = 0; row < table->row_count; row++) {
        if (!table->sequences[row] || !is_marked(marks->only, row, marks->count, true)) continue;
        enum filter_end end = row_fits(filters, filter_count, table, row);
        if (end == FILTER_NO) continue;
        bool is_seen = is_marked(marks->seen, row, marks->count, false);
        first->matched++;
        first->unseen += !is_seen;
        if (is_seen && !marks->shows_seen) continue;
        if (end == FILTER_UNKNOWN) first->has_unknown = true;
        struct order_key key = order_key_of(first->order, table, row);
        if (after && compare(&key, after, first->order->descending) <= 0) continue;
        first->behind++;
        keep(first, &key);
    }
    put_in_order(first);
}

/* --- cursors: "<line>" and, unless the order is by line, ".<kind><value>" --- */

void cursor_write(struct buf *buf, const struct order *order, const struct order_key *key) {
    uint64_t bits;
    buf_printf(buf, "%" PRIu32, key->line + 1);
    if (order->is_line) return;
    switch (key->kind) {
    case CELL_ABSENT: buf_add_text(buf, ".a"); break;
    case CELL_LONG: buf_add_text(buf, ".l"); break;
    case CELL_LIST: buf_add_text(buf, ".s"); break;
    case CELL_NUMBER:
    case CELL_BOOL:
        memcpy(&bits, &key->number, sizeof bits);
        buf_printf(buf, ".%c%016" PRIx64, key->kind == CELL_NUMBER ? 'n' : 'b', bits);
        break;
    case CELL_TEXT:
        buf_add_text(buf, ".t");
        for (size_t i = 0; i < key->text.bytes; i++)
            buf_printf(buf, "%02x", (unsigned char)key->text.at[i]);
        break;
    }
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(struct str text, struct buf *buf) {
    if (text.bytes % 2 != 0) return false;
    for (size_t i = 0; i < text.bytes; i += 2) {
        int high = hex_digit(text.at[i]), low = hex_digit(text.at[i + 1]);
        if (high < 0 || low < 0) return false;
        buf_add_byte(buf, (char)(high << 4 | low));
    }
    return true;
}

static bool read_bits(struct str text, struct buf *buf, double *ret_number) {
    uint64_t bits = 0;
    if (text.bytes != 16 || !read_hex(text, buf)) return false;
    for (size_t i = 0; i < 8; i++) bits = bits << 8 | (unsigned char)buf->at[i];
    memcpy(ret_number, &bits, sizeof *ret_number);
    return *ret_number - *ret_number == 0; /* finite */
}

bool cursor_read(struct str text, const struct order *order, struct buf *room,
                 struct order_key *ret_key) {
    uint64_t line;
    size_t dot = str_find_byte(text, '.', 0);
    struct str number = {text.at, dot == SIZE_MAX ? text.bytes : dot};
    if (!str_to_u64(number, &line) || line < 1 || line >= ANSWERS_NO_LINE) return false;
    *ret_key = (struct order_key){CELL_NUMBER, (double)line, {NULL, 0}, (uint32_t)line - 1};
    if (order->is_line || dot == SIZE_MAX) return order->is_line && dot == SIZE_MAX;
    if (dot + 2 > text.bytes) return false;
    struct str value = str_skip(text, dot + 2);
    buf_clear(room);
    switch (text.at[dot + 1]) {
    case 'a': ret_key->kind = CELL_ABSENT; return value.bytes == 0;
    case 'l': ret_key->kind = CELL_LONG; return value.bytes == 0;
    case 's': ret_key->kind = CELL_LIST; return value.bytes == 0;
    case 'n': return read_bits(value, room, &ret_key->number);
    case 'b': ret_key->kind = CELL_BOOL; return read_bits(value, room, &ret_key->number);
    case 't':
        ret_key->kind = CELL_TEXT;
        if (!read_hex(value, room)) return false;
        ret_key->text = buf_str(room);
        return true;
    default: return false;
    }
}
