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
    if (target.bytes == 0 || target.at[0] != '/')
        return refuse(head, 400, "The request target must be a path that starts with '/'");
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

static enum head_state decide_body(struct head_parse *parse) {
    struct head *head = parse->head;
    bool length = parse->seen[FIELD_CONTENT_LENGTH];
    bool chunked = parse->seen[FIELD_TRANSFER_ENCODING];
    if (length && chunked)
        return refuse(head, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (parse->http_1_1 && !parse->seen[FIELD_HOST])
        return refuse(head, 400, "An HTTP/1.1 request needs a Host header");
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
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_END_CR,
    CHUNK_END_LF
};

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Takes one byte outside chunk data. False refuses. */
static bool scan_byte(struct chunk_scan *scan, char c) {
    switch (scan->step) {
    case CHUNK_SIZE: {
        int value = hex_value(c);
        if (value >= 0) {
            /* 15 digits keep the size below 2^60: no sum of it overflows. */
            if (++scan->digits > 15) return false;
            scan->size = scan->size * 16 + (uint64_t)value;
            return true;
        }
        if (c != '\r' || scan->digits == 0) return false;
        scan->step = CHUNK_SIZE_LF;
        return true;
    }
    case CHUNK_SIZE_LF:
        scan->left = scan->size;
        scan->step = scan->size == 0 ? CHUNK_END_CR : CHUNK_DATA;
        scan->size = scan->digits = 0;
        return c == '\n';
    case CHUNK_DATA_CR: scan->step = CHUNK_DATA_LF; return c == '\r';
    case CHUNK_DATA_LF: scan->step = CHUNK_SIZE; return c == '\n';
    case CHUNK_END_CR: scan->step = CHUNK_END_LF; return c == '\r';
    default: return c == '\n';
    }
}

enum head_state chunk_scan_feed(struct chunk_scan *scan, struct str bytes, size_t *ret_used) {
    size_t at = 0;
    while (at < bytes.bytes) {
        if (scan->step == CHUNK_DATA) {
            uint64_t take = bytes.bytes - at < scan->left ? bytes.bytes - at : scan->left;
            at += (size_t)take;
            scan->left -= take;
            scan->seen += take;
            if (scan->left == 0) scan->step = CHUNK_DATA_CR;
            continue;
        }
        bool last = scan->step == CHUNK_END_LF;
        *ret_used = at;
        if (!scan_byte(scan, bytes.at[at++])) return HEAD_REFUSED;
        if (last) {
            *ret_used = at;
            return HEAD_COMPLETE;
        }
    }
    *ret_used = at;
    return HEAD_INCOMPLETE;
}
