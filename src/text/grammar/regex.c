/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/regex.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 65536       /* bytes of an expression */
#define DEPTH_MAX 64          /* groups in groups */
#define REPEATS_MAX 100000u   /* most times of a quantifier */
#define CATEGORY_FUEL 200000u /* a category is looked for among all characters */

struct reader {
    struct exprs *exprs;
    struct str text;
    size_t at;
    enum spelling spelling;
    uint32_t any_text; /* any characters, for a search */
    bool is_ahead;     /* the next sequence is one of a look-ahead: nothing stands before it */
    int depth;
    struct error *error;
};

/* Which ends of the text a part touches: there, anchors mean something, and a search may begin. */
struct ends {
    bool first, last;
};

static enum err fail(struct reader *reader, const char *what) {
    return err_set(reader->error, ERR_INVALID, "%s at byte %zu of the regular expression", what,
                   reader->at);
}

static enum err fail_unsupported(struct reader *reader, const char *what) {
    return err_set(reader->error, ERR_INVALID,
                   "%s (at byte %zu of the regular expression) is not supported", what, reader->at);
}

static bool is_end(const struct reader *reader) {
    return reader->at >= reader->text.bytes;
}

static char peek(const struct reader *reader) {
    return is_end(reader) ? '\0' : reader->text.at[reader->at];
}

static bool take(struct reader *reader, const char *text) {
    if (!str_starts_with(str_skip(reader->text, reader->at), str_from(text))) return false;
    reader->at += strlen(text);
    return true;
}

/* The next character; the text is valid UTF-8. */
static uint32_t next_char(struct reader *reader) {
    unsigned char byte = (unsigned char)reader->text.at[reader->at++];
    if (byte < 0x80) return byte;
    int more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    uint32_t c = byte & (0x3fu >> more);
    for (int i = 0; i < more; i++)
        c = c << 6 | ((unsigned char)reader->text.at[reader->at++] & 0x3fu);
    return c;
}

/* --- escapes and classes --- */

static bool take_hex(struct reader *reader, int digits, uint32_t *ret_value) {
    uint32_t value = 0;
    if (reader->text.bytes - reader->at < (size_t)digits) return false;
    for (int i = 0; i < digits; i++) {
        char c = reader->text.at[reader->at + (size_t)i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return false;
        value = value << 4 | (uint32_t)digit;
    }
    reader->at += (size_t)digits;
    *ret_value = value;
    return true;
}

/* The rest of \u: four digits, a pair of surrogates, or {…}. */
static enum err read_unicode(struct reader *reader, uint32_t *ret_char) {
    uint32_t c, low;
    if (take(reader, "{")) {
        size_t end = str_find_byte(reader->text, '}', reader->at);
        if (end == SIZE_MAX || end == reader->at || end - reader->at > 6 ||
            !take_hex(reader, (int)(end - reader->at), &c) || c > CHAR_LAST)
            return fail(reader, "a bad \\u{…}");
        reader->at++;
    } else {
        if (!take_hex(reader, 4, &c)) return fail(reader, "a bad \\u");
        if (c >= 0xd800 && c < 0xdc00) {
            if (!take(reader, "\\u") || !take_hex(reader, 4, &low) || low < 0xdc00 || low > 0xdfff)
                return fail(reader, "half of a surrogate pair");
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    if (c >= 0xd800 && c < 0xe000) return fail(reader, "half of a surrogate pair");
    *ret_char = c;
    return OK;
}

/* The rest of \p or \P. */
static enum err read_property(struct reader *reader, struct charset *set, bool is_negated) {
    size_t end = str_find_byte(reader->text, '}', reader->at);
    if (peek(reader) != '{' || end == SIZE_MAX) return fail(reader, "a bad \\p{…}");
    struct str name = {reader->text.at + reader->at + 1, end - reader->at - 1};
    static const char *const prefixes[] = {"General_Category=", "gc="};
    for (size_t i = 0; i < 2; i++)
        if (str_starts_with(name, str_from(prefixes[i])))
            name = str_skip(name, strlen(prefixes[i]));
    struct charset own = {0};
    struct exprs *exprs = reader->exprs;
    exprs->fuel -= exprs->fuel < CATEGORY_FUEL ? exprs->fuel : CATEGORY_FUEL;
    if (!charset_add_category(&own, name)) return fail_unsupported(reader, "this \\p{…}");
    if (is_negated) charset_negate(&own);
    charset_add_set(set, &own);
    charset_release(&own);
    reader->at = end + 1;
    return OK;
}

/* What stands after a backslash, added to the set. *ret_is_char: it is one character, *ret_char. */
static enum err read_escape(struct reader *reader, struct charset *set, bool in_class,
                            bool *ret_is_char, uint32_t *ret_char) {
    static const char controls[] = "tnrvf", values[] = "\t\n\r\v\f";
    if (is_end(reader)) return fail(reader, "a backslash");
    uint32_t c = next_char(reader);
    *ret_is_char = false;
    if (c < 0x80 && charset_add_class(set, (char)c)) return OK;
    if (c == 'p' || c == 'P') return read_property(reader, set, c == 'P');
    if (c == 'u') {
        enum err err = read_unicode(reader, &c);
        if (err != OK) return err;
    } else if (c == 'x') {
        if (!take_hex(reader, 2, &c)) return fail(reader, "a bad \\x");
    } else if (c == 'c') {
        char letter = peek(reader);
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')))
            return fail(reader, "a bad \\c");
        c = next_char(reader) & 31;
    } else if (c == '0' && !(peek(reader) >= '0' && peek(reader) <= '9')) {
        c = 0;
    } else if (c == 'b' && in_class) {
        c = 8;
    } else if (c < 0x80 && c > 0 && strchr(controls, (int)c)) {
        c = (unsigned char)values[strchr(controls, (int)c) - controls];
    } else if ((c >= '0' && c <= '9') || c == 'k') {
        return fail_unsupported(reader, "a reference to a group");
    } else if (c == 'b' || c == 'B' || c == 'A' || c == 'Z' || c == 'z' || c == 'G') {
        return fail_unsupported(reader, "an anchor other than ^ and $");
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        return fail(reader, "an unknown escape");
    }
    charset_add(set, c, c);
    *ret_is_char = true;
    *ret_char = c;
    return OK;
}

/* One member of a class: a character, or a set that cannot be the end of a range. */
static enum err read_class_member(struct reader *reader, struct charset *set, bool *ret_is_char,
                                  uint32_t *ret_char) {
    if (is_end(reader)) return fail(reader, "a class without its end");
    if (take(reader, "\\")) return read_escape(reader, set, true, ret_is_char, ret_char);
    uint32_t c = next_char(reader);
    charset_add(set, c, c);
    *ret_is_char = true;
    *ret_char = c;
    return OK;
}

/* A class by its name, as POSIX has it inside of [ ]: [:alpha:], [:^alpha:]. ECMA-262 would read
 * characters, which nobody means. *ret_is_there is false if no such name begins here. */
static enum err read_posix_class(struct reader *reader, struct charset *set, bool *ret_is_there) {
    char mark = reader->at + 1 < reader->text.bytes ? reader->text.at[reader->at + 1] : '\0';
    size_t from = reader->at + 2, end = from;
    *ret_is_there = false;
    if (peek(reader) != '[' || !mark || !strchr(":.=", mark)) return OK;
    while (end < reader->text.bytes && reader->text.at[end] != mark && reader->text.at[end] != ']')
        end++;
    struct str name = {reader->text.at + from, end > from ? end - from : 0};
    if (end + 1 >= reader->text.bytes || reader->text.at[end] != mark ||
        reader->text.at[end + 1] != ']' || name.bytes == 0)
        return OK; /* characters */
    bool is_negated = *name.at == '^';
    if (is_negated) name = str_skip(name, 1);
    struct charset own = {0};
    bool is_known = mark == ':' && charset_add_posix(&own, name);
    if (is_known && is_negated) charset_negate(&own);
    charset_add_set(set, &own);
    charset_release(&own);
    if (!is_known) return fail_unsupported(reader, "this class of POSIX");
    reader->at = end + 2;
    *ret_is_there = true;
    return OK;
}

/* The rest of [. */
static enum err read_class(struct reader *reader, struct charset *set) {
    bool is_negated = take(reader, "^");
    while (!take(reader, "]")) {
        bool is_char, is_last_char;
        uint32_t first, last;
        enum err err = read_posix_class(reader, set, &is_char);
        if (err == OK && is_char) continue;
        if (err == OK) err = read_class_member(reader, set, &is_char, &first);
        if (err != OK) return err;
        if (peek(reader) != '-' || reader->at + 1 >= reader->text.bytes ||
            reader->text.at[reader->at + 1] == ']')
            continue;
        reader->at++;
        err = read_class_member(reader, set, &is_last_char, &last);
        if (err != OK) return err;
        if (!is_char || !is_last_char || last < first) return fail(reader, "a bad range");
        charset_add(set, first, last);
    }
    if (is_negated) charset_negate(set);
    return OK;
}

/* --- parts --- */

static enum err read_choice(struct reader *reader, struct ends ends, uint32_t *ret_expr);

/* The rest of a group, after its (. */
static enum err read_group(struct reader *reader, struct ends ends, uint32_t *ret_expr) {
    if (take(reader, "?")) {
        if (take(reader, "P<") ||
            (take(reader, "<") && peek(reader) != '=' && peek(reader) != '!')) {
            size_t end = str_find_byte(reader->text, '>', reader->at);
            if (end == SIZE_MAX) return fail(reader, "a group without its name");
            reader->at = end + 1;
        } else if (!take(reader, ":")) {
            return fail_unsupported(reader, "look-around or a flag");
        }
    }
    if (++reader->depth > DEPTH_MAX)
        return err_set(reader->error, ERR_LIMIT, "groups are nested more than %d deep", DEPTH_MAX);
    enum err err = read_choice(reader, ends, ret_expr);
    reader->depth--;
    if (err == OK && !take(reader, ")")) return fail(reader, "a group without its end");
    return err;
}

static enum err read_one(struct reader *reader, uint32_t *ret_expr) {
    struct charset set = {0};
    enum err err = OK;
    bool is_char;
    uint32_t c;
    if (take(reader, "[")) {
        err = read_class(reader, &set);
    } else if (take(reader, "\\")) {
        err = read_escape(reader, &set, false, &is_char, &c);
    } else if (take(reader, ".")) {
        charset_add(&set, '\n', '\n');
        charset_add(&set, '\r', '\r');
        charset_add(&set, 0x2028, 0x2029); /* the separators of lines and paragraphs */
        charset_negate(&set);
    } else if (strchr("*+?{", peek(reader))) {
        err = fail(reader, "a quantifier of nothing");
    } else {
        c = next_char(reader);
        charset_add(&set, c, c);
    }
    if (err == OK) *ret_expr = charset_expr(reader->exprs, &set, reader->spelling);
    charset_release(&set);
    return err;
}

static bool take_count(struct reader *reader, uint32_t *ret_count) {
    uint64_t count = 0;
    size_t from = reader->at;
    for (; peek(reader) >= '0' && peek(reader) <= '9'; reader->at++)
        if (count <= REPEATS_MAX) count = count * 10 + (uint64_t)(peek(reader) - '0');
    *ret_count = (uint32_t)(count <= REPEATS_MAX ? count : REPEATS_MAX + 1);
    return reader->at > from;
}

struct quantifier {
    bool is_there;
    uint32_t min, max;
};

static enum err read_quantifier(struct reader *reader, struct quantifier *ret_quantifier) {
    struct quantifier quantifier = {true, 0, EXPR_NO_MAX};
    if (take(reader, "+")) {
        quantifier.min = 1;
    } else if (take(reader, "?")) {
        quantifier.max = 1;
    } else if (take(reader, "{")) {
        if (!take_count(reader, &quantifier.min)) return fail(reader, "a bad {…}");
        quantifier.max = quantifier.min;
        if (take(reader, ",") && !take_count(reader, &quantifier.max)) quantifier.max = EXPR_NO_MAX;
        if (!take(reader, "}")) return fail(reader, "a bad {…}");
        if (quantifier.min > quantifier.max) return fail(reader, "a bad {…}");
        if (quantifier.min > REPEATS_MAX ||
            (quantifier.max > REPEATS_MAX && quantifier.max != EXPR_NO_MAX))
            return err_set(reader->error, ERR_LIMIT, "a quantifier of more than %u", REPEATS_MAX);
    } else if (!take(reader, "*")) {
        quantifier = (struct quantifier){false, 1, 1};
    }
    if (quantifier.is_there) (void)take(reader, "?"); /* lazy: the same texts */
    if (quantifier.is_there && strchr("*+?", peek(reader)) && !is_end(reader))
        return fail(reader, "a quantifier of a quantifier");
    *ret_quantifier = quantifier;
    return OK;
}

/* True if the part that begins here is a group with no quantifier, so that anchors may stand in it;
 * *ret_end is the place after it. */
static bool is_bare_group(const struct reader *reader, size_t *ret_end) {
    size_t depth = 0;
    bool in_class = false;
    if (peek(reader) != '(') return false;
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
static bool is_sequence_end(const struct reader *reader, size_t at) {
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
static enum err read_ahead(struct reader *reader, struct ends ends, bool is_negated,
                           struct sequence *sequence) {
    uint32_t any_text = reader->any_text, expr;
    /* Other text may only stand before it in a search. */
    bool is_first =
        ends.first && !sequence->has_text && (!sequence->is_open_start || any_text == EXPR_EMPTY);
    if (!ends.last) return fail_unsupported(reader, "a look-ahead before other parts than the end");
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
    if (!take(reader, ")")) return fail(reader, "a group without its end");
    if (!is_end(reader) && strchr("*+?{", peek(reader)))
        return fail_unsupported(reader, "a quantifier of a look-ahead");
    add_part(sequence, is_negated ? expr_not(reader->exprs, expr) : expr, true);
    return OK;
}

static enum err read_part(struct reader *reader, struct ends ends, struct sequence *sequence) {
    size_t after;
    uint32_t part = EXPR_NEVER;
    enum err err;
    if (take(reader, "(?=")) return read_ahead(reader, ends, false, sequence);
    if (take(reader, "(?!")) return read_ahead(reader, ends, true, sequence);
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
    err = take(reader, "(") ? read_group(reader, (struct ends){false, false}, &part)
                            : read_one(reader, &part);
    struct quantifier quantifier = {false, 1, 1};
    if (err == OK) err = read_quantifier(reader, &quantifier);
    if (err == OK)
        add_part(sequence, expr_repeat(reader->exprs, part, quantifier.min, quantifier.max), false);
    return err;
}

static enum err read_sequence(struct reader *reader, struct ends ends, uint32_t *ret_expr) {
    struct sequence sequence = {.is_open_start = ends.first && !reader->is_ahead,
                                .is_open_end = ends.last};
    reader->is_ahead = false;
    enum err err = OK;
    bool is_closed = false; /* by $ */
    while (err == OK && !is_sequence_end(reader, reader->at)) {
        if (take(reader, "^")) {
            if (!ends.first || sequence.has_text)
                err = fail_unsupported(reader, "^ inside the expression");
            sequence.is_open_start = false;
        } else if (take(reader, "$")) {
            if (!ends.last) err = fail_unsupported(reader, "$ inside the expression");
            is_closed = true;
            sequence.is_open_end = false;
        } else if (is_closed) {
            err = fail_unsupported(reader, "$ inside the expression");
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

static enum err read_choice(struct reader *reader, struct ends ends, uint32_t *ret_expr) {
    uint32_t *parts = NULL;
    size_t count = 0, capacity = 0;
    enum err err;
    bool is_ahead = reader->is_ahead;
    do {
        reader->is_ahead = is_ahead;
        parts = vec_grow(parts, count, &capacity, sizeof *parts);
        err = read_sequence(reader, ends, &parts[count++]);
    } while (err == OK && take(reader, "|"));
    *ret_expr = err == OK ? expr_alt(reader->exprs, parts, count) : EXPR_NEVER;
    free(parts);
    return err;
}

enum err regex_expr(struct exprs *exprs, struct str pattern, enum regex_match match,
                    enum spelling spelling, uint32_t *ret_expr, struct error *error) {
    struct reader reader = {.exprs = exprs, .text = pattern, .spelling = spelling, .error = error};
    if (pattern.bytes > BYTES_MAX)
        return err_set(error, ERR_LIMIT, "the regular expression has more than %d bytes",
                       BYTES_MAX);
    if (!utf8_is_valid(pattern)) return fail(&reader, "text that is not UTF-8");
    reader.any_text = EXPR_EMPTY; /* a whole match has no text outside its anchors */
    if (match == REGEX_SEARCH)
        reader.any_text = expr_repeat(exprs, charset_any(exprs, spelling), 0, EXPR_NO_MAX);
    uint32_t expr;
    enum err err = read_choice(&reader, (struct ends){true, true}, &expr);
    if (err == OK && !is_end(&reader)) err = fail(&reader, "a ) without its (");
    if (err == OK && exprs->overflowed)
        err = err_set(error, ERR_LIMIT, "the regular expression is too large");
    if (err == OK) *ret_expr = expr;
    return err;
}
