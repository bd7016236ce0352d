/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/shape_match.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/ebnf.h"
#include "grammar/regex.h"
#include "grammar/schema_internal.h"
#include "json/json.h"
#include "json/span.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TREE_MEMORY_MAX ((size_t)64 << 20)
#define DIGITS_MAX 18    /* longer numbers in times and durations are not all taken */
#define DEPTH_MAX 100    /* schemas inside schemas on the way */
#define RATIO_SLACK 1e-9 /* slack for a multiple in doubles; 0.3 is one of 0.1 */

/* Fuel of the work that is not an expression, so that all fuel takes about as long (expr.h). */
#define FUEL_OF_TEXT 100 /* the tables of an automaton */
#define FUEL_OF_SCHEMA 20
#define FUEL_OF_KEYWORD 8
#define BYTES_PER_FUEL 16 /* bytes that are looked at, compared or hashed */
#define TREE_PER_FUEL 64  /* bytes of the tree of a value */

struct check {
    struct compiler compiler; /* its root, exprs and error are used: for names and references */
    struct exprs exprs;       /* expressions of all patterns; their fuel is the bound of all work */
    struct error error;
    uint32_t depth;
};

/* Takes the fuel of `amount` steps. False: none is left, now and later. */
static bool burn(struct check *check, size_t amount) {
    return exprs_use_fuel(&check->exprs, amount);
}

static bool burn_bytes(struct check *check, size_t bytes) {
    return burn(check, 1 + bytes / BYTES_PER_FUEL);
}

static enum shape_match match_of(bool is_good) {
    return is_good ? SHAPE_MATCH_YES : SHAPE_MATCH_NO;
}

/* Both must hold. */
static enum shape_match both(enum shape_match a, enum shape_match b) {
    return a < b ? a : b;
}

static enum shape_match check_value(struct check *check, const json_t *schema, const json_t *value);

/* --- numbers, strings, equal values --- */

static int compare_numbers(const json_t *a, const json_t *b) {
    if (json_is_integer(a) && json_is_integer(b)) {
        json_int_t x = json_integer_value(a), y = json_integer_value(b);
        return (x > y) - (x < y);
    }
    double x = json_number_value(a), y = json_number_value(b);
    return (x > y) - (x < y);
}

static bool are_equal(struct check *check, const json_t *a, const json_t *b, uint32_t depth) {
    const char *key;
    json_t *value;
    size_t index;
    if (!burn_bytes(check, json_string_length(a)) || depth > JSON_DEPTH_MAX) return false;
    if (json_is_number(a) && json_is_number(b)) return compare_numbers(a, b) == 0;
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        for (index = 0; index < json_array_size(a); index++)
            if (!are_equal(check, json_array_get(a, index), json_array_get(b, index), depth + 1))
                return false;
        return true;
    }
    if (!json_is_object(a)) return json_equal(a, b);
    if (json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach((json_t *)(uintptr_t)a, key, value) {
        const json_t *other = json_object_getn(b, key, strlen(key));
        if (!burn_bytes(check, strlen(key))) return false;
        if (!other || !are_equal(check, value, other, depth + 1)) return false;
    }
    return true;
}

static bool is_integer(const json_t *value) {
    double number = json_real_value(value);
    return json_is_integer(value) || (json_is_real(value) && number == floor(number));
}

static bool is_multiple(const json_t *value, const json_t *of) {
    if (json_number_value(of) <= 0) return true; /* the schema is wrong */
    if (json_is_integer(value) && json_is_integer(of) && json_integer_value(of) > 0)
        return json_integer_value(value) % json_integer_value(of) == 0;
    double ratio = json_number_value(value) / json_number_value(of);
    return fabs(ratio - round(ratio)) <= RATIO_SLACK * fmax(1, fabs(ratio));
}

static enum shape_match check_number(const json_t *schema, const json_t *value) {
    static const struct {
        const char *keyword;
        int wrong; /* comparisons of the value with the bound that break it */
        bool equal_is_wrong;
    } bounds[] = {{"minimum", -1, false},
                  {"exclusiveMinimum", -1, true},
                  {"maximum", 1, false},
                  {"exclusiveMaximum", 1, true}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const json_t *bound = json_object_get(schema, bounds[i].keyword);
        if (!json_is_number(bound)) continue;
        int order = compare_numbers(value, bound);
        if (order == bounds[i].wrong || (order == 0 && bounds[i].equal_is_wrong))
            return SHAPE_MATCH_NO;
    }
    const json_t *multiple = json_object_get(schema, "multipleOf");
    return match_of(!multiple || is_multiple(value, multiple));
}

static enum shape_match check_pattern(struct check *check, struct str pattern,
                                      enum regex_match match, struct str text) {
    uint32_t expr;
    if (!burn(check, pattern.bytes + text.bytes) ||
        regex_expr(&check->exprs, pattern, match, SPELLING_PLAIN, &expr, &check->error) != OK)
        return SHAPE_MATCH_UNKNOWN;
    bool is_good = expr_matches(&check->exprs, expr, text);
    return check->exprs.overflowed ? SHAPE_MATCH_UNKNOWN : match_of(is_good);
}

/* Whether a time or a duration has a number with more digits than their expressions take. */
static bool has_long_number(struct str name, struct str text) {
    size_t digits = 0;
    if (!str_is(name, "time") && !str_is(name, "date-time") && !str_is(name, "duration"))
        return false;
    for (size_t i = 0; i < text.bytes && digits <= DIGITS_MAX; i++)
        digits = text.at[i] >= '0' && text.at[i] <= '9' ? digits + 1 : 0;
    return digits > DIGITS_MAX;
}

/* The expressions of formats leave a few valid texts out (schema_format.c): internationalised host
 * names, the year 0, many digits. These are not judged. */
static enum shape_match check_format(struct check *check, struct str name, struct str text) {
    struct string_format format = schema_format(name);
    if (!format.patterns[0]) return SHAPE_MATCH_UNKNOWN;
    enum shape_match match = SHAPE_MATCH_YES;
    for (size_t i = 0; i < FORMAT_PATTERNS_MAX && format.patterns[i]; i++)
        match = both(match, check_pattern(check, str_from(format.patterns[i]), REGEX_WHOLE, text));
    bool may_be_left_out = str_find(text, STR("xn--"), 0) != SIZE_MAX ||
                           str_starts_with(text, STR("0000")) || has_long_number(name, text);
    return match == SHAPE_MATCH_NO && may_be_left_out ? SHAPE_MATCH_UNKNOWN : match;
}

/* Compares a count with two keywords. */
static enum shape_match check_count(struct check *check, const json_t *schema, const char *min,
                                    const char *max, size_t count) {
    uint32_t low = 0, high = COUNT_MOST;
    if (schema_count(&check->compiler, schema, min, &low) != OK ||
        schema_count(&check->compiler, schema, max, &high) != OK)
        return SHAPE_MATCH_UNKNOWN;
    return match_of(count >= low && (count <= high || high == COUNT_MOST));
}

static enum shape_match check_string(struct check *check, const json_t *schema,
                                     const json_t *value) {
    struct str text = json_str(value);
    if (!burn_bytes(check, text.bytes)) return SHAPE_MATCH_UNKNOWN;
    const json_t *pattern = json_object_get(schema, "pattern"),
                 *format = json_object_get(schema, "format");
    enum shape_match match = check_count(check, schema, "minLength", "maxLength", utf8_count(text));
    if (pattern && match != SHAPE_MATCH_NO)
        match = both(match, check_pattern(check, json_str(pattern), REGEX_SEARCH, text));
    if (format && match != SHAPE_MATCH_NO)
        match = both(match, check_format(check, json_str(format), text));
    return match;
}

/* --- arrays and objects --- */

static enum shape_match check_unique(struct check *check, const json_t *value) {
    bool is_unique = true;
    for (size_t i = 0; i < json_array_size(value) && is_unique; i++)
        for (size_t k = 0; k < i && is_unique && burn(check, 1); k++)
            is_unique = !are_equal(check, json_array_get(value, i), json_array_get(value, k), 0);
    /* Without fuel, two equal values count as different. */
    return is_unique && !burn(check, 1) ? SHAPE_MATCH_UNKNOWN : match_of(is_unique);
}

static enum shape_match check_array(struct check *check, const json_t *schema,
                                    const json_t *value) {
    const json_t *first = json_object_get(schema, "prefixItems"),
                 *rest = json_object_get(schema, "items");
    if (!burn_bytes(check, json_array_size(value))) return SHAPE_MATCH_UNKNOWN;
    enum shape_match match =
        check_count(check, schema, "minItems", "maxItems", json_array_size(value));
    for (size_t i = 0; i < json_array_size(value) && match != SHAPE_MATCH_NO; i++) {
        const json_t *item = i < json_array_size(first) ? json_array_get(first, i) : rest;
        if (item) match = both(match, check_value(check, item, json_array_get(value, i)));
    }
    bool is_unique = json_is_true(json_object_get(schema, "uniqueItems"));
    return is_unique && match != SHAPE_MATCH_NO ? both(match, check_unique(check, value)) : match;
}

/* One member: by its name, by the patterns that its name has, else as an additional one. */
static enum shape_match check_member(struct check *check, const json_t *schema, const char *key,
                                     const json_t *value) {
    const json_t *named = json_object_get(json_object_get(schema, "properties"), key),
                 *others = json_object_get(schema, "additionalProperties");
    enum shape_match match = SHAPE_MATCH_YES, has_pattern = SHAPE_MATCH_NO;
    const char *pattern;
    json_t *part;
    if (named) match = check_value(check, named, value);
    json_object_foreach(json_object_get(schema, "patternProperties"), pattern, part) {
        enum shape_match is_it =
            check_pattern(check, str_from(pattern), REGEX_SEARCH, str_from(key));
        if (is_it > has_pattern) has_pattern = is_it;
        if (is_it == SHAPE_MATCH_YES) match = both(match, check_value(check, part, value));
        if (is_it == SHAPE_MATCH_UNKNOWN) match = both(match, SHAPE_MATCH_UNKNOWN);
    }
    if (!named && others && has_pattern == SHAPE_MATCH_NO)
        match = both(match, check_value(check, others, value));
    return match;
}

static enum shape_match check_object(struct check *check, const json_t *schema,
                                     const json_t *value) {
    const json_t *required = json_object_get(schema, "required"),
                 *names = json_object_get(schema, "propertyNames");
    const char *key;
    json_t *member;
    if (!burn(check, json_object_size(value))) return SHAPE_MATCH_UNKNOWN;
    enum shape_match match =
        check_count(check, schema, "minProperties", "maxProperties", json_object_size(value));
    for (size_t i = 0; i < json_array_size(required); i++) {
        struct str name = json_str(json_array_get(required, i));
        if (!burn_bytes(check, name.bytes)) return SHAPE_MATCH_UNKNOWN;
        if (!json_object_getn(value, name.at, name.bytes)) return SHAPE_MATCH_NO;
    }
    size_t bytes;
    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, bytes, member) {
        if (match == SHAPE_MATCH_NO) break;
        if (!burn_bytes(check, bytes)) return SHAPE_MATCH_UNKNOWN;
        match = both(match, check_member(check, schema, key, member));
        if (!names) continue;
        json_t *name = json_string(key);
        match = both(match, check_value(check, names, name));
        json_decref(name);
    }
    return match;
}

/* --- schemas --- */

static bool has_type(const json_t *type, const json_t *value) {
    static const struct {
        const char *name;
        json_type type;
    } names[] = {{"null", JSON_NULL},     {"string", JSON_STRING}, {"array", JSON_ARRAY},
                 {"object", JSON_OBJECT}, {"boolean", JSON_TRUE},  {"boolean", JSON_FALSE}};
    struct str name = json_str(type);
    if (str_is(name, "number")) return json_is_number(value);
    if (str_is(name, "integer")) return is_integer(value);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_is(name, names[i].name) && json_typeof(value) == names[i].type) return true;
    return false;
}

/* type, enum and const. */
static enum shape_match check_listed(struct check *check, const json_t *schema,
                                     const json_t *value) {
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum"),
                 *only = json_object_get(schema, "const");
    if (!burn(check, json_array_size(type))) return SHAPE_MATCH_UNKNOWN;
    bool is_good = !type || has_type(type, value);
    for (size_t i = 0; i < json_array_size(type) && !is_good; i++)
        is_good = has_type(json_array_get(type, i), value);
    if (json_is_null(value) && json_is_true(json_object_get(schema, "nullable"))) is_good = true;
    bool is_listed = !list;
    for (size_t i = 0; i < json_array_size(list) && !is_listed; i++)
        is_listed = are_equal(check, json_array_get(list, i), value, 0);
    bool is_only = !only || are_equal(check, only, value, 0);
    /* Without fuel, two equal values count as different. */
    return burn(check, 1) ? match_of(is_good && is_listed && is_only) : SHAPE_MATCH_UNKNOWN;
}

/* How many branches have the value: anyOf needs one, oneOf exactly one, allOf all. */
static enum shape_match check_branches(struct check *check, const json_t *schema,
                                       const json_t *value) {
    static const char *const keywords[] = {"allOf", "anyOf", "oneOf"};
    enum shape_match match = SHAPE_MATCH_YES;
    for (size_t k = 0; k < 3 && match != SHAPE_MATCH_NO; k++) {
        const json_t *list = json_object_get(schema, keywords[k]);
        size_t count = json_array_size(list), good = 0, unknown = 0;
        if (!list) continue;
        if (count == 0) return SHAPE_MATCH_UNKNOWN;
        for (size_t i = 0; i < count; i++) {
            enum shape_match one = check_value(check, json_array_get(list, i), value);
            good += one == SHAPE_MATCH_YES;
            unknown += one == SHAPE_MATCH_UNKNOWN;
        }
        size_t least = k == 0 ? count : 1, most = k == 2 ? 1 : count;
        if (good + unknown < least || good > most) return SHAPE_MATCH_NO;
        if (unknown > 0 && (good < least || good + unknown > most)) match = SHAPE_MATCH_UNKNOWN;
    }
    return match;
}

/* Takes the fuel of a look for an anchor, which may be anywhere in the schema. */
static bool burn_tree(struct check *check, const json_t *at, int depth) {
    const char *key;
    json_t *value;
    bool has_fuel = burn(check, 2) && depth <= JSON_DEPTH_MAX;
    json_object_foreach((json_t *)(uintptr_t)at, key, value) {
        if (!has_fuel) break;
        has_fuel = burn_tree(check, value, depth + 1);
    }
    for (size_t i = 0; i < json_array_size(at) && has_fuel; i++)
        has_fuel = burn_tree(check, json_array_get(at, i), depth + 1);
    return has_fuel;
}

static bool burn_reference(struct check *check, struct str reference) {
    bool is_anchor = reference.bytes > 1 && reference.at[0] == '#' && reference.at[1] != '/';
    return burn(check, reference.bytes) &&
           (!is_anchor || burn_tree(check, check->compiler.root, 0));
}

static enum shape_match check_reference(struct check *check, const json_t *schema,
                                        const json_t *value) {
    const json_t *target, *reference = json_object_get(schema, "$ref");
    if (!reference) return SHAPE_MATCH_YES;
    if (!burn_reference(check, json_str(reference)) ||
        schema_resolve(&check->compiler, schema, &target) != OK)
        return SHAPE_MATCH_UNKNOWN;
    return check_value(check, target, value);
}

static enum shape_match check_keywords(struct check *check, const json_t *schema,
                                       const json_t *value) {
    enum shape_match match = check_listed(check, schema, value);
    if (match != SHAPE_MATCH_NO) match = both(match, check_reference(check, schema, value));
    if (match != SHAPE_MATCH_NO) match = both(match, check_branches(check, schema, value));
    if (match == SHAPE_MATCH_NO) return match;
    if (json_is_number(value)) return both(match, check_number(schema, value));
    if (json_is_string(value)) return both(match, check_string(check, schema, value));
    if (json_is_array(value)) return both(match, check_array(check, schema, value));
    return json_is_object(value) ? both(match, check_object(check, schema, value)) : match;
}

static enum shape_match check_value(struct check *check, const json_t *schema,
                                    const json_t *value) {
    if (json_is_boolean(schema)) return match_of(json_is_true(schema));
    size_t words = json_object_size(schema) + json_array_size(json_object_get(schema, "required"));
    if (!json_is_object(schema) || check->depth == DEPTH_MAX ||
        !burn(check, FUEL_OF_SCHEMA + FUEL_OF_KEYWORD * words) ||
        schema_check_keywords(&check->compiler, schema) != OK)
        return SHAPE_MATCH_UNKNOWN;
    check->depth++;
    enum shape_match match = check_keywords(check, schema, value);
    check->depth--;
    return match;
}

static void open_check(struct check *check, uint32_t fuel) {
    *check = (struct check){.depth = 0};
    exprs_init(&check->exprs);
    check->exprs.fuel = check->exprs.fuel_max = fuel;
    (void)burn(check, FUEL_OF_TEXT);
}

static void close_check(struct check *check, uint32_t *fuel) {
    *fuel = check->exprs.fuel;
    exprs_release(&check->exprs);
}

static enum shape_match check_schema(const json_t *schema, struct str text, uint32_t *fuel) {
    struct check check;
    struct error error;
    struct str plain;
    json_t *value;
    size_t memory = TREE_MEMORY_MAX;
    if (!json_span_read(text, &plain)) return SHAPE_MATCH_NO;
    /* JSON that is too deep, too large, or has numbers that are too large for this reader. */
    if (json_read_within(&value, text, &memory, &error) != OK) return SHAPE_MATCH_UNKNOWN;
    open_check(&check, *fuel);
    check.compiler = (struct compiler){
        .exprs = &check.exprs, .root = schema, .error = &check.error, .is_quiet = true};
    bool has_fuel = burn(&check, (TREE_MEMORY_MAX - memory) / TREE_PER_FUEL);
    enum shape_match match = has_fuel ? check_value(&check, schema, value) : SHAPE_MATCH_UNKNOWN;
    close_check(&check, fuel);
    json_decref(value);
    return match;
}

/* --- the other kinds --- */

static enum shape_match check_choice(const json_t *choices, struct str text, uint32_t *fuel) {
    for (size_t i = 0; i < json_array_size(choices); i++) {
        struct str choice = json_str(json_array_get(choices, i));
        size_t work = 1 + (choice.bytes == text.bytes ? text.bytes / BYTES_PER_FUEL : 0);
        *fuel -= work < *fuel ? (uint32_t)work : *fuel;
        if (*fuel == 0) return SHAPE_MATCH_UNKNOWN;
        if (str_equals(choice, text)) return SHAPE_MATCH_YES;
    }
    return SHAPE_MATCH_NO;
}

/* Where the whole text leads in the automaton. */
static enum shape_match walk(struct check *check, uint32_t start, struct str text) {
    struct exprs *exprs = &check->exprs;
    uint32_t at = exprs_seal(exprs, start);
    if (!burn_bytes(check, text.bytes)) return SHAPE_MATCH_UNKNOWN;
    for (size_t i = 0; i < text.bytes && at != EXPR_NEVER; i++)
        at = expr_step(exprs, at, (unsigned char)text.at[i]);
    return exprs->overflowed ? SHAPE_MATCH_UNKNOWN : match_of(expr_is_nullable(exprs, at));
}

static enum shape_match check_automaton(enum grammar_kind kind, struct str source, struct str text,
                                        uint32_t *fuel) {
    struct check check;
    uint32_t start;
    open_check(&check, *fuel);
    enum shape_match match = SHAPE_MATCH_UNKNOWN;
    enum err err = ERR_LIMIT;
    if (burn_bytes(&check, source.bytes))
        err = kind == GRAMMAR_EBNF ? ebnf_expr(&check.exprs, source, &start, &check.error)
                                   : regex_expr(&check.exprs, source, REGEX_WHOLE, SPELLING_PLAIN,
                                                &start, &check.error);
    if (err == OK) {
        check.exprs.fuel_max = check.exprs.fuel; /* the seal takes no more than is left */
        match = walk(&check, start, text);
    }
    close_check(&check, fuel);
    return match;
}

enum shape_match shape_match_text(enum grammar_kind kind, const json_t *source, struct str text,
                                  uint32_t *fuel) {
    if (*fuel == 0) return SHAPE_MATCH_UNKNOWN;
    switch (kind) {
    case GRAMMAR_SCHEMA: return check_schema(source, text, fuel);
    case GRAMMAR_CHOICE: return check_choice(source, text, fuel);
    case GRAMMAR_REGEX:
    case GRAMMAR_EBNF: return check_automaton(kind, json_str(source), text, fuel);
    case GRAMMAR_TAGS: break;
    }
    return SHAPE_MATCH_UNKNOWN;
}
