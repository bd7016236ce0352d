/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/lexer.h"

#include "base/utf8.h"
#include "jinja/number.h"
#include "jinja/unicode.h"

#include <string.h>

/* More open brackets than this within one tag are refused. */
#define BRACKETS_MAX 256

struct lexer {
    struct arena *arena;
    struct str source;
    size_t at;
    uint32_t line;
    size_t counted;  /* up to where `line` counts */
    bool line_start; /* the last token ended a line */
    struct lexeme *tokens;
    size_t count;
    size_t capacity;
    char brackets[BRACKETS_MAX]; /* the closing ones that are awaited */
    size_t bracket_count;
    struct error *error;
};

static uint32_t line_at(struct lexer *lexer, size_t at) {
    for (; lexer->counted < at; lexer->counted++)
        if (lexer->source.at[lexer->counted] == '\n') lexer->line++;
    return lexer->line;
}

static enum err fail(struct lexer *lexer, size_t at, const char *what) {
    return err_set(lexer->error, ERR_INVALID, "line %u: %s", line_at(lexer, at), what);
}

static enum err add_token(struct lexer *lexer, struct lexeme token, size_t at) {
    if (lexer->count == lexer->capacity) {
        size_t capacity = lexer->capacity ? lexer->capacity * 2 : 128;
        struct lexeme *grown = arena_array(lexer->arena, capacity, sizeof *grown);
        if (!grown) return err_set(lexer->error, ERR_LIMIT, "the template is too large");
        if (lexer->count > 0) memcpy(grown, lexer->tokens, lexer->count * sizeof *grown);
        lexer->tokens = grown;
        lexer->capacity = capacity;
    }
    token.line = line_at(lexer, at);
    lexer->tokens[lexer->count++] = token;
    return OK;
}

static enum err add_kind(struct lexer *lexer, enum lexeme_kind kind, size_t at, size_t bytes) {
    return add_token(lexer, (struct lexeme){.kind = kind, .text = {lexer->source.at + at, bytes}},
                     at);
}

static char byte_at(const struct lexer *lexer, size_t at) {
    return at < lexer->source.bytes ? lexer->source.at[at] : '\0';
}

static bool starts(const struct lexer *lexer, size_t at, const char *text) {
    return str_starts_with(str_skip(lexer->source, at), str_from(text));
}

static size_t skip_space(const struct lexer *lexer, size_t at) {
    return at + unicode_space_run(lexer->source, at);
}

static bool is_space_only(struct str text) {
    return text.bytes > 0 && unicode_space_run(text, 0) == text.bytes;
}

/* Text from `from` to the tag at `to`, cut as the sign of the tag and lstrip_blocks want it. */
static enum err add_text(struct lexer *lexer, size_t from, size_t to, char sign, bool is_print) {
    struct str text = {lexer->source.at + from, to - from};
    if (sign == '-') {
        text = unicode_trim_end(text);
    } else if (sign != '+' && !is_print) {
        size_t line = text.bytes;
        while (line > 0 && text.at[line - 1] != '\n') line--;
        if ((line > 0 || lexer->line_start) && is_space_only(str_skip(text, line)))
            text.bytes = line;
    }
    if (text.bytes == 0) return OK;
    return add_token(lexer, (struct lexeme){.kind = LEXEME_TEXT, .text = text}, from);
}

static char sign_at(const struct lexer *lexer, size_t at) {
    char sign = byte_at(lexer, at);
    return sign == '-' || sign == '+' ? sign : '\0';
}

/* The bytes of the end of a tag at `at` (`close` is "%}", "#}" or "}}"), with the white space that
 * it takes along; 0 without one. */
static size_t tag_end(const struct lexer *lexer, size_t at, const char *close) {
    bool is_print = close[0] == '}';
    if (byte_at(lexer, at) == '-' && starts(lexer, at + 1, close))
        return skip_space(lexer, at + 3) - at;
    if (byte_at(lexer, at) == '+' && !is_print && starts(lexer, at + 1, close)) return 3;
    if (!starts(lexer, at, close)) return 0;
    return 2 + (!is_print && byte_at(lexer, at + 2) == '\n');
}

static void take(struct lexer *lexer, size_t to) {
    lexer->line_start = to > lexer->at && lexer->source.at[to - 1] == '\n';
    lexer->at = to;
}

/* Length of `{% raw %}` at `at`, 0 when it is another tag. */
static size_t raw_begin(const struct lexer *lexer, size_t at) {
    size_t end = at + 2;
    if (sign_at(lexer, end)) end++;
    end = skip_space(lexer, end);
    if (!starts(lexer, end, "raw")) return 0;
    end = skip_space(lexer, end + 3);
    if (starts(lexer, end, "-%}")) return skip_space(lexer, end + 3) - at;
    return starts(lexer, end, "%}") ? end + 2 - at : 0;
}

static enum err take_raw(struct lexer *lexer, size_t begin, size_t begin_bytes) {
    take(lexer, begin + begin_bytes);
    for (size_t at = lexer->at; at < lexer->source.bytes; at++) {
        if (!starts(lexer, at, "{%")) continue;
        char sign = sign_at(lexer, at + 2);
        size_t name = skip_space(lexer, at + 2 + (sign != '\0'));
        if (!starts(lexer, name, "endraw")) continue;
        size_t close = skip_space(lexer, name + 6);
        size_t bytes = tag_end(lexer, close, "%}");
        if (bytes == 0) continue;
        enum err err = add_text(lexer, lexer->at, at, sign, false);
        take(lexer, close + bytes);
        return err;
    }
    return fail(lexer, begin, "missing end of raw directive");
}

static enum err take_comment(struct lexer *lexer, size_t begin) {
    take(lexer, begin + 2 + (sign_at(lexer, begin + 2) != '\0'));
    if (lexer->at == lexer->source.bytes) return OK; /* Jinja's lexer does not mind this either */
    for (size_t at = lexer->at; at < lexer->source.bytes; at++) {
        size_t bytes = tag_end(lexer, at, "#}");
        if (bytes == 0) continue;
        take(lexer, at + bytes);
        return OK;
    }
    return fail(lexer, begin, "missing end of comment tag");
}

static size_t digits_run(const struct lexer *lexer, size_t at, const char *digits) {
    size_t end = at;
    while (byte_at(lexer, end) &&
           (strchr(digits, byte_at(lexer, end)) ||
            (byte_at(lexer, end) == '_' && end > at && byte_at(lexer, end + 1) &&
             strchr(digits, byte_at(lexer, end + 1)))))
        end++;
    return end - at;
}

/* Length of the float at `at`, 0 when it is not one. */
static size_t float_run(const struct lexer *lexer, size_t at) {
    static const char digits[] = "0123456789";
    if (at > 0 && byte_at(lexer, at - 1) == '.') return 0;
    size_t end = at + digits_run(lexer, at, digits);
    size_t found = 0;
    if (byte_at(lexer, end) == '.') {
        size_t fraction = digits_run(lexer, end + 1, digits);
        if (fraction > 0) found = end += 1 + fraction;
    }
    if ((byte_at(lexer, end) | 0x20) == 'e') {
        size_t sign = sign_at(lexer, end + 1) != '\0';
        size_t exponent = digits_run(lexer, end + 1 + sign, digits);
        if (exponent > 0) found = end + 1 + sign + exponent;
    }
    return found > 0 ? found - at : 0;
}

static size_t integer_run(const struct lexer *lexer, size_t at) {
    if (byte_at(lexer, at) == '0') {
        char letter = byte_at(lexer, at + 1) | 0x20;
        const char *digits = letter == 'x'   ? "0123456789abcdefABCDEF"
                             : letter == 'o' ? "01234567"
                             : letter == 'b' ? "01"
                                             : NULL;
        size_t bytes = 0;
        if (digits) {
            size_t first = at + 2 + (byte_at(lexer, at + 2) == '_');
            bytes = digits_run(lexer, first, digits);
            if (bytes > 0) return first + bytes - at;
        }
        return digits_run(lexer, at, "0");
    }
    return digits_run(lexer, at, "0123456789");
}

static enum err take_number(struct lexer *lexer) {
    struct lexeme token = {.kind = LEXEME_FLOAT};
    size_t bytes = float_run(lexer, lexer->at);
    if (bytes == 0) {
        token.kind = LEXEME_INTEGER;
        bytes = integer_run(lexer, lexer->at);
    }
    token.text = (struct str){lexer->source.at + lexer->at, bytes};
    bool good = token.kind == LEXEME_FLOAT ? number_read_float(token.text, &token.real)
                                           : number_read_int(token.text, 0, &token.integer);
    if (!good) return fail(lexer, lexer->at, "a number is too large");
    enum err err = add_token(lexer, token, lexer->at);
    lexer->at += bytes;
    return err;
}

static bool hex_value(const struct lexer *lexer, size_t at, size_t count, uint32_t *ret_value) {
    static const char alphabet[] = "0123456789abcdef";
    uint32_t value = 0;
    for (size_t i = 0; i < count; i++) {
        char byte = byte_at(lexer, at + i);
        const char *place = byte >= '0' ? strchr(alphabet, byte | 0x20) : NULL;
        if (!place) return false;
        value = value * 16 + (uint32_t)(place - alphabet);
    }
    *ret_value = value;
    return true;
}

/* Decodes the escape whose backslash is at source[at]; appends to `out`, returns its length in the
 * source, or 0 when it is not valid. */
static size_t decode_escape(const struct lexer *lexer, size_t at, char *out, size_t *out_bytes) {
    static const char letters[] = "abfnrtv\\'\"", meanings[] = "\a\b\f\n\r\t\v\\'\"";
    char letter = byte_at(lexer, at + 1);
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (known) {
        out[(*out_bytes)++] = meanings[known - letters];
        return 2;
    }
    if (letter == '\n') return 2; /* a line that goes on */
    size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    uint32_t point = 0;
    size_t bytes = 2 + digits;
    if (digits > 0) {
        if (!hex_value(lexer, at + 2, digits, &point)) return 0;
    } else if (letter >= '0' && letter <= '7') {
        for (bytes = 1;
             bytes < 4 && byte_at(lexer, at + bytes) >= '0' && byte_at(lexer, at + bytes) <= '7';
             bytes++)
            point = point * 8 + (uint32_t)(byte_at(lexer, at + bytes) - '0');
    } else if (letter == 'N') {
        return 0;
    } else { /* Python keeps an escape that it does not know. */
        out[(*out_bytes)++] = '\\';
        return 1;
    }
    if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return 0;
    *out_bytes += utf8_encode(point, out + *out_bytes);
    return bytes;
}

static enum err take_string(struct lexer *lexer) {
    char quote = byte_at(lexer, lexer->at);
    size_t begin = lexer->at + 1, end = begin;
    while (end < lexer->source.bytes && byte_at(lexer, end) != quote)
        end += byte_at(lexer, end) == '\\' ? 2 : 1;
    if (end >= lexer->source.bytes) return fail(lexer, lexer->at, "a string has no end");
    /* No escape is longer than its result, except at most 4 bytes for \ooo. */
    char *decoded = arena_alloc(lexer->arena, end - begin + 1);
    if (!decoded) return err_set(lexer->error, ERR_LIMIT, "the template is too large");
    size_t bytes = 0;
    for (size_t at = begin; at < end;) {
        if (byte_at(lexer, at) != '\\') {
            decoded[bytes++] = byte_at(lexer, at++);
            continue;
        }
        size_t escape = decode_escape(lexer, at, decoded, &bytes);
        if (escape == 0) return fail(lexer, at, "a string has an escape that is not valid");
        at += escape;
    }
    enum err err = add_token(
        lexer, (struct lexeme){.kind = LEXEME_STRING, .text = {decoded, bytes}}, lexer->at);
    lexer->at = end + 1;
    return err;
}

static const struct {
    char text[3];
    enum lexeme_kind kind;
} operators[] = {
    {"//", LEXEME_FLOOR_DIV},  {"**", LEXEME_POW},         {"==", LEXEME_EQ},
    {"!=", LEXEME_NE},         {"<=", LEXEME_LE},          {">=", LEXEME_GE},
    {"+", LEXEME_ADD},         {"-", LEXEME_SUB},          {"*", LEXEME_MUL},
    {"/", LEXEME_DIV},         {"%", LEXEME_MOD},          {"~", LEXEME_TILDE},
    {"<", LEXEME_LT},          {">", LEXEME_GT},           {"=", LEXEME_ASSIGN},
    {".", LEXEME_DOT},         {",", LEXEME_COMMA},        {":", LEXEME_COLON},
    {";", LEXEME_SEMICOLON},   {"|", LEXEME_PIPE},         {"(", LEXEME_PAREN_OPEN},
    {")", LEXEME_PAREN_CLOSE}, {"[", LEXEME_BRACKET_OPEN}, {"]", LEXEME_BRACKET_CLOSE},
    {"{", LEXEME_BRACE_OPEN},  {"}", LEXEME_BRACE_CLOSE},
};

static enum err balance(struct lexer *lexer, enum lexeme_kind kind) {
    char awaited = kind == LEXEME_PAREN_OPEN     ? ')'
                   : kind == LEXEME_BRACKET_OPEN ? ']'
                   : kind == LEXEME_BRACE_OPEN   ? '}'
                                                 : '\0';
    if (awaited) {
        if (lexer->bracket_count == BRACKETS_MAX)
            return err_set(lexer->error, ERR_LIMIT, "line %u: brackets nest too deeply",
                           line_at(lexer, lexer->at));
        lexer->brackets[lexer->bracket_count++] = awaited;
    } else if (kind == LEXEME_PAREN_CLOSE || kind == LEXEME_BRACKET_CLOSE ||
               kind == LEXEME_BRACE_CLOSE) {
        char found = byte_at(lexer, lexer->at);
        if (lexer->bracket_count == 0 || lexer->brackets[lexer->bracket_count - 1] != found)
            return fail(lexer, lexer->at, "a closing bracket has no opening one");
        lexer->bracket_count--;
    }
    return OK;
}

static enum err take_operator(struct lexer *lexer) {
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!starts(lexer, lexer->at, operators[i].text)) continue;
        enum err err = balance(lexer, operators[i].kind);
        size_t bytes = strlen(operators[i].text);
        if (!err) err = add_kind(lexer, operators[i].kind, lexer->at, bytes);
        lexer->at += bytes;
        return err;
    }
    return fail(lexer, lexer->at, "a character is not part of any expression");
}

static enum err take_token(struct lexer *lexer) {
    char byte = byte_at(lexer, lexer->at);
    if (byte >= '0' && byte <= '9') return take_number(lexer);
    if (byte == '\'' || byte == '"') return take_string(lexer);
    uint32_t point;
    size_t end = lexer->at;
    size_t bytes = utf8_decode(lexer->source, end, &point);
    if (!unicode_is_name_start(point)) return take_operator(lexer);
    while (unicode_is_name(point)) {
        end += bytes;
        if (end == lexer->source.bytes) break;
        bytes = utf8_decode(lexer->source, end, &point);
    }
    enum err err = add_kind(lexer, LEXEME_NAME, lexer->at, end - lexer->at);
    lexer->at = end;
    return err;
}

/* The inside of {{ }} or {% %}, its end included. */
static enum err take_tag(struct lexer *lexer, bool is_print) {
    lexer->bracket_count = 0;
    while (lexer->at < lexer->source.bytes) {
        size_t end =
            lexer->bracket_count > 0 ? 0 : tag_end(lexer, lexer->at, is_print ? "}}" : "%}");
        if (end > 0) {
            enum lexeme_kind kind = is_print ? LEXEME_PRINT_END : LEXEME_BLOCK_END;
            enum err err = add_kind(lexer, kind, lexer->at, 2);
            take(lexer, lexer->at + end);
            return err;
        }
        size_t space = unicode_space_run(lexer->source, lexer->at);
        lexer->at += space;
        if (space > 0) continue;
        enum err err = take_token(lexer);
        if (err) return err;
    }
    return OK; /* the parser finds that the end is missing */
}

/* Text up to the next tag, and that tag. */
static enum err take_piece(struct lexer *lexer) {
    size_t begin = lexer->at;
    while (begin < lexer->source.bytes) {
        begin = str_find_byte(lexer->source, '{', begin);
        if (begin == SIZE_MAX) break;
        char next = byte_at(lexer, begin + 1);
        if (next == '{' || next == '%' || next == '#') break;
        begin++;
    }
    if (begin >= lexer->source.bytes) {
        size_t from = lexer->at;
        lexer->at = lexer->source.bytes;
        return add_kind(lexer, LEXEME_TEXT, from, lexer->at - from);
    }
    char kind = byte_at(lexer, begin + 1);
    char sign = sign_at(lexer, begin + 2);
    enum err err = add_text(lexer, lexer->at, begin, sign, kind == '{');
    if (err) return err;
    size_t raw = kind == '%' ? raw_begin(lexer, begin) : 0;
    if (raw > 0) return take_raw(lexer, begin, raw);
    if (kind == '#') return take_comment(lexer, begin);
    err = add_kind(lexer, kind == '{' ? LEXEME_PRINT_BEGIN : LEXEME_BLOCK_BEGIN, begin, 2);
    if (err) return err;
    take(lexer, begin + 2 + (sign != '\0'));
    return take_tag(lexer, kind == '{');
}

enum err lexer_split(struct arena *arena, struct str source, struct lexeme **ret_tokens,
                     struct error *error) {
    struct lexer lexer = {
        .arena = arena, .source = source, .line = 1, .line_start = true, .error = error};
    while (lexer.at < source.bytes) {
        enum err err = take_piece(&lexer);
        if (err) return err;
    }
    enum err err = add_token(&lexer, (struct lexeme){.kind = LEXEME_END}, source.bytes);
    if (!err) *ret_tokens = lexer.tokens;
    return err;
}
