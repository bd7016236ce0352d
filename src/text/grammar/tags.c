/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/tags.h"

#include "base/mem.h"
#include "grammar/charset.h"
#include "grammar/ebnf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "grammar/tags_internal.h"
#include "json/json.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 100

static enum err read_format(struct tagger *tagger, const json_t *format, uint32_t *ret_expr);

enum err(tags_fail)(struct tagger *tagger, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return err_set(tagger->error, ERR_INVALID, "format%s: %s", tagger->place, text);
}

enum err tags_read_part(struct tagger *tagger, const char *key, int index, const json_t *part,
                        uint32_t *ret_expr) {
    size_t bytes = strlen(tagger->place);
    if (index < 0)
        snprintf(tagger->place + bytes, TAGS_PLACE_BYTES - bytes, ".%s", key);
    else
        snprintf(tagger->place + bytes, TAGS_PLACE_BYTES - bytes, ".%s[%d]", key, index);
    enum err err = read_format(tagger, part, ret_expr);
    if (err == OK) tagger->place[bytes] = '\0';
    return err;
}

enum err tags_read_text(struct tagger *tagger, const json_t *format, const char *key,
                        struct str *ret_text) {
    const json_t *value = json_object_get(format, key);
    if (!json_is_string(value)) return tags_fail(tagger, "'%s' must be a string", key);
    *ret_text = json_str(value);
    return OK;
}

enum err tags_read_strings(struct tagger *tagger, const json_t *format, const char *key,
                           uint32_t *ret_expr) {
    const json_t *list = json_member(format, key);
    *ret_expr = EXPR_NEVER;
    if (list && !json_is_array(list)) return tags_fail(tagger, "'%s' must be an array", key);
    uint32_t *parts = mem_new(json_array_size(list) + 1, sizeof *parts);
    enum err err = OK;
    for (size_t i = 0; i < json_array_size(list) && err == OK; i++) {
        const json_t *one = json_array_get(list, i);
        if (!json_is_string(one) || json_string_length(one) == 0)
            err = tags_fail(tagger, "'%s' must hold strings that are not empty", key);
        else
            parts[i] = expr_bytes(tagger->exprs, json_str(one));
    }
    if (err == OK) *ret_expr = expr_alt(tagger->exprs, parts, json_array_size(list));
    free(parts);
    return err;
}

uint32_t tags_without(struct tagger *tagger, uint32_t texts, uint32_t strings) {
    struct exprs *exprs = tagger->exprs;
    if (strings == EXPR_NEVER) return texts;
    uint32_t all = expr_all(exprs);
    uint32_t with = expr_cat(exprs, all, expr_cat(exprs, strings, all));
    return expr_and2(exprs, texts, expr_not(exprs, with));
}

/* --- formats without parts --- */

static enum err read_const(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct str text;
    enum err err = tags_read_text(tagger, format, "value", &text);
    if (err == OK) *ret_expr = expr_bytes(tagger->exprs, text);
    return err;
}

/* Puts the place before the error of a part that has a language of its own. The engine names the
 * place itself, or gives "" where the refusal names it. */
static enum err with_place(struct tagger *tagger, const json_t *format) {
    const json_t *place = json_member(format, "place");
    if (!json_is_string(place)) return err_prefix(tagger->error, "format%s", tagger->place);
    if (json_string_length(place) == 0) return err_not_ok(tagger->error->code);
    return err_prefix(tagger->error, "%s", json_string_value(place));
}

static enum err read_schema(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    const json_t *schema = json_object_get(format, "json_schema"),
                 *style = json_member(format, "style");
    if (!schema) return tags_fail(tagger, "it has no 'json_schema'");
    if (style && (!json_is_string(style) || !str_is(json_str(style), "json")))
        return tags_fail(tagger, "a 'style' but 'json' is not supported");
    const json_t *otherwise = json_member(format, "otherwise");
    enum err err = schema_expr(tagger->exprs, schema, ret_expr, tagger->error);
    if (err == ERR_INVALID && otherwise)
        err = schema_expr(tagger->exprs, otherwise, ret_expr, tagger->error);
    return err == OK ? OK : with_place(tagger, format);
}

static enum err read_mark(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    const json_t *mark = json_object_get(format, "mark");
    json_int_t number = json_integer_value(mark);
    if (!json_is_integer(mark) || number < 0 || number >= TAGS_MARKS_MAX)
        return tags_fail(tagger, "'mark' must be an integer below %d", TAGS_MARKS_MAX);
    const char bytes[2] = {(char)TAGS_MARK_BYTE, (char)number};
    *ret_expr = expr_bytes(tagger->exprs, (struct str){bytes, sizeof bytes});
    return OK;
}

static enum err read_regex(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct str pattern;
    enum err err = tags_read_text(tagger, format, "pattern", &pattern);
    if (err != OK) return err;
    err = regex_expr(tagger->exprs, pattern, REGEX_WHOLE, SPELLING_PLAIN, ret_expr, tagger->error);
    return err == OK ? OK : with_place(tagger, format);
}

static enum err read_grammar(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct str text;
    enum err err = tags_read_text(tagger, format, "grammar", &text);
    if (err != OK) return err;
    err = ebnf_expr(tagger->exprs, text, ret_expr, tagger->error);
    return err == OK ? OK : with_place(tagger, format);
}

static enum err read_any_text(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    uint32_t strings;
    enum err err = tags_read_strings(tagger, format, "excludes", &strings);
    if (err == OK) *ret_expr = tags_without(tagger, tagger->any_text, strings);
    return err;
}

/* As any_text, also with bytes that are no UTF-8: an answer may be turned away in the middle of a
 * character. */
static enum err read_any_bytes(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    uint32_t strings, byte = expr_range(tagger->exprs, 0, TAGS_MARK_BYTE - 1);
    enum err err = tags_read_strings(tagger, format, "excludes", &strings);
    uint32_t bytes = expr_repeat(tagger->exprs, byte, 0, EXPR_NO_MAX);
    if (err == OK) *ret_expr = tags_without(tagger, bytes, strings);
    return err;
}

/* --- formats of formats --- */

enum err tags_read_parts(struct tagger *tagger, const json_t *format, const char *key,
                         uint32_t **ret_parts, size_t *ret_count) {
    const json_t *list = json_object_get(format, key);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return tags_fail(tagger, "'%s' must be an array that is not empty", key);
    size_t count = json_array_size(list);
    uint32_t *parts = mem_new(count, sizeof *parts);
    enum err err = OK;
    for (size_t i = 0; i < count && err == OK; i++)
        err = tags_read_part(tagger, key, (int)i, json_array_get(list, i), &parts[i]);
    if (err != OK) {
        free(parts);
        return err;
    }
    *ret_parts = parts;
    *ret_count = count;
    return OK;
}

static enum err read_sequence(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    uint32_t *parts, rest = EXPR_EMPTY;
    size_t count;
    enum err err = tags_read_parts(tagger, format, "elements", &parts, &count);
    if (err != OK) return err;
    while (count > 0) rest = expr_cat(tagger->exprs, parts[--count], rest);
    free(parts);
    *ret_expr = rest;
    return OK;
}

static enum err read_or(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    uint32_t *parts;
    size_t count;
    enum err err = tags_read_parts(tagger, format, "elements", &parts, &count);
    if (err != OK) return err;
    *ret_expr = expr_alt(tagger->exprs, parts, count);
    free(parts);
    return OK;
}

static enum err read_times(struct tagger *tagger, const json_t *format, uint32_t min, uint32_t max,
                           uint32_t *ret_expr) {
    uint32_t part;
    enum err err = tags_read_part(tagger, "content", -1, json_object_get(format, "content"), &part);
    if (err == OK) *ret_expr = expr_repeat(tagger->exprs, part, min, max);
    return err;
}

static enum err read_optional(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    return read_times(tagger, format, 0, 1, ret_expr);
}

static enum err read_star(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    return read_times(tagger, format, 0, EXPR_NO_MAX, ret_expr);
}

static enum err read_plus(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    return read_times(tagger, format, 1, EXPR_NO_MAX, ret_expr);
}

static enum err read_repeat(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    const json_t *least = json_object_get(format, "min"), *most = json_object_get(format, "max");
    json_int_t min = json_integer_value(least), max = json_integer_value(most);
    if (!json_is_integer(least) || min < 0 || min > TAGS_TIMES_MAX)
        return tags_fail(tagger, "'min' must be an integer from 0 on");
    if (!json_is_integer(most) || (max != -1 && (max < min || max > TAGS_TIMES_MAX)))
        return tags_fail(tagger, "'max' must be -1 or an integer that is not below 'min'");
    return read_times(tagger, format, (uint32_t)min, max < 0 ? EXPR_NO_MAX : (uint32_t)max,
                      ret_expr);
}

/* --- every format --- */

static const struct {
    const char *type;
    enum err (*read)(struct tagger *tagger, const json_t *format, uint32_t *ret_expr);
} types[] = {
    {"const_string", read_const},
    {"json_schema", read_schema},
    {"mark", read_mark},
    {"regex", read_regex},
    {"grammar", read_grammar},
    {"any_text", read_any_text},
    {"any_bytes", read_any_bytes},
    {"sequence", read_sequence},
    {"or", read_or},
    {"tag", tags_read_tag},
    {"optional", read_optional},
    {"star", read_star},
    {"plus", read_plus},
    {"repeat", read_repeat},
    {"tags_with_separator", tags_read_separated},
    {"triggered_tags", tags_read_triggers},
};

static enum err read_format(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    const json_t *type = json_object_get(format, "type");
    if (!json_is_string(type)) return tags_fail(tagger, "it must be an object with a 'type'");
    if (tagger->depth == DEPTH_MAX || ++tagger->formats > TAGS_FORMATS_MAX)
        return err_set(tagger->error, ERR_LIMIT, "the format is too large");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!str_is(json_str(type), types[i].type)) continue;
        tagger->depth++;
        enum err err = types[i].read(tagger, format, ret_expr);
        tagger->depth--;
        if (err == OK && tagger->exprs->overflowed)
            err = err_set(tagger->error, ERR_LIMIT, "the format is too large");
        return err;
    }
    return tags_fail(tagger, "the type '%.60s' is not supported", json_string_value(type));
}

enum err tags_expr(struct exprs *exprs, const json_t *format, uint32_t *ret_expr,
                   struct error *error) {
    struct tagger tagger = {.exprs = exprs, .error = error};
    tagger.any_text = expr_repeat(exprs, charset_any(exprs, SPELLING_PLAIN), 0, EXPR_NO_MAX);
    return read_format(&tagger, format, ret_expr);
}
