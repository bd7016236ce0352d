/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <assert.h>
#include <string.h>

/* Length of the sequence that `lead` opens, 0 if it opens none. */
static size_t sequence_bytes(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

/* The second byte is where overlong forms, surrogates and values past U+10FFFF are told apart. */
static bool second_is_valid(unsigned char lead, unsigned char second) {
    switch (lead) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xED: return second >= 0x80 && second <= 0x9F;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return second >= 0x80 && second <= 0xBF;
    }
}

/* How many bytes at `at` belong to one sequence that is valid as far as it goes; sets
 * *ret_complete. */
static size_t valid_run(const unsigned char *at, size_t count, bool *ret_complete) {
    size_t wanted = sequence_bytes(at[0]);
    *ret_complete = false;
    if (wanted == 0) return 0;
    size_t have = 1;
    while (have < wanted && have < count) {
        bool good = have == 1 ? second_is_valid(at[0], at[1]) : (at[have] & 0xC0) == 0x80;
        if (!good) return have;
        have++;
    }
    *ret_complete = have == wanted;
    return have;
}

size_t utf8_valid_prefix(struct str text) {
    const unsigned char *bytes = (const unsigned char *)text.at;
    size_t at = 0;
    while (at < text.bytes) {
        uint64_t word;
        if (text.bytes - at >= sizeof word) {
            memcpy(&word, bytes + at, sizeof word);
            if ((word & 0x8080808080808080ull) == 0) {
                at += sizeof word;
                continue;
            }
        }
        bool complete;
        size_t run = valid_run(bytes + at, text.bytes - at, &complete);
        if (!complete) return at;
        at += run;
    }
    return at;
}

bool utf8_is_valid(struct str text) {
    return utf8_valid_prefix(text) == text.bytes;
}

size_t utf8_decode(struct str text, size_t at, uint32_t *ret_code_point) {
    assert(at < text.bytes);
    const unsigned char *bytes = (const unsigned char *)text.at + at;
    size_t count = sequence_bytes(bytes[0]);
    assert(count > 0 && count <= text.bytes - at);
    static const unsigned char lead_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code_point = bytes[0] & lead_bits[count];
    for (size_t i = 1; i < count; i++) code_point = code_point << 6 | (bytes[i] & 0x3Fu);
    *ret_code_point = code_point;
    return count;
}

size_t utf8_encode(uint32_t code_point, char ret_bytes[4]) {
    assert(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF));
    if (code_point < 0x80) {
        ret_bytes[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        ret_bytes[0] = (char)(0xC0 | code_point >> 6);
        ret_bytes[1] = (char)(0x80 | (code_point & 0x3F));
        return 2;
    }
    if (code_point < 0x10000) {
        ret_bytes[0] = (char)(0xE0 | code_point >> 12);
        ret_bytes[1] = (char)(0x80 | (code_point >> 6 & 0x3F));
        ret_bytes[2] = (char)(0x80 | (code_point & 0x3F));
        return 3;
    }
    ret_bytes[0] = (char)(0xF0 | code_point >> 18);
    ret_bytes[1] = (char)(0x80 | (code_point >> 12 & 0x3F));
    ret_bytes[2] = (char)(0x80 | (code_point >> 6 & 0x3F));
    ret_bytes[3] = (char)(0x80 | (code_point & 0x3F));
    return 4;
}

size_t utf8_count(struct str text) {
    size_t count = 0;
    for (size_t i = 0; i < text.bytes; i++) count += ((unsigned char)text.at[i] & 0xC0) != 0x80;
    return count;
}

size_t utf8_incomplete_tail(struct str text) {
    for (size_t back = 1; back <= 3 && back <= text.bytes; back++) {
        const unsigned char *at = (const unsigned char *)text.at + text.bytes - back;
        if ((*at & 0xC0) == 0x80) continue;
        bool complete;
        size_t run = valid_run(at, back, &complete);
        return !complete && run == back ? back : 0;
    }
    return 0;
}

void utf8_add_repaired(struct buf *buf, struct str text) {
    while (text.bytes > 0) {
        size_t good = utf8_valid_prefix(text);
        buf_add(buf, text.at, good);
        text = str_skip(text, good);
        if (text.bytes == 0) break;
        bool complete;
        size_t bad = valid_run((const unsigned char *)text.at, text.bytes, &complete);
        buf_add_text(buf, "\xEF\xBF\xBD");
        text = str_skip(text, bad > 0 ? bad : 1);
    }
}
