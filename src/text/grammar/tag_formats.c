/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of tags: one tag, tags with a separator, and text in which triggers begin tags. */
#include "base/mem.h"
#include "grammar/tags_internal.h"
#include "json/json.h"

#include <stdlib.h>

static enum err flag_of(struct tagger *tagger, const json_t *format, const char *key,
                        bool *ret_flag) {
    const json_t *value = json_member(format, key);
    *ret_flag = json_is_true(value);
    return !value || json_is_boolean(value) ? OK : tags_fail(tagger, "'%s' must be a boolean", key);
}

/* --- tags --- */

/* Any text up to and with the first of `strings` in it, which is one of `ends`. */
static uint32_t text_until(struct tagger *tagger, uint32_t strings, uint32_t ends) {
    struct exprs *exprs = tagger->exprs;
    uint32_t all = expr_all(exprs), byte = expr_range(exprs, 0, 255);
    uint32_t earlier = expr_cat(exprs, all, expr_cat(exprs, strings, expr_cat(exprs, byte, all)));
    const uint32_t parts[] = {tagger->any_text, expr_cat(exprs, all, ends),
                              expr_not(exprs, earlier)};
    return expr_and(exprs, parts, 3);
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
        err = tags_read_strings(tagger, tag, "end", &ends);
    else
        err = tags_fail(tagger, "'end' must be a string or an array of strings");
    if (err != OK) return err;
    const json_t *type = json_object_get(content, "type");
    bool is_text = json_is_string(type) && str_is(json_str(type), "any_text");
    if (!is_text || ends == EXPR_EMPTY) {
        err = tags_read_part(tagger, "content", -1, content, &inside);
        if (err == OK) *ret_expr = expr_cat(exprs, inside, ends);
        return err;
    }
    err = tags_read_strings(tagger, content, "excludes", &excluded);
    if (err == OK) *ret_expr = text_until(tagger, expr_alt2(exprs, ends, excluded), ends);
    return err;
}

enum err tags_read_tag(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct str begin;
    uint32_t rest;
    enum err err = tags_read_text(tagger, format, "begin", &begin);
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
    return tags_fail(tagger, "'max' must be an integer from 1 on");
}

/* The text between tags: a string, or a format. */
static enum err read_separator(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    const json_t *value = json_object_get(format, "separator");
    struct str separator;
    if (json_is_object(value)) return tags_read_part(tagger, "separator", -1, value, ret_expr);
    enum err err = tags_read_text(tagger, format, "separator", &separator);
    if (err == OK) *ret_expr = expr_bytes(tagger->exprs, separator);
    return err;
}

enum err tags_read_separated(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct exprs *exprs = tagger->exprs;
    struct often often;
    uint32_t *parts, max, separator;
    size_t count;
    enum err err = read_separator(tagger, format, &separator);
    if (err == OK) err = read_often(tagger, format, &often);
    if (err == OK) err = read_most(tagger, format, &max);
    if (err == OK) err = tags_read_parts(tagger, format, "tags", &parts, &count);
    if (err != OK) return err;
    uint32_t one = expr_alt(exprs, parts, count), all = one;
    free(parts);
    if (!often.stop_after_first) {
        uint32_t next = expr_cat(exprs, separator, one);
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
        return tags_fail(tagger, "'tags' must be an array that is not empty");
    if (!json_is_array(triggers) || json_array_size(triggers) == 0)
        return tags_fail(tagger, "'triggers' must be an array that is not empty");
    if (json_array_size(triggers) * json_array_size(tags) > TAGS_FORMATS_MAX)
        return tags_fail(tagger, "it has too many triggers and tags");
    for (size_t i = 0; i < json_array_size(tags); i++) {
        struct str begin;
        enum err err = tags_read_text(tagger, json_array_get(tags, i), "begin", &begin);
        size_t found = 0;
        if (err != OK) return err;
        for (size_t k = 0; k < json_array_size(triggers); k++) {
            struct str trigger = json_str(json_array_get(triggers, k));
            if (trigger.bytes > 0 && str_starts_with(begin, trigger)) found++;
        }
        if (found != 1)
            return tags_fail(tagger, "the tag '%.60s' begins with %zu triggers instead of one",
                             begin.at, found);
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
            err = tags_fail(tagger, "no tag begins with the trigger '%.60s'", trigger.at);
        uint32_t text = text_until(tagger, strings, expr_bytes(exprs, trigger));
        parts[i] = expr_cat(exprs, text, rest);
    }
    if (err == OK) *ret_expr = expr_alt(exprs, parts, count);
    free(parts);
    return err;
}

enum err tags_read_triggers(struct tagger *tagger, const json_t *format, uint32_t *ret_expr) {
    struct exprs *exprs = tagger->exprs;
    const json_t *list = json_object_get(format, "tags");
    struct often often;
    struct tag *tags;
    uint32_t triggers, excluded;
    enum err err = tags_read_strings(tagger, format, "triggers", &triggers);
    if (err == OK) err = tags_read_strings(tagger, format, "excludes", &excluded);
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
    uint32_t text = tags_without(tagger, tagger->any_text, strings);
    uint32_t rest = often.stop_after_first
                        ? expr_alt2(exprs, next, text)
                        : expr_cat(exprs, expr_repeat(exprs, next, 0, EXPR_NO_MAX), text);
    if (often.at_least_one) rest = often.stop_after_first ? first : expr_cat(exprs, first, rest);
    *ret_expr = rest;
    return OK;
}
