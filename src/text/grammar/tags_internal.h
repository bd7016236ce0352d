/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tags_internal: a format while it becomes an expression, between tags.c, which reads all formats
 * but those of tags, and tag_formats.c, which reads these.
 *
 * Thread: as tags.h.
 * Memory: as tags.h. */

#include "grammar/tags.h"

#define TAGS_FORMATS_MAX 10000
#define TAGS_PLACE_BYTES 200

/* Formats while they become an expression. */
struct tagger {
    struct exprs *exprs;
    struct error *error;
    uint32_t any_text;
    uint32_t formats, depth;
    char place[TAGS_PLACE_BYTES]; /* place of the current format: ".elements[2].content" */
};

/* ERR_INVALID with the place of the current format. */
enum err tags_fail(struct tagger *tagger, const char *format, ...) PRINTF_LIKE(2, 3);
#define tags_fail(...) err_not_ok((tags_fail)(__VA_ARGS__))

/* Reads a format inside the current one, in its member `key`; `index` is below 0 if that is no
 * array. */
enum err tags_read_part(struct tagger *tagger, const char *key, int index, const json_t *part,
                        uint32_t *ret_expr);
/* All parts of an array that is not empty; the caller frees *ret_parts. */
enum err tags_read_parts(struct tagger *tagger, const json_t *format, const char *key,
                         uint32_t **ret_parts, size_t *ret_count);
enum err tags_read_text(struct tagger *tagger, const json_t *format, const char *key,
                        struct str *ret_text);
/* One of the strings of an array; EXPR_NEVER if it is absent or empty. */
enum err tags_read_strings(struct tagger *tagger, const json_t *format, const char *key,
                           uint32_t *ret_expr);
/* The part of `texts` that has none of `strings` in it. */
uint32_t tags_without(struct tagger *tagger, uint32_t texts, uint32_t strings);

/* The formats of tag_formats.c. */
enum err tags_read_tag(struct tagger *tagger, const json_t *format, uint32_t *ret_expr);
enum err tags_read_separated(struct tagger *tagger, const json_t *format, uint32_t *ret_expr);
/* As in xgrammar, a format of which at least one tag is asked begins with it. */
enum err tags_read_triggers(struct tagger *tagger, const json_t *format, uint32_t *ret_expr);
