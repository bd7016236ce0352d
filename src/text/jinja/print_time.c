/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/print.h"

#include <string.h>
#include <time.h>

#define WIDTH_DIGITS_MAX 3
#define FIELD_BYTES 1200 /* the widest field, 999 */

/* Writes one field. The directive was checked to be a single one of bounded width; the compiler
 * cannot know, hence the silenced warning. */
static size_t write_field(char field[FIELD_BYTES], const char *directive, const struct tm *moment) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return strftime(field, FIELD_BYTES, directive, moment);
#pragma GCC diagnostic pop
}

/* The bytes of the directive at format[at] = '%', with its last letter; 0 when it has none. */
static size_t directive_bytes(struct str format, size_t at, size_t *ret_width_digits) {
    size_t end = at + 1;
    while (end < format.bytes && format.at[end] && strchr("-_0^#", format.at[end])) end++;
    size_t digits = end;
    while (end < format.bytes && format.at[end] >= '0' && format.at[end] <= '9') end++;
    *ret_width_digits = end - digits;
    if (end < format.bytes && (format.at[end] == 'E' || format.at[end] == 'O')) end++;
    return end < format.bytes ? end + 1 - at : 0;
}

enum err print_time(struct render *render, struct str format, int64_t unix_s) {
    struct buf *out = render->out;
    time_t seconds = (time_t)unix_s;
    struct tm moment;
    if (!gmtime_r(&seconds, &moment)) return render_fail(render, "the time has no calendar date");
    for (size_t at = 0; at < format.bytes;) {
        size_t width_digits;
        size_t bytes = format.at[at] == '%' ? directive_bytes(format, at, &width_digits) : 0;
        if (bytes == 0) {
            buf_add_byte(out, format.at[at++]);
            continue;
        }
        if (width_digits > WIDTH_DIGITS_MAX) return render_limit(render, "the width of a date");
        char letter = format.at[at + bytes - 1];
        if (bytes == 2 && letter == 'f') {
            buf_add_text(out, "000000"); /* the clock gives whole seconds */
        } else if (letter == 'z' || letter == 'Z') {
            /* Python writes nothing for a time that knows no zone. */
        } else if (bytes < 16) {
            char directive[17], field[FIELD_BYTES];
            memcpy(directive, format.at + at, bytes);
            directive[bytes] = '\0';
            buf_add(out, field, write_field(field, directive, &moment));
        }
        at += bytes;
    }
    return render_check(render);
}
