/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/metrics_text.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 64

static bool is_name_byte(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
           byte == ':' || (byte >= '0' && byte <= '9');
}

/* The index behind a quoted value that begins at `at`, its quotes included. */
static size_t skip_quoted(struct str text, size_t at) {
    for (at++; at < text.bytes && text.at[at] != '"'; at++)
        if (text.at[at] == '\\') at++;
    return at < text.bytes ? at + 1 : text.bytes;
}

/* The index of the brace that ends the labels, or the text's length. */
static size_t find_brace(struct str text, size_t at) {
    while (at < text.bytes && text.at[at] != '}')
        at = text.at[at] == '"' ? skip_quoted(text, at) : at + 1;
    return at;
}

static bool read_number(struct str text, double *ret_value) {
    char number[NUMBER_BYTES], *end;
    text = str_trim(text);
    size_t bytes = str_find_byte(text, ' ', 0); /* a time may follow */
    if (bytes > text.bytes) bytes = text.bytes;
    if (bytes == 0 || bytes >= sizeof number) return false;
    memcpy(number, text.at, bytes);
    number[bytes] = '\0';
    *ret_value = strtod(number, &end);
    return end == number + bytes;
}

static bool read_sample(struct str line, struct metric_sample *ret_sample) {
    size_t at = 0;
    while (at < line.bytes && is_name_byte(line.at[at])) at++;
    if (at == 0) return false;
    *ret_sample = (struct metric_sample){.name = {line.at, at}};
    if (at < line.bytes && line.at[at] == '{') {
        size_t end = find_brace(line, at + 1);
        if (end == line.bytes) return false;
        ret_sample->labels = (struct str){line.at + at + 1, end - at - 1};
        at = end + 1;
    }
    return read_number(str_skip(line, at), &ret_sample->value);
}

bool metrics_text_next(struct str *text, struct metric_sample *ret_sample) {
    while (text->bytes > 0) {
        size_t end = str_find_byte(*text, '\n', 0);
        if (end > text->bytes) end = text->bytes;
        struct str line = {text->at, end};
        *text = str_skip(*text, end < text->bytes ? end + 1 : end);
        if (read_sample(line, ret_sample)) return true;
    }
    return false;
}

struct str metrics_text_label(const struct metric_sample *sample, const char *name) {
    struct str labels = sample->labels;
    for (size_t at = 0; at < labels.bytes;) {
        size_t equals = str_find_byte(labels, '=', at);
        if (equals + 1 >= labels.bytes || labels.at[equals + 1] != '"') break;
        size_t end = skip_quoted(labels, equals + 1);
        if (str_is(str_trim((struct str){labels.at + at, equals - at}), name) && end >= equals + 3)
            return (struct str){labels.at + equals + 2, end - equals - 3};
        at = end;
        while (at < labels.bytes && (labels.at[at] == ',' || labels.at[at] == ' ')) at++;
    }
    return (struct str){NULL, 0};
}
