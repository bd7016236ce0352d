/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/tags.h"

#include "base/buf.h"
#include "base/mem.h"
#include "grammar/charset.h"
#include "grammar/ebnf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "json/json.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FORMATS_MAX 10000
#define DEPTH_MAX 100
#define PLACE_BYTES 200

/* Formats while they become an expression. */
struct tagger {
    struct exprs *exprs;
    struct error *error;
    uint32_t any_text;
    uint32_t formats, depth;
    char place[PLACE_BYTES]; /* of the current format: ".elements[2].content" */
};

static enum err read_format(struct tagger *tagger, const json_t *format, uint32_t *ret_expr);

static enum err fail(struct tagger *tagger, const char *format, ...) PRINTF_LIKE(2, 3);

static enum err(fail)(struct tagger *tagger, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return err_set(tagger->error, ERR_INVALID, "format%s: %s", tagger->place, text);
}
#define fail(...) err_not_ok((fail)(__VA_ARGS__))

/* Reads a format inside the current one, in its member `key`; `index` is below 0 if that is no
 * array. */
static enum err read_part(struct tagger *tagger, const char *key, int index, const json_t *part,
                          uint32_t *ret_expr) {
    size_t bytes = strlen(tagger->place);
    if (index < 0)
        snprintf(tagger->place + bytes, PLACE_BYTES - bytes, ".%s", key);
    else
        snprintf(tagger->place + bytes, PLACE_BYTES - bytes, ".%s[%d]", key, index);
    enum err err = read_format(tagger, part, ret_expr);
    if (err == OK) tagger->place[bytes] = '\0';
    return err;
}

static enum err text_of(struct tagger *tagger, const json_t *format, const char *key,
                        struct str *ret_text) {
    const json_t *value = json_object_get(format, key);
    if (!json_is_string(value)) return fail(tagger, "'%s' must be a string", key);
    *ret_text = json_str(value);
    return OK;
}

static enum err flag_of(struct tagger *tagger, const json_t *format, const char *key,
                        bool *ret_flag) {
    const json_t *value = json_member(format, key);
    *ret_flag = json_is_true(value);
    return !value || json_is_boolean(value) ? OK : fail(tagger, "'%s' must be a boolean", key);
}

/* One of the strings of an array; EXPR_NEVER if it is absent or empty. */
static enum err any_of_strings(struct tagger *tagger, const json_t *format, const char *key,
                               uint32_t *ret_expr) {
    const json_t *list = json_member(format, key);
    *ret_expr = EXPR_NEVER;
    if (list && !json_is_array(list)) return fail(tagger, "'%s' must be an array", key);
    uint32_t *parts = mem_new(json_array_size(list) + 1, sizeof *parts);
    enum err err = OK;
    for (size_t i = 0; i < json_array_size(list) && err == OK; i++) {
        const json_t *one = json_array_get(list, i);
        if (!json_is_string(one) || json_string_length(one) == 0)
            err = fail(tagger, "'%s' must hold strings that are not empty", key);
        else
            parts[i] = expr_bytes(tagger->exprs, json_str(one));
    }
    if (err == OK) *ret_expr = expr_alt(tagger->exprs, parts, json_array_size(list));
    free(parts);
    return err;
}

/* The part of `texts` that has none of `strings` in it. */
static uint32_t without(struct tagger *tagger, uint32_t texts, uint32_t strings) {
    struct exprs *exprs = tagger->exprs;
    if (strings == EXPR_NEVER) return texts;
    uint32_t all = expr_all(exprs);
    uint32_t with = expr_cat(exprs, all, expr_cat(exprs, strings, all));
    return expr_and2(exprs, texts, expr_not(exprs, with));
}

/* Any text up to and with the first of `strings` in it, which is one of `ends`. */
static uint32_t text_until(struct tagger *tagger, uint32_t strings, uint32_t ends) {
    struct exprs *exprs = tagger->exprs;
    uint32_t all = expr_all(exprs), byte = expr_range(exprs, 0, 255);
    uint32_t earlier = expr_cat(exprs, all, expr_cat(exprs, strings, expr_cat(exprs, byte, all)));
    const uint32_t parts[] = {tagger->any_text, expr_cat(exprs, all, ends),
                              expr_not(exprs, earlier)};
    return expr_and(exprs, parts, 3);
}

/* --- formats without parts --- */

static enum err read_const(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct str text;
    enum err err = text_of(tagger, format, "value", &text);
    if (err == OK) *ret_expr = expr_bytes(tagger->exprs, text);
    return err;
}

/* Puts the place before the error of a part that has a language of its own. The engine names the place
 * itself, or gives "" where the refusal names it. */
static enum err with_place(struct tagger *tagger, const json_t *format) {
    const json_t *place = json_member(format, "place");
    if (!json_is_string(place)) return err_prefix(tagger->error, "format%s", tagger->place);
    if (json_string_length(place) == 0) return err_not_ok(tagger->error->code);
    return err_prefix(tagger->error, "%s", json_string_value(place));
}

static enum err read_schema(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    const json_t *schema = json_object_get(format, "json_schema"),
                 *style = json_member(format, "style");
    if (!schema) return fail(tagger, "it has no 'json_schema'");
    if (style && (!json_is_string(style) || !str_is(json_str(style), "json")))
        return fail(tagger, "a 'style' but 'json' is not supported");
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
        return fail(tagger, "'mark' must be an integer below %d", TAGS_MARKS_MAX);
    const char bytes[2] = {(char)TAGS_MARK_BYTE, (char)number};
    *ret_expr = expr_bytes(tagger->exprs, (struct str){bytes, sizeof bytes});
    return OK;
}

static enum err read_regex(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct str pattern;
    enum err err = text_of(tagger, format, "pattern", &pattern);
    if (err != OK) return err;
    err = regex_expr(tagger->exprs, pattern, REGEX_WHOLE, SPELLING_PLAIN, ret_expr, tagger->error);
    return err == OK ? OK : with_place(tagger, format);
}

static enum err read_grammar(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct str text;
    enum err err = text_of(tagger, format, "grammar", &text);
    if (err != OK) return err;
    err = ebnf_expr(tagger->exprs, text, ret_expr, tagger->error);
    return err == OK ? OK : with_place(tagger, format);
}

static enum err read_any_text(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    uint32_t strings;
    enum err err = any_of_strings(tagger, format, "excludes", &strings);
    if (err == OK) *ret_expr = without(tagger, tagger->any_text, strings);
    return err;
}

/* As any_text, also with bytes that are no UTF-8: an answer may be turned away in the middle of a
 * character. */
static enum err read_any_bytes(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    uint32_t strings, byte = expr_range(tagger->exprs, 0, TAGS_MARK_BYTE - 1);
    enum err err = any_of_strings(tagger, format, "excludes", &strings);
    uint32_t bytes = expr_repeat(tagger->exprs, byte, 0, EXPR_NO_MAX);
    if (err == OK) *ret_expr = without(tagger, bytes, strings);
    return err;
}

/* --- formats of formats --- */

/* All parts of an array; the caller frees *ret_parts. */
static enum err read_parts(struct tagger *tagger, const json_t *format, const char *key,
                           uint32_t **ret_parts, size_t *ret_count) {
    const json_t *list = json_object_get(format, key);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return fail(tagger, "'%s' must be an array that is not empty", key);
    size_t count = json_array_size(list);
    uint32_t *parts = mem_new(count, sizeof *parts);
    enum err err = OK;
    for (size_t i = 0; i < count && err == OK; i++)
        err = read_part(tagger, key, (int)i, json_array_get(list, i), &parts[i]);
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
    enum err err = read_parts(tagger, format, "elements", &parts, &count);
    if (err != OK) return err;
    while (count > 0) rest = expr_cat(tagger->exprs, parts[--count], rest);
    free(parts);
    *ret_expr = rest;
    return OK;
}

static enum err read_or(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    uint32_t *parts;
    size_t count;
    enum err err = read_parts(tagger, format, "elements", &parts, &count);
    if (err != OK) return err;
    *ret_expr = expr_alt(tagger->exprs, parts, count);
    free(parts);
    return OK;
}

static enum err read_times(struct tagger *tagger, const json_t *format, uint32_t min, uint32_t max,
                           uint32_t *ret_expr) {
    uint32_t part;
    enum err err = read_part(tagger, "content", -1, json_object_get(format, "content"), &part);
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
        return fail(tagger, "'min' must be an integer from 0 on");
    if (!json_is_integer(most) || (max != -1 && (max < min || max > TAGS_TIMES_MAX)))
        return fail(tagger, "'max' must be -1 or an integer that is not below 'min'");
    return read_times(tagger, format, (uint32_t)min, max < 0 ? EXPR_NO_MAX : (uint32_t)max,
                      ret_expr);
}

/* The rest of a tag behind its begin. */
static enum err read_behind_begin(struct tagger *tagger, const json_t *tag, uint32_t *ret_expr) {
    struct exprs *exprs = tagger->exprs;
    const json_t *content = json_object_get(tag, "content"), *end = json_object_get(tag, "end");
    uint32_t ends, inside, excluded;
    enum err err = OK;
    if (json_is_string(end))
        ends = expr_bytes(exprs, json_str(end));
    else if (json_is_array(end) && json_array_size(end) > 0)
        err = any_of_strings(tagger, tag, "end", &ends);
    else
        err = fail(tagger, "'end' must be a string or an array of strings");
    if (err != OK) return err;
    const json_t *type = json_object_get(content, "type");
    bool is_text = json_is_string(type) && str_is(json_str(type), "any_text");
    if (!is_text || ends == EXPR_EMPTY) {
        err = read_part(tagger, "content", -1, content, &inside);
        if (err == OK) *ret_expr = expr_cat(exprs, inside, ends);
        return err;
    }
    err = any_of_strings(tagger, content, "excludes", &excluded);
    if (err == OK) *ret_expr = text_until(tagger, expr_alt2(exprs, ends, excluded), ends);
    return err;
}

static enum err read_tag(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct str begin;
    uint32_t rest;
    enum err err = text_of(tagger, format, "begin", &begin);
    if (err == OK) err = read_behind_begin(tagger, format, &rest);
    if (err == OK) *ret_expr = expr_cat(tagger->exprs, expr_bytes(tagger->exprs, begin), rest);
    return err;
}

/* How often the tags of a list come. */
struct often {
    bool at_least_one, stop_after_first;
};

static enum err read_often(struct tagger *tagger, const json_t *format, struct often *ret_often) {
    enum err err = flag_of(tagger, format, "at_least_one", &ret_often->at_least_one);
    if (err != OK) return err;
    return flag_of(tagger, format, "stop_after_first", &ret_often->stop_after_first);
}

/* The most tags; EXPR_NO_MAX without a word about it. */
static enum err read_most(struct tagger *tagger, const json_t *format, uint32_t *ret_max) {
    const json_t *most = json_member(format, "max");
    json_int_t max = json_integer_value(most);
    *ret_max = most ? (uint32_t)max : EXPR_NO_MAX;
    if (!most || (json_is_integer(most) && max >= 1 && max <= TAGS_TIMES_MAX)) return OK;
    return fail(tagger, "'max' must be an integer from 1 on");
}

static enum err read_separated(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct exprs *exprs = tagger->exprs;
    struct str separator;
    struct often often;
    uint32_t *parts, max;
    size_t count;
    enum err err = text_of(tagger, format, "separator", &separator);
    if (err == OK) err = read_often(tagger, format, &often);
    if (err == OK) err = read_most(tagger, format, &max);
    if (err == OK) err = read_parts(tagger, format, "tags", &parts, &count);
    if (err != OK) return err;
    uint32_t one = expr_alt(exprs, parts, count), all = one;
    free(parts);
    if (!often.stop_after_first) {
        uint32_t next = expr_cat(exprs, expr_bytes(exprs, separator), one);
        all = expr_cat(exprs, one, expr_repeat(exprs, next, 0, max == EXPR_NO_MAX ? max : max - 1));
    }
    *ret_expr = often.at_least_one ? all : expr_optional(exprs, all);
    return OK;
}

/* --- triggers --- */

/* Every tag must begin with exactly one trigger. */
static enum err check_begins(struct tagger *tagger, const json_t *format) {
    const json_t *triggers = json_object_get(format, "triggers"),
                 *tags = json_object_get(format, "tags");
    if (!json_is_array(tags) || json_array_size(tags) == 0)
        return fail(tagger, "'tags' must be an array that is not empty");
    if (!json_is_array(triggers) || json_array_size(triggers) == 0)
        return fail(tagger, "'triggers' must be an array that is not empty");
    if (json_array_size(triggers) * json_array_size(tags) > FORMATS_MAX)
        return fail(tagger, "it has too many triggers and tags");
    for (size_t i = 0; i < json_array_size(tags); i++) {
        struct str begin;
        enum err err = text_of(tagger, json_array_get(tags, i), "begin", &begin);
        size_t found = 0;
        if (err != OK) return err;
        for (size_t k = 0; k < json_array_size(triggers); k++) {
            struct str trigger = json_str(json_array_get(triggers, k));
            if (trigger.bytes > 0 && str_starts_with(begin, trigger)) found++;
        }
        if (found != 1)
            return fail(tagger, "the tag '%.60s' begins with %zu triggers instead of one", begin.at,
                        found);
    }
    return OK;
}

/* A tag of triggered_tags. */
struct tag {
    struct str begin;
    uint32_t rest; /* the expression of what follows */
};

/* Reads the tags, whose begins are checked; the caller frees *ret_tags. */
static enum err read_tags(struct tagger *tagger, const json_t *list, struct tag **ret_tags) {
    struct tag *tags = mem_new(json_array_size(list), sizeof *tags);
    enum err err = OK;
    for (size_t i = 0; i < json_array_size(list) && err == OK; i++) {
        tags[i].begin = json_member_str(json_array_get(list, i), "begin");
        err = read_behind_begin(tagger, json_array_get(list, i), &tags[i].rest);
    }
    if (err == OK)
        *ret_tags = tags;
    else
        free(tags);
    return err;
}

/* The tags that begin with `start`, without this start. Returns their number. */
static size_t tags_behind(struct exprs *exprs, const struct tag *tags, size_t count,
                          struct str start, uint32_t *ret_expr) {
    uint32_t *parts = mem_new(count, sizeof *parts);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (!str_starts_with(tags[i].begin, start)) continue;
        struct str begin = str_skip(tags[i].begin, start.bytes);
        parts[found++] = expr_cat(exprs, expr_bytes(exprs, begin), tags[i].rest);
    }
    *ret_expr = expr_alt(exprs, parts, found);
    free(parts);
    return found;
}

/* Any text up to and with a tag. Every trigger must begin one. */
static enum err text_and_tag(struct tagger *tagger, const json_t *triggers, const struct tag *tags,
                             size_t tag_count, uint32_t strings, uint32_t *ret_expr) {
    struct exprs *exprs = tagger->exprs;
    size_t count = json_array_size(triggers);
    uint32_t *parts = mem_new(count, sizeof *parts), rest;
    enum err err = OK;
    for (size_t i = 0; i < count && err == OK; i++) {
        struct str trigger = json_str(json_array_get(triggers, i));
        if (tags_behind(exprs, tags, tag_count, trigger, &rest) == 0)
            err = fail(tagger, "no tag begins with the trigger '%.60s'", trigger.at);
        uint32_t text = text_until(tagger, strings, expr_bytes(exprs, trigger));
        parts[i] = expr_cat(exprs, text, rest);
    }
    if (err == OK) *ret_expr = expr_alt(exprs, parts, count);
    free(parts);
    return err;
}

/* As in xgrammar, a format of which at least one tag is asked begins with it. */
static enum err read_triggers(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct exprs *exprs = tagger->exprs;
    const json_t *list = json_object_get(format, "tags");
    struct often often;
    struct tag *tags;
    uint32_t triggers, excluded;
    enum err err = any_of_strings(tagger, format, "triggers", &triggers);
    if (err == OK) err = any_of_strings(tagger, format, "excludes", &excluded);
    if (err == OK) err = read_often(tagger, format, &often);
    if (err == OK) err = check_begins(tagger, format);
    if (err == OK) err = read_tags(tagger, list, &tags);
    if (err != OK) return err;
    size_t count = json_array_size(list);
    uint32_t strings = expr_alt2(exprs, triggers, excluded), next, first;
    err = text_and_tag(tagger, json_object_get(format, "triggers"), tags, count, strings, &next);
    tags_behind(exprs, tags, count, STR(""), &first);
    free(tags);
    if (err != OK) return err;
    uint32_t text = without(tagger, tagger->any_text, strings);
    uint32_t rest = often.stop_after_first
                        ? expr_alt2(exprs, next, text)
                        : expr_cat(exprs, expr_repeat(exprs, next, 0, EXPR_NO_MAX), text);
    if (often.at_least_one) rest = often.stop_after_first ? first : expr_cat(exprs, first, rest);
    *ret_expr = rest;
    return OK;
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
    {"tag", read_tag},
    {"optional", read_optional},
    {"star", read_star},
    {"plus", read_plus},
    {"repeat", read_repeat},
    {"tags_with_separator", read_separated},
    {"triggered_tags", read_triggers},
};

static enum err read_format(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    const json_t *type = json_object_get(format, "type");
    if (!json_is_string(type)) return fail(tagger, "it must be an object with a 'type'");
    if (tagger->depth == DEPTH_MAX || ++tagger->formats > FORMATS_MAX)
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
    return fail(tagger, "the type '%.60s' is not supported", json_string_value(type));
}

enum err tags_expr(struct exprs *exprs, const json_t *format, uint32_t *ret_expr,
                   struct error *error) {
    struct tagger tagger = {.exprs = exprs, .error = error};
    tagger.any_text = expr_repeat(exprs, charset_any(exprs, SPELLING_PLAIN), 0, EXPR_NO_MAX);
    return read_format(&tagger, format, ret_expr);
}
