/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a grammar as rules. */
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/charset.h"
#include "grammar/ebnf_internal.h"
#include "grammar/regex.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (256 << 10)
#define RULES_MAX 10000
#define DEPTH_MAX 64
#define COUNT_MOST 1000000u

enum err(ebnf_fail)(struct reading *reading, uint32_t line, const char *format, ...) {
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return err_set(reading->error, ERR_INVALID, "line %u of the grammar: %s", line, text);
}

uint32_t ebnf_add_node(struct reading *reading, struct node node) {
    reading->nodes = vec_grow(reading->nodes, reading->node_count, &reading->node_capacity,
                              sizeof *reading->nodes);
    reading->nodes[reading->node_count] = node;
    return (uint32_t)reading->node_count++;
}

static uint32_t add_leaf(struct reading *reading, uint32_t expr) {
    return ebnf_add_node(reading, (struct node){.kind = NODE_LEAF, .a = expr});
}

/* --- words --- */

static unsigned char peek(const struct reading *reading, size_t ahead) {
    size_t at = reading->at + ahead;
    return at < reading->text.bytes ? (unsigned char)reading->text.at[at] : '\0';
}

static bool is_end(const struct reading *reading) {
    return reading->at >= reading->text.bytes;
}

static void skip_space(struct reading *reading) {
    for (; !is_end(reading); reading->at++) {
        unsigned char byte = peek(reading, 0);
        bool is_comment = reading->is_lark ? byte == '/' && peek(reading, 1) == '/' : byte == '#';
        if (is_comment)
            while (!is_end(reading) && peek(reading, 0) != '\n') reading->at++;
        if (is_end(reading)) return;
        byte = peek(reading, 0);
        if (byte == '\n') reading->line++;
        if (byte != ' ' && byte != '\t' && byte != '\r' && byte != '\n') return;
    }
}

static bool take(struct reading *reading, const char *word) {
    struct str rest = str_skip(reading->text, reading->at);
    if (!str_starts_with(rest, str_from(word))) return false;
    reading->at += strlen(word);
    return true;
}

static bool is_name_byte(const struct reading *reading, unsigned char byte, bool is_first) {
    bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
    bool is_more = (byte >= '0' && byte <= '9') || (byte == '-' && !reading->is_lark);
    return is_letter || (is_more && !is_first);
}

static struct str take_name(struct reading *reading) {
    size_t from = reading->at;
    while (is_name_byte(reading, peek(reading, 0), reading->at == from)) reading->at++;
    return (struct str){reading->text.at + from, reading->at - from};
}

static bool take_definition(struct reading *reading) {
    skip_space(reading);
    return reading->is_lark ? take(reading, ":") : take(reading, "::=");
}

/* True if a name and the mark of a definition come next: a new rule. */
static bool is_at_rule(const struct reading *reading) {
    struct reading ahead = *reading;
    if (ahead.is_lark && (peek(&ahead, 0) == '?' || peek(&ahead, 0) == '!')) ahead.at++;
    return take_name(&ahead).bytes > 0 && take_definition(&ahead);
}

static uint32_t rule_of(struct reading *reading, struct str name) {
    uint64_t index;
    if (!map_put_new(&reading->names, name, reading->rule_count, &index)) return (uint32_t)index;
    reading->rules = vec_grow(reading->rules, reading->rule_count, &reading->rule_capacity,
                              sizeof *reading->rules);
    reading->rules[reading->rule_count] =
        (struct rule){.name = name, .line = reading->line, .node = EBNF_NONE, .expr = EBNF_NONE};
    return (uint32_t)reading->rule_count++;
}

/* --- characters --- */

static const char digits_of_hex[] = "0123456789abcdef";

static enum err take_hex(struct reading *reading, unsigned digits, uint32_t *ret_character) {
    uint32_t value = 0;
    for (unsigned i = 0; i < digits; i++) {
        unsigned char byte = peek(reading, 0);
        const char *known = byte ? strchr(digits_of_hex, byte | (byte >= 'A' ? 32 : 0)) : NULL;
        if (!known) return ebnf_fail(reading, reading->line, "an escape with too few digits");
        value = value * 16 + (uint32_t)(known - digits_of_hex);
        reading->at++;
    }
    if (value > CHAR_LAST || (value >= 0xD800 && value <= 0xDFFF))
        return ebnf_fail(reading, reading->line, "an escape that is no character");
    *ret_character = value;
    return OK;
}

/* One character, which may be escaped; the backslash of an escape is taken. */
static enum err take_escape(struct reading *reading, uint32_t *ret_character) {
    static const char names[] = "nrtfv0", bytes[] = "\n\r\t\f\v";
    unsigned char byte = peek(reading, 0);
    const char *known = byte ? strchr(names, byte) : NULL;
    reading->at++;
    if (byte == 'x') return take_hex(reading, 2, ret_character);
    if (byte == 'u') return take_hex(reading, 4, ret_character);
    if (byte == 'U') return take_hex(reading, 8, ret_character);
    bool is_word = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                   (byte >= '1' && byte <= '9');
    if (!known && (is_word || byte == '\0' || byte >= 0x80))
        return ebnf_fail(reading, reading->line, "an escape that is not known: \\%c",
                         byte >= 0x20 && byte < 0x7f ? byte : '?');
    *ret_character = known ? (unsigned char)bytes[known - names] : byte;
    return OK;
}

static enum err take_character(struct reading *reading, uint32_t *ret_character) {
    if (is_end(reading)) return ebnf_fail(reading, reading->line, "a character is missing");
    if (take(reading, "\\")) return take_escape(reading, ret_character);
    if (peek(reading, 0) == '\n') reading->line++;
    reading->at += utf8_decode(reading->text, reading->at, ret_character);
    return OK;
}

static enum err read_string(struct reading *reading, char quote, uint32_t *ret_node) {
    struct buf text;
    enum err err = OK;
    buf_init(&text, BYTES_MAX);
    while (err == OK && peek(reading, 0) != (unsigned char)quote) {
        uint32_t character;
        if (is_end(reading)) {
            err = ebnf_fail(reading, reading->line, "a string without its end");
            break;
        }
        err = take_character(reading, &character);
        char bytes[4];
        if (err == OK) buf_add(&text, bytes, utf8_encode(character, bytes));
    }
    reading->at++;
    if (err == OK && reading->is_lark && peek(reading, 0) == 'i')
        err = ebnf_fail(reading, reading->line, "flags of a string are not supported");
    if (err == OK) *ret_node = add_leaf(reading, expr_bytes(reading->exprs, buf_str(&text)));
    buf_release(&text);
    return err;
}

/* Takes \d, \w, \s or its negation in a class. */
static bool take_set(struct reading *reading, struct charset *set) {
    if (peek(reading, 0) != '\\' || !charset_add_class(set, (char)peek(reading, 1))) return false;
    reading->at += 2;
    return true;
}

static enum err read_class(struct reading *reading, uint32_t *ret_node) {
    struct charset set = {0};
    bool is_negated = take(reading, "^");
    enum err err = OK;
    while (err == OK && peek(reading, 0) != ']') {
        uint32_t first = 0, last;
        if (is_end(reading)) {
            err = ebnf_fail(reading, reading->line, "a class without its ]");
            break;
        }
        if (take_set(reading, &set)) continue;
        err = take_character(reading, &first);
        last = first;
        if (err == OK && peek(reading, 0) == '-' && peek(reading, 1) != ']') {
            reading->at++;
            err = take_character(reading, &last);
        }
        if (err == OK && last < first)
            err = ebnf_fail(reading, reading->line, "a range whose end is before its start");
        if (err == OK) charset_add(&set, first, last);
    }
    reading->at++;
    if (err == OK && is_negated) charset_negate(&set);
    if (err == OK)
        *ret_node = add_leaf(reading, charset_expr(reading->exprs, &set, SPELLING_PLAIN));
    charset_release(&set);
    return err;
}

static enum err read_regex(struct reading *reading, uint32_t *ret_node) {
    size_t from = reading->at;
    uint32_t expr;
    for (; peek(reading, 0) != '/'; reading->at++) {
        if (is_end(reading) || peek(reading, 0) == '\n')
            return ebnf_fail(reading, reading->line, "a regular expression without its /");
        if (peek(reading, 0) == '\\') reading->at++;
    }
    if (reading->at > reading->text.bytes)
        return ebnf_fail(reading, reading->line, "a regular expression without its /");
    struct str pattern = {reading->text.at + from, reading->at - from};
    reading->at++;
    if (is_name_byte(reading, peek(reading, 0), true))
        return ebnf_fail(reading, reading->line, "flags of a regular expression are not supported");
    enum err err =
        regex_expr(reading->exprs, pattern, REGEX_WHOLE, SPELLING_PLAIN, &expr, reading->error);
    if (err != OK) return err_prefix(reading->error, "line %u of the grammar", reading->line);
    *ret_node = add_leaf(reading, expr);
    return OK;
}

/* --- parts --- */

static enum err read_choice(struct reading *reading, uint32_t *ret_node);

static enum err read_group(struct reading *reading, char close, uint32_t *ret_node) {
    if (++reading->depth > DEPTH_MAX)
        return ebnf_fail(reading, reading->line, "groups are nested more than %d deep", DEPTH_MAX);
    enum err err = read_choice(reading, ret_node);
    reading->depth--;
    if (err != OK) return err;
    if (peek(reading, 0) != (unsigned char)close)
        return ebnf_fail(reading, reading->line, "a group without its %c", close);
    reading->at++;
    return OK;
}

static uint32_t repeated(struct reading *reading, uint32_t node, uint32_t min, uint32_t max) {
    return ebnf_add_node(reading,
                         (struct node){.kind = NODE_REPEAT, .a = node, .min = min, .max = max});
}

static bool take_number(struct reading *reading, uint32_t *ret_number) {
    size_t from = reading->at;
    uint32_t value = 0;
    for (; peek(reading, 0) >= '0' && peek(reading, 0) <= '9'; reading->at++)
        if (value <= COUNT_MOST) value = value * 10 + peek(reading, 0) - '0';
    *ret_number = value;
    return reading->at > from;
}

/* {m}, {m,}, {,n} or {m,n} behind the brace. */
static enum err read_count(struct reading *reading, uint32_t *node) {
    uint32_t min, max;
    skip_space(reading);
    bool has_min = take_number(reading, &min), has_max = has_min;
    max = min;
    skip_space(reading);
    bool is_range = take(reading, ",");
    skip_space(reading);
    if (is_range) has_max = take_number(reading, &max);
    skip_space(reading);
    if (!take(reading, "}") || (!has_min && !has_max))
        return ebnf_fail(reading, reading->line, "a count that is not {m}, {m,}, {,n} or {m,n}");
    if (min > COUNT_MOST || max > COUNT_MOST || (has_max && max < min))
        return ebnf_fail(reading, reading->line, "a count out of range");
    *node = repeated(reading, *node, min, has_max ? max : EXPR_NO_MAX);
    return OK;
}

static enum err read_quantifiers(struct reading *reading, uint32_t *node) {
    enum err err = OK;
    for (;;) {
        if (take(reading, "*"))
            *node = repeated(reading, *node, 0, EXPR_NO_MAX);
        else if (take(reading, "+"))
            *node = repeated(reading, *node, 1, EXPR_NO_MAX);
        else if (take(reading, "?"))
            *node = repeated(reading, *node, 0, 1);
        else if (take(reading, "{"))
            err = read_count(reading, node);
        else
            return OK;
        if (err != OK) return err;
    }
}

/* The macros of xgrammar. Any other name before a parenthesis is a rule before a group, as in
 * llama.cpp's own files. */
static bool is_macro(struct str name) {
    return str_is(name, "TagDispatch") || str_is(name, "TokenTagDispatch") ||
           str_is(name, "Token") || str_is(name, "ExcludeToken");
}

static enum err read_part(struct reading *reading, uint32_t *ret_node) {
    if (take(reading, "\"")) return read_string(reading, '"', ret_node);
    if (take(reading, "'")) return read_string(reading, '\'', ret_node);
    if (reading->is_lark && take(reading, "[")) {
        enum err err = read_group(reading, ']', ret_node);
        if (err == OK) *ret_node = repeated(reading, *ret_node, 0, 1);
        return err;
    }
    if (take(reading, "[")) return read_class(reading, ret_node);
    if (take(reading, "/")) return read_regex(reading, ret_node);
    if (take(reading, "(="))
        return ebnf_fail(reading, reading->line, "look-ahead is not supported");
    if (take(reading, "(")) return read_group(reading, ')', ret_node);
    if (!reading->is_lark && take(reading, ".")) {
        *ret_node = add_leaf(reading, charset_any(reading->exprs, SPELLING_PLAIN));
        return OK;
    }
    struct str name = take_name(reading);
    if (name.bytes == 0)
        return ebnf_fail(reading, reading->line, "'%c' is not expected here",
                         peek(reading, 0) >= 0x20 && peek(reading, 0) < 0x7f ? peek(reading, 0)
                                                                             : '?');
    if (peek(reading, 0) == '(' && is_macro(name))
        return ebnf_fail(reading, reading->line, "the macro %.*s is not supported",
                         EBNF_NAME_ARGS(name));
    *ret_node =
        ebnf_add_node(reading, (struct node){.kind = NODE_REF, .a = rule_of(reading, name)});
    return OK;
}

static bool is_sequence_end(const struct reading *reading) {
    unsigned char byte = peek(reading, 0);
    return is_end(reading) || byte == '|' || byte == ')' || (reading->is_lark && byte == ']') ||
           (reading->depth == 0 && is_at_rule(reading));
}

/* Joins parts from the last to the first. */
static uint32_t joined(struct reading *reading, enum node_kind kind, const uint32_t *parts,
                       size_t count) {
    if (count == 0) return add_leaf(reading, EXPR_EMPTY);
    uint32_t node = parts[--count];
    while (count > 0)
        node = ebnf_add_node(reading, (struct node){.kind = kind, .a = parts[--count], .b = node});
    return node;
}

static enum err read_sequence(struct reading *reading, uint32_t *ret_node) {
    uint32_t *parts = NULL;
    size_t count = 0, capacity = 0;
    enum err err = OK;
    skip_space(reading);
    while (err == OK && !is_sequence_end(reading)) {
        if (reading->is_lark && take(reading, "->")) { /* a name for Lark's tree of the text */
            skip_space(reading);
            (void)take_name(reading);
        } else {
            parts = vec_grow(parts, count, &capacity, sizeof *parts);
            err = read_part(reading, &parts[count]);
            if (err == OK) err = read_quantifiers(reading, &parts[count++]);
        }
        skip_space(reading);
        if (err == OK && reading->exprs->overflowed)
            err = err_set(reading->error, ERR_LIMIT, "the grammar is too large");
    }
    if (err == OK) *ret_node = joined(reading, NODE_CAT, parts, count);
    free(parts);
    return err;
}

static enum err read_choice(struct reading *reading, uint32_t *ret_node) {
    uint32_t *parts = NULL;
    size_t count = 0, capacity = 0;
    enum err err;
    do {
        parts = vec_grow(parts, count, &capacity, sizeof *parts);
        err = read_sequence(reading, &parts[count++]);
    } while (err == OK && take(reading, "|"));
    if (err == OK) *ret_node = joined(reading, NODE_ALT, parts, count);
    free(parts);
    return err;
}

/* --- rules --- */

static enum err read_rule(struct reading *reading) {
    if (reading->is_lark && (peek(reading, 0) == '?' || peek(reading, 0) == '!')) reading->at++;
    if (reading->is_lark && peek(reading, 0) == '%')
        return ebnf_fail(reading, reading->line, "directives are not supported");
    struct str name = take_name(reading);
    uint32_t line = reading->line, node;
    if (name.bytes == 0 || !take_definition(reading))
        return ebnf_fail(reading, line, "a rule must begin with its name and %s",
                         reading->is_lark ? "':'" : "'::='");
    uint32_t rule = rule_of(reading, name);
    if (reading->rules[rule].node != EBNF_NONE)
        return ebnf_fail(reading, line, "the rule '%.*s' is there twice", EBNF_NAME_ARGS(name));
    enum err err = read_choice(reading, &node);
    if (err != OK) return err;
    reading->rules[rule].node = node;
    return OK;
}

enum err ebnf_read(struct reading *reading) {
    if (reading->text.bytes > BYTES_MAX)
        return err_set(reading->error, ERR_LIMIT, "the grammar has more than %d bytes", BYTES_MAX);
    if (!utf8_is_valid(reading->text))
        return err_set(reading->error, ERR_INVALID, "the grammar is not UTF-8");
    reading->is_lark = str_find(reading->text, STR("::="), 0) == SIZE_MAX;
    reading->line = 1;
    enum err err = OK;
    for (skip_space(reading); err == OK && !is_end(reading); skip_space(reading)) {
        err = read_rule(reading);
        if (err == OK && reading->rule_count > RULES_MAX)
            err =
                err_set(reading->error, ERR_LIMIT, "the grammar has more than %d rules", RULES_MAX);
    }
    return err;
}
