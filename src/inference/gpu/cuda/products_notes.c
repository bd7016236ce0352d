/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/products_notes.h"

#include "base/crc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 512 /* more than a line of numbers has */

struct text {
    char *at;
    size_t bytes, room;
};

static bool add(struct text *text, const char *line) {
    const size_t bytes = strlen(line);
    if (text->bytes + bytes + 1 > text->room) {
        const size_t room = 2 * (text->room + bytes + 1);
        char *at = realloc(text->at, room);
        if (!at) return false;
        text->at = at, text->room = room;
    }
    memcpy(text->at + text->bytes, line, bytes + 1);
    text->bytes += bytes;
    return true;
}

static bool add_note(struct text *text, const struct products_note *note) {
    char line[LINE_BYTES];
    int at =
        snprintf(line, sizeof line,
                 "%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64,
                 note->format, note->outputs, note->inputs, note->bucket, note->batch, note->gap,
                 note->workspace_bytes);
    for (int i = 0; i < PRODUCTS_NOTE_WORDS; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, " %" PRIx64, note->words[i]);
    return add(text, line) && add(text, "\n");
}

char *products_notes_write(const char *name, const struct products_note *notes, uint32_t count,
                           size_t *ret_bytes) {
    struct text text = {NULL, 0, 0};
    char line[LINE_BYTES];
    bool is_well = add(&text, name) && add(&text, "\n");
    for (uint32_t i = 0; i < count && is_well; i++) is_well = add_note(&text, &notes[i]);
    if (is_well)
        (void)snprintf(line, sizeof line, "end %" PRIu32 " %08" PRIx32 "\n", count,
                       crc32c(0, text.at, text.bytes));
    if (is_well && add(&text, line)) {
        *ret_bytes = text.bytes;
        return text.at;
    }
    free(text.at);
    return NULL;
}

/* The next line, without its line break, as a text of its own. */
static bool next_line(const char **at, const char *end, char ret_line[LINE_BYTES]) {
    const char *line_end = memchr(*at, '\n', (size_t)(end - *at));
    if (!line_end || line_end - *at >= LINE_BYTES) return false;
    const size_t bytes = (size_t)(line_end - *at);
    memcpy(ret_line, *at, bytes);
    ret_line[bytes] = '\0';
    *at = line_end + 1;
    return true;
}

static bool read_note(const char *line, struct products_note *ret_note) {
    int at = 0;
    if (sscanf(line,
               "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64
               "%n",
               &ret_note->format, &ret_note->outputs, &ret_note->inputs, &ret_note->bucket,
               &ret_note->batch, &ret_note->gap, &ret_note->workspace_bytes, &at) != 7)
        return false;
    for (int i = 0; i < PRODUCTS_NOTE_WORDS; i++) {
        int used = 0;
        if (sscanf(line + at, " %" SCNx64 "%n", &ret_note->words[i], &used) != 1) return false;
        at += used;
    }
    return line[at] == '\0';
}

/* The beginning of the last line: `end`, with the CRC of all before it. NULL: it is none. */
static const char *end_of(const char *text, size_t bytes, uint32_t *ret_count) {
    char line[LINE_BYTES], is_more;
    uint32_t crc;
    if (bytes < 2 || text[bytes - 1] != '\n') return NULL;
    const char *last = text + bytes - 1;
    while (last > text && last[-1] != '\n') last--;
    const char *at = last;
    if (!next_line(&at, text + bytes, line) ||
        sscanf(line, "end %" SCNu32 " %" SCNx32 "%c", ret_count, &crc, &is_more) != 2)
        return NULL;
    return crc == crc32c(0, text, (size_t)(last - text)) ? last : NULL;
}

uint32_t products_notes_read(const char *text, size_t bytes, const char *name,
                             struct products_note *ret_notes, uint32_t room) {
    char line[LINE_BYTES];
    uint32_t count = 0;
    const char *at = text, *end = end_of(text, bytes, &count);
    if (!end || count > room || !next_line(&at, end, line) || strcmp(line, name) != 0) return 0;
    for (uint32_t i = 0; i < count; i++)
        if (!next_line(&at, end, line) || !read_note(line, &ret_notes[i])) return 0;
    return at == end ? count : 0;
}
