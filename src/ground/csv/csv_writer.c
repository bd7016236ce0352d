/* SPDX-License-Identifier: Apache-2.0 */
#include "csv/csv_writer.h"

#include <string.h>
#include <strings.h>

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

/* True for -5, +0.25 and 1e9, which compute nothing. */
static bool is_number(struct str text) {
    size_t at = text.bytes > 0 && (text.at[0] == '-' || text.at[0] == '+');
    size_t digits = 0;
    for (; at < text.bytes && (is_digit(text.at[at]) || text.at[at] == '.'); at++)
        digits += is_digit(text.at[at]);
    if (digits == 0) return false;
    if (at < text.bytes && (text.at[at] == 'e' || text.at[at] == 'E')) {
        at++;
        if (at < text.bytes && (text.at[at] == '-' || text.at[at] == '+')) at++;
        if (at == text.bytes) return false;
        while (at < text.bytes && is_digit(text.at[at])) at++;
    }
    return at == text.bytes;
}

/* The beginnings that OWASP names for CSV injection. */
static bool may_be_formula(struct str text) {
    return text.bytes > 0 && text.at[0] != '\0' && strchr("=+-@\t\r\n", text.at[0]) &&
           !is_number(text);
}

/* A first line `sep=;` names a separator for those who read it, and is no row. */
static bool names_separator(struct str text) {
    return text.bytes >= 4 && strncasecmp(text.at, "sep=", 4) == 0;
}

static bool needs_quotes(struct str text, char separator) {
    if (text.bytes == 0 || str_starts_with(text, STR("\xEF\xBB\xBF"))) return true;
    for (size_t i = 0; i < text.bytes; i++)
        if (text.at[i] == separator || text.at[i] == '"' || text.at[i] == '\n' ||
            text.at[i] == '\r' || text.at[i] == '\0')
            return true;
    return false;
}

void csv_write_text(struct buf *out, const struct csv_form *form, bool is_first, struct str text) {
    bool is_formula = form->is_excel_safe && may_be_formula(text);
    if (!is_first) buf_add_byte(out, form->separator);
    if (!needs_quotes(text, form->separator) && !(is_first && names_separator(text))) {
        if (is_formula) buf_add_byte(out, '\'');
        buf_add_str(out, text);
        return;
    }
    buf_add_text(out, is_formula ? "\"'" : "\"");
    for (size_t from = 0; from < text.bytes;) {
        size_t end = from;
        while (end < text.bytes && text.at[end] != '"' && text.at[end] != '\0') end++;
        buf_add(out, text.at + from, end - from);
        if (end < text.bytes) buf_add_text(out, text.at[end] == '"' ? "\"\"" : "\xEF\xBF\xBD");
        from = end + 1;
    }
    buf_add_byte(out, '"');
}

void csv_write_nothing(struct buf *out, const struct csv_form *form, bool is_first) {
    if (!is_first) buf_add_byte(out, form->separator);
}

/* A row of one cell without a value would be an empty line, which readers skip. */
void csv_end_row(struct buf *out, size_t from) {
    if (out->bytes == from) buf_add_text(out, "\"\"");
    buf_add_byte(out, '\n');
}
