/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/regex.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/regex_read.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 65536     /* bytes of an expression */
#define DEPTH_MAX 64        /* groups in groups */
#define REPEATS_MAX 100000u /* most times of a quantifier */

/* Which ends of the text a part touches: there, anchors mean something, and a search may begin. */
struct ends {
    bool first, last;
};

static enum err read_choice(struct regex_reader *reader, struct ends ends, uint32_t *ret_expr);

/* The rest of a group, after its (. */
static enum err read_group(struct regex_reader *reader, struct ends ends, uint32_t *ret_expr) {
    if (regex_take(reader, "?")) {
        if (regex_take(reader, "P<") ||
            (regex_take(reader, "<") && regex_peek(reader) != '=' && regex_peek(reader) != '!')) {
            size_t end = str_find_byte(reader->text, '>', reader->at);
            if (end == SIZE_MAX) return regex_fail(reader, "a group without its name");
            reader->at = end + 1;
        } else if (!regex_take(reader, ":")) {
            return regex_fail_unsupported(reader, "look-around or a flag");
        }
    }
    if (++reader->depth > DEPTH_MAX)
        return err_set(reader->error, ERR_LIMIT, "groups are nested more than %d deep", DEPTH_MAX);
    enum err err = read_choice(reader, ends, ret_expr);
    reader->depth--;
    if (err == OK && !regex_take(reader, ")")) return regex_fail(reader, "a group without its end");
    return err;
}

static enum err read_one(struct regex_reader *reader, uint32_t *ret_expr) {
    struct charset set = {0};
    enum err err = OK;
    bool is_char;
    uint32_t c;
    if (regex_take(reader, "[")) {
        err = regex_read_class(reader, &set);
    } else if (regex_take(reader, "\\")) {
        err = regex_read_escape(reader, &set, false, &is_char, &c);
    } else if (regex_take(reader, ".")) {
        charset_add(&set, '\n', '\n');
        charset_add(&set, '\r', '\r');
        charset_add(&set, 0x2028, 0x2029); /* the separators of lines and paragraphs */
        charset_negate(&set);
    } else if (strchr("*+?{", regex_peek(reader))) {
        err = regex_fail(reader, "a quantifier of nothing");
    } else {
        c = regex_next_char(reader);
        charset_add(&set, c, c);
    }
    if (err == OK) *ret_expr = charset_expr(reader->exprs, &set, reader->spelling);
    charset_release(&set);
    return err;
}

static bool take_count(struct regex_reader *reader, uint32_t *ret_count) {
    uint64_t count = 0;
    size_t from = reader->at;
    for (; regex_peek(reader) >= '0' && regex_peek(reader) <= '9'; reader->at++)
        if (count <= REPEATS_MAX) count = count * 10 + (uint64_t)(regex_peek(reader) - '0');
    *ret_count = (uint32_t)(count <= REPEATS_MAX ? count : REPEATS_MAX + 1);
    return reader->at > from;
}

struct quantifier {
    bool is_there;
    uint32_t min, max;
};

static enum err read_quantifier(struct regex_reader *reader, struct quantifier *ret_quantifier) {
    struct quantifier quantifier = {true, 0, EXPR_NO_MAX};
    if (regex_take(reader, "+")) {
        quantifier.min = 1;
    } else if (regex_take(reader, "?")) {
        quantifier.max = 1;
    } else if (regex_take(reader, "{")) {
        if (!take_count(reader, &quantifier.min)) return regex_fail(reader, "a bad {…}");
        quantifier.max = quantifier.min;
        if (regex_take(reader, ",") && !take_count(reader, &quantifier.max))
            quantifier.max = EXPR_NO_MAX;
        if (!regex_take(reader, "}")) return regex_fail(reader, "a bad {…}");
        if (quantifier.min > quantifier.max) return regex_fail(reader, "a bad {…}");
        if (quantifier.min > REPEATS_MAX ||
            (quantifier.max > REPEATS_MAX && quantifier.max != EXPR_NO_MAX))
            return err_set(reader->error, ERR_LIMIT, "a quantifier of more than %u", REPEATS_MAX);
    } else if (!regex_take(reader, "*")) {
        quantifier = (struct quantifier){false, 1, 1};
    }
    if (quantifier.is_there) (void)regex_take(reader, "?"); /* lazy: the same texts */
    if (quantifier.is_there && strchr("*+?", regex_peek(reader)) && !regex_is_end(reader))
        return regex_fail(reader, "a quantifier of a quantifier");
    *ret_quantifier = quantifier;
    return OK;
}

/* True if the part that begins here is a group with no quantifier, so that anchors may stand in it;
 * *ret_end is the place after it. */
static bool is_bare_group(const struct regex_reader *reader, size_t *ret_end) {
    size_t depth = 0;
    bool in_class = false;
    if (regex_peek(reader) != '(') return false;
    for (size_t at = reader->at; at < reader->text.bytes; at++) {
        char c = reader->text.at[at];
        if (c == '\\')
            at++;
        else if (in_class)
            in_class = c != ']';
        else if (c == '[')
            in_class = true;
        else if (c == '(')
            depth++;
        else if (c == ')' && --depth == 0) {
            *ret_end = at + 1;
            return at + 1 >= reader->text.bytes || !strchr("*+?{", reader->text.at[at + 1]);
        }
    }
    return false;
}

/* Whether a sequence ends at this place of the text. */
static bool is_sequence_end(const struct regex_reader *reader, size_t at) {
    return at >= reader->text.bytes || reader->text.at[at] == '|' || reader->text.at[at] == ')';
}

struct part {
    uint32_t expr;
    bool is_ahead; /* a look-ahead: what follows it keeps the expression, too */
};

/* A sequence while it is read. */
struct sequence {
    struct part *parts;
    size_t count, capacity;
    bool is_open_start, is_open_end; /* other text may stand before it, behind it */
    bool has_text;                   /* a part that is no look-ahead */
};

static void add_part(struct sequence *sequence, uint32_t expr, bool is_ahead) {
    sequence->parts =
        vec_grow(sequence->parts, sequence->count, &sequence->capacity, sizeof *sequence->parts);
    sequence->parts[sequence->count++] = (struct part){expr, is_ahead};
    sequence->has_text = sequence->has_text || !is_ahead;
}

/* The rest of a look-ahead, after (?= or (?!. It is exact where all that follows it, to the end of
 * the text, belongs to its sequence: what follows is a text of the sequence's rest and one of the
 * look-ahead with any text behind it, or none of those. */
static enum err read_ahead(struct regex_reader *reader, struct ends ends, bool is_negated,
                           struct sequence *sequence) {
    uint32_t any_text = reader->any_text, expr;
    /* Other text may only stand before it in a search. */
    bool is_first =
        ends.first && !sequence->has_text && (!sequence->is_open_start || any_text == EXPR_EMPTY);
    if (!ends.last)
        return regex_fail_unsupported(reader, "a look-ahead before other parts than the end");
    if (++reader->depth > DEPTH_MAX)
        return err_set(reader->error, ERR_LIMIT, "groups are nested more than %d deep", DEPTH_MAX);
    reader->any_text =
        expr_repeat(reader->exprs, charset_any(reader->exprs, reader->spelling), 0, EXPR_NO_MAX);
    reader->is_ahead = true;
    enum err err = read_choice(reader, (struct ends){is_first, true}, &expr);
    reader->is_ahead = false;
    reader->any_text = any_text;
    reader->depth--;
    if (err != OK) return err;
    if (!regex_take(reader, ")")) return regex_fail(reader, "a group without its end");
    if (!regex_is_end(reader) && strchr("*+?{", regex_peek(reader)))
        return regex_fail_unsupported(reader, "a quantifier of a look-ahead");
    add_part(sequence, is_negated ? expr_not(reader->exprs, expr) : expr, true);
    return OK;
}

static enum err read_part(struct regex_reader *reader, struct ends ends,
                          struct sequence *sequence) {
    size_t after;
    uint32_t part = EXPR_NEVER;
    enum err err;
    if (regex_take(reader, "(?=")) return read_ahead(reader, ends, false, sequence);
    if (regex_take(reader, "(?!")) return read_ahead(reader, ends, true, sequence);
    if (is_bare_group(reader, &after)) {
        bool is_first = ends.first && sequence->count == 0 && sequence->is_open_start;
        bool is_last = ends.last && is_sequence_end(reader, after);
        if (is_first) sequence->is_open_start = false;
        if (is_last) sequence->is_open_end = false;
        reader->at++;
        err = read_group(reader, (struct ends){is_first, is_last}, &part);
        if (err == OK) add_part(sequence, part, false);
        return err;
    }
    err = regex_take(reader, "(") ? read_group(reader, (struct ends){false, false}, &part)
                                  : read_one(reader, &part);
    struct quantifier quantifier = {false, 1, 1};
    if (err == OK) err = read_quantifier(reader, &quantifier);
    if (err == OK)
        add_part(sequence, expr_repeat(reader->exprs, part, quantifier.min, quantifier.max), false);
    return err;
}

static enum err read_sequence(struct regex_reader *reader, struct ends ends, uint32_t *ret_expr) {
    struct sequence sequence = {.is_open_start = ends.first && !reader->is_ahead,
                                .is_open_end = ends.last};
    reader->is_ahead = false;
    enum err err = OK;
    bool is_closed = false; /* by $ */
    while (err == OK && !is_sequence_end(reader, reader->at)) {
        if (regex_take(reader, "^")) {
            if (!ends.first || sequence.has_text)
                err = regex_fail_unsupported(reader, "^ inside the expression");
            sequence.is_open_start = false;
        } else if (regex_take(reader, "$")) {
            if (!ends.last) err = regex_fail_unsupported(reader, "$ inside the expression");
            is_closed = true;
            sequence.is_open_end = false;
        } else if (is_closed) {
            err = regex_fail_unsupported(reader, "$ inside the expression");
        } else {
            err = read_part(reader, ends, &sequence);
        }
        if (err == OK && reader->exprs->overflowed)
            err = err_set(reader->error, ERR_LIMIT, "the regular expression is too large");
    }
    uint32_t expr = sequence.is_open_end ? reader->any_text : EXPR_EMPTY;
    while (sequence.count > 0) {
        struct part part = sequence.parts[--sequence.count];
        expr = part.is_ahead ? expr_and2(reader->exprs, part.expr, expr)
                             : expr_cat(reader->exprs, part.expr, expr);
    }
    if (sequence.is_open_start) expr = expr_cat(reader->exprs, reader->any_text, expr);
    free(sequence.parts);
    *ret_expr = expr;
    return err;
}

static enum err read_choice(struct regex_reader *reader, struct ends ends, uint32_t *ret_expr) {
    uint32_t *parts = NULL;
    size_t count = 0, capacity = 0;
    enum err err;
    bool is_ahead = reader->is_ahead;
    do {
        reader->is_ahead = is_ahead;
        parts = vec_grow(parts, count, &capacity, sizeof *parts);
        err = read_sequence(reader, ends, &parts[count++]);
    } while (err == OK && regex_take(reader, "|"));
    *ret_expr = err == OK ? expr_alt(reader->exprs, parts, count) : EXPR_NEVER;
    free(parts);
    return err;
}

enum err regex_expr(struct exprs *exprs, struct str pattern, enum regex_match match,
                    enum spelling spelling, uint32_t *ret_expr, struct error *error) {
    struct regex_reader reader = {
        .exprs = exprs, .text = pattern, .spelling = spelling, .error = error};
    if (pattern.bytes > BYTES_MAX)
        return err_set(error, ERR_LIMIT, "the regular expression has more than %d bytes",
                       BYTES_MAX);
    if (!utf8_is_valid(pattern)) return regex_fail(&reader, "text that is not UTF-8");
    reader.any_text = EXPR_EMPTY; /* a whole match has no text outside its anchors */
    if (match == REGEX_SEARCH)
        reader.any_text = expr_repeat(exprs, charset_any(exprs, spelling), 0, EXPR_NO_MAX);
    uint32_t expr;
    enum err err = read_choice(&reader, (struct ends){true, true}, &expr);
    if (err == OK && !regex_is_end(&reader)) err = regex_fail(&reader, "a ) without its (");
    if (err == OK && exprs->overflowed)
        err = err_set(error, ERR_LIMIT, "the regular expression is too large");
    if (err == OK) *ret_expr = expr;
    return err;
}
