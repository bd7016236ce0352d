/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/charsmap.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define GRAPHEME_BYTES 6 /* longer ones go character by character */

enum err charsmap_open(struct charsmap *ret_map, struct str bytes, struct error *error) {
    uint32_t unit_bytes = 0;
    if (bytes.bytes > CHARSMAP_BYTES_MAX)
        return err_set(error, ERR_LIMIT, "precompiled_charsmap: %zu bytes, over the limit of %u",
                       bytes.bytes, CHARSMAP_BYTES_MAX);
    if (bytes.bytes >= sizeof unit_bytes) memcpy(&unit_bytes, bytes.at, sizeof unit_bytes);
    const size_t begin = sizeof unit_bytes + (size_t)unit_bytes;
    if (unit_bytes == 0 || unit_bytes % sizeof(uint32_t) != 0 || begin >= bytes.bytes)
        return err_set(error, ERR_INVALID,
                       "precompiled_charsmap: %u bytes of units do not fit into %zu bytes",
                       unit_bytes, bytes.bytes);
    if (bytes.at[bytes.bytes - 1] != '\0')
        return err_set(error, ERR_INVALID, "precompiled_charsmap: its last text has no end");
    struct charsmap map = {.unit_count = unit_bytes / sizeof(uint32_t),
                           .text_bytes = bytes.bytes - begin};
    map.units = mem_alloc(unit_bytes);
    map.texts = mem_alloc(map.text_bytes);
    memcpy(map.units, bytes.at + sizeof unit_bytes, unit_bytes);
    memcpy(map.texts, bytes.at + begin, map.text_bytes);
    *ret_map = map;
    return OK;
}

void charsmap_close(struct charsmap *map) {
    free(map->units);
    free(map->texts);
    *map = (struct charsmap){.units = NULL};
}

static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The text of a prefix of `key` that the rules have, the shortest or the longest, and its length;
 * NULL without one. */
static const char *find(const struct charsmap *map, struct str key, bool is_longest,
                        size_t *ret_bytes) {
    size_t at = 0;
    const char *found = NULL;
    if (map->unit_count == 0) return NULL;
    at ^= offset_of(map->units[0]);
    for (size_t i = 0; i < key.bytes && key.at[i] != '\0'; i++) {
        const unsigned char byte = (unsigned char)key.at[i];
        at ^= byte;
        if (at >= map->unit_count) break;
        const uint32_t unit = map->units[at];
        if ((unit & (1u << 31 | 0xFF)) != byte) break;
        at ^= offset_of(unit);
        if (at >= map->unit_count) break;
        if (!(unit >> 8 & 1)) continue;
        const size_t text = map->units[at] & ((1u << 31) - 1);
        if (text >= map->text_bytes) break;
        found = map->texts + text;
        *ret_bytes = i + 1;
        if (!is_longest) break;
    }
    return found;
}

/* Appends the text of a piece; false without one. What the rules say may be no UTF-8: then they say
 * nothing. */
static bool add_mapped(const struct charsmap *map, struct buf *buf, struct str piece) {
    size_t bytes;
    const char *text = find(map, piece, false, &bytes);
    if (!text || !utf8_is_valid(str_from(text))) return false;
    buf_add_text(buf, text);
    return true;
}

static void add_grapheme(const struct charsmap *map, struct buf *buf, struct str grapheme) {
    if (grapheme.bytes < GRAPHEME_BYTES && add_mapped(map, buf, grapheme)) return;
    for (size_t at = 0; at < grapheme.bytes;) {
        uint32_t code_point;
        const size_t bytes = utf8_decode(grapheme, at, &code_point);
        const struct str one = {grapheme.at + at, bytes};
        if (!add_mapped(map, buf, one)) buf_add_str(buf, one);
        at += bytes;
    }
}

void charsmap_add_longest(const struct charsmap *map, struct buf *buf, struct str text) {
    while (text.bytes > 0) {
        uint32_t code_point;
        size_t bytes = 0;
        const char *to = find(map, text, true, &bytes);
        const bool is_mapped =
            to && utf8_is_valid((struct str){text.at, bytes}) && utf8_is_valid(str_from(to));
        if (!is_mapped) bytes = utf8_decode(text, 0, &code_point);
        if (is_mapped)
            buf_add_text(buf, to);
        else
            buf_add(buf, text.at, bytes);
        text = str_skip(text, bytes);
    }
}

void charsmap_add(const struct charsmap *map, struct buf *buf, struct str text) {
    utf8proc_int32_t state = 0;
    uint32_t code_point, next;
    for (size_t begin = 0, at = 0; begin < text.bytes; begin = at) {
        at += utf8_decode(text, at, &code_point);
        while (at < text.bytes) {
            const size_t bytes = utf8_decode(text, at, &next);
            if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code_point,
                                                 (utf8proc_int32_t)next, &state))
                break;
            code_point = next;
            at += bytes;
        }
        add_grapheme(map, buf, (struct str){text.at + begin, at - begin});
    }
}
