/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a schema: which keywords are known, what a $ref names, and where a fault stands. */
#include "base/buf.h"
#include "base/utf8.h"
#include "grammar/schema_internal.h"
#include "json/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 200

/* --- places --- */

/* Appends the way from `at` to `node` as "$.a[2].b". False if it is not below `at`. */
static bool add_path(const json_t *at, const json_t *node, struct buf *path, int depth) {
    size_t bytes = path->bytes;
    const char *key;
    json_t *value;
    if (at == node) return true;
    if (depth > JSON_DEPTH_MAX) return false;
    json_object_foreach((json_t *)(uintptr_t)at, key, value) {
        buf_printf(path, ".%s", key);
        if (add_path(value, node, path, depth + 1)) return true;
        buf_truncate(path, bytes);
    }
    for (size_t i = 0; i < json_array_size(at); i++) {
        buf_printf(path, "[%zu]", i);
        if (add_path(json_array_get(at, i), node, path, depth + 1)) return true;
        buf_truncate(path, bytes);
    }
    return false;
}

enum err schema_refuse(struct compiler *compiler, const json_t *node, const char *keyword,
                       const char *format, ...) {
    char sentence[256];
    struct buf path;
    va_list args;
    if (compiler->is_quiet) return ERR_INVALID;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    buf_init(&path, BUF_UNLIMITED);
    buf_add_byte(&path, '$');
    add_path(compiler->root, node, &path, 0);
    if (keyword) buf_printf(&path, ".%s", keyword);
    struct str shown = buf_str(&path);
    bool is_long = shown.bytes > PATH_BYTES;
    if (is_long) shown.bytes = PATH_BYTES;
    shown.bytes = utf8_valid_prefix(shown);
    enum err err = err_set(compiler->error, ERR_INVALID, "%.*s%s: %s", STR_ARGS(shown),
                           is_long ? "…" : "", sentence);
    buf_release(&path);
    return err;
}

/* --- keywords --- */

static bool is_listed(const char *const *list, const char *word) {
    for (; *list; list++)
        if (strcmp(*list, word) == 0) return true;
    return false;
}

static const char *const constraints[] = {"type",          "enum",          "const",
                                          "multipleOf",    "maximum",       "exclusiveMaximum",
                                          "minimum",       "minLength",     "exclusiveMinimum",
                                          "maxLength",     "pattern",       "format",
                                          "maxItems",      "minItems",      "items",
                                          "prefixItems",   "maxProperties", "minProperties",
                                          "required",      "properties",    "patternProperties",
                                          "propertyNames", "allOf",         "additionalProperties",
                                          "anyOf",         "oneOf",         "$ref",
                                          "uniqueItems",   "nullable",      NULL};

/* They tell readers something and allow every value. */
static const char *const annotations[] = {"title",
                                          "description",
                                          "default",
                                          "examples",
                                          "example",
                                          "deprecated",
                                          "readOnly",
                                          "writeOnly",
                                          "contentEncoding",
                                          "contentMediaType",
                                          "contentSchema",
                                          "externalDocs",
                                          "xml",
                                          "discriminator",
                                          "$schema",
                                          "$id",
                                          "$anchor",
                                          "$comment",
                                          "$defs",
                                          "definitions",
                                          NULL};

/* True for a keyword that has no effect because another one is absent. */
static bool has_no_effect(const json_t *schema, const char *key) {
    bool has_if = json_object_get(schema, "if"), has_contains = json_object_get(schema, "contains");
    bool has_branch = json_object_get(schema, "then") || json_object_get(schema, "else");
    if (strcmp(key, "if") == 0) return !has_branch;
    if (strcmp(key, "then") == 0 || strcmp(key, "else") == 0) return !has_if;
    if (strcmp(key, "minContains") == 0 || strcmp(key, "maxContains") == 0) return !has_contains;
    return strncmp(key, "x-", 2) == 0;
}

bool schema_has_keywords(const json_t *schema) {
    for (const char *const *keyword = constraints; *keyword; keyword++)
        if (json_object_get(schema, *keyword)) return true;
    return false;
}

/* The types of the values of keywords that the compiler reads without looking. */
static enum err check_value(struct compiler *compiler, const json_t *schema, const char *key,
                            const json_t *value) {
    static const char *const objects[] = {"properties", "patternProperties", NULL};
    static const char *const arrays[] = {"prefixItems", "required", "enum", NULL};
    static const char *const strings[] = {"pattern", "format", "$ref", NULL};
    static const char *const numbers[] = {"minimum",          "maximum",    "exclusiveMinimum",
                                          "exclusiveMaximum", "multipleOf", NULL};
    static const char *const booleans[] = {"uniqueItems", "nullable", NULL};
    const char *expected = NULL;
    if (is_listed(booleans, key) && !json_is_boolean(value)) expected = "a boolean";
    if (is_listed(objects, key) && !json_is_object(value)) expected = "an object";
    if (is_listed(arrays, key) && !json_is_array(value)) expected = "an array";
    if (is_listed(strings, key) && !json_is_string(value)) expected = "a string";
    if (is_listed(numbers, key) && !json_is_number(value)) expected = "a number";
    if (expected) return schema_refuse(compiler, schema, key, "it must be %s", expected);
    if (strcmp(key, "required") == 0)
        for (size_t i = 0; i < json_array_size(value); i++)
            if (!json_is_string(json_array_get(value, i)))
                return schema_refuse(compiler, schema, key, "it must name properties");
    if (strcmp(key, "items") == 0 && json_is_array(value))
        return schema_refuse(compiler, schema, key,
                             "it must be one schema; schemas of single items are prefixItems");
    return OK;
}

enum err schema_check_keywords(struct compiler *compiler, const json_t *schema) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        if (is_listed(annotations, key)) continue;
        if (!is_listed(constraints, key)) {
            if (has_no_effect(schema, key)) continue;
            return schema_refuse(compiler, schema, NULL, "the keyword '%.60s' is not supported",
                                 key);
        }
        enum err err = check_value(compiler, schema, key, value);
        if (err != OK) return err;
    }
    if (schema != compiler->root && json_is_string(json_object_get(schema, "$id")))
        return schema_refuse(compiler, schema, "$id",
                             "a schema inside a schema cannot have an address of its own");
    return OK;
}

enum err schema_count(struct compiler *compiler, const json_t *schema, const char *keyword,
                      uint32_t *ret_count) {
    const json_t *value = json_object_get(schema, keyword);
    if (!value) return OK;
    double count = json_number_value(value);
    if (!json_is_number(value) || count < 0 || count != floor(count))
        return schema_refuse(compiler, schema, keyword, "it must be a whole number from 0 on");
    *ret_count = count > COUNT_MOST ? COUNT_MOST : (uint32_t)count;
    return OK;
}

enum err schema_counts(struct compiler *compiler, const struct atoms *atoms,
                       const char *min_keyword, const char *max_keyword, uint32_t *ret_min,
                       uint32_t *ret_max) {
    const json_t *schema;
    uint32_t min = 0, max = COUNT_MOST;
    for (size_t at = 0; (schema = schema_next_base(atoms, &at));) {
        uint32_t own_min = 0, own_max = COUNT_MOST;
        enum err err = schema_count(compiler, schema, min_keyword, &own_min);
        if (err == OK) err = schema_count(compiler, schema, max_keyword, &own_max);
        if (err != OK) return err;
        if (own_min > min) min = own_min;
        if (own_max < max) max = own_max;
    }
    *ret_min = min;
    *ret_max = max == COUNT_MOST ? EXPR_NO_MAX : max;
    return OK;
}

/* --- references --- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Appends one step of a pointer, with its %xx, ~0 and ~1 put back. */
static void add_step(struct buf *buf, struct str step) {
    struct buf plain;
    buf_init(&plain, BUF_UNLIMITED);
    for (size_t i = 0; i < step.bytes; i++) {
        int high = i + 2 < step.bytes ? hex_digit(step.at[i + 1]) : -1;
        int low = i + 2 < step.bytes ? hex_digit(step.at[i + 2]) : -1;
        if (step.at[i] == '%' && high >= 0 && low >= 0) {
            buf_add_byte(&plain, (char)(high << 4 | low));
            i += 2;
        } else {
            buf_add_byte(&plain, step.at[i]);
        }
    }
    for (size_t i = 0; i < plain.bytes; i++) {
        bool is_tilde = plain.at[i] == '~' && i + 1 < plain.bytes;
        if (is_tilde && (plain.at[i + 1] == '0' || plain.at[i + 1] == '1'))
            buf_add_byte(buf, plain.at[++i] == '0' ? '~' : '/');
        else
            buf_add_byte(buf, plain.at[i]);
    }
    buf_release(&plain);
}

/* Follows a JSON pointer from the root. NULL if it leads nowhere or into a schema with an address
 * of its own. */
static const json_t *follow(const json_t *root, struct str pointer) {
    const json_t *at = root;
    struct buf step;
    buf_init(&step, BUF_UNLIMITED);
    while (pointer.bytes > 0 && at) {
        size_t end = str_find_byte(pointer, '/', 1);
        if (end == SIZE_MAX) end = pointer.bytes;
        buf_clear(&step);
        add_step(&step, (struct str){pointer.at + 1, end - 1});
        uint64_t index;
        if (json_is_object(at))
            at = json_object_getn(at, step.at ? step.at : "", step.bytes);
        else
            at = str_to_u64(buf_str(&step), &index) ? json_array_get(at, index) : NULL;
        if (json_is_object(at) && json_is_string(json_object_get(at, "$id"))) at = NULL;
        pointer = str_skip(pointer, end);
    }
    buf_release(&step);
    return at;
}

/* The schema below `at` with the anchor. */
static const json_t *find_anchor(const json_t *at, struct str name, int depth) {
    const char *key;
    json_t *value;
    if (depth > JSON_DEPTH_MAX) return NULL;
    if (json_is_object(at) && str_equals(json_member_str(at, "$anchor"), name)) return at;
    const json_t *found = NULL;
    json_object_foreach((json_t *)(uintptr_t)at, key, value) {
        bool is_data = strcmp(key, "enum") == 0 || strcmp(key, "const") == 0 ||
                       strcmp(key, "default") == 0 || strcmp(key, "examples") == 0;
        if (!is_data && !found) found = find_anchor(value, name, depth + 1);
    }
    for (size_t i = 0; i < json_array_size(at) && !found; i++)
        found = find_anchor(json_array_get(at, i), name, depth + 1);
    return found;
}

enum err schema_resolve(struct compiler *compiler, const json_t *schema,
                        const json_t **ret_target) {
    struct str ref = json_str(json_object_get(schema, "$ref"));
    struct str id = json_member_str(compiler->root, "$id");
    if (id.bytes > 0 && str_ends_with(id, STR("#"))) id.bytes--;
    const json_t *target = NULL;
    struct str part = ref;
    /* A reference to the root by its own address. */
    if (id.bytes > 0 && str_starts_with(ref, id) &&
        (ref.bytes == id.bytes || ref.at[id.bytes] == '#'))
        part = str_skip(ref, id.bytes);
    if (part.bytes == 0 || str_is(part, "#"))
        target = compiler->root;
    else if (str_starts_with(part, STR("#/")))
        target = follow(compiler->root, str_skip(part, 1));
    else if (str_starts_with(part, STR("#")))
        target = find_anchor(compiler->root, str_skip(part, 1), 0);
    else
        return schema_refuse(compiler, schema, "$ref",
                             "only references into the schema itself are followed ('#/…')");
    if (!target) return schema_refuse(compiler, schema, "$ref", "'%.100s' names nothing", ref.at);
    *ret_target = target;
    return OK;
}
