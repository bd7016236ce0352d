/* SPDX-License-Identifier: Apache-2.0 */
#include "http/head.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

/* Fields that must not be repeated, because two readers may take different ones. */
enum unique_field {
    FIELD_HOST,
    FIELD_CONTENT_LENGTH,
    FIELD_TRANSFER_ENCODING,
    FIELD_CONTENT_TYPE,
    FIELD_AUTHORIZATION,
    FIELD_EXPECT,
    FIELD_ORIGIN,
    FIELD_UNIQUE_COUNT,
};

static const char *const unique_names[FIELD_UNIQUE_COUNT] = {
    "host",   "content-length", "transfer-encoding", "content-type", "authorization",
    "expect", "origin",
};

struct head_parse {
    struct head *head;
    bool seen[FIELD_UNIQUE_COUNT];
    bool http_1_1;
    size_t fields;
    struct str authority, host; /* in a target in absolute form; in the Host field */
};

static enum head_state refuse(struct head *head, int status, const char *sentence) {
    head->refusal_status = status;
    head->refusal = sentence;
    return HEAD_REFUSED;
}

/* tchar of RFC 9110 §5.6.2 */
static bool is_token_char(char c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
    return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_token(struct str text) {
    for (size_t i = 0; i < text.bytes; i++)
        if (!is_token_char(text.at[i])) return false;
    return text.bytes > 0;
}

static bool name_is(struct str name, const char *lower) {
    return name.bytes == strlen(lower) && strncasecmp(name.at, lower, name.bytes) == 0;
}

static struct str trim_blanks(struct str text) {
    while (text.bytes > 0 && (text.at[0] == ' ' || text.at[0] == '\t')) text = str_skip(text, 1);
    while (text.bytes > 0 && (text.at[text.bytes - 1] == ' ' || text.at[text.bytes - 1] == '\t'))
        text.bytes--;
    return text;
}

size_t head_origin_bytes(struct str target) {
    static const char *const schemes[] = {"http://", "https://"};
    if (target.bytes > 0 && target.at[0] == '/') return 0;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t from = strlen(schemes[i]);
        if (target.bytes <= from || strncasecmp(target.at, schemes[i], from) != 0) continue;
        size_t end = str_find_byte(target, '/', from);
        /* No user stands in it (RFC 9110, 4.2.4), and a path must follow. */
        struct str authority = {target.at + from, end == SIZE_MAX ? 0 : end - from};
        for (size_t j = 0; j < authority.bytes; j++)
            if (strchr("@?#\\", authority.at[j])) return SIZE_MAX;
        return authority.bytes > 0 ? end : SIZE_MAX;
    }
    return SIZE_MAX;
}

static enum head_state read_request_line(struct head_parse *parse, struct str line) {
    struct head *head = parse->head;
    size_t first = str_find_byte(line, ' ', 0);
    if (first == SIZE_MAX || first > 16 || !is_token((struct str){line.at, first}))
        return refuse(head, 400, "The request line does not start with a method and one space");
    size_t second = str_find_byte(line, ' ', first + 1);
    if (second == SIZE_MAX) return refuse(head, 400, "The request line has no HTTP version");
    struct str target = {line.at + first + 1, second - first - 1};
    if (target.bytes > HEAD_TARGET_BYTES_MAX)
        return refuse(head, 414, "The request target is longer than 8192 bytes");
    size_t origin = head_origin_bytes(target);
    if (origin == SIZE_MAX)
        return refuse(head, 400, "The request target must be a path that starts with '/'");
    if (origin > 0)
        parse->authority =
            str_skip((struct str){target.at, origin}, str_find(target, STR("//"), 0) + 2);
    for (size_t i = 0; i < target.bytes; i++)
        if (target.at[i] <= 0x20 || target.at[i] >= 0x7F)
            return refuse(head, 400,
                          "The request target holds a byte that must be percent-encoded");
    struct str version = str_skip(line, second + 1);
    parse->http_1_1 = str_is(version, "HTTP/1.1");
    if (parse->http_1_1 || str_is(version, "HTTP/1.0")) return HEAD_COMPLETE;
    if (version.bytes == 8 && str_starts_with(version, STR("HTTP/")) && version.at[6] == '.' &&
        version.at[5] >= '0' && version.at[5] <= '9')
        return refuse(head, 505, "Only HTTP/1.1 and HTTP/1.0 are spoken here");
    return refuse(head, 400, "The request line does not end in an HTTP version");
}

static enum head_state read_length(struct head *head, struct str value) {
    uint64_t bytes = 0;
    if (value.bytes == 0 || value.bytes > 19)
        return refuse(head, 400, "Content-Length is not a decimal number");
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.at[i] < '0' || value.at[i] > '9')
            return refuse(head, 400, "Content-Length is not a decimal number");
        bytes = bytes * 10 + (uint64_t)(value.at[i] - '0');
    }
    if (bytes > INT64_MAX) return refuse(head, 400, "Content-Length is out of range");
    head->body_bytes = bytes;
    return HEAD_COMPLETE;
}

static enum head_state read_unique(struct head_parse *parse, enum unique_field field,
                                   struct str value) {
    struct head *head = parse->head;
    if (parse->seen[field])
        return refuse(head, 400, "A header field that must be unique is repeated");
    parse->seen[field] = true;
    switch (field) {
    case FIELD_HOST: parse->host = value; return HEAD_COMPLETE;
    case FIELD_CONTENT_LENGTH: return read_length(head, value);
    case FIELD_TRANSFER_ENCODING:
        if (!parse->http_1_1) return refuse(head, 400, "Transfer-Encoding needs HTTP/1.1");
        if (!name_is(value, "chunked"))
            return refuse(head, 400, "The only Transfer-Encoding understood is 'chunked'");
        return HEAD_COMPLETE;
    case FIELD_EXPECT:
        if (!name_is(value, "100-continue"))
            return refuse(head, 417, "The only Expect understood is '100-continue'");
        return HEAD_COMPLETE;
    default: return HEAD_COMPLETE;
    }
}

static enum head_state read_field(struct head_parse *parse, struct str line) {
    struct head *head = parse->head;
    if (line.at[0] == ' ' || line.at[0] == '\t')
        return refuse(head, 400, "A header line starts with a blank (folded lines are refused)");
    if (++parse->fields > HEAD_FIELDS_MAX)
        return refuse(head, 431, "The request has more than 100 header fields");
    size_t colon = str_find_byte(line, ':', 0);
    if (colon == SIZE_MAX) return refuse(head, 400, "A header line has no colon");
    struct str name = {line.at, colon};
    if (!is_token(name)) return refuse(head, 400, "A header field name is not a token");
    struct str value = trim_blanks(str_skip(line, colon + 1));
    for (size_t i = 0; i < value.bytes; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return refuse(head, 400, "A header field value holds a control character");
    }
    for (int field = 0; field < FIELD_UNIQUE_COUNT; field++)
        if (name_is(name, unique_names[field]))
            return read_unique(parse, (enum unique_field)field, value);
    return HEAD_COMPLETE;
}

/* The host of an authority, without its port. */
static struct str without_port(struct str authority) {
    size_t end = str_find_byte(authority, ']', 0);
    size_t colon = str_find_byte(authority, ':', end == SIZE_MAX ? 0 : end);
    return (struct str){authority.at, colon == SIZE_MAX ? authority.bytes : colon};
}

/* A target in absolute form counts for its path alone, so that it must name the host that the Host
 * field names: clients send both alike. */
static bool names_one_host(const struct head_parse *parse) {
    struct str one = without_port(parse->authority), other = without_port(parse->host);
    return parse->authority.bytes == 0 ||
           (one.bytes == other.bytes && strncasecmp(one.at, other.at, one.bytes) == 0);
}

static enum head_state decide_body(struct head_parse *parse) {
    struct head *head = parse->head;
    bool length = parse->seen[FIELD_CONTENT_LENGTH];
    bool chunked = parse->seen[FIELD_TRANSFER_ENCODING];
    if (length && chunked)
        return refuse(head, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (parse->http_1_1 && !parse->seen[FIELD_HOST])
        return refuse(head, 400, "An HTTP/1.1 request needs a Host header");
    if (parse->seen[FIELD_HOST] && !names_one_host(parse))
        return refuse(head, 400, "The request target names another host than the Host header");
    if (chunked)
        head->body = HEAD_BODY_CHUNKED;
    else if (length && head->body_bytes > 0)
        head->body = HEAD_BODY_LENGTH;
    return HEAD_COMPLETE;
}

/* Reads a complete block in which every line ends in CRLF. */
static enum head_state read_block(struct head *head, struct str block) {
    struct head_parse parse = {.head = head};
    bool first = true;
    size_t at = 0;
    while (at < block.bytes) {
        size_t end = str_find(block, STR("\r\n"), at);
        assert(end != SIZE_MAX);
        struct str line = {block.at + at, end - at};
        at = end + 2;
        if (line.bytes == 0) break;
        enum head_state state = first ? read_request_line(&parse, line) : read_field(&parse, line);
        if (state != HEAD_COMPLETE) return state;
        first = false;
    }
    if (first) return refuse(head, 400, "The request starts with an empty line");
    return decide_body(&parse);
}

/* Moves the blanks after the value of a field to the place before it. */
static void move_blanks(char *line, size_t bytes) {
    struct str text = {line, bytes};
    size_t colon = str_find_byte(text, ':', 0);
    struct str value = trim_blanks(str_skip(text, colon + 1));
    size_t blanks = (size_t)(line + bytes - (value.at + value.bytes));
    if (value.bytes == 0 || blanks == 0) return;
    size_t from = (size_t)(value.at - line);
    memmove(line + from + blanks, line + from, value.bytes);
    memset(line + from, ' ', blanks);
}

void head_move_blanks(char *block, size_t bytes) {
    struct str text = {block, bytes};
    size_t at = str_find(text, STR("\r\n"), 0) + 2; /* after the request line */
    while (at < bytes) {
        size_t end = str_find(text, STR("\r\n"), at);
        if (end == SIZE_MAX || end == at) return;
        move_blanks(block + at, end - at);
        at = end + 2;
    }
}

/* True if bytes[from..) has a CR or LF outside a CRLF pair. A CR at the very end may still get its
 * LF. */
static bool has_bare_line_end(struct str bytes, size_t from) {
    for (size_t i = from; i < bytes.bytes; i++) {
        if (bytes.at[i] == '\n' && (i == 0 || bytes.at[i - 1] != '\r')) return true;
        if (bytes.at[i] == '\r' && i + 1 < bytes.bytes && bytes.at[i + 1] != '\n') return true;
    }
    return false;
}

enum head_state head_read(struct head *ret_head, struct str bytes, size_t checked) {
    memset(ret_head, 0, sizeof *ret_head);
    /* The empty line may begin in the bytes seen before: step back three bytes. */
    size_t from = checked > 3 ? checked - 3 : 0;
    size_t end = str_starts_with(bytes, STR("\r\n")) ? 0 : str_find(bytes, STR("\r\n\r\n"), from);
    struct str seen = bytes;
    if (end != SIZE_MAX) seen.bytes = end == 0 && bytes.at[0] == '\r' ? 2 : end + 4;
    if (seen.bytes > HEAD_BYTES_MAX) seen.bytes = HEAD_BYTES_MAX;
    if (has_bare_line_end(seen, checked > 1 ? checked - 1 : 0))
        return refuse(ret_head, 400, "A line of the request does not end in CRLF");
    if (end != SIZE_MAX && end + 4 <= HEAD_BYTES_MAX) {
        ret_head->bytes = seen.bytes;
        return read_block(ret_head, seen);
    }
    if (bytes.bytes > HEAD_TARGET_BYTES_MAX + 32 && str_find_byte(seen, '\n', 0) == SIZE_MAX)
        return refuse(ret_head, 414, "The request target is longer than 8192 bytes");
    if (end != SIZE_MAX || bytes.bytes >= HEAD_BYTES_MAX)
        return refuse(ret_head, 431, "The header block is larger than 16384 bytes");
    return HEAD_INCOMPLETE;
}

enum {
    CHUNK_SIZE,
    CHUNK_BLANK,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_END_CR,
    CHUNK_TRAILER_NAME,
    CHUNK_TRAILER_VALUE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF
};

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool is_text_char(char c) {
    return ((unsigned char)c >= 0x20 && c != 0x7F) || c == '\t';
}

/* Takes a byte of the line with a chunk's size. */
static bool scan_size(struct chunk_scan *scan, char c) {
    int value = hex_value(c);
    if (value >= 0) {
        /* 15 digits keep the size below 2^60: no sum of it overflows. */
        if (++scan->digits > 15) return false;
        scan->size = scan->size * 16 + (uint64_t)value;
        return true;
    }
    if (scan->digits == 0) return false;
    if (c == '\r')
        scan->step = CHUNK_SIZE_LF;
    else if (c == ';')
        scan->step = CHUNK_EXTENSION;
    else if (c == ' ' || c == '\t')
        scan->step = CHUNK_BLANK;
    else
        return false;
    return true;
}

/* Takes a byte of a trailer's name. A name that has a meaning for the framing is refused. */
static bool scan_name(struct chunk_scan *scan, char c) {
    static const char *const refused[] = {"content-length", "transfer-encoding", "host"};
    if (c != ':') {
        char low = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
        if (scan->name_bytes < CHUNK_NAME_BYTES) scan->name[scan->name_bytes++] = low;
        return is_token_char(c);
    }
    struct str name = {scan->name, scan->name_bytes};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (str_is(name, refused[i])) return false;
    scan->step = CHUNK_TRAILER_VALUE;
    return true;
}

/* Takes a byte of an extension or a trailer, which are skipped. They are counted over the whole
 * body, so that no client sends bytes for ever. */
static bool scan_extra(struct chunk_scan *scan, char c) {
    if (++scan->extra > CHUNK_EXTRA_BYTES_MAX) return false;
    switch (scan->step) {
    case CHUNK_BLANK:
        if (c == ';') scan->step = CHUNK_EXTENSION;
        return c == ';' || c == ' ' || c == '\t';
    case CHUNK_EXTENSION:
        if (c == '\r') scan->step = CHUNK_SIZE_LF;
        return c == '\r' || is_text_char(c);
    case CHUNK_TRAILER_NAME: return scan_name(scan, c);
    default:
        if (c == '\r') scan->step = CHUNK_TRAILER_LF;
        return c == '\r' || is_text_char(c);
    }
}

/* Takes one byte outside chunk data. False refuses. */
static bool scan_byte(struct chunk_scan *scan, char c) {
    switch (scan->step) {
    case CHUNK_SIZE: return scan_size(scan, c);
    case CHUNK_SIZE_LF:
        scan->left = scan->size;
        scan->step = scan->size == 0 ? CHUNK_END_CR : CHUNK_DATA;
        scan->size = scan->digits = 0;
        return c == '\n';
    case CHUNK_DATA_CR: scan->step = CHUNK_DATA_LF; return c == '\r';
    case CHUNK_DATA_LF: scan->step = CHUNK_SIZE; return c == '\n';
    case CHUNK_END_CR:
        scan->step = c == '\r' ? CHUNK_END_LF : CHUNK_TRAILER_NAME;
        scan->name_bytes = 0;
        return c == '\r' || (c != ':' && scan_name(scan, c));
    case CHUNK_TRAILER_LF: scan->step = CHUNK_END_CR; return c == '\n';
    case CHUNK_END_LF: return c == '\n';
    default: return scan_extra(scan, c);
    }
}

enum head_state chunk_scan_feed(struct chunk_scan *scan, char *bytes, size_t count,
                                size_t *ret_used) {
    size_t at = 0;
    while (at < count) {
        if (scan->step == CHUNK_DATA) {
            uint64_t take = count - at < scan->left ? count - at : scan->left;
            at += (size_t)take;
            scan->left -= take;
            scan->seen += take;
            if (scan->left == 0) scan->step = CHUNK_DATA_CR;
            continue;
        }
        bool last = scan->step == CHUNK_END_LF;
        *ret_used = at;
        if (!scan_byte(scan, bytes[at])) return HEAD_REFUSED;
        if (scan->step == CHUNK_BLANK) bytes[at] = ';';
        at++;
        if (last) {
            *ret_used = at;
            return HEAD_COMPLETE;
        }
    }
    *ret_used = at;
    return HEAD_INCOMPLETE;
}
