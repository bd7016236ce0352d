/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"

#include "base/mem.h"
#include "base/no_memory.h"
#include "base/utf8.h"
#include "json/cost.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Refuses a text that nests too deep, because jansson's parser recurses and its own bound of 2048
 * levels is too deep for our thread stacks, and one whose tree would take too much memory. */
static enum err check_cost(struct str text, size_t *room, struct error *error) {
    size_t deep_at = 0, bytes = json_cost(text, &deep_at);
    if (bytes == SIZE_MAX)
        return err_set(error, ERR_INVALID, "JSON nested deeper than %d, at byte %zu",
                       JSON_DEPTH_MAX, deep_at);
    if (bytes <= *room) {
        *room -= bytes;
        return OK;
    }
    return err_set(error, ERR_LIMIT,
                   "its %zu bytes would take %zu bytes of memory as a tree of values, and at most "
                   "%zu are allowed: use fewer values, or longer ones",
                   text.bytes, bytes, *room);
}

/* jansson takes no notice of some allocations that fail, and then drops bytes of a string, or calls
 * it an invalid token. So each one is noted. Elsewhere jansson's callers count on its memory. */
static _Thread_local bool is_reading, has_no_memory;
static json_malloc_t plain_alloc;

static void *alloc_json(size_t bytes) {
    void *memory = plain_alloc(bytes);
    if (!memory && !is_reading) no_memory();
    has_no_memory |= !memory;
    return memory;
}

static void set_alloc(void) {
    json_free_t plain_free;
    json_get_alloc_funcs(&plain_alloc, &plain_free);
    json_set_alloc_funcs(alloc_json, plain_free);
}

/* NULL, with the reason, if the text is not JSON; NULL and has_no_memory without memory. */
static json_t *load(struct str text, size_t flags, json_error_t *ret_reason) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_alloc);
    is_reading = true;
    has_no_memory = false;
    json_t *value = json_loadb(text.bytes ? text.at : "", text.bytes,
                               JSON_DECODE_ANY | JSON_ALLOW_NUL | flags, ret_reason);
    is_reading = false;
    if (!has_no_memory) return value;
    json_decref(value);
    return NULL;
}

/* Says why jansson takes no value from the text: it is no JSON, or JSON that quern does not read.
 */
static enum err refuse_text(const json_error_t *reason, struct error *error) {
    const char *what, *near = strstr(reason->text, " near ");
    switch (json_error_code(reason)) {
    case json_error_numeric_overflow:
        what = "a number that quern cannot hold (integers have 64 bits with their sign, others "
               "reach 1.8e308)";
        break;
    case json_error_null_byte_in_key: what = "a NUL in a key, which quern does not read"; break;
    case json_error_duplicate_key: what = "the same key twice in one object"; break;
    default:
        return err_set(error, ERR_INVALID, "not valid JSON: %s, at byte %d", reason->text,
                       reason->position);
    }
    return err_set(error, ERR_INVALID, "JSON with %s%s, at byte %d", what, near ? near : "",
                   reason->position);
}

static enum err read_with(json_t **ret_value, struct str text, size_t flags, size_t *room,
                          struct error *error) {
    size_t valid = utf8_valid_prefix(text);
    if (valid != text.bytes)
        return err_set(error, ERR_INVALID, "not valid JSON: invalid UTF-8, at byte %zu", valid);
    enum err err = check_cost(text, room, error);
    if (err != OK) return err;
    json_error_t reason;
    json_t *value = load(text, flags, &reason);
    if (value) {
        *ret_value = value;
        return OK;
    }
    if (has_no_memory)
        return err_set(error, ERR_UNAVAILABLE, "no memory to read %zu bytes of JSON", text.bytes);
    return refuse_text(&reason, error);
}

enum err json_read_within(json_t **ret_value, struct str text, size_t *room, struct error *error) {
    return read_with(ret_value, text, 0, room, error);
}

enum err json_read_once(json_t **ret_value, struct str text, size_t *room, struct error *error) {
    return read_with(ret_value, text, JSON_REJECT_DUPLICATES, room, error);
}

enum err json_read(json_t **ret_value, struct str text, struct error *error) {
    size_t room = SIZE_MAX - 1;
    return json_read_within(ret_value, text, &room, error);
}

void json_mend_python(char *text, size_t bytes) {
    static const char word[] = "Infinity", number[] = "1e308   "; /* as long as the word */
    const size_t length = sizeof word - 1;
    bool is_in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        if (is_in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            is_in_string = !is_in_string;
        else if (!is_in_string && bytes - i >= length && memcmp(text + i, word, length) == 0)
            memcpy(text + i, number, length);
    }
}

enum err json_read_python(json_t **ret_value, struct str text, struct error *error) {
    char *copy = mem_new(text.bytes + 1, 1);
    memcpy(copy, text.at, text.bytes);
    json_mend_python(copy, text.bytes);
    enum err err = json_read(ret_value, (struct str){copy, text.bytes}, error);
    free(copy);
    return err;
}

static int add_piece(const char *bytes, size_t count, void *context) {
    struct buf *buf = context;
    buf_add(buf, bytes, count);
    return 0;
}

void json_write(struct buf *buf, const json_t *value) {
    json_dump_callback(value, add_piece, buf, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
}

static void write_escape(struct buf *buf, uint32_t code_point) {
    static const char short_from[] = "\"\\\b\f\n\r\t";
    static const char short_to[] = "\"\\bfnrt";
    const char *found = code_point && code_point < 128 ? strchr(short_from, (int)code_point) : NULL;
    if (found) {
        buf_add_byte(buf, '\\');
        buf_add_byte(buf, short_to[found - short_from]);
    } else if (code_point < 0x10000) {
        buf_printf(buf, "\\u%04x", code_point);
    } else {
        buf_printf(buf, "\\u%04x\\u%04x", 0xD800 + ((code_point - 0x10000) >> 10),
                   0xDC00 + ((code_point - 0x10000) & 0x3FF));
    }
}

static void write_valid(struct buf *buf, struct str text, bool is_ascii) {
    size_t plain = 0;
    if (text.bytes == 0) return;
    for (size_t at = 0; at < text.bytes;) {
        unsigned char c = (unsigned char)text.at[at];
        if (c >= 0x20 && (c < 0x7F || !is_ascii) && c != '"' && c != '\\') {
            at++;
            continue;
        }
        buf_add(buf, text.at + plain, at - plain);
        uint32_t code_point;
        at += utf8_decode(text, at, &code_point);
        write_escape(buf, code_point);
        plain = at;
    }
    buf_add(buf, text.at + plain, text.bytes - plain);
}

static void write_string(struct buf *buf, struct str text, bool is_ascii) {
    buf_add_byte(buf, '"');
    if (utf8_is_valid(text)) {
        write_valid(buf, text, is_ascii);
    } else {
        struct buf repaired;
        buf_init(&repaired, BUF_UNLIMITED);
        utf8_add_repaired(&repaired, text);
        write_valid(buf, buf_str(&repaired), is_ascii);
        buf_release(&repaired);
    }
    buf_add_byte(buf, '"');
}

void json_write_string(struct buf *buf, struct str text) {
    write_string(buf, text, true);
}

void json_write_utf8_string(struct buf *buf, struct str text) {
    write_string(buf, text, false);
}

json_t *json_member(const json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? value : NULL;
}

struct str json_str(const json_t *string) {
    if (!json_is_string(string)) return (struct str){NULL, 0};
    return (struct str){json_string_value(string), json_string_length(string)};
}

json_t *json_first_by_index(const json_t *list) {
    json_t *element, *first = NULL;
    json_int_t lowest = 0;
    size_t place;
    json_array_foreach(list, place, element) {
        const json_t *index = json_member(element, "index");
        json_int_t own = json_is_integer(index) ? json_integer_value(index) : -1;
        if (own < 0) own = (json_int_t)place;
        if (first && own >= lowest) continue;
        first = element;
        lowest = own;
    }
    return first;
}

struct str json_member_str(const json_t *object, const char *key) {
    return json_str(json_object_get(object, key));
}

/* 1, 1.0 and 1e0 are one number; a real is written so that it reads back to the same bits. */
static void write_number(struct buf *buf, const json_t *value) {
    if (json_is_integer(value)) {
        buf_printf(buf, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return;
    }
    double real = json_real_value(value);
    if (fabs(real) < 1e15 && real == floor(real))
        buf_printf(buf, "%.0f", real == 0 ? 0.0 : real);
    else
        buf_printf(buf, "%.17g", real);
}

struct pair {
    const char *key;
    json_t *value;
};

static int compare_pairs(const void *a, const void *b) {
    return strcmp(((const struct pair *)a)->key, ((const struct pair *)b)->key);
}

static void write_canonical(struct buf *buf, const json_t *value);

static void write_canonical_object(struct buf *buf, const json_t *object) {
    size_t count = json_object_size(object), used = 0;
    struct pair *pairs = mem_new(count + 1, sizeof *pairs);
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at))
        pairs[used++] = (struct pair){json_object_iter_key(at), json_object_iter_value(at)};
    qsort(pairs, used, sizeof *pairs, compare_pairs);
    buf_add_byte(buf, '{');
    for (size_t i = 0; i < used; i++) {
        if (i > 0) buf_add_byte(buf, ',');
        json_write_string(buf, str_from(pairs[i].key));
        buf_add_byte(buf, ':');
        write_canonical(buf, pairs[i].value);
    }
    buf_add_byte(buf, '}');
    free(pairs);
}

/* Depth is bounded by json_read. */
static void write_canonical(struct buf *buf, const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: write_canonical_object(buf, value); break;
    case JSON_ARRAY:
        buf_add_byte(buf, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (i > 0) buf_add_byte(buf, ',');
            write_canonical(buf, json_array_get(value, i));
        }
        buf_add_byte(buf, ']');
        break;
    case JSON_STRING: json_write_string(buf, json_str(value)); break;
    case JSON_INTEGER:
    case JSON_REAL: write_number(buf, value); break;
    case JSON_TRUE: buf_add_text(buf, "true"); break;
    case JSON_FALSE: buf_add_text(buf, "false"); break;
    case JSON_NULL: buf_add_text(buf, "null"); break;
    }
}

void json_write_canonical(struct buf *buf, const json_t *value) {
    write_canonical(buf, value);
}
