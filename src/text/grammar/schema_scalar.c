/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and strings of a schema. */
#include "base/mem.h"
#include "grammar/regex.h"
#include "grammar/schema_internal.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

uint32_t schema_quoted(struct compiler *compiler, uint32_t content) {
    struct exprs *exprs = compiler->exprs;
    uint32_t quote = expr_byte(exprs, '"');
    return expr_cat(exprs, quote, expr_cat(exprs, content, quote));
}

uint32_t schema_literal(struct compiler *compiler, struct str text) {
    struct buf spelled;
    buf_init(&spelled, BUF_UNLIMITED);
    charset_spell(text, SPELLING_JSON, &spelled);
    uint32_t expr = schema_quoted(compiler, expr_bytes(compiler->exprs, buf_str(&spelled)));
    buf_release(&spelled);
    return expr;
}

uint32_t schema_mark(struct compiler *compiler, char mark) {
    struct exprs *exprs = compiler->exprs;
    return expr_cat(exprs, expr_byte(exprs, (unsigned char)mark),
                    expr_optional(exprs, expr_byte(exprs, ' ')));
}

/* --- numbers --- */

struct bound {
    struct decimal at;
    bool exists, is_open;
};

/* Narrows a bound by a keyword: the larger of two minima, the smaller of two maxima (`is_max`). */
static enum err narrow(struct compiler *compiler, const json_t *schema, const char *keyword,
                       bool is_max, bool is_open, struct bound *bound) {
    const json_t *value = json_object_get(schema, keyword);
    struct decimal own;
    if (!value) return OK;
    if (decimal_read(value, &own, NULL) != OK)
        return schema_refuse(compiler, schema, keyword, "a number with too many digits");
    int order = bound->exists ? decimal_compare(&own, &bound->at) : is_max ? -1 : 1;
    if (order == 0) bound->is_open = bound->is_open || is_open;
    if (is_max ? order < 0 : order > 0) *bound = (struct bound){own, true, is_open};
    return OK;
}

static enum err add_multiple(struct compiler *compiler, const json_t *schema,
                             struct decimal *multiples, size_t *count) {
    const json_t *value = json_object_get(schema, "multipleOf");
    const struct decimal zero = {0};
    if (!value) return OK;
    if (decimal_read(value, &multiples[*count], NULL) != OK ||
        decimal_compare(&multiples[*count], &zero) <= 0)
        return schema_refuse(compiler, schema, "multipleOf", "it must be above 0");
    (*count)++;
    return OK;
}

static enum number_form form_of(unsigned types) {
    bool is_integer = !(types & TYPE_FRACTION);
    if (types & TYPE_EVERY_SPELLING) return is_integer ? NUMBER_INTEGER_OR_ZEROS : NUMBER_DECIMAL;
    return is_integer ? NUMBER_INTEGER : NUMBER_ANY;
}

enum err schema_number(struct compiler *compiler, const struct atoms *atoms, unsigned types,
                       uint32_t *ret_expr) {
    struct decimal *multiples = mem_new(atoms->count + 1, sizeof *multiples);
    struct number_rules rules = {.form = form_of(types), .multiples = multiples};
    struct bound min = {.exists = false}, max = {.exists = false};
    const json_t *schema;
    enum err err = OK;
    for (size_t at = 0; err == OK && (schema = schema_next_base(atoms, &at));) {
        err = narrow(compiler, schema, "minimum", false, false, &min);
        if (err == OK) err = narrow(compiler, schema, "exclusiveMinimum", false, true, &min);
        if (err == OK) err = narrow(compiler, schema, "maximum", true, false, &max);
        if (err == OK) err = narrow(compiler, schema, "exclusiveMaximum", true, true, &max);
        if (err == OK) err = add_multiple(compiler, schema, multiples, &rules.multiple_count);
    }
    if (min.exists) rules.min = &min.at;
    if (max.exists) rules.max = &max.at;
    rules.above_min = min.is_open;
    rules.below_max = max.is_open;
    if (err == OK) err = number_expr(compiler->exprs, &rules, ret_expr, compiler->error);
    free(multiples);
    return err;
}

/* --- strings --- */

enum err schema_pattern(struct compiler *compiler, const json_t *schema, const char *keyword,
                        struct str pattern, uint32_t *ret_content) {
    struct error error;
    enum err err =
        regex_expr(compiler->exprs, pattern, REGEX_SEARCH, SPELLING_JSON, ret_content, &error);
    return err == OK ? OK : schema_refuse(compiler, schema, keyword, "%s", error.text);
}

static enum err add_whole(struct compiler *compiler, const char *pattern, uint32_t *content) {
    uint32_t expr;
    enum err err = regex_expr(compiler->exprs, str_from(pattern), REGEX_WHOLE, SPELLING_JSON, &expr,
                              compiler->error);
    if (err == OK) *content = expr_and2(compiler->exprs, *content, expr);
    return err;
}

static enum err add_format(struct compiler *compiler, const json_t *schema, uint32_t *content) {
    struct str name = json_member_str(schema, "format");
    if (!name.at) return OK;
    struct string_format format = schema_format(name);
    enum err err = OK;
    if (!format.patterns[0])
        return schema_refuse(compiler, schema, "format", "the format '%.60s' is not supported",
                             name.at);
    for (size_t i = 0; err == OK && i < FORMAT_PATTERNS_MAX && format.patterns[i]; i++)
        err = add_whole(compiler, format.patterns[i], content);
    return err;
}

enum err schema_string(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr) {
    struct exprs *exprs = compiler->exprs;
    uint32_t min, max, pattern;
    const json_t *schema;
    enum err err = schema_counts(compiler, atoms, "minLength", "maxLength", &min, &max);
    if (err != OK) return err;
    uint32_t content = expr_repeat(exprs, compiler->any_char, min, max);
    for (size_t at = 0; err == OK && (schema = schema_next_base(atoms, &at));) {
        struct str text = json_member_str(schema, "pattern");
        if (text.at) {
            err = schema_pattern(compiler, schema, "pattern", text, &pattern);
            if (err == OK) content = expr_and2(exprs, content, pattern);
        }
        if (err == OK) err = add_format(compiler, schema, &content);
    }
    if (err != OK) return err;
    bool is_alive = content != EXPR_NEVER && expr_is_alive(exprs, content);
    *ret_expr = is_alive ? schema_quoted(compiler, content) : EXPR_NEVER;
    return OK;
}
