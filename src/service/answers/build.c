/* SPDX-License-Identifier: Apache-2.0 */

/* From results to rows. Results are read in pieces of 1 MiB, in the order in which they became
 * durable; the same order comes from a log and from published files (runner_results_read). */

#include "answers/answers_internal.h"

#include "base/map.h"
#include "base/mem.h"
#include "batch/state.h"
#include "json/span.h"
#include "store/seglog.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_AT_A_TIME 64
#define ARRAY_TEXTS_MAX 256           /* elements of one array that are looked at */
#define MADE_MAX 4                    /* new columns per answer, after the first piece of results */
#define LONG_BYTES ((size_t)16 << 20) /* a longer result gets a row without fields */

/* --- rows --- */

struct filling {
    struct table *table;
    uint32_t row;
    uint32_t hint;       /* the column behind the last one: answers are alike */
    uint32_t made;       /* new columns for this answer */
    struct buf *scratch; /* for the texts of an array */
};

static void fill_cell(struct filling *filling, uint32_t column, const struct record_value *value) {
    switch (value->kind) {
    case RECORD_NUMBER:
        table_set_number(filling->table, filling->row, column, value->number);
        break;
    case RECORD_BOOL:
        table_set_bool(filling->table, filling->row, column, value->number != 0);
        break;
    case RECORD_TEXT: table_set_text(filling->table, filling->row, column, value->text); break;
    }
}

static void fill_fixed(void *context, unsigned field, const struct record_value *value) {
    fill_cell(context, field, value);
}

/* The column of an answer's field, which is made if there is room. */
static uint32_t column_for(struct filling *filling, struct str name) {
    struct table *table = filling->table;
    uint32_t count = table->column_count, column;
    if (filling->made < MADE_MAX) {
        column = table_column_of(table, name, filling->hint);
    } else {
        column = table_find_column(table, name);
        if (column == TABLE_NO_COLUMN) table->left_out++;
    }
    filling->made += table->column_count - count;
    if (column != TABLE_NO_COLUMN) filling->hint = column + 1;
    return column;
}

static void fill_field(void *context, struct str name, const struct record_value *value) {
    uint32_t column = column_for(context, name);
    if (column != TABLE_NO_COLUMN) fill_cell(context, column, value);
}

static bool is_scalar(struct str element) {
    return element.bytes > 0 && *element.at != '{' && *element.at != '[' &&
           !str_is(element, "null");
}

/* Reads the scalars of an array as texts; those that need decoding stand in the scratch, which has
 * room for all of them. Returns their count. */
static size_t read_scalars(struct buf *scratch, struct str array, struct str *ret_texts,
                           size_t most) {
    struct json_span_iter iter;
    struct str element;
    struct buf one;
    size_t count = 0;
    if (!json_span_enter(&iter, array)) return 0;
    buf_clear(scratch);
    if (!buf_reserve(scratch, array.bytes))
        return 0; /* a decoded text is no longer than its JSON */
    buf_init(&one, SEGLOG_TEXT_BYTES_MAX);
    while (count < most && json_span_element(&iter, &element)) {
        if (!is_scalar(element)) continue;
        if (json_span_is_string(element)) {
            struct str text = json_span_text(element, &one);
            size_t from = scratch->bytes;
            buf_add_str(scratch, text);
            element = (struct str){scratch->at + from, text.bytes};
        }
        ret_texts[count++] = element;
    }
    buf_release(&one);
    return count;
}

static void fill_array(void *context, struct str name, struct str array) {
    struct filling *filling = context;
    struct str texts[ARRAY_TEXTS_MAX];
    size_t count = read_scalars(filling->scratch, array, texts, ARRAY_TEXTS_MAX);
    if (count == 0) return;
    uint32_t column = column_for(filling, name);
    if (column != TABLE_NO_COLUMN)
        table_set_list(filling->table, filling->row, column, texts, count);
}

/* Makes the row of one result line. A line that quern did not write is left out. */
static void add_row(struct answers_index *index, struct str text, uint64_t sequence) {
    struct record *record = &index->record;
    struct table *table = &index->table;
    if (!record_read(record, text) || record->line >= table->row_count || sequence > UINT32_MAX)
        return;
    uint32_t row = (uint32_t)record->line;
    bool is_new = !table->sequences[row];
    if (!is_new) table_clear_row(table, row); /* its record was damaged, and it ran again */
    struct filling filling = {table, row, TABLE_FIXED_COUNT, 0, &index->array_texts};
    struct record_walk walk = {&filling, fill_fixed, fill_field, fill_array};
    record_each(record, &walk);
    table->labels[row] = record->labels;
    table->sequences[row] = (uint32_t)sequence;
    if (!is_new) return;
    table->indexed++;
    table_note_id(table, row);
}

/* --- the first columns --- */

/* Columns are few, so the first piece of results decides who gets them: each answer has one vote,
 * which its fields share. One answer with a thousand names so takes no column from common
 * fields. */

#define NAMES_MAX 4096  /* the most names that are counted */
#define LATER_COLUMNS 8 /* columns kept free for names of later pieces */

struct vote {
    struct str name;
    double votes;
};

struct election {
    struct map numbers; /* numbers for names in `votes` */
    struct arena names;
    struct vote *votes; /* (NAMES_MAX) */
    size_t count;
    double share; /* share of one field in its answer's vote */
};

static void ignore_fixed(void *context, unsigned field, const struct record_value *value) {
    (void)context, (void)field, (void)value;
}

static void ignore_field(void *context, struct str name, const struct record_value *value) {
    (void)context, (void)name, (void)value;
}

static void vote(void *context, struct str name, const struct record_value *value) {
    struct election *election = context;
    uint64_t number = election->count;
    (void)value;
    if (name.bytes > TABLE_NAME_BYTES) return;
    if (!map_get(&election->numbers, name, &number)) {
        struct str copy = {NULL, 0};
        if (election->count < NAMES_MAX) copy = arena_copy(&election->names, name);
        if (!copy.at) return;
        map_put(&election->numbers, copy, number);
        election->votes[election->count++] = (struct vote){copy, 0};
    }
    election->votes[number].votes += election->share;
}

/* An array of scalars has a column of its own, next to that of its length. */
static void vote_array(void *context, struct str name, struct str array) {
    struct json_span_iter iter;
    struct str element;
    if (json_span_enter(&iter, array) && json_span_element(&iter, &element) && is_scalar(element))
        vote(context, name, NULL);
}

/* Makes columns of the names with the most votes; between equal ones, the first wins. */
static void make_columns(struct table *table, const struct election *election) {
    while (table->column_count + LATER_COLUMNS < table->columns_max) {
        struct vote *most = NULL;
        for (size_t i = 0; i < election->count; i++)
            if (election->votes[i].votes > (most ? most->votes : 0)) most = &election->votes[i];
        if (!most) return;
        most->votes = 0;
        table_column_of(table, most->name, table->column_count);
    }
}

static void elect_columns(struct answers_index *index, struct str text) {
    struct election election = {.votes = mem_new(NAMES_MAX, sizeof *election.votes)};
    struct record_walk counting = {&election, ignore_fixed, ignore_field, NULL};
    struct record_walk voting = {&election, ignore_fixed, vote, vote_array};
    map_init(&election.numbers);
    arena_init(&election.names, NAMES_MAX * (size_t)(TABLE_NAME_BYTES + 32));
    for (size_t at = 0, end; at < text.bytes; at = end + 1) {
        end = str_find_byte(text, '\n', at);
        if (end == SIZE_MAX) end = text.bytes;
        if (!record_read(&index->record, (struct str){text.at + at, end - at})) continue;
        record_each(&index->record, &counting);
        if (index->record.fields == 0) continue;
        election.share = 1 / (double)index->record.fields;
        record_each(&index->record, &voting);
    }
    pthread_rwlock_wrlock(&index->rows);
    make_columns(&index->table, &election);
    pthread_rwlock_unlock(&index->rows);
    map_release(&election.numbers);
    arena_release(&election.names);
    free(election.votes);
}

/* --- pieces --- */

static size_t count_lines(struct str text) {
    size_t count = 0;
    for (size_t at = 0; (at = str_find_byte(text, '\n', at)) != SIZE_MAX; at++) count++;
    return count;
}

/* The text up to and with its last LF. */
static struct str whole_lines(struct str text) {
    while (text.bytes > 0 && text.at[text.bytes - 1] != '\n') text.bytes--;
    return text;
}

/* Adds the rows of lines whose sequence numbers begin at `sequence` and have no gap. The lock is
 * held for a few rows at a time: this thread has a low priority, and a reader must not wait for
 * long. */
static void add_rows(struct answers_index *index, struct str text, uint64_t sequence) {
    for (size_t at = 0; at < text.bytes;) {
        pthread_rwlock_wrlock(&index->rows);
        for (unsigned i = 0; i < ROWS_AT_A_TIME && at < text.bytes; i++) {
            size_t end = str_find_byte(text, '\n', at);
            if (end == SIZE_MAX) end = text.bytes;
            add_row(index, (struct str){text.at + at, end - at}, sequence++);
            at = end + 1;
        }
        pthread_rwlock_unlock(&index->rows);
    }
}

/* Reads the next line alone: a gap in the sequence numbers precedes it, or it is long. */
static enum err add_one(struct answers_index *index, bool *ret_more, struct error *error) {
    struct buf buf;
    struct page_read read;
    struct page page = {.from = {.after = index->after},
                        .lines_max = 1,
                        .bytes_max = UINT64_MAX,
                        .room = LONG_BYTES,
                        .counts = true};
    buf_init(&buf, LONG_BYTES);
    enum err err = runner_results_read(index->results, &page, &buf, &read, error);
    if (err == OK) {
        /* A longer line is cut: its beginning has the custom_id, and the row has no more. */
        if (read.lines == 1) add_rows(index, buf_str(&buf), read.last);
        index->after = read.last;
        *ret_more = read.lines == 1;
    }
    buf_release(&buf);
    return err;
}

static enum err add_piece(struct answers_index *index, bool *ret_more, bool *ret_ended,
                          struct error *error) {
    struct buf *buf = &index->answers->piece;
    struct page_read read;
    struct page page = {.from = {.after = index->after},
                        .lines_max = UINT64_MAX,
                        .bytes_max = UINT64_MAX,
                        .room = ANSWERS_PIECE_BYTES};
    buf_clear(buf);
    enum err err = runner_results_read(index->results, &page, buf, &read, error);
    if (err != OK) return err;
    struct str whole = whole_lines(buf_str(buf));
    if (index->after == 0) elect_columns(index, whole);
    size_t lines = count_lines(whole);
    *ret_ended = !read.more;
    *ret_more = buf->bytes > 0;
    if (lines > 0 && read.next.after - index->after == lines) {
        add_rows(index, whole, index->after + 1);
        index->after = read.next.after;
    } else if (buf->bytes > 0) {
        *ret_ended = false;
        err = add_one(index, ret_more, error);
    } else if (!read.more) {
        index->after = read.next.after;
    }
    return err;
}

/* Makes the table once the batch is validated, because only then its number of lines is known. */
static enum err make_table(struct answers_index *index, struct error *error) {
    struct store_batch batch;
    enum err err =
        runner_batch_get(index->answers->runner, str_from(index->batch_id), &batch, error);
    if (err != OK) return err;
    if (batch.total > 0 && batch.total < ANSWERS_NO_LINE) {
        pthread_rwlock_wrlock(&index->rows);
        table_init(&index->table, (uint32_t)batch.total, index->answers->key);
        index->has_table = true;
        pthread_rwlock_unlock(&index->rows);
    }
    store_batch_release(&batch);
    return OK;
}

bool index_has_ended(const struct answers_index *index) {
    struct store_batch batch;
    struct error error;
    if (index->has_ended) return true;
    if (runner_batch_get(index->answers->runner, str_from(index->batch_id), &batch, &error) != OK)
        return false;
    bool has_ended = batch_status_is_terminal(batch.status);
    store_batch_release(&batch);
    return has_ended;
}

enum err index_build(struct answers_index *index, bool *ret_more, bool *ret_ended,
                     struct error *error) {
    enum err err = OK;
    *ret_more = *ret_ended = false;
    if (!index->results)
        runner_results_open(&index->results, index->answers->runner, str_from(index->batch_id));
    if (!index->has_table) err = make_table(index, error);
    if (err == OK && index->has_table) err = add_piece(index, ret_more, ret_ended, error);
    return err;
}
