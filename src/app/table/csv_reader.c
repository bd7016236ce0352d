/* SPDX-License-Identifier: Apache-2.0 */
#include "table/csv_reader.h"

#include "base/mem.h"
#include "base/os.h"
#include "base/utf8.h"
#include "json/span.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PIECE_BYTES ((size_t)256 << 10)

enum scan {
    SCAN_ROW,  /* `places` and `end` describe a row */
    SCAN_MORE, /* the row does not end in the bytes that were read */
    SCAN_BAD,  /* the error is set */
};

void csv_reader_init(struct csv_reader *reader, int fd, char separator) {
    *reader =
        (struct csv_reader){.fd = fd, .separator = separator, .has_ended = fd < 0, .next_line = 1};
    buf_init(&reader->raw, 2 * CSV_ROW_BYTES_MAX + PIECE_BYTES);
}

void csv_reader_release(struct csv_reader *reader) {
    buf_release(&reader->raw);
    free(reader->cells);
    free(reader->places);
}

/* Counts the ends of lines in a text whose next byte, if it has one, is no LF. */
static uint64_t count_lines(struct str text) {
    uint64_t count = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.at[i] == '\n') count++;
        if (text.at[i] == '\r') count += i + 1 == text.bytes || text.at[i + 1] != '\n';
    }
    return count;
}

/* Fails with the line and the column of the place `at` in the row's text. */
static enum scan bad(const struct csv_reader *reader, struct str row, size_t at, const char *why,
                     struct error *error) {
    uint64_t line = reader->row_line + count_lines((struct str){row.at, at});
    (void)err_set(error, ERR_INVALID, "line %" PRIu64 ", column %zu: %s", line, reader->count + 1,
                  why);
    return SCAN_BAD;
}

static void add_place(struct csv_reader *reader, struct csv_place place) {
    reader->places =
        vec_grow(reader->places, reader->count, &reader->place_capacity, sizeof *reader->places);
    reader->places[reader->count++] = place;
}

/* Finds the end of a cell in quotes that begins at row.at[*at], and leaves *at behind it. */
static enum scan scan_quoted(struct csv_reader *reader, struct str row, size_t *at,
                             struct error *error) {
    struct csv_place place = {.from = *at + 1, .is_quoted = true};
    for (size_t from = place.from;; from = place.end + 2) {
        place.end = str_find_byte(row, '"', from);
        if (place.end == SIZE_MAX || (place.end + 1 == row.bytes && !reader->has_ended)) {
            if (!reader->has_ended) return SCAN_MORE;
            return bad(reader, row, *at, "a quote opens the cell and none closes it", error);
        }
        if (place.end + 1 == row.bytes || row.at[place.end + 1] != '"') break;
        place.has_doubled = true;
    }
    *at = place.end + 1;
    char next = *at < row.bytes ? row.at[*at] : '\n';
    if (next != reader->separator && next != '\r' && next != '\n')
        return bad(reader, row, *at,
                   "text follows the quote that closes the cell; a quote inside a cell is doubled",
                   error);
    add_place(reader, place);
    return SCAN_ROW;
}

static enum scan scan_plain(struct csv_reader *reader, struct str row, size_t *at,
                            struct error *error) {
    size_t end = *at;
    while (end < row.bytes && row.at[end] != reader->separator && row.at[end] != '\n' &&
           row.at[end] != '\r') {
        if (row.at[end] == '"')
            return bad(reader, row, end,
                       "a quote inside a cell that does not begin with one; put the cell in quotes "
                       "and double those inside",
                       error);
        end++;
    }
    if (end == row.bytes && !reader->has_ended) return SCAN_MORE;
    add_place(reader, (struct csv_place){.from = *at, .end = end});
    *at = end;
    return SCAN_ROW;
}

/* Finds the cells of the row with which `row` begins, and its end. */
static enum scan scan_row(struct csv_reader *reader, struct str row, size_t *ret_end,
                          struct error *error) {
    size_t at = 0;
    reader->count = 0;
    for (;;) {
        bool is_quoted = at < row.bytes && row.at[at] == '"';
        enum scan scan =
            is_quoted ? scan_quoted(reader, row, &at, error) : scan_plain(reader, row, &at, error);
        if (scan != SCAN_ROW) return scan;
        if (at == row.bytes || row.at[at] != reader->separator) break;
        at++;
    }
    if (at < row.bytes) {
        bool may_be_crlf = row.at[at] == '\r';
        if (may_be_crlf && at + 1 == row.bytes && !reader->has_ended) return SCAN_MORE;
        at += may_be_crlf && at + 1 < row.bytes && row.at[at + 1] == '\n' ? 2 : 1;
    }
    *ret_end = at;
    return SCAN_ROW;
}

/* Reads on, by as much as there is, so that a long row is looked at a few times only. */
static enum err fill(struct csv_reader *reader, struct error *error) {
    size_t count;
    buf_consume(&reader->raw, reader->at);
    reader->base += reader->at;
    reader->at = 0;
    if (reader->raw.bytes > CSV_ROW_BYTES_MAX)
        return err_set(error, ERR_LIMIT,
                       "line %" PRIu64 ": a row has more than %zu MiB; a quote may be missing",
                       reader->row_line, CSV_ROW_BYTES_MAX >> 20);
    size_t most = reader->raw.bytes > PIECE_BYTES ? reader->raw.bytes : PIECE_BYTES;
    char *room = buf_reserve(&reader->raw, most);
    if (!room) return err_set(error, ERR_LIMIT, "a row is too long");
    enum err err = os_read(reader->fd, room, most, &count, error);
    if (err != OK) return err;
    buf_commit(&reader->raw, count);
    reader->has_ended = count == 0;
    return OK;
}

/* Skips a byte-order mark, and refuses those of UTF-16. */
static enum err skip_mark(struct csv_reader *reader, struct error *error) {
    while (reader->raw.bytes < 3 && !reader->has_ended) {
        enum err err = fill(reader, error);
        if (err != OK) return err;
    }
    struct str start = buf_str(&reader->raw);
    if (str_starts_with(start, STR("\xFF\xFE")) || str_starts_with(start, STR("\xFE\xFF")))
        return err_set(error, ERR_INVALID, "line 1, byte 1: the table is UTF-16; save it as UTF-8");
    if (str_starts_with(start, STR("\xEF\xBB\xBF"))) reader->at = 3;
    return OK;
}

/* Skips a first line `sep=;`, and takes its separator unless the caller chose one. */
static enum err skip_separator(struct csv_reader *reader, struct error *error) {
    while (reader->raw.bytes < reader->at + 7 && !reader->has_ended) {
        enum err err = fill(reader, error);
        if (err != OK) return err;
    }
    struct str start = str_skip(buf_str(&reader->raw), reader->at);
    if (start.bytes < 6 || strncasecmp(start.at, "sep=", 4) != 0) return OK;
    char named = start.at[4];
    size_t end = start.at[5] == '\r' && start.bytes > 6 && start.at[6] == '\n' ? 7 : 6;
    if (named == '"' || named == '\r' || named == '\n' ||
        (start.at[5] != '\r' && start.at[5] != '\n'))
        return OK;
    if (reader->has_usual) reader->separator = named;
    reader->at += end;
    reader->next_line++;
    return OK;
}

/* Refuses NUL and bytes that are not UTF-8, with their line and their place in it. */
static enum err check_bytes(const struct csv_reader *reader, struct str row, struct error *error) {
    size_t valid = json_span_is_utf8(row) ? row.bytes : utf8_valid_prefix(row);
    size_t nul = str_find_byte((struct str){row.at, valid}, '\0', 0);
    size_t at = nul < valid ? nul : valid;
    if (at == row.bytes) return OK;
    size_t line_start = at;
    while (line_start > 0 && row.at[line_start - 1] != '\n' && row.at[line_start - 1] != '\r')
        line_start--;
    return err_set(error, ERR_INVALID, "line %" PRIu64 ", byte %zu: 0x%02X is %s",
                   reader->row_line + count_lines((struct str){row.at, line_start}),
                   at - line_start + 1, (unsigned char)row.at[at],
                   at == nul ? "no text" : "not UTF-8; save the table as UTF-8");
}

/* Makes cells of the places. Doubled quotes become single ones where they lie. */
static void take_cells(struct csv_reader *reader, char *row) {
    for (size_t i = 0; i < reader->count; i++) {
        const struct csv_place *place = &reader->places[i];
        size_t bytes = place->end - place->from;
        char *cell = row + place->from;
        if (place->has_doubled) {
            size_t kept = 0;
            for (size_t k = 0; k < bytes; k++) {
                cell[kept++] = cell[k];
                k += cell[k] == '"';
            }
            bytes = kept;
        }
        reader->cells = vec_grow(reader->cells, i, &reader->cell_capacity, sizeof *reader->cells);
        reader->cells[i] = (struct csv_cell){{cell, bytes}, place->is_quoted};
    }
}

enum err csv_reader_next(struct csv_reader *reader, bool *ret_found, struct error *error) {
    size_t end = 0;
    bool is_first = reader->row_line == 0;
    enum err err = is_first ? skip_mark(reader, error) : OK;
    if (err == OK && is_first) err = skip_separator(reader, error);
    reader->row_line = reader->next_line;
    while (err == OK) {
        struct str rest = str_skip(buf_str(&reader->raw), reader->at);
        *ret_found = rest.bytes > 0;
        if (rest.bytes == 0 && reader->has_ended) return OK;
        enum scan scan = rest.bytes ? scan_row(reader, rest, &end, error) : SCAN_MORE;
        if (scan == SCAN_BAD) return ERR_INVALID;
        if (scan == SCAN_MORE) {
            err = fill(reader, error);
            continue;
        }
        struct str row = {rest.at, end};
        err = check_bytes(reader, row, error);
        reader->at += end;
        reader->next_line += count_lines(row);
        bool is_empty =
            reader->count == 1 && !reader->places[0].is_quoted && reader->places[0].end == 0;
        if (err == OK && !is_empty) {
            take_cells(reader, reader->raw.at + reader->at - end);
            reader->row_end = reader->base + reader->at;
            reader->row_from = reader->row_end - end;
            return OK;
        }
        reader->row_line = reader->next_line;
    }
    return err;
}
