/* SPDX-License-Identifier: Apache-2.0 */
#include "http/multipart.h"

#include <string.h>
#include <strings.h>

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static struct str skip_blanks(struct str text) {
    while (text.bytes > 0 && is_blank(text.at[0])) text = str_skip(text, 1);
    return text;
}

static struct str trim_blanks(struct str text) {
    text = skip_blanks(text);
    while (text.bytes > 0 && is_blank(text.at[text.bytes - 1])) text.bytes--;
    return text;
}

/* --- header parameters --- */

/* Reads a quoted string at the start of *value and moves *value past it. A backslash escapes only a
 * quote or itself, because Internet Explorer sent whole Windows paths unescaped. */
static bool read_quoted(struct str *value, char *ret_text, size_t text_bytes) {
    size_t at = 1, used = 0;
    for (; at < value->bytes && value->at[at] != '"'; at++) {
        char c = value->at[at];
        struct str rest = str_skip(*value, at);
        if (c == '\\' && rest.bytes > 1 && (rest.at[1] == '"' || rest.at[1] == '\\')) {
            c = rest.at[1];
            at++;
        } else if (str_starts_with(rest, STR("%22"))) {
            c = '"';
            at += 2;
        } else if (str_starts_with(rest, STR("%0D")) || str_starts_with(rest, STR("%0A"))) {
            c = rest.at[2] == 'D' ? '\r' : '\n';
            at += 2;
        }
        if (c == '\0' || used + 1 >= text_bytes) return false;
        ret_text[used++] = c;
    }
    if (at >= value->bytes) return false;
    ret_text[used] = '\0';
    *value = str_skip(*value, at + 1);
    return true;
}

static bool read_token(struct str *value, char *ret_text, size_t text_bytes) {
    size_t end = str_find_byte(*value, ';', 0);
    struct str token = {value->at, end == SIZE_MAX ? value->bytes : end};
    *value = str_skip(*value, token.bytes);
    token = trim_blanks(token);
    if (token.bytes == 0 || token.bytes >= text_bytes || memchr(token.at, '\0', token.bytes))
        return false;
    memcpy(ret_text, token.at, token.bytes);
    ret_text[token.bytes] = '\0';
    return true;
}

enum found { FOUND_NONE, FOUND_ONE, FOUND_BAD };

static enum found find_parameter(struct str value, const char *key, char *ret_text,
                                 size_t text_bytes) {
    enum found found = FOUND_NONE;
    size_t semicolon = str_find_byte(value, ';', 0);
    value = semicolon == SIZE_MAX ? (struct str){NULL, 0} : str_skip(value, semicolon);
    while (value.bytes > 0) {
        char scratch[MULTIPART_TEXT_BYTES];
        if (value.at[0] != ';') return FOUND_BAD;
        value = skip_blanks(str_skip(value, 1));
        if (value.bytes == 0) break; /* a final semicolon */
        size_t equals = str_find_byte(value, '=', 0);
        if (equals == SIZE_MAX) return FOUND_BAD;
        struct str name = trim_blanks((struct str){value.at, equals});
        bool wanted = name.bytes == strlen(key) && strncasecmp(name.at, key, name.bytes) == 0;
        value = skip_blanks(str_skip(value, equals + 1));
        char *into = wanted ? ret_text : scratch;
        size_t room = wanted ? text_bytes : sizeof scratch;
        bool read = value.bytes > 0 && value.at[0] == '"' ? read_quoted(&value, into, room)
                                                          : read_token(&value, into, room);
        if (!read || (wanted && found == FOUND_ONE)) return FOUND_BAD;
        if (wanted) found = FOUND_ONE;
        value = skip_blanks(value);
    }
    return found;
}

bool multipart_parameter(struct str value, const char *key, char *ret_text, size_t text_bytes) {
    return find_parameter(value, key, ret_text, text_bytes) == FOUND_ONE;
}

static bool has_media_type(struct str value, const char *type) {
    size_t bytes = strlen(type);
    if (value.bytes < bytes || strncasecmp(value.at, type, bytes) != 0) return false;
    struct str rest = skip_blanks(str_skip(value, bytes));
    return rest.bytes == 0 || rest.at[0] == ';';
}

/* True for the bchars of RFC 2046 §5.1.1; the last may not be a space. */
static bool boundary_is_good(const char *boundary) {
    size_t bytes = strlen(boundary);
    if (bytes == 0 || bytes > MULTIPART_BOUNDARY_BYTES_MAX || boundary[bytes - 1] == ' ')
        return false;
    return strspn(boundary, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "'()+_,-./:=? ") == bytes;
}

enum err multipart_init(struct multipart *multipart, struct str content_type,
                        const struct multipart_events *events, struct error *error) {
    char boundary[MULTIPART_TEXT_BYTES];
    if (!has_media_type(content_type, "multipart/form-data"))
        return err_set(error, ERR_INVALID, "Content-Type must be multipart/form-data");
    if (!multipart_parameter(content_type, "boundary", boundary, sizeof boundary) ||
        !boundary_is_good(boundary))
        return err_set(error, ERR_INVALID,
                       "Content-Type multipart/form-data has no usable boundary parameter");
    memset(multipart, 0, sizeof *multipart);
    multipart->events = *events;
    size_t bytes = strlen(boundary);
    memcpy(multipart->delimiter, "\r\n--", 4);
    memcpy(multipart->delimiter + 4, boundary, bytes);
    multipart->delimiter_bytes = 4 + bytes;
    multipart->matched = 2;
    return OK;
}

/* --- part headers --- */

static enum err fail(struct multipart *multipart, struct error *error, enum err code,
                     const char *sentence) {
    multipart->state = MULTIPART_FAILED;
    return err_set(error, code, "%s", sentence);
}

static bool read_disposition(struct multipart_part *part, struct str value) {
    if (!has_media_type(value, "form-data")) return false;
    if (!multipart_parameter(value, "name", part->name, sizeof part->name)) return false;
    enum found found = find_parameter(value, "filename", part->filename, sizeof part->filename);
    part->has_filename = found == FOUND_ONE;
    return found != FOUND_BAD;
}

/* multipart->head holds the header lines, each with its CRLF, without the empty line. */
static enum err read_part_head(struct multipart *multipart, struct error *error) {
    struct multipart_part *part = &multipart->part;
    struct str rest = {multipart->head, multipart->head_bytes};
    bool named = false;
    memset(part, 0, sizeof *part);
    while (rest.bytes > 0) {
        size_t end = str_find(rest, STR("\r\n"), 0);
        struct str line = {rest.at, end == SIZE_MAX ? rest.bytes : end};
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 2);
        size_t colon = str_find_byte(line, ':', 0);
        if (colon == SIZE_MAX || colon == 0 || is_blank(line.at[0]) ||
            memchr(line.at, '\n', line.bytes) || memchr(line.at, '\0', line.bytes))
            return fail(multipart, error, ERR_INVALID,
                        "A header line of a multipart part is malformed");
        struct str value = trim_blanks(str_skip(line, colon + 1));
        if (colon == 19 && strncasecmp(line.at, "content-disposition", 19) == 0) {
            if (named || !read_disposition(part, value))
                return fail(multipart, error, ERR_INVALID,
                            "A multipart part has a malformed or repeated Content-Disposition");
            named = true;
        } else if (colon == 12 && strncasecmp(line.at, "content-type", 12) == 0 &&
                   value.bytes < sizeof part->content_type) {
            memcpy(part->content_type, value.at, value.bytes);
            part->content_type[value.bytes] = '\0';
        }
    }
    if (!named)
        return fail(multipart, error, ERR_INVALID,
                    "A multipart part has no Content-Disposition: form-data with a name");
    return OK;
}

static bool head_has_ended(const struct multipart *multipart) {
    size_t bytes = multipart->head_bytes;
    const char *head = multipart->head;
    if (bytes == 2) return memcmp(head, "\r\n", 2) == 0;
    return bytes >= 4 && memcmp(head + bytes - 4, "\r\n\r\n", 4) == 0;
}

/* Takes one byte of a part's header block. */
static enum err feed_head(struct multipart *multipart, char c, struct error *error) {
    if (multipart->head_bytes == sizeof multipart->head)
        return fail(multipart, error, ERR_LIMIT, "The headers of a multipart part are too long");
    multipart->head[multipart->head_bytes++] = c;
    if (c != '\n' || !head_has_ended(multipart)) return OK;
    multipart->head_bytes -= 2;
    enum err err = read_part_head(multipart, error);
    if (err != OK) return err;
    multipart->state = MULTIPART_DATA;
    /* An empty part's delimiter may follow at once: its CRLF is the one that ended the headers. */
    multipart->matched = multipart->granted = 2;
    if (!multipart->events.begin(multipart->events.context, &multipart->part))
        return fail(multipart, error, ERR_CANCELLED, "stopped");
    return OK;
}

/* --- delimiters and data --- */

/* Takes one byte of the rest of a delimiter's line: "--" or blanks and CRLF. */
static enum err feed_after_delimiter(struct multipart *multipart, char c, struct error *error) {
    char *tail = multipart->head;
    if (multipart->head_bytes >= MULTIPART_BOUNDARY_BYTES_MAX)
        return fail(multipart, error, ERR_INVALID, "A multipart delimiter line is malformed");
    tail[multipart->head_bytes++] = c;
    size_t bytes = multipart->head_bytes;
    if (bytes == 2 && tail[0] == '-' && tail[1] == '-') {
        multipart->state = MULTIPART_EPILOGUE;
        return OK;
    }
    if (c == '\n' && bytes >= 2 && tail[bytes - 2] == '\r') {
        if (++multipart->parts > MULTIPART_PARTS_MAX)
            return fail(multipart, error, ERR_LIMIT, "The multipart body has too many parts");
        multipart->state = MULTIPART_HEAD;
        multipart->head_bytes = 0;
        return OK;
    }
    bool may_go_on = is_blank(c) || c == '\r' || (bytes == 1 && c == '-');
    bool cr_before = bytes >= 2 && tail[bytes - 2] == '\r';
    bool dash_before = bytes >= 2 && tail[0] == '-';
    if (!may_go_on || cr_before || dash_before)
        return fail(multipart, error, ERR_INVALID, "A multipart delimiter line is malformed");
    return OK;
}

/* Hands on part bytes, if this is a part and not the preamble. */
static bool emit(struct multipart *multipart, const char *at, size_t bytes) {
    if (multipart->state != MULTIPART_DATA || bytes == 0) return true;
    return multipart->events.data(multipart->events.context, (struct str){at, bytes});
}

/* Ends the data at a delimiter; `rest` is the data before it that was not handed on yet. */
static enum err end_data(struct multipart *multipart, struct str rest, struct error *error) {
    bool in_part = multipart->state == MULTIPART_DATA;
    bool go_on = emit(multipart, rest.at, rest.bytes);
    multipart->state = MULTIPART_AFTER_DELIMITER;
    multipart->matched = multipart->granted = multipart->head_bytes = 0;
    if (go_on && in_part) go_on = multipart->events.end(multipart->events.context);
    return go_on ? OK : fail(multipart, error, ERR_CANCELLED, "stopped");
}

/* Reads preamble or part data up to and including a delimiter, in all *ret_used bytes.
 *
 * The delimiter starts with CR, which occurs nowhere else in it: after a mismatch a new match can
 * only start at the byte that did not fit, so no table of failures is needed. Each piece hands on
 * its data in one run, [from, match), with any CRs in it. If a match that began in an earlier piece
 * fails, its bytes are data too, and come from multipart->delimiter. */
static enum err feed_data(struct multipart *multipart, struct str bytes, size_t *ret_used,
                          struct error *error) {
    const char *delimiter = multipart->delimiter;
    bool carried = multipart->matched > 0; /* the match began before this piece */
    size_t at = 0, from = 0, match = 0;
    *ret_used = bytes.bytes;
    while (at < bytes.bytes) {
        if (multipart->matched == 0) {
            const char *cr = memchr(bytes.at + at, '\r', bytes.bytes - at);
            match = at = cr ? (size_t)(cr - bytes.at) : bytes.bytes;
            if (!cr) break;
        }
        if (bytes.at[at] == delimiter[multipart->matched]) {
            at++;
            if (++multipart->matched == multipart->delimiter_bytes) {
                *ret_used = at;
                return end_data(multipart, (struct str){bytes.at + from, match - from}, error);
            }
            continue;
        }
        size_t granted = multipart->granted, held = multipart->matched - granted;
        multipart->matched = multipart->granted = 0;
        if (carried && !emit(multipart, delimiter + granted, held))
            return fail(multipart, error, ERR_CANCELLED, "stopped");
        if (carried) from = at;
        carried = false;
    }
    if (!carried && !emit(multipart, bytes.at + from, match - from))
        return fail(multipart, error, ERR_CANCELLED, "stopped");
    return OK;
}

enum err multipart_feed(struct multipart *multipart, struct str bytes, struct error *error) {
    size_t at = 0;
    while (at < bytes.bytes) {
        enum err err = OK;
        size_t used = 1;
        switch (multipart->state) {
        case MULTIPART_PREAMBLE:
        case MULTIPART_DATA: err = feed_data(multipart, str_skip(bytes, at), &used, error); break;
        case MULTIPART_AFTER_DELIMITER:
            err = feed_after_delimiter(multipart, bytes.at[at], error);
            break;
        case MULTIPART_HEAD: err = feed_head(multipart, bytes.at[at], error); break;
        case MULTIPART_EPILOGUE: return OK;
        case MULTIPART_FAILED: return err_set(error, ERR_INVALID, "the body was refused before");
        }
        if (err != OK) return err;
        at += used;
    }
    return OK;
}

enum err multipart_end(struct multipart *multipart, struct error *error) {
    if (multipart->state == MULTIPART_EPILOGUE) return OK;
    return fail(multipart, error, ERR_INVALID,
                "The multipart body ends before its closing delimiter");
}
