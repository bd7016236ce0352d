/* SPDX-License-Identifier: Apache-2.0 */
#include "json/cost.h"

#include "json/json.h"

#include <stdbool.h>
#include <string.h>

/* Sizes of jansson 2.14 on a machine of 64 bits, as chunks of malloc: 8 bytes more, and a multiple
 * of 16. */
#define OBJECT_BYTES 224 /* json_object_t (80) and 8 buckets of a table (144) */
#define ARRAY_BYTES 128  /* json_array_t (48) and 8 pointers (80) */
#define NUMBER_BYTES 32  /* json_integer_t, json_real_t */
#define STRING_BYTES 48  /* json_string_t without its text */
#define PAIR_BYTES 72    /* hashtable_pair without its key, with malloc's 8 bytes */
#define BUCKET_BYTES 16
#define LEXER_BYTES 64 /* its first buffer */
#define SLOTS_FIRST 8  /* members or elements that a new object or array has room for */

struct walk {
    struct str text;
    size_t at;
    size_t bytes;
    size_t token_bytes_max; /* the longest string: jansson's lexer keeps a buffer for it */
    size_t table_bytes_max; /* the largest table that was replaced: for a moment both exist */
    size_t string_bytes;    /* the string before the current place, which may prove to be a key */
    size_t depth;
    size_t counts[JSON_DEPTH_MAX]; /* members or elements of the open objects and arrays */
    bool is_object[JSON_DEPTH_MAX];
    size_t keys[JSON_DEPTH_MAX]; /* the key whose value is being read, which exists twice */
    size_t keys_bytes, keys_bytes_max;
};

static size_t chunk(size_t bytes) {
    size_t rounded = (bytes + 8 + 15) & ~(size_t)15;
    return rounded < 32 ? 32 : rounded;
}

/* One more member or element of the innermost object or array. Its table doubles when it is full.
 */
static void add_slot(struct walk *walk) {
    size_t count = ++walk->counts[walk->depth - 1] - 1;
    if (count < SLOTS_FIRST || (count & (count - 1)) != 0) return;
    size_t table = count * (walk->is_object[walk->depth - 1] ? BUCKET_BYTES : sizeof(void *));
    walk->bytes += table;
    if (table > walk->table_bytes_max) walk->table_bytes_max = table;
}

static void add_value(struct walk *walk, size_t bytes) {
    walk->bytes += bytes;
    if (walk->depth > 0 && !walk->is_object[walk->depth - 1]) add_slot(walk);
}

/* False if it is one object or array too deep. */
static bool open_nest(struct walk *walk, bool is_object) {
    if (walk->depth == JSON_DEPTH_MAX) return false;
    add_value(walk, is_object ? OBJECT_BYTES : ARRAY_BYTES);
    walk->counts[walk->depth] = walk->keys[walk->depth] = 0;
    walk->is_object[walk->depth++] = is_object;
    return true;
}

static void close_nest(struct walk *walk) {
    if (walk->depth > 0) walk->keys_bytes -= walk->keys[--walk->depth];
}

static void take_string(struct walk *walk) {
    const char *text = walk->text.at;
    size_t from = ++walk->at, end = walk->text.bytes, at = from;
    while (at < end && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
    size_t bytes = (at < end ? at : end) - from;
    walk->at = at;
    if (bytes > walk->token_bytes_max) walk->token_bytes_max = bytes;
    walk->string_bytes = STRING_BYTES + chunk(bytes + 3); /* with its quotes */
    add_value(walk, walk->string_bytes);
}

/* The string before the colon is a key: a pair has a copy of its text. */
static void take_colon(struct walk *walk) {
    if (walk->depth == 0 || !walk->is_object[walk->depth - 1] || walk->string_bytes == 0) return;
    size_t key = walk->string_bytes - STRING_BYTES;
    walk->bytes -= STRING_BYTES + key;
    walk->bytes += PAIR_BYTES + key;
    walk->keys_bytes += key - walk->keys[walk->depth - 1];
    walk->keys[walk->depth - 1] = key;
    if (walk->keys_bytes > walk->keys_bytes_max) walk->keys_bytes_max = walk->keys_bytes;
    add_slot(walk);
    walk->string_bytes = 0;
}

static void take_number(struct walk *walk) {
    const char *text = walk->text.at;
    add_value(walk, NUMBER_BYTES);
    while (walk->at + 1 < walk->text.bytes && text[walk->at + 1] >= '+' &&
           text[walk->at + 1] <= 'e' && text[walk->at + 1] != ',' && text[walk->at + 1] != ']' &&
           text[walk->at + 1] != ':' && text[walk->at + 1] != '[')
        walk->at++;
}

static void take_word(struct walk *walk) {
    add_value(walk, 0);
    while (walk->at + 1 < walk->text.bytes && walk->text.at[walk->at + 1] >= 'a' &&
           walk->text.at[walk->at + 1] <= 'z')
        walk->at++;
}

/* Takes the token at the current place. False if it nests too deep. */
static bool take_token(struct walk *walk) {
    char c = walk->text.at[walk->at];
    switch (c) {
    case '{': return open_nest(walk, true);
    case '[': return open_nest(walk, false);
    case '}':
    case ']': close_nest(walk); break;
    case '"': take_string(walk); break;
    case ':': take_colon(walk); break;
    default:
        if (c == '-' || (c >= '0' && c <= '9')) take_number(walk);
        if (c >= 'a' && c <= 'z') take_word(walk);
    }
    return true;
}

size_t json_cost(struct str text, size_t *ret_deep_at) {
    struct walk walk = {.text = text};
    for (; walk.at < text.bytes; walk.at++) {
        if (take_token(&walk)) continue;
        *ret_deep_at = walk.at;
        return SIZE_MAX;
    }
    /* The lexer's buffer doubles by a copy: the old one and the filled part of the new one. */
    return LEXER_BYTES + walk.bytes + walk.table_bytes_max + walk.keys_bytes_max +
           2 * walk.token_bytes_max;
}
