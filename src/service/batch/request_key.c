/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/request_key.h"

#include "json/span.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX 64
#define NAME_BYTES_MAX 64
#define TEXT_OF(number) #number
#define NUMBER_TEXT(number) TEXT_OF(number)
#define DECISION_WORDING "prompt format " NUMBER_TEXT(DECISION_PROMPT_FORMAT)

struct member {
    struct str name; /* without its quotes */
    struct str value;
    size_t order;
};

/* Members that describe the caller, not the answer. */
static const char *const ignored[] = {"user",  "safety_identifier", "metadata",
                                      "store", "prompt_cache_key",  "prompt_cache_options"};

static bool is_ignored(struct str name) {
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (str_is(name, ignored[i])) return true;
    return false;
}

static int by_name(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    size_t common = x->name.bytes < y->name.bytes ? x->name.bytes : y->name.bytes;
    int order = memcmp(x->name.at, y->name.at, common);
    if (order == 0) order = (x->name.bytes > y->name.bytes) - (x->name.bytes < y->name.bytes);
    return order != 0 ? order : x->order < y->order ? -1 : 1;
}

/* Reads the members and sorts them by name. SIZE_MAX if they are too many, or if a name has escapes
 * and might equal another. */
static size_t read_members(struct str body, struct member members[MEMBERS_MAX]) {
    struct json_span_iter iter;
    struct str key, value;
    size_t count = 0;
    if (!json_span_enter(&iter, body)) return SIZE_MAX;
    while (json_span_member(&iter, &key, &value)) {
        struct str name = {key.at + 1, key.bytes - 2};
        if (count == MEMBERS_MAX || name.bytes > NAME_BYTES_MAX ||
            str_find_byte(name, '\\', 0) != SIZE_MAX)
            return SIZE_MAX;
        members[count] = (struct member){name, value, count};
        count++;
    }
    if (iter.is_bad) return SIZE_MAX;
    qsort(members, count, sizeof *members, by_name);
    return count;
}

static bool is_null(struct str value) {
    return str_is(value, "null");
}

/* True for any spelling of zero: "0", "0.0", "-0", "0e5". */
static bool is_zero(struct str value) {
    for (size_t i = 0; i < value.bytes && value.at[i] != 'e' && value.at[i] != 'E'; i++)
        if (value.at[i] != '0' && value.at[i] != '.' && value.at[i] != '-') return false;
    return value.bytes > 0;
}

static bool is_number(struct str value) {
    return value.bytes > 0 && (*value.at == '-' || (*value.at >= '0' && *value.at <= '9'));
}

/* The last member with the name, which counts for every reader of the body. */
static struct str find(const struct member *members, size_t count, const char *name) {
    struct str found = {0};
    for (size_t i = 0; i < count; i++)
        if (str_is(members[i].name, name)) found = members[i].value;
    return found.at && is_null(found) ? (struct str){0} : found;
}

static bool is_determined(const struct batch_line *line, const struct member *members,
                          size_t count) {
    if (line->endpoint != ENDPOINT_CHAT && line->endpoint != ENDPOINT_COMPLETIONS) return true;
    struct str temperature = find(members, count, "temperature");
    struct str seed = find(members, count, "seed");
    if (temperature.at && is_number(temperature) && is_zero(temperature)) return true;
    return seed.at && is_number(seed);
}

static void add_part(struct sha256 *hash, struct str part) {
    uint64_t bytes = part.bytes;
    sha256_add(hash, &bytes, sizeof bytes);
    sha256_add(hash, part.at, part.bytes);
}

static bool is_space(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static size_t string_end(struct str text, size_t at) {
    for (at++; at < text.bytes; at++) {
        if (text.at[at] == '\\')
            at++;
        else if (text.at[at] == '"')
            return at + 1;
    }
    return text.bytes;
}

/* Adds the value without the white space between its tokens, and an end that no value contains. */
static void add_value(struct sha256 *hash, struct str value) {
    size_t from = 0, at = 0;
    while (at < value.bytes) {
        if (value.at[at] == '"') {
            at = string_end(value, at);
        } else if (is_space(value.at[at])) {
            sha256_add(hash, value.at + from, at - from);
            while (at < value.bytes && is_space(value.at[at])) at++;
            from = at;
        } else {
            at++;
        }
    }
    sha256_add(hash, value.at + from, value.bytes - from);
    sha256_add(hash, "", 1); /* no JSON text has a NUL */
}

bool batch_request_is_determined(struct str text) {
    struct batch_line line;
    struct member members[MEMBERS_MAX];
    if (batch_line_read(text, &line) != BATCH_LINE_READ ||
        !batch_line_endpoint(&line, &line.endpoint))
        return false;
    size_t count = read_members(line.body, members);
    return count != SIZE_MAX && is_determined(&line, members, count);
}

bool batch_request_key(const struct batch_line *line, struct str identity,
                       unsigned char ret_key[SHA256_BYTES]) {
    struct member members[MEMBERS_MAX];
    size_t count = read_members(line->body, members);
    if (count == SIZE_MAX || !is_determined(line, members, count)) return false;
    struct sha256 hash;
    sha256_init(&hash);
    add_part(&hash, str_from(endpoint_path(line->endpoint)));
    add_part(&hash, identity);
    if (endpoint_is_decision(line->endpoint)) add_part(&hash, str_from(DECISION_WORDING));
    for (size_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count || !str_equals(members[i].name, members[i + 1].name);
        if (!is_last || is_null(members[i].value) || is_ignored(members[i].name)) continue;
        add_part(&hash, members[i].name);
        add_value(&hash, members[i].value);
    }
    sha256_end(&hash, ret_key);
    return true;
}
