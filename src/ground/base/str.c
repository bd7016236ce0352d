/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "base/min_max.h"

#include <string.h>

struct str str_from(const char *text) {
    return text ? (struct str){text, strlen(text)} : (struct str){NULL, 0};
}

bool str_equals(struct str a, struct str b) {
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.at, b.at, a.bytes) == 0);
}

bool str_is(struct str a, const char *text) {
    return str_equals(a, str_from(text));
}

bool str_starts_with(struct str whole, struct str start) {
    return whole.bytes >= start.bytes &&
           (start.bytes == 0 || memcmp(whole.at, start.at, start.bytes) == 0);
}

bool str_ends_with(struct str whole, struct str end) {
    return whole.bytes >= end.bytes &&
           (end.bytes == 0 || memcmp(whole.at + whole.bytes - end.bytes, end.at, end.bytes) == 0);
}

int str_compare(struct str a, struct str b) {
    size_t common = min_size(a.bytes, b.bytes);
    int order = common ? memcmp(a.at, b.at, common) : 0;
    if (order != 0) return order;
    return a.bytes < b.bytes ? -1 : a.bytes > b.bytes;
}

struct str str_skip(struct str whole, size_t from) {
    if (from > whole.bytes) from = whole.bytes;
    if (!whole.at) return whole;
    return (struct str){whole.at + from, whole.bytes - from};
}

size_t str_find_byte(struct str whole, char byte, size_t from) {
    if (from >= whole.bytes) return SIZE_MAX;
    const char *found = memchr(whole.at + from, byte, whole.bytes - from);
    return found ? (size_t)(found - whole.at) : SIZE_MAX;
}

size_t str_find(struct str whole, struct str part, size_t from) {
    if (from > whole.bytes || part.bytes > whole.bytes - from) return SIZE_MAX;
    if (part.bytes == 0) return from;
    const char *found = memmem(whole.at + from, whole.bytes - from, part.at, part.bytes);
    return found ? (size_t)(found - whole.at) : SIZE_MAX;
}

size_t str_begun(struct str whole, struct str part) {
    size_t bytes = min_size(part.bytes - 1, whole.bytes);
    while (bytes > 0 && memcmp(whole.at + whole.bytes - bytes, part.at, bytes) != 0) bytes--;
    return bytes;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct str str_trim(struct str whole) {
    while (whole.bytes > 0 && is_space(whole.at[0])) whole = str_skip(whole, 1);
    while (whole.bytes > 0 && is_space(whole.at[whole.bytes - 1])) whole.bytes--;
    return whole;
}

bool str_to_u64(struct str text, uint64_t *ret_value) {
    if (text.bytes == 0) return false;
    uint64_t value = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return false;
        if (__builtin_mul_overflow(value, 10u, &value)) return false;
        if (__builtin_add_overflow(value, (uint64_t)(text.at[i] - '0'), &value)) return false;
    }
    *ret_value = value;
    return true;
}

bool str_to_i64(struct str text, int64_t *ret_value) {
    bool negative = text.bytes > 0 && text.at[0] == '-';
    uint64_t magnitude;
    if (!str_to_u64(negative ? str_skip(text, 1) : text, &magnitude)) return false;
    if (magnitude > (uint64_t)INT64_MAX + negative) return false;
    *ret_value = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

const char *plural(uint64_t count, const char *one, const char *several) {
    return count == 1 ? one : several;
}
