/* SPDX-License-Identifier: Apache-2.0 */

/* Pages of lines, including searches and filters that need the text of results. */

#include "answers/answers_internal.h"
#include "answers/query.h"

#include "base/mem.h"
#include "json/span.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The most results that one page reads. So a search answers within a fraction of a second, and its
 * client can show the progress. */
#define SEARCH_LINES ((size_t)4096)
#define SEARCH_BYTES ((uint64_t)64 << 20)      /* each counts once more per text looked for */
#define DICTIONARY_BYTES ((uint64_t)256 << 20) /* short texts, per pass, all filters together */
#define LONG_BYTES ((size_t)16 << 20)          /* no search finds a longer result */
#define CURSOR_BYTES ((size_t)512)

/* --- one result --- */

/* The texts that a query looks for; NULL: none. */
struct searches {
    struct text_search *text;
    struct text_search *has[ANSWERS_FILTERS_MAX];
    uint32_t count;
};

static void searches_open(struct searches *searches, const struct answers_query *query) {
    *searches = (struct searches){.count = query->text.bytes > 0};
    if (query->text.bytes > 0) text_search_open(&searches->text, query->text);
    for (size_t i = 0; i < query->filter_count; i++) {
        if (query->filters[i].op != ANSWERS_HAS) continue;
        text_search_open(&searches->has[i], query->filters[i].value);
        searches->count++;
    }
}

static void searches_close(struct searches *searches) {
    text_search_close(searches->text);
    for (size_t i = 0; i < ANSWERS_FILTERS_MAX; i++) text_search_close(searches->has[i]);
}

struct checking {
    const struct answers_query *query;
    const struct searches *searches;
    struct buf *scratch;
    struct str name;  /* name of the current field */
    uint32_t fitting; /* bits of the filters with ANSWERS_HAS that fit */
};

static void check_value(struct checking *checking, struct str name,
                        const struct record_value *value) {
    for (size_t i = 0; i < checking->query->filter_count; i++) {
        const struct answers_filter *filter = &checking->query->filters[i];
        if (filter->op != ANSWERS_HAS || value->kind != RECORD_TEXT) continue;
        if (checking->fitting >> i & 1 || !str_equals(filter->name, name)) continue;
        if (text_search_finds(checking->searches->has[i], value->text))
            checking->fitting |= 1u << i;
    }
}

static void check_fixed(void *context, unsigned field, const struct record_value *value) {
    check_value(context, str_from(table_fixed_names[field]), value);
}

static void check_field(void *context, struct str name, const struct record_value *value) {
    check_value(context, name, value);
}

/* An array has a text if one of its elements does. */
static void check_array(void *context, struct str name, struct str array) {
    struct checking *checking = context;
    struct json_span_iter iter;
    struct record_value value = {.kind = RECORD_TEXT};
    struct str element;
    if (!json_span_enter(&iter, array)) return;
    while (json_span_element(&iter, &element)) {
        if (!json_span_is_string(element)) continue;
        value.text = json_span_text(element, checking->scratch);
        check_value(checking, name, &value);
    }
}

/* True if the result has the text of the search, and of all filters that ask for a text. */
static bool result_fits(const struct answers_query *query, const struct searches *searches,
                        struct record *record, struct str result) {
    struct checking checking = {.query = query, .searches = searches, .scratch = &record->scratch};
    const struct text_search *text = searches->text;
    if (!record_read(record, result)) return false;
    if (text && !text_search_finds(text, json_span_text(record->custom_id, &record->scratch)) &&
        !text_search_finds(text, record_answer(record)))
        return false;
    struct record_walk walk = {&checking, check_fixed, check_field, check_array};
    record_each(record, &walk);
    for (size_t i = 0; i < query->filter_count; i++)
        if (query->filters[i].op == ANSWERS_HAS && !(checking.fitting >> i & 1)) return false;
    return true;
}

/* --- a page --- */

/* The order of a query, without its column. */
static struct order order_of(const struct answers_query *query) {
    return (struct order){.is_line = query->sort.bytes == 0 || str_is(query->sort, ".line"),
                          .descending = query->descending};
}

struct finding {
    struct answers_index *index;
    const struct answers_query *query;
    struct order order;
    struct order_key after;
    bool has_after;
    struct buf cursor_text; /* keeps the text of `after` */
    struct first_rows first;
};

/* One pass over the rows. */
static void pass(struct finding *finding, size_t room) {
    struct filter filters[ANSWERS_FILTERS_MAX];
    const struct answers_query *query = finding->query;
    const struct table *table = &finding->index->table;
    uint64_t steps = DICTIONARY_BYTES;
    finding->order.column = table_find_column(table, query->sort);
    finding->first.order = &finding->order;
    finding->first.marks = &query->marks;
    finding->first.room = room;
    for (size_t i = 0; i < query->filter_count; i++)
        filter_open(&filters[i], &query->filters[i], table, &steps);
    first_rows_find(&finding->first, table, filters, query->filter_count,
                    finding->has_after ? &finding->after : NULL);
    for (size_t i = 0; i < query->filter_count; i++) filter_release(&filters[i]);
}

/* Ends the page behind the first `count` rows of the pass. */
static void end_page(struct finding *finding, size_t count, struct answers_page *page) {
    page->has_more = finding->first.behind > count;
    page->left = page->has_more ? finding->first.behind - count : 0;
    if (count > 0) cursor_write(&page->after, &finding->order, &finding->first.keys[count - 1]);
}

/* What a search reads with. */
struct searching {
    struct answers_reader *reader;
    struct record record;
    struct searches searches;
    struct buf result;
    uint64_t bytes; /* that it has looked at */
};

/* Reads a result; a long one in its turn. */
static enum err read_result(struct searching *searching, struct large_turn *turn, uint32_t line,
                            struct error *error) {
    struct buf *result = &searching->result;
    uint64_t bytes = 0;
    size_t most = !turn || turn->is_held ? LONG_BYTES : LARGE_SMALL_BYTES;
    buf_clear(result);
    enum err err = answers_read_result(searching->reader, line, most, result, &bytes, error);
    if (err != OK || bytes <= most || bytes > LONG_BYTES) return err;
    err = large_take(turn, error);
    if (err != OK) return err;
    return answers_read_result(searching->reader, line, LONG_BYTES, result, &bytes, error);
}

static enum err search_row(struct finding *finding, struct searching *searching, uint32_t line,
                           struct answers_page *page, struct error *error) {
    const struct answers_query *query = finding->query;
    struct large_turn *turn = query->turn;
    struct buf *result = &searching->result;
    bool had_turn = turn && turn->is_held;
    if (query->is_gone && query->is_gone(query->context))
        return err_set(error, ERR_CANCELLED, "The client has gone.");
    enum err err = read_result(searching, turn, line, error);
    if (err == ERR_CORRUPT) err = OK; /* the line runs again */
    searching->bytes += result->bytes * (searching->searches.count + 1);
    if (err == OK && result->bytes > 0 &&
        result_fits(query, &searching->searches, &searching->record, buf_str(result)))
        page->lines[page->count++] = line;
    if (turn && turn->is_held && !had_turn) {
        buf_release(result);
        record_release(&searching->record);
        record_init(&searching->record);
        large_give(turn);
    }
    return err;
}

/* Reads the results of the rows that the pass has found, until the page is full or SEARCH_BYTES are
 * read. */
static enum err search(struct finding *finding, struct answers_page *page, struct error *error) {
    struct searching searching = {.bytes = 0};
    size_t at = 0;
    enum err err = OK;
    record_init(&searching.record);
    buf_init(&searching.result, LONG_BYTES + 1);
    searches_open(&searching.searches, finding->query);
    answers_reader_open(&searching.reader, finding->index);
    while (err == OK && at < finding->first.count && page->count < finding->query->limit &&
           searching.bytes < SEARCH_BYTES)
        err = search_row(finding, &searching, finding->first.keys[at++].line, page, error);
    answers_reader_close(searching.reader);
    searches_close(&searching.searches);
    buf_release(&searching.result);
    record_release(&searching.record);
    if (err != OK) return err;
    end_page(finding, at, page);
    page->was_read = true;
    page->searched = at;
    page->is_matched_known = !finding->has_after && !page->has_more;
    page->matched = page->count;
    return OK;
}

static enum err find(struct finding *finding, struct answers_page *page, struct error *error) {
    const struct answers_query *query = finding->query;
    bool reads = query->text.bytes > 0;
    pthread_rwlock_rdlock(&finding->index->rows);
    if (finding->index->has_table) {
        pass(finding, reads ? SEARCH_LINES : query->limit);
        if (!reads && finding->first.has_unknown) {
            reads = true;
            pass(finding, SEARCH_LINES);
        }
    }
    pthread_rwlock_unlock(&finding->index->rows);
    if (reads) return search(finding, page, error);
    for (; page->count < finding->first.count; page->count++)
        page->lines[page->count] = finding->first.keys[page->count].line;
    page->is_matched_known = true;
    page->matched = finding->first.matched;
    page->unseen = finding->first.unseen;
    end_page(finding, page->count, page);
    return OK;
}

enum err answers_find(struct answers_index *index, const struct answers_query *query,
                      struct answers_page *ret_page, struct error *error) {
    struct finding finding = {.index = index, .query = query};
    enum err err = OK;
    assert(query->limit >= 1 && query->limit <= ANSWERS_LIMIT_MAX);
    assert(query->filter_count <= ANSWERS_FILTERS_MAX);
    memset(ret_page, 0, sizeof *ret_page);
    buf_init(&ret_page->after, CURSOR_BYTES);
    buf_init(&finding.cursor_text, CURSOR_BYTES);
    finding.order = order_of(query);
    finding.has_after = query->after.bytes > 0;
    finding.first.keys = mem_new(SEARCH_LINES, sizeof *finding.first.keys);
    if (finding.has_after &&
        !cursor_read(query->after, &finding.order, &finding.cursor_text, &finding.after))
        err = err_set(error, ERR_INVALID, "it is no cursor of this order");
    if (err == OK) err = find(&finding, ret_page, error);
    free(finding.first.keys);
    buf_release(&finding.cursor_text);
    if (err != OK) answers_page_release(ret_page);
    return err;
}

void answers_write_cursor(struct buf *buf, struct answers_index *index,
                          const struct answers_query *query, uint32_t line) {
    struct order order = order_of(query);
    pthread_rwlock_rdlock(&index->rows);
    order.column = table_find_column(&index->table, query->sort);
    struct order_key key = order_key_of(&order, &index->table, line);
    cursor_write(buf, &order, &key);
    pthread_rwlock_unlock(&index->rows);
}

void answers_page_release(struct answers_page *page) {
    buf_release(&page->after);
}
