/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/charset.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void charset_release(struct charset *set) {
    free(set->at);
    *set = (struct charset){0};
}

void charset_add(struct charset *set, uint32_t first, uint32_t last) {
    set->at = vec_grow(set->at, set->count, &set->capacity, sizeof *set->at);
    set->at[set->count++] = (struct char_range){first, last};
}

void charset_add_set(struct charset *set, const struct charset *other) {
    for (size_t i = 0; i < other->count; i++)
        charset_add(set, other->at[i].first, other->at[i].last);
}

static int compare(const void *a, const void *b) {
    const struct char_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Sorts the ranges and joins those that touch. */
static void settle(struct charset *set) {
    size_t kept = 0;
    if (set->count > 0) qsort(set->at, set->count, sizeof *set->at, compare);
    for (size_t i = 0; i < set->count; i++) {
        if (kept > 0 && set->at[i].first <= set->at[kept - 1].last + 1) {
            if (set->at[i].last > set->at[kept - 1].last) set->at[kept - 1].last = set->at[i].last;
        } else {
            set->at[kept++] = set->at[i];
        }
    }
    set->count = kept;
}

void charset_negate(struct charset *set) {
    struct charset others = {0};
    uint32_t next = 0;
    settle(set);
    for (size_t i = 0; i < set->count; i++) {
        if (set->at[i].first > next) charset_add(&others, next, set->at[i].first - 1);
        next = set->at[i].last + 1;
    }
    if (next <= CHAR_LAST) charset_add(&others, next, CHAR_LAST);
    charset_release(set);
    *set = others;
}

/* --- general categories --- */

struct category {
    const char *name, *long_name;
    uint32_t bits; /* set of 1 << utf8proc_category_t */
};

#define BIT(name) (1u << UTF8PROC_CATEGORY_##name)
static const struct category categories[] = {
    {"L", "Letter", BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO)},
    {"Lu", "Uppercase_Letter", BIT(LU)},
    {"Ll", "Lowercase_Letter", BIT(LL)},
    {"Lt", "Titlecase_Letter", BIT(LT)},
    {"Lm", "Modifier_Letter", BIT(LM)},
    {"Lo", "Other_Letter", BIT(LO)},
    {"M", "Mark", BIT(MN) | BIT(MC) | BIT(ME)},
    {"N", "Number", BIT(ND) | BIT(NL) | BIT(NO)},
    {"Nd", "Decimal_Number", BIT(ND)},
    {"Nl", "Letter_Number", BIT(NL)},
    {"No", "Other_Number", BIT(NO)},
    {"P", "Punctuation", BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO)},
    {"S", "Symbol", BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO)},
    {"Sm", "Math_Symbol", BIT(SM)},
    {"Sc", "Currency_Symbol", BIT(SC)},
    {"Z", "Separator", BIT(ZS) | BIT(ZL) | BIT(ZP)},
    {"Zs", "Space_Separator", BIT(ZS)},
};

bool charset_add_category(struct charset *set, struct str name) {
    const struct category *found = NULL;
    for (size_t i = 0; i < sizeof categories / sizeof *categories && !found; i++)
        if (str_is(name, categories[i].name) || str_is(name, categories[i].long_name))
            found = &categories[i];
    if (!found) return false;
    uint32_t first = UINT32_MAX;
    for (uint32_t c = 0; c <= CHAR_LAST + 1; c++) {
        bool is_in = c <= CHAR_LAST && found->bits >> utf8proc_category((int32_t)c) & 1;
        if (is_in && first == UINT32_MAX) first = c;
        if (!is_in && first != UINT32_MAX) {
            charset_add(set, first, c - 1);
            first = UINT32_MAX;
        }
    }
    return true;
}

bool charset_add_posix(struct charset *set, struct str name) {
    static const struct {
        const char *name, *ranges; /* pairs of the first and the last character */
    } classes[] = {{"alpha", "azAZ"},
                   {"digit", "09"},
                   {"alnum", "azAZ09"},
                   {"upper", "AZ"},
                   {"lower", "az"},
                   {"space", "\t\r  "},
                   {"blank", "\t\t  "},
                   {"punct", "!/:@[`{~"},
                   {"xdigit", "09afAF"},
                   {"word", "azAZ09__"},
                   {"print", " ~"},
                   {"graph", "!~"},
                   {"cntrl", "\x01\x1f\x7f\x7f"},
                   {"ascii", "\x01\x7f"}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const char *range = classes[i].ranges;
        if (!str_is(name, classes[i].name)) continue;
        /* The table's texts cannot begin with NUL. */
        if (*range == '\x01') charset_add(set, 0, 0);
        for (; *range; range += 2)
            charset_add(set, (unsigned char)range[0], (unsigned char)range[1]);
        return true;
    }
    return false;
}

bool charset_add_class(struct charset *set, char letter) {
    static const struct char_range digits[] = {{'0', '9'}};
    static const struct char_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct char_range spaces[] = {
        {9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    static const struct class {
        char name, negated;
        const struct char_range *ranges;
        size_t count;
    } classes[] = {{'d', 'D', digits, 1}, {'w', 'W', words, 4}, {'s', 'S', spaces, 10}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const struct class *class = &classes[i];
        if (letter != class->name && letter != class->negated) continue;
        struct charset own = {0};
        for (size_t k = 0; k < class->count; k++)
            charset_add(&own, class->ranges[k].first, class->ranges[k].last);
        if (letter == class->negated) charset_negate(&own);
        charset_add_set(set, &own);
        charset_release(&own);
        return true;
    }
    return false;
}

/* --- bytes --- */

static size_t encode(uint32_t c, unsigned char bytes[4]) {
    if (c < 0x80) {
        bytes[0] = (unsigned char)c;
        return 1;
    }
    size_t count = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = count; i-- > 1; c >>= 6) bytes[i] = (unsigned char)(0x80 | (c & 0x3f));
    bytes[0] = (unsigned char)((count == 2 ? 0xc0 : count == 3 ? 0xe0 : 0xf0) | c);
    return count;
}

/* A list of expressions. */
struct parts {
    uint32_t *at;
    size_t count, capacity;
};

static void add_part(struct parts *parts, uint32_t part) {
    parts->at = vec_grow(parts->at, parts->count, &parts->capacity, sizeof *parts->at);
    parts->at[parts->count++] = part;
}

/* Adds the UTF-8 of a range whose characters have equally many bytes. It is cut until every byte
 * of the first and the last character spans a range of its own. */
static void add_utf8(struct exprs *exprs, struct parts *parts, uint32_t first, uint32_t last) {
    unsigned char low[4] = {0}, high[4] = {0};
    for (unsigned bits = 6; bits <= 18; bits += 6) {
        uint32_t mask = (1u << bits) - 1;
        if ((first & ~mask) == (last & ~mask) || first < 0x80) continue;
        if (first & mask) {
            add_utf8(exprs, parts, first, first | mask);
            add_utf8(exprs, parts, (first | mask) + 1, last);
            return;
        }
        if ((last & mask) != mask) {
            add_utf8(exprs, parts, first, (last & ~mask) - 1);
            add_utf8(exprs, parts, last & ~mask, last);
            return;
        }
    }
    size_t count = encode(first, low);
    size_t high_count = encode(last, high);
    assert(count == high_count); /* the range was cut at each new length */
    uint32_t rest = EXPR_EMPTY;
    for (size_t i = count; i-- > 0;)
        rest = expr_cat(exprs, expr_range(exprs, low[i], high[i]), rest);
    add_part(parts, rest);
}

static void spell_one(uint32_t c, struct buf *buf) {
    static const char shorts[] = "btn\0fr"; /* letters for U+0008 and on */
    if (c == '"' || c == '\\')
        buf_printf(buf, "\\%c", (int)c);
    else if (c >= 8 && c <= 13 && c != 11)
        buf_printf(buf, "\\%c", shorts[c - 8]);
    else
        buf_printf(buf, "\\u%04x", (unsigned)c);
}

static bool needs_escape(uint32_t c) {
    return c < 0x20 || c == '"' || c == '\\';
}

/* Adds the characters first..last, which need no escape. */
static void add_plain(struct exprs *exprs, struct parts *parts, uint32_t first, uint32_t last) {
    /* Characters of one number of bytes each; surrogates are left out. */
    static const struct char_range lengths[] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, CHAR_LAST}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t from = first > lengths[i].first ? first : lengths[i].first;
        uint32_t to = last < lengths[i].last ? last : lengths[i].last;
        if (from <= to) add_utf8(exprs, parts, from, to);
    }
}

static void add_range(struct exprs *exprs, struct parts *parts, uint32_t first, uint32_t last,
                      enum spelling spelling) {
    uint32_t from = first;
    for (uint32_t c = first; spelling == SPELLING_JSON && c <= last && c < 0x80; c++) {
        if (!needs_escape(c)) continue;
        if (c > from) add_plain(exprs, parts, from, c - 1);
        struct buf text;
        buf_init(&text, 16);
        spell_one(c, &text);
        add_part(parts, expr_bytes(exprs, buf_str(&text)));
        buf_release(&text);
        from = c + 1;
    }
    if (from <= last) add_plain(exprs, parts, from, last);
}

uint32_t charset_expr(struct exprs *exprs, const struct charset *set, enum spelling spelling) {
    struct charset own = {0};
    struct parts parts = {0};
    charset_add_set(&own, set);
    settle(&own);
    for (size_t i = 0; i < own.count && !exprs->overflowed; i++)
        add_range(exprs, &parts, own.at[i].first, own.at[i].last, spelling);
    uint32_t expr = expr_alt(exprs, parts.at, parts.count);
    free(parts.at);
    charset_release(&own);
    return expr;
}

uint32_t charset_any(struct exprs *exprs, enum spelling spelling) {
    struct char_range all = {0, CHAR_LAST};
    return charset_expr(exprs, &(struct charset){&all, 1, 1}, spelling);
}

void charset_spell(struct str text, enum spelling spelling, struct buf *buf) {
    for (size_t i = 0; i < text.bytes; i++) {
        unsigned char byte = (unsigned char)text.at[i];
        if (spelling == SPELLING_JSON && needs_escape(byte))
            spell_one(byte, buf);
        else
            buf_add_byte(buf, (char)byte);
    }
}
