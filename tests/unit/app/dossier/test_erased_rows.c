/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "csv/csv_writer.h"
#include "dossier/erased_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ROWS_MAX 60
#define TABLES 150

/* A table that was drawn, and where each row begins and ends; empty lines may follow it. */
struct drawn {
    struct buf text;
    size_t from[ROWS_MAX + 1], end[ROWS_MAX];
    unsigned rows;
    enum table_kind kind;
    bool has_crlf;
};

static uint64_t state = 1;

static unsigned draw(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

/* Cells with all that a cell may have: quotes, separators, each end of a line, nothing. */
static void draw_cell(struct buf *out) {
    static const char *const pieces[] = {"a", "\"", ",", "\n", "\r\n", "\r", "\n\n", "é", " ", "7"};
    for (unsigned i = draw(5); i > 0; i--)
        buf_add_text(out, pieces[draw(sizeof pieces / sizeof *pieces)]);
}

static void draw_csv_row(struct drawn *table, unsigned number) {
    const struct csv_form form = {',', false};
    struct buf cell;
    char id[16];
    buf_init(&cell, BUF_UNLIMITED);
    size_t from = table->text.bytes;
    snprintf(id, sizeof id, "id%u", number);
    csv_write_text(&table->text, &form, true, str_from(id));
    for (unsigned i = 0; i < 2; i++) {
        buf_clear(&cell);
        draw_cell(&cell);
        csv_write_text(&table->text, &form, false, buf_str(&cell));
    }
    csv_end_row(&table->text, from);
    if (!table->has_crlf && str_ends_with(buf_str(&table->text), STR("\r\n"))) {
        table->text.bytes -= 2;
        buf_add_byte(&table->text, '\n');
    }
    buf_release(&cell);
}

static void draw_table(struct drawn *table) {
    *table = (struct drawn){.kind = draw(3) ? TABLE_CSV : TABLE_JSONL, .has_crlf = draw(2)};
    buf_init(&table->text, BUF_UNLIMITED);
    buf_add_text(&table->text, draw(4) ? "" : "\xEF\xBB\xBF");
    if (table->kind == TABLE_CSV) buf_add_text(&table->text, "id,one,two\n");
    table->rows = draw(ROWS_MAX) + 1;
    for (unsigned i = 0; i < table->rows; i++) {
        if (draw(8) == 0) buf_add_text(&table->text, table->has_crlf ? "\r\n" : "\n");
        table->from[i] = table->text.bytes;
        if (table->kind == TABLE_CSV)
            draw_csv_row(table, i + 1);
        else
            buf_printf(&table->text, "{\"id\": \"id%u\", \"one\": %u}%s\n", i + 1, draw(100),
                       table->has_crlf ? "\r" : "");
        table->end[i] = table->text.bytes;
    }
    table->from[table->rows] = table->text.bytes;
}

/* The bytes without the rows: as many LF as each has. */
static void expect(const struct drawn *table, const bool *goes, struct buf *out) {
    size_t begin = table->from[0];
    bool has_mark = str_starts_with(buf_str(&table->text), STR("\xEF\xBB\xBF"));
    if (table->kind == TABLE_JSONL && begin == 3 && has_mark && goes[0]) begin = 0;
    buf_add(out, table->text.at, begin);
    for (unsigned i = 0; i < table->rows; i++) {
        struct str row = {table->text.at + table->from[i], table->from[i + 1] - table->from[i]};
        if (!goes[i]) {
            buf_add_str(out, row);
            continue;
        }
        for (size_t k = 0; k < table->end[i] - table->from[i]; k++)
            if (row.at[k] == '\n') buf_add_byte(out, '\n');
        buf_add_str(out, str_skip(row, table->end[i] - table->from[i]));
    }
}

static void write_table(const char *path, struct str text) {
    struct error error;
    assert_int_equal(os_write_file(path, 0600, text.at, text.bytes, &error), OK);
}

/* Takes out the rows with `goes` for the first time, of which `gone` went before. */
static void erase(const char *path, const struct drawn *table, const bool *goes,
                  const struct row_numbers *gone, bool by_id) {
    char made[PATH_MAX];
    struct error error = {0};
    struct line_ids ids;
    struct erased_rows rows;
    struct erased_file file;
    const struct run_table form = {.kind = table->kind, .id = by_id ? "id" : NULL};
    unsigned wanted = 0;
    line_ids_init(&ids);
    for (unsigned i = 0; i < table->rows; i++) {
        char id[16];
        snprintf(id, sizeof id, by_id ? "id%u" : "%u", i + 1);
        if (!goes[i] || row_numbers_have(gone, i + 1)) continue;
        assert_int_equal(line_ids_add(&ids, str_from(id), "test", &error), OK);
        wanted++;
    }
    const struct erased_rows_wish wish = {.table = &form, .ids = &ids, .gone = gone};
    assert_int_equal(erased_rows_find(&rows, path, &wish, &error), OK);
    assert_int_equal(rows.count, wanted);
    assert_int_equal(rows.rows, table->rows - gone->count);
    assert_int_equal(line_ids_check_found(&ids, path, &error), OK);
    for (size_t i = 0; i < rows.count; i++)
        assert_true(goes[rows.numbers.list[i] - 1] &&
                    !row_numbers_have(gone, rows.numbers.list[i]));
    assert_int_equal(
        erased_file_write(&file, path, &(struct erased_choice){.rows = &rows}, NULL, &error), OK);
    snprintf(made, sizeof made, ERASED_FILE_NAME, path);
    assert_int_equal(rename(made, path), 0);
    erased_file_release(&file);
    erased_rows_release(&rows);
    line_ids_release(&ids);
}

static void check_one(const char *path) {
    struct drawn table;
    struct buf expected;
    struct error error;
    char *text;
    size_t bytes;
    bool goes[ROWS_MAX] = {false};
    struct row_numbers gone = {.list = NULL};
    draw_table(&table);
    write_table(path, buf_str(&table.text));
    bool by_id = draw(2);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < table.rows; i++) goes[i] = goes[i] || draw(5) == 0;
        erase(path, &table, goes, &gone, by_id);
        row_numbers_release(&gone);
        json_t *list = json_array();
        for (unsigned i = 0; i < table.rows; i++)
            if (goes[i]) json_array_append_new(list, json_integer(i + 1));
        json_t *erasures = json_pack("[{s:o}]", "rows", list);
        assert_int_equal(row_numbers_read(&gone, erasures, &error), OK);
        json_decref(erasures);
    }
    buf_init(&expected, BUF_UNLIMITED);
    expect(&table, goes, &expected);
    assert_int_equal(os_read_file(path, SIZE_MAX, &text, &bytes, &error), OK);
    assert_true(str_equals((struct str){text, bytes}, buf_str(&expected)));
    free(text);
    buf_release(&expected);
    buf_release(&table.text);
    row_numbers_release(&gone);
}

static void rows_of_drawn_tables_become_empty_lines_and_nothing_else_changes(void **context) {
    (void)context;
    char path[] = "/tmp/quern-test-rows-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    os_close(fd);
    for (int i = 0; i < TABLES; i++) check_one(path);
    unlink(path);
}

static void numbers_that_are_none_or_occur_twice_are_refused(void **context) {
    (void)context;
    static const char *const bad[] = {"[{\"rows\": [3, 3]}]",  "[{\"rows\": [3]}, {\"rows\": [3]}]",
                                      "[{\"rows\": [0]}]",     "[{\"rows\": [-1]}]",
                                      "[{\"rows\": [\"3\"]}]", "[{\"rows\": {}}]"};
    struct row_numbers numbers;
    struct error error;
    json_t *erasures;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(json_read(&erasures, str_from(bad[i]), &error), OK);
        assert_int_equal(row_numbers_read(&numbers, erasures, &error), ERR_CORRUPT);
        assert_null(numbers.list);
        json_decref(erasures);
    }
    assert_int_equal(json_read(&erasures, STR("[{\"rows\": [9, 2]}, {}, {\"rows\": [4]}]"), &error),
                     OK);
    assert_int_equal(row_numbers_read(&numbers, erasures, &error), OK);
    assert_int_equal(row_numbers_up_to(&numbers, 4), 2);
    assert_true(row_numbers_have(&numbers, 9) && !row_numbers_have(&numbers, 3));
    json_decref(erasures);
    row_numbers_release(&numbers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_drawn_tables_become_empty_lines_and_nothing_else_changes),
        cmocka_unit_test(numbers_that_are_none_or_occur_twice_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
