/* SPDX-License-Identifier: Apache-2.0 */

/* Counts, commonest values and histograms of all columns, each in one or two passes over its
 * cells. */

#include "answers/answers_internal.h"

#include "base/mem.h"
#include "json/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DISTINCT_MAX 1000 /* further distinct values are not counted */
#define DISTINCT_SLOTS 4096
#define VALUES_MAX 50
#define BARS 20
#define SQUEEZED_SHARE 0.9 /* share of the numbers in one bar */
#define PASSES_MAX 6u      /* over a column, for its bars */

void number_write(struct buf *buf, double number) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    buf_add_text(buf, text);
}

/* Counts of one pass over a column. */
struct counted {
    uint64_t numbers, booleans, texts, longs, lists;
    uint64_t trues;
    double least, most, sum;
    /* Distinct values other than short texts: a set of cells. */
    uint64_t slots[DISTINCT_SLOTS];
    uint32_t distinct;
    uint32_t *text_counts; /* (text_count) rows per text */
};

static void note_distinct(struct counted *counted, uint64_t cell) {
    if (counted->distinct > DISTINCT_MAX) return;
    size_t at = (size_t)((cell * 0x9E3779B97F4A7C15u) >> 52); /* 12 bits: DISTINCT_SLOTS */
    while (counted->slots[at] && counted->slots[at] != cell) at = (at + 1) % DISTINCT_SLOTS;
    if (counted->slots[at]) return;
    counted->slots[at] = cell;
    counted->distinct++;
}

static void count_number(struct counted *counted, double number) {
    if (counted->numbers == 0 || number < counted->least) counted->least = number;
    if (counted->numbers == 0 || number > counted->most) counted->most = number;
    counted->sum += number;
    counted->numbers++;
}

static void count_list(struct counted *counted, const struct table *table, uint64_t cell) {
    size_t count;
    const uint32_t *list = table_list(table, cell, &count);
    counted->lists++;
    for (size_t i = 0; i < count; i++) counted->text_counts[list[i]]++;
}

static void count_cells(struct counted *counted, const struct table *table, const uint64_t *cells) {
    uint32_t count = table->row_count;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t cell = cells[i];
        switch (table_kind(cell)) {
        case CELL_ABSENT: continue;
        case CELL_NUMBER: count_number(counted, table_number(cell)); break;
        case CELL_BOOL:
            counted->booleans++;
            counted->trues += cell & 1;
            break;
        case CELL_TEXT:
            counted->texts++;
            counted->text_counts[table_payload(cell)]++;
            continue;
        case CELL_LIST: count_list(counted, table, cell); continue;
        case CELL_LONG: counted->longs++; break;
        }
        note_distinct(counted, cell);
    }
}

/* --- values --- */

struct value_count {
    uint32_t text; /* 0: a truth value */
    bool boolean;
    uint64_t count;
};

/* Keeps the commonest values, commonest first; between equally common ones, the first wins. */
static size_t keep_value(struct value_count values[VALUES_MAX], size_t count,
                         const struct value_count *value) {
    size_t at = count;
    while (at > 0 && values[at - 1].count < value->count) at--;
    if (at == VALUES_MAX) return count;
    size_t kept = count < VALUES_MAX ? count : VALUES_MAX - 1;
    memmove(&values[at + 1], &values[at], (kept - at) * sizeof *values);
    values[at] = *value;
    return kept + 1;
}

/* Finds the commonest values. *ret_distinct becomes the number of distinct short texts. */
static size_t find_values(const struct counted *counted, size_t text_count,
                          struct value_count ret_values[VALUES_MAX], uint64_t *ret_distinct) {
    size_t count = 0;
    *ret_distinct = 0;
    for (int boolean = 0; boolean < 2; boolean++) {
        uint64_t rows = boolean ? counted->trues : counted->booleans - counted->trues;
        if (rows > 0)
            count = keep_value(ret_values, count, &(struct value_count){0, boolean != 0, rows});
    }
    for (size_t i = 1; i < text_count && counted->texts + counted->lists > 0; i++) {
        if (counted->text_counts[i] == 0) continue;
        ++*ret_distinct;
        count = keep_value(ret_values, count,
                           &(struct value_count){(uint32_t)i, false, counted->text_counts[i]});
    }
    return count;
}

static void write_values(struct buf *buf, const struct table *table,
                         const struct value_count *values, size_t count) {
    buf_add_text(buf, ",\"values\":[");
    for (size_t i = 0; i < count; i++) {
        buf_add_text(buf, i > 0 ? ",{\"value\":" : "{\"value\":");
        if (values[i].text)
            json_write_string(buf, table->texts[values[i].text].text);
        else
            buf_add_text(buf, values[i].boolean ? "true" : "false");
        buf_printf(buf, ",\"count\":%" PRIu64 "}", values[i].count);
    }
    buf_add_byte(buf, ']');
}

/* --- numbers --- */

/* The bars of a histogram: `edges` of equally wide ones, and one bar each for values outside of
 * them, if is_below or is_above is set. */
struct bars {
    double edges[BARS + 1];
    bool is_below, is_above;
    uint64_t counts[BARS];
    double least[BARS], most[BARS]; /* the ends of the numbers in a bar that has any */
};

static void set_edges(struct bars *bars, const struct counted *counted, double from, double to) {
    size_t first, end;
    bars->is_below = from > counted->least;
    bars->is_above = to < counted->most;
    first = bars->is_below ? 1 : 0;
    end = bars->is_above ? BARS - 1 : BARS;
    /* A number equal to the last edge belongs to the bar behind it, as to a filter. */
    if (bars->is_above) to = nextafter(to, INFINITY);
    for (size_t i = first; i <= end; i++)
        bars->edges[i] = from + (to - from) * ((double)(i - first) / (double)(end - first));
    bars->edges[end] = to;
    if (bars->is_below) bars->edges[0] = counted->least;
    if (bars->is_above) bars->edges[BARS] = counted->most;
}

static size_t bar_of(const struct bars *bars, double number) {
    size_t low = 0, high = BARS - 1;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (number >= bars->edges[middle])
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void count_bars(struct bars *bars, const uint64_t *cells, uint32_t count) {
    memset(bars->counts, 0, sizeof bars->counts);
    for (uint32_t i = 0; i < count; i++) {
        if (table_kind(cells[i]) != CELL_NUMBER) continue;
        double number = table_number(cells[i]);
        size_t bar = bar_of(bars, number);
        bool is_first = bars->counts[bar]++ == 0;
        if (is_first || number < bars->least[bar]) bars->least[bar] = number;
        if (is_first || number > bars->most[bar]) bars->most[bar] = number;
    }
}

/* The bar of the histogram's scale that has so many of the numbers that it hides how they are
 * spread; BARS if there is none. One value alone hides nothing. */
static size_t squeezed_bar(const struct bars *bars, uint64_t numbers) {
    size_t end = bars->is_above ? BARS - 1 : BARS;
    for (size_t i = bars->is_below ? 1 : 0; i < end; i++)
        if ((double)bars->counts[i] > SQUEEZED_SHARE * (double)numbers &&
            bars->most[i] > bars->least[i])
            return i;
    return BARS;
}

/* Counts the bars, and again within the one that has nearly all numbers: a few that are far away
 * then have an outer bar, and squeeze the others into one no more. */
static void fill_bars(struct bars *bars, const struct counted *counted, const uint64_t *cells,
                      uint32_t count) {
    double from = counted->least, to = counted->most;
    for (unsigned pass = 0; pass < PASSES_MAX; pass++) {
        set_edges(bars, counted, from, to);
        count_bars(bars, cells, count);
        size_t bar = squeezed_bar(bars, counted->numbers);
        if (bar == BARS) return;
        from = bars->least[bar];
        to = bars->most[bar];
    }
}

static void write_histogram(struct buf *buf, const struct counted *counted, const uint64_t *cells,
                            uint32_t count) {
    struct bars bars;
    fill_bars(&bars, counted, cells, count);
    buf_add_text(buf, ",\"histogram\":{\"from\":");
    number_write(buf, counted->least);
    buf_add_text(buf, ",\"to\":");
    number_write(buf, counted->most);
    buf_add_text(buf, ",\"counts\":[");
    for (size_t i = 0; i < BARS; i++)
        buf_printf(buf, "%s%" PRIu64, i > 0 ? "," : "", bars.counts[i]);
    buf_add_text(buf, "],\"edges\":[");
    for (size_t i = 0; i <= BARS; i++) {
        if (i > 0) buf_add_byte(buf, ',');
        number_write(buf, bars.edges[i]);
    }
    buf_printf(buf, "],\"is_clipped_below\":%s,\"is_clipped_above\":%s}",
               bars.is_below ? "true" : "false", bars.is_above ? "true" : "false");
}

static void write_numbers(struct buf *buf, const struct counted *counted, const uint64_t *cells,
                          uint32_t count) {
    double mean = counted->sum / (double)counted->numbers;
    buf_add_text(buf, ",\"min\":");
    number_write(buf, counted->least);
    buf_add_text(buf, ",\"max\":");
    number_write(buf, counted->most);
    buf_add_text(buf, ",\"mean\":");
    if (isfinite(mean))
        number_write(buf, mean);
    else
        buf_add_text(buf, "null"); /* the sum overflowed */
    if (isfinite(counted->most - counted->least)) write_histogram(buf, counted, cells, count);
}

/* --- fields --- */

static const char *type_of(const struct counted *counted) {
    uint64_t texts = counted->texts + counted->longs;
    if ((texts > 0) + (counted->numbers > 0) + (counted->booleans > 0) + (counted->lists > 0) > 1)
        return "mixed";
    if (counted->lists > 0) return "array";
    return texts ? "string" : counted->numbers ? "number" : "boolean";
}

/* Appends the object of a column; nothing if no row has the field. */
static bool write_column(struct buf *buf, const struct table *table, uint32_t column,
                         struct counted *counted, bool is_first) {
    struct value_count values[VALUES_MAX];
    uint64_t texts;
    uint32_t *text_counts = counted->text_counts;
    const uint64_t *cells = table->columns[column].cells;
    memset(counted, 0, sizeof *counted);
    memset(text_counts, 0, table->text_count * sizeof *text_counts);
    counted->text_counts = text_counts;
    count_cells(counted, table, cells);
    uint64_t count =
        counted->numbers + counted->booleans + counted->texts + counted->longs + counted->lists;
    if (count == 0) return false;
    size_t value_count = find_values(counted, table->text_count, values, &texts);
    buf_add_text(buf, is_first ? "{\"name\":" : ",{\"name\":");
    json_write_string(buf, table->columns[column].name);
    buf_printf(buf, ",\"type\":\"%s\",\"count\":%" PRIu64, type_of(counted), count);
    if (counted->distinct + texts <= DISTINCT_MAX)
        buf_printf(buf, ",\"distinct\":%" PRIu64, counted->distinct + texts);
    else
        buf_add_text(buf, ",\"distinct\":null");
    if (counted->texts + counted->lists + counted->booleans > 0 && column != TABLE_CUSTOM_ID)
        write_values(buf, table, values, value_count);
    if (counted->numbers > 0) write_numbers(buf, counted, cells, table->row_count);
    buf_add_byte(buf, '}');
    return true;
}

void answers_write_summary(struct buf *buf, struct answers_index *index) {
    bool is_first = true;
    buf_add_byte(buf, '[');
    pthread_rwlock_rdlock(&index->rows);
    if (index->has_table) {
        const struct table *table = &index->table;
        struct counted *counted = mem_new(1, sizeof *counted);
        counted->text_counts = mem_alloc(table->text_count * sizeof *counted->text_counts);
        for (uint32_t i = 0; i < table->column_count; i++)
            if (write_column(buf, table, i, counted, is_first)) is_first = false;
        free(counted->text_counts);
        free(counted);
    }
    pthread_rwlock_unlock(&index->rows);
    buf_add_byte(buf, ']');
}

uint64_t answers_left_out(struct answers_index *index) {
    pthread_rwlock_rdlock(&index->rows);
    uint64_t left_out = index->has_table ? index->table.left_out : 0;
    pthread_rwlock_unlock(&index->rows);
    return left_out;
}

size_t answers_names(struct answers_index *index, struct arena *arena, struct str *ret_names,
                     size_t most) {
    size_t count = 0;
    pthread_rwlock_rdlock(&index->rows);
    uint32_t columns = index->has_table ? index->table.column_count : 0;
    for (uint32_t i = TABLE_FIXED_COUNT; i < columns && count < most; i++) {
        ret_names[count] = arena_copy(arena, index->table.columns[i].name);
        if (ret_names[count].at) count++;
    }
    pthread_rwlock_unlock(&index->rows);
    return count;
}
