/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "base/rng.h"
#include "csv/csv_writer.h"
#include "table/csv_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Reads a whole text and shows it: cells between [], those in quotes between "", rows with their
 * lines. An error is shown as its sentence. */
static void show(struct str text, char separator, struct buf *out) {
    struct csv_reader reader;
    struct error error = {0};
    bool found = true;
    csv_reader_init(&reader, -1, separator);
    buf_add_str(&reader.raw, text);
    while (found) {
        if (csv_reader_next(&reader, &found, &error) != OK) {
            buf_add_text(out, error.text);
            break;
        }
        if (!found) break;
        buf_printf(out, "%d:", (int)reader.row_line);
        for (size_t i = 0; i < reader.count; i++)
            buf_printf(out, reader.cells[i].is_quoted ? "\"%.*s\"" : "[%.*s]",
                       STR_ARGS(reader.cells[i].text));
        buf_add_byte(out, ' ');
    }
    csv_reader_release(&reader);
}

static void check_text(struct str text, char separator, const char *expected) {
    struct buf out;
    buf_init(&out, 65536);
    buf_add_text(&out, "");
    show(text, separator, &out);
    assert_string_equal(out.at ? out.at : "", expected);
    buf_release(&out);
}

#define CHECK(text, expected) check_text(STR(text), ',', expected)

static void rows_end_in_any_end_of_line(void **state) {
    (void)state;
    CHECK("", "");
    CHECK("a,b", "1:[a][b] ");
    CHECK("a,b\n1,2\n", "1:[a][b] 2:[1][2] ");
    CHECK("a,b\r\n1,2\r\n", "1:[a][b] 2:[1][2] ");
    CHECK("a,b\r1,2\r", "1:[a][b] 2:[1][2] ");
    CHECK("a\n\n\r\n\rb\n", "1:[a] 5:[b] ");
    CHECK("a,\n,\n", "1:[a][] 2:[][] ");
    CHECK("\xEF\xBB\xBF\"a\",b\n", "1:\"a\"[b] ");
    CHECK("\xEF\xBB\xBF", "");
    CHECK("\n\xEF\xBB\xBF\n", "2:[\xEF\xBB\xBF] ");
    check_text(STR("a;\"b;c\"\td\n"), ';',
               "line 1, column 2: text follows the quote that closes "
               "the cell; a quote inside a cell is doubled");
    check_text(STR("a\tb,c\t\"d\te\"\n"), '\t', "1:[a][b,c]\"d\te\" ");
}

static void quotes_hold_anything(void **state) {
    (void)state;
    CHECK("\"a\nb\",\"c\r\nd\"\ne\n", "1:\"a\nb\"\"c\r\nd\" 4:[e] ");
    CHECK("\"\",\"\"\"\",\"a\"\"b\",\"\"\"\"\"\"\n", "1:\"\"\"\"\"\"a\"b\"\"\"\"\" ");
    CHECK("\"a\rb\"\rc", "1:\"a\rb\" 3:[c] ");
    CHECK("\"\"\n", "1:\"\" ");
    CHECK(" a , \n", "1:[ a ][ ] ");
}

static void what_readers_would_read_differently_is_refused_with_its_place(void **state) {
    (void)state;
    CHECK("a,b\nc,d\"e\n",
          "1:[a][b] line 2, column 2: a quote inside a cell that does not begin with "
          "one; put the cell in quotes and double those inside");
    CHECK("a\n \"b\"\n",
          "1:[a] line 2, column 1: a quote inside a cell that does not begin with one; "
          "put the cell in quotes and double those inside");
    CHECK("\"a\n\n\"b\"\n",
          "line 3, column 1: text follows the quote that closes the cell; a quote "
          "inside a cell is doubled");
    CHECK("a\n1,\"b\n\n", "1:[a] line 2, column 2: a quote opens the cell and none closes it");
    CHECK("a\nb,\"", "1:[a] line 2, column 2: a quote opens the cell and none closes it");
}

static void bytes_that_are_no_text_are_named(void **state) {
    (void)state;
    CHECK("a,b\nx,caf\xE9\n",
          "1:[a][b] line 2, byte 6: 0xE9 is not UTF-8; save the table as UTF-8");
    CHECK("a\n\"x\r\ny\xC3\"\n",
          "1:[a] line 3, byte 2: 0xC3 is not UTF-8; save the table as UTF-8");
    CHECK("a\nb\0c\n", "1:[a] line 2, byte 2: 0x00 is no text");
    CHECK("\xFF\xFE"
          "a\0",
          "line 1, byte 1: the table is UTF-16; save it as UTF-8");
    CHECK("\xED\xA0\x80\n", "line 1, byte 1: 0xED is not UTF-8; save the table as UTF-8");
}

static int file_of(struct str text) {
    char path[] = "/tmp/quern-test-csv-XXXXXX";
    struct error error;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(os_write_all(fd, text.at, text.bytes, &error), OK);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

/* A row is longer than what one read of the file brings, and the ends of reads fall anywhere. */
static void rows_cross_the_pieces_of_a_file(void **state) {
    (void)state;
    struct buf text;
    struct csv_reader reader;
    struct error error;
    bool found;
    buf_init(&text, 1u << 24);
    for (size_t row = 0; row < 24; row++) {
        buf_printf(&text, "%zu,\"", row);
        for (size_t i = 0; i < row * row * 997; i++) buf_add_text(&text, i % 7 ? "x" : "\"\"");
        buf_add_text(&text, row % 2 ? "\"\r\n" : "\"\r");
    }
    int fd = file_of(buf_str(&text));
    csv_reader_init(&reader, fd, ',');
    for (size_t row = 0; row < 24; row++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", row);
        assert_int_equal(csv_reader_next(&reader, &found, &error), OK);
        assert_true(found);
        assert_int_equal(reader.row_line, row + 1);
        assert_int_equal(reader.count, 2);
        assert_true(str_is(reader.cells[0].text, number));
        assert_int_equal(reader.cells[1].text.bytes, row * row * 997);
    }
    assert_int_equal(csv_reader_next(&reader, &found, &error), OK);
    assert_false(found);
    csv_reader_release(&reader);
    os_close(fd);
    buf_release(&text);
}

static void a_row_without_an_end_is_a_limit(void **state) {
    (void)state;
    struct buf text;
    struct csv_reader reader;
    struct error error;
    bool found;
    buf_init(&text, 3 * CSV_ROW_BYTES_MAX);
    buf_add_text(&text, "a\n\"");
    memset(buf_reserve(&text, 2 * CSV_ROW_BYTES_MAX), 'x', 2 * CSV_ROW_BYTES_MAX);
    buf_commit(&text, 2 * CSV_ROW_BYTES_MAX);
    int fd = file_of(buf_str(&text));
    csv_reader_init(&reader, fd, ',');
    assert_int_equal(csv_reader_next(&reader, &found, &error), OK);
    assert_int_equal(csv_reader_next(&reader, &found, &error), ERR_LIMIT);
    assert_string_equal(error.text, "line 2: a row has more than 16 MiB; a quote may be missing");
    csv_reader_release(&reader);
    os_close(fd);
    buf_release(&text);
}

/* --- writing --- */

static void check_written(bool is_excel_safe, struct str text, const char *expected) {
    struct buf out;
    struct csv_form form = {',', is_excel_safe};
    buf_init(&out, 65536);
    csv_write_text(&out, &form, true, text);
    assert_string_equal(out.at, expected);
    buf_release(&out);
}

static void a_cell_has_quotes_where_it_must(void **state) {
    (void)state;
    check_written(false, STR("plain text"), "plain text");
    check_written(false, STR(" a'b;c\t"), " a'b;c\t");
    check_written(false, STR(""), "\"\"");
    check_written(false, STR("a,b"), "\"a,b\"");
    check_written(false, STR("a\nb\r"), "\"a\nb\r\"");
    check_written(false, STR("say \"hi\""), "\"say \"\"hi\"\"\"");
    check_written(false, STR("\xEF\xBB\xBFx"), "\"\xEF\xBB\xBFx\"");
    check_written(false, STR("sep=;"), "\"sep=;\"");
    check_written(false, STR("Sep=x"), "\"Sep=x\"");
    check_written(false, STR("a\0b"),
                  "\"a\xEF\xBF\xBD"
                  "b\"");
    check_written(false, STR("=1+1"), "=1+1");
}

static void a_formula_is_made_a_text_on_request(void **state) {
    (void)state;
    check_written(true, STR("=1+1"), "'=1+1");
    check_written(true, STR("@SUM(A1)"), "'@SUM(A1)");
    check_written(true, STR("-2+3"), "'-2+3");
    check_written(true, STR("+cmd|' /C calc'!A0"), "'+cmd|' /C calc'!A0");
    check_written(true, STR("\t=1"), "'\t=1");
    check_written(true, STR("=\"a\""), "\"'=\"\"a\"\"\"");
    check_written(true, STR("-5"), "-5");
    check_written(true, STR("+0.25"), "+0.25");
    check_written(true, STR("-1e9"), "-1e9");
    check_written(true, STR("-"), "'-");
    check_written(true, STR("a=b"), "a=b");
}

/* Rows of drawn cells read back as they were written, also after any cut of the file. */
static void drawn_tables_read_back(void **state) {
    (void)state;
    static const char bytes[] = "ab,\t;\"\"\n\r'= ";
    struct rng rng = {13};
    for (size_t round = 0; round < 3000; round++) {
        struct buf out, flat;
        struct csv_reader reader;
        struct error error;
        bool found;
        struct csv_form form = {",\t;"[rng_below(&rng, 3)], false};
        size_t rows = 1 + rng_below(&rng, 4), columns = 1 + rng_below(&rng, 4);
        struct str cells[16];
        buf_init(&out, 65536);
        buf_init(&flat, 65536);
        (void)buf_reserve(&flat, 1024);
        for (size_t i = 0; i < rows * columns; i++) {
            size_t from = flat.bytes, count = rng_below(&rng, 6);
            for (size_t k = 0; k < count; k++)
                buf_add_byte(&flat, bytes[rng_below(&rng, sizeof bytes - 1)]);
            cells[i] = (struct str){flat.at + from, count};
        }
        for (size_t i = 0; i < rows; i++) {
            size_t from = out.bytes;
            for (size_t k = 0; k < columns; k++) {
                struct str cell = cells[i * columns + k];
                if (cell.bytes == 0 && rng_below(&rng, 2))
                    csv_write_nothing(&out, &form, k == 0);
                else
                    csv_write_text(&out, &form, k == 0, cell);
            }
            csv_end_row(&out, from);
        }
        csv_reader_init(&reader, -1, form.separator);
        buf_add_str(&reader.raw, buf_str(&out));
        for (size_t i = 0; i < rows; i++) {
            assert_int_equal(csv_reader_next(&reader, &found, &error), OK);
            assert_true(found);
            assert_int_equal(reader.count, columns);
            for (size_t k = 0; k < columns; k++)
                assert_true(str_equals(reader.cells[k].text, cells[i * columns + k]));
        }
        assert_int_equal(csv_reader_next(&reader, &found, &error), OK);
        assert_false(found);
        csv_reader_release(&reader);
        buf_release(&out);
        buf_release(&flat);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_end_in_any_end_of_line),
        cmocka_unit_test(quotes_hold_anything),
        cmocka_unit_test(what_readers_would_read_differently_is_refused_with_its_place),
        cmocka_unit_test(bytes_that_are_no_text_are_named),
        cmocka_unit_test(rows_cross_the_pieces_of_a_file),
        cmocka_unit_test(a_row_without_an_end_is_a_limit),
        cmocka_unit_test(a_cell_has_quotes_where_it_must),
        cmocka_unit_test(a_formula_is_made_a_text_on_request),
        cmocka_unit_test(drawn_tables_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
