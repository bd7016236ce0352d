/* SPDX-License-Identifier: Apache-2.0 */
/* CSV and TSV. A table that is taken is written so that it is taken back, and is the same then. */
#include "csv/csv_writer.h"
#include "table/csv_reader.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Writes all rows of the text; false if it is refused. */
static bool rewrite(struct str text, char separator, struct buf *out) {
    struct csv_reader reader;
    struct error error;
    struct csv_form form = {separator, false};
    bool found = true;
    uint64_t end = 0;
    enum err err = OK;
    csv_reader_init(&reader, -1, separator);
    buf_add_str(&reader.raw, text);
    while (err == OK && found) {
        err = csv_reader_next(&reader, &found, &error);
        if (err != OK || !found) break;
        size_t from = out->bytes;
        assert(reader.count > 0 && reader.row_line > 0);
        assert(reader.row_from >= end && reader.row_end > reader.row_from);
        assert(reader.row_end <= text.bytes);
        end = reader.row_end;
        for (size_t i = 0; i < reader.count; i++) {
            const struct csv_cell *cell = &reader.cells[i];
            assert(!memchr(cell->text.at, '\0', cell->text.bytes));
            if (cell->is_quoted || cell->text.bytes > 0)
                csv_write_text(out, &form, i == 0, cell->text);
            else
                csv_write_nothing(out, &form, i == 0);
        }
        csv_end_row(out, from);
    }
    csv_reader_release(&reader);
    return err == OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct buf once, twice;
    if (bytes == 0) return 0;
    char separator = ",\t;|"[data[0] % 4];
    buf_init(&once, 1u << 26);
    buf_init(&twice, 1u << 26);
    if (rewrite((struct str){(const char *)data + 1, bytes - 1}, separator, &once)) {
        bool is_table = rewrite(buf_str(&once), separator, &twice);
        assert(is_table);
        assert(str_equals(buf_str(&once), buf_str(&twice)));
    }
    buf_release(&once);
    buf_release(&twice);
    return 0;
}
