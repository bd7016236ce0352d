/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/xml.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#define ENTITY_BYTES 10 /* the longest that is read, "&#x10FFFF;" */

static const struct {
    const char *name;
    char byte;
} entities[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};

struct tag {
    size_t start, end; /* from '<' to behind '>' */
    struct str name;   /* without its prefix */
    bool is_end, is_empty;
};

/* The index behind the next `mark`, or the end. */
static size_t behind(struct str xml, struct str mark, size_t from) {
    size_t at = str_find(xml, mark, from);
    return at == SIZE_MAX ? xml.bytes : at + mark.bytes;
}

static struct str name_of(struct str inside) {
    size_t end = 0;
    while (end < inside.bytes && !strchr(" \t\r\n/", inside.at[end])) end++;
    struct str name = {inside.at, end};
    size_t colon = str_find_byte(name, ':', 0);
    return colon == SIZE_MAX ? name : str_skip(name, colon + 1);
}

/* Reads the next tag at or behind *at, and moves *at behind it. */
static bool next_tag(struct str xml, size_t *at, struct tag *ret_tag) {
    for (;;) {
        size_t start = str_find_byte(xml, '<', *at);
        struct str rest = str_skip(xml, start);
        if (start == SIZE_MAX) return false;
        if (str_starts_with(rest, STR("<!--"))) {
            *at = behind(xml, STR("-->"), start + 4);
        } else if (str_starts_with(rest, STR("<![CDATA["))) {
            *at = behind(xml, STR("]]>"), start);
        } else if (str_starts_with(rest, STR("<?")) || str_starts_with(rest, STR("<!"))) {
            *at = behind(xml, STR(">"), start);
        } else {
            size_t close = str_find_byte(xml, '>', start);
            if (close == SIZE_MAX) return false;
            bool is_end = str_starts_with(rest, STR("</"));
            struct str inside = {xml.at + start + 1 + is_end, close - start - 1 - is_end};
            *ret_tag = (struct tag){start, close + 1, name_of(inside), is_end,
                                    str_ends_with(inside, STR("/"))};
            *at = close + 1;
            return true;
        }
    }
}

bool xml_next(struct str xml, const char *name, size_t *at, struct str *ret_content) {
    struct tag tag;
    while (next_tag(xml, at, &tag)) {
        if (tag.is_end || !str_is(tag.name, name)) continue;
        size_t start = tag.end;
        if (tag.is_empty) {
            *ret_content = (struct str){xml.at + start, 0};
            return true;
        }
        while (next_tag(xml, at, &tag))
            if (tag.is_end && str_is(tag.name, name)) {
                *ret_content = (struct str){xml.at + start, tag.start - start};
                return true;
            }
    }
    *at = xml.bytes;
    return false;
}

/* The code point of a numeric entity; 0 for any other text. */
static uint32_t number_of(struct str entity) {
    bool is_hex = entity.bytes > 2 && entity.at[2] == 'x';
    uint32_t code = 0;
    for (size_t i = is_hex ? 3 : 2; i + 1 < entity.bytes; i++) {
        char c = entity.at[i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : 99;
        if (digit >= (is_hex ? 16u : 10u)) return 0;
        code = code * (is_hex ? 16 : 10) + digit;
        if (code > 0x10ffff) return 0;
    }
    return code >= 0xd800 && code < 0xe000 ? 0 : code;
}

/* What the text begins with, decoded; returns the number of bytes that it stood for. */
static size_t decode(struct str text, char ret_bytes[4], size_t *ret_count) {
    ret_bytes[0] = text.at[0];
    *ret_count = 1;
    if (text.at[0] != '&') return 1;
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (str_starts_with(text, str_from(entities[i].name))) {
            ret_bytes[0] = entities[i].byte;
            return strlen(entities[i].name);
        }
    struct str near = {text.at, text.bytes < ENTITY_BYTES ? text.bytes : ENTITY_BYTES};
    size_t end = str_find_byte(near, ';', 0);
    if (end == SIZE_MAX || !str_starts_with(near, STR("&#"))) return 1;
    uint32_t code = number_of((struct str){near.at, end + 1});
    if (code == 0) return 1;
    *ret_count = utf8_encode(code, ret_bytes);
    return end + 1;
}

bool xml_text(struct str xml, const char *name, char *ret_text, size_t text_bytes) {
    size_t at = 0, bytes = 0, count;
    struct str content;
    char piece[4];
    ret_text[0] = '\0';
    if (!xml_next(xml, name, &at, &content)) return false;
    content = str_trim(content);
    while (content.bytes > 0) {
        size_t passed = decode(content, piece, &count);
        if (content.at[0] == '<' || bytes + count >= text_bytes) {
            ret_text[0] = '\0';
            return false;
        }
        for (size_t i = 0; i < count; i++)
            ret_text[bytes++] = (unsigned char)piece[i] < ' ' || piece[i] == 0x7f ? ' ' : piece[i];
        content = str_skip(content, passed);
    }
    ret_text[bytes] = '\0';
    return true;
}

bool xml_escape(const char *text, char *ret_text, size_t text_bytes) {
    size_t bytes = 0;
    for (; *text; text++) {
        char single[2] = {*text, '\0'};
        const char *piece = single;
        for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
            if (*text == entities[i].byte) piece = entities[i].name;
        if (bytes + strlen(piece) >= text_bytes) return false;
        memcpy(ret_text + bytes, piece, strlen(piece) + 1);
        bytes += strlen(piece);
    }
    ret_text[bytes] = '\0';
    return true;
}
