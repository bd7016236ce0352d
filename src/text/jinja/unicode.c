/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/unicode.h"

#include "base/utf8.h"
#include "jinja/casing.h"

#include <utf8proc.h>

static utf8proc_category_t category(uint32_t point) {
    return utf8proc_category((utf8proc_int32_t)point);
}

/* The code points for which Python's str.isspace is true. */
bool unicode_is_space(uint32_t point) {
    if (point < 0x80) return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20);
    return point == 0x85 || point == 0xA0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
           point == 0x202F || point == 0x205F || point == 0x3000;
}

bool unicode_is_line_break(uint32_t point) {
    return (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
           point == 0x2028 || point == 0x2029;
}

bool unicode_is_printable(uint32_t point) {
    if (point < 0x80) return point >= 0x20 && point < 0x7F;
    switch (category(point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

bool unicode_is_upper(uint32_t point) {
    if (point < 0x80) return point >= 'A' && point <= 'Z';
    return category(point) == UTF8PROC_CATEGORY_LU || casing_is_other_upper(point);
}

bool unicode_is_lower(uint32_t point) {
    if (point < 0x80) return point >= 'a' && point <= 'z';
    return category(point) == UTF8PROC_CATEGORY_LL || casing_is_other_lower(point);
}

bool unicode_is_title(uint32_t point) {
    return point >= 0x80 && category(point) == UTF8PROC_CATEGORY_LT;
}

bool unicode_is_alpha(uint32_t point) {
    if (point < 0x80) return unicode_is_upper(point) || unicode_is_lower(point);
    utf8proc_category_t kind = category(point);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_decimal(uint32_t point) {
    if (point < 0x80) return point >= '0' && point <= '9';
    return category(point) == UTF8PROC_CATEGORY_ND;
}

/* Superscripts and circled digits are digits to Python, though not decimal. */
bool unicode_is_digit(uint32_t point) {
    return unicode_is_decimal(point) || point == 0xB2 || point == 0xB3 || point == 0xB9 ||
           point == 0x2070 || (point >= 0x2074 && point <= 0x2079) ||
           (point >= 0x2080 && point <= 0x2089) || (point >= 0x2460 && point <= 0x2468);
}

bool unicode_is_numeric(uint32_t point) {
    if (unicode_is_digit(point)) return true;
    return point >= 0x80 &&
           (category(point) == UTF8PROC_CATEGORY_NL || category(point) == UTF8PROC_CATEGORY_NO);
}

bool unicode_is_name_start(uint32_t point) {
    return point == '_' || unicode_is_alpha(point) ||
           (point >= 0x80 && category(point) == UTF8PROC_CATEGORY_NL);
}

bool unicode_is_name(uint32_t point) {
    if (unicode_is_name_start(point) || unicode_is_decimal(point)) return true;
    if (point < 0x80) return false;
    utf8proc_category_t kind = category(point);
    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
           kind == UTF8PROC_CATEGORY_PC;
}

static void add_point(struct buf *buf, uint32_t point) {
    char bytes[4];
    buf_add(buf, bytes, utf8_encode(point, bytes));
}

#define FOLDED_MAX 4 /* code points in the longest folding */

static void add_folded(struct buf *buf, uint32_t point) {
    utf8proc_int32_t folded[FOLDED_MAX];
    int last_class = 0;
    utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)point, folded, FOLDED_MAX,
                                                     UTF8PROC_CASEFOLD, &last_class);
    for (utf8proc_ssize_t i = 0; i < count && i < FOLDED_MAX; i++)
        add_point(buf, (uint32_t)folded[i]);
}

void unicode_add_cased(struct buf *buf, uint32_t point, enum letter_case to) {
    if (to == CASE_FOLD && point >= 0x80) {
        add_folded(buf, point);
        return;
    }
    if (to == CASE_FOLD) to = CASE_LOWER;
    if (to == CASE_SWAP)
        to = unicode_is_upper(point)   ? CASE_LOWER
             : unicode_is_lower(point) ? CASE_UPPER
                                       : CASE_KEEP;
    if (point < 0x80) {
        bool change =
            to == CASE_LOWER ? unicode_is_upper(point) : to != CASE_KEEP && unicode_is_lower(point);
        buf_add_byte(buf, (char)(change ? point ^ 0x20 : point));
        return;
    }
    bool rises = to == CASE_UPPER || to == CASE_TITLE;
    const struct casing *casing = rises ? casing_find(point) : NULL;
    if (casing) {
        buf_add_text(buf, to == CASE_UPPER ? casing->upper : casing->title);
    } else if (to == CASE_LOWER && point == 0x130) {
        buf_add_text(buf, "i\xCC\x87");
    } else {
        utf8proc_int32_t cased = (utf8proc_int32_t)point;
        if (to == CASE_UPPER) cased = utf8proc_toupper(cased);
        if (to == CASE_LOWER) cased = utf8proc_tolower(cased);
        if (to == CASE_TITLE) cased = utf8proc_totitle(cased);
        add_point(buf, (uint32_t)cased);
    }
}

void unicode_add_text(struct buf *buf, struct str text, enum letter_case to) {
    for (size_t at = 0; at < text.bytes;) {
        uint32_t point;
        at += utf8_decode(text, at, &point);
        unicode_add_cased(buf, point, to);
    }
}

size_t unicode_space_run(struct str text, size_t from) {
    size_t at = from;
    while (at < text.bytes) {
        uint32_t point;
        size_t bytes = utf8_decode(text, at, &point);
        if (!unicode_is_space(point)) break;
        at += bytes;
    }
    return at - from;
}

struct str unicode_trim_end(struct str text) {
    while (text.bytes > 0) {
        size_t at = text.bytes - 1;
        while (at > 0 && ((unsigned char)text.at[at] & 0xC0) == 0x80) at--;
        uint32_t point;
        utf8_decode(text, at, &point);
        if (!unicode_is_space(point)) break;
        text.bytes = at;
    }
    return text;
}
