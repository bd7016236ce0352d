/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/sentencepiece.h"

#include <string.h>

#define SPACE "\xE2\x96\x81" /* U+2581 */
#define SPACE_BYTES 3

static bool is_space_at(struct str text, size_t at) {
    return text.bytes - at >= SPACE_BYTES && memcmp(text.at + at, SPACE, SPACE_BYTES) == 0;
}

static int hex_digit(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return -1;
}

bool sentencepiece_byte(struct str spelled, unsigned char *ret_byte) {
    if (spelled.bytes != 6 || memcmp(spelled.at, "<0x", 3) != 0 || spelled.at[5] != '>')
        return false;
    int high = hex_digit(spelled.at[3]), low = hex_digit(spelled.at[4]);
    if (high < 0 || low < 0) return false;
    *ret_byte = (unsigned char)(high * 16 + low);
    return true;
}

size_t sentencepiece_decode(struct str spelled, enum token_kind kind, char *ret_bytes) {
    unsigned char byte;
    if (kind == TOKEN_BYTE && sentencepiece_byte(spelled, &byte)) {
        ret_bytes[0] = (char)byte;
        return 1;
    }
    size_t count = 0;
    for (size_t at = 0; at < spelled.bytes;) {
        bool is_space = is_space_at(spelled, at);
        ret_bytes[count++] = is_space ? ' ' : spelled.at[at];
        at += is_space ? SPACE_BYTES : 1;
    }
    return count;
}

static bool has_inner_space(struct str spelled) {
    bool in_word = false;
    for (size_t at = 0; at < spelled.bytes;) {
        bool is_space = is_space_at(spelled, at);
        if (is_space && in_word) return true;
        in_word = in_word || !is_space;
        at += is_space ? SPACE_BYTES : 1;
    }
    return false;
}

bool sentencepiece_cuts_words(const struct tokenizer_source *source) {
    for (size_t id = 0; id < source->token_count; id++)
        if (has_inner_space(source->tokens[id])) return false;
    return true;
}

void sentencepiece_escape(struct buf *buf, struct str stretch, enum space_prefix prefix,
                          bool is_first) {
    if (stretch.bytes == 0) return;
    bool begins_with_space = stretch.at[0] == ' ' || is_space_at(stretch, 0);
    bool wanted = prefix == SPACE_PREFIX_ALWAYS ||
                  (prefix == SPACE_PREFIX_UNLESS_SPACE && !begins_with_space) ||
                  (prefix == SPACE_PREFIX_FIRST && !begins_with_space && is_first);
    if (wanted) buf_add(buf, SPACE, SPACE_BYTES);
    for (size_t at = 0; at < stretch.bytes;) {
        size_t space = str_find_byte(stretch, ' ', at);
        if (space == SIZE_MAX) space = stretch.bytes;
        buf_add(buf, stretch.at + at, space - at);
        if (space < stretch.bytes) buf_add(buf, SPACE, SPACE_BYTES);
        at = space + 1;
    }
}

size_t sentencepiece_piece_end(struct str text, size_t from, bool cuts_words) {
    if (!cuts_words) return text.bytes;
    size_t at = from;
    while (is_space_at(text, at)) at += SPACE_BYTES;
    while (at < text.bytes) {
        const char *lead = memchr(text.at + at, SPACE[0], text.bytes - at);
        if (!lead) return text.bytes;
        at = (size_t)(lead - text.at);
        if (is_space_at(text, at)) return at;
        at++;
    }
    return at;
}
