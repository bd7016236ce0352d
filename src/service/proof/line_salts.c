/* SPDX-License-Identifier: Apache-2.0 */
#include "proof/line_salts.h"

#include "base/mem.h"

#include <inttypes.h>
#include <sodium/randombytes.h>
#include <sodium/utils.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE_TEXT_BYTES 96
#define NO_WAY SIZE_MAX

static void init(struct line_salts *salts) {
    *salts = (struct line_salts){.way_node = NO_WAY};
}

void line_salts_make(struct line_salts *ret_salts) {
    init(ret_salts);
    ret_salts->nodes = vec_grow(NULL, 0, &ret_salts->capacity, sizeof *ret_salts->nodes);
    ret_salts->nodes[0] = (struct line_salt_node){.level = 0};
    randombytes_buf(ret_salts->nodes[0].seed, SHA256_BYTES);
    ret_salts->count = 1;
}

void line_salts_release(struct line_salts *salts) {
    if (salts->nodes) sodium_memzero(salts->nodes, salts->count * sizeof *salts->nodes);
    free(salts->nodes);
    sodium_memzero(salts->way, sizeof salts->way);
    init(salts);
}

/* The first line under a node, and the first behind it. */
static uint64_t begin_of(const struct line_salt_node *node) {
    return node->index << (LINE_SALTS_LEVELS - node->level);
}

static uint64_t end_of(const struct line_salt_node *node) {
    return (node->index + 1) << (LINE_SALTS_LEVELS - node->level);
}

/* The node above a line, or the first one behind it. */
static size_t find_node(const struct line_salts *salts, uint64_t line) {
    size_t low = 0, high = salts->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (end_of(&salts->nodes[middle]) <= line)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_above(const struct line_salts *salts, size_t at, uint64_t line) {
    return at < salts->count && begin_of(&salts->nodes[at]) <= line;
}

static void child(const unsigned char parent[SHA256_BYTES], unsigned char side,
                  unsigned char ret_child[SHA256_BYTES]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, parent, SHA256_BYTES);
    sha256_add(&hash, &side, 1);
    sha256_end(&hash, ret_child);
}

static unsigned char side_of(uint64_t line, uint32_t level) {
    return (unsigned char)(line >> (LINE_SALTS_LEVELS - level) & 1);
}

/* The deepest level of the way that is above this line as well. */
static uint32_t common_level(const struct line_salts *salts, uint64_t line) {
    uint64_t differs = salts->way_line ^ line;
    uint32_t level = LINE_SALTS_LEVELS;
    while (differs) {
        differs >>= 1;
        level--;
    }
    return level;
}

bool line_salts_get(struct line_salts *salts, uint64_t line, unsigned char ret_salt[SHA256_BYTES]) {
    size_t at = find_node(salts, line);
    if (line >> LINE_SALTS_LEVELS || !is_above(salts, at, line)) return false;
    uint32_t level = salts->nodes[at].level;
    if (salts->way_node == at)
        level = common_level(salts, line);
    else
        memcpy(salts->way[level], salts->nodes[at].seed, SHA256_BYTES);
    for (; level < LINE_SALTS_LEVELS; level++)
        child(salts->way[level], side_of(line, level + 1), salts->way[level + 1]);
    salts->way_node = at;
    salts->way_line = line;
    memcpy(ret_salt, salts->way[LINE_SALTS_LEVELS], SHA256_BYTES);
    return true;
}

/* Lines on their way out, in one pass over the nodes. */
struct cutting {
    const uint64_t *lines, *end; /* the next line, and behind the last */
    struct line_salt_node *made; /* NULL: they are counted alone */
    size_t count;
};

static void keep(struct cutting *is, const struct line_salt_node *node) {
    if (is->made) is->made[is->count] = *node;
    is->count++;
}

/* Keeps what is left of a node: itself, nothing, or what is left of its two children. */
static void cut(struct cutting *is, const struct line_salt_node *node) {
    struct line_salt_node below = {.level = node->level + 1};
    while (is->lines < is->end && *is->lines < begin_of(node)) is->lines++;
    if (is->lines == is->end || *is->lines >= end_of(node)) {
        keep(is, node);
        return;
    }
    if (node->level == LINE_SALTS_LEVELS) return;
    for (unsigned char side = 0; side < 2; side++) {
        below.index = node->index * 2 + side;
        if (is->made) child(node->seed, side, below.seed);
        cut(is, &below);
    }
    sodium_memzero(&below, sizeof below);
}

static size_t cut_all(const struct line_salts *salts, const uint64_t *lines, size_t count,
                      struct line_salt_node *made) {
    struct cutting is = {.lines = lines, .end = lines + count, .made = made};
    for (size_t i = 0; i < salts->count; i++) cut(&is, &salts->nodes[i]);
    return is.count;
}

void line_salts_remove(struct line_salts *salts, const uint64_t *lines, size_t count) {
    if (count == 0) return;
    size_t left = cut_all(salts, lines, count, NULL);
    struct line_salt_node *made = mem_new(left + 1, sizeof *made);
    (void)cut_all(salts, lines, count, made);
    line_salts_release(salts);
    salts->nodes = made;
    salts->count = left;
    salts->capacity = left + 1;
}

/* --- JSON --- */

static void write_node(const struct line_salt_node *node, char ret_text[NODE_TEXT_BYTES]) {
    char hex[SHA256_HEX_BYTES];
    sha256_hex(node->seed, hex);
    snprintf(ret_text, NODE_TEXT_BYTES, "%" PRIu32 " %" PRIu64 " %s", node->level, node->index,
             hex);
}

json_t *line_salts_json(const struct line_salts *salts) {
    char text[NODE_TEXT_BYTES];
    json_t *list = json_array();
    for (size_t i = 0; i < salts->count; i++) {
        write_node(&salts->nodes[i], text);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

/* The number up to a space, which is skipped. */
static bool take_number(struct str *text, uint64_t *ret_number) {
    size_t end = str_find_byte(*text, ' ', 0);
    if (end == SIZE_MAX || !str_to_u64((struct str){text->at, end}, ret_number)) return false;
    *text = str_skip(*text, end + 1);
    return true;
}

static bool read_node(const json_t *value, struct line_salt_node *ret_node) {
    char again[NODE_TEXT_BYTES];
    struct str whole = json_str(value), text = whole;
    uint64_t level;
    size_t bytes;
    if (!json_is_string(value) || !take_number(&text, &level) || level > LINE_SALTS_LEVELS ||
        !take_number(&text, &ret_node->index) || ret_node->index >> level)
        return false;
    ret_node->level = (uint32_t)level;
    if (sodium_hex2bin(ret_node->seed, SHA256_BYTES, text.at, text.bytes, NULL, &bytes, NULL) !=
            0 ||
        bytes != SHA256_BYTES)
        return false;
    write_node(ret_node, again);
    return str_is(whole, again);
}

enum err line_salts_read(struct line_salts *ret_salts, const json_t *list, struct error *error) {
    const json_t *value;
    size_t i;
    uint64_t end = 0;
    init(ret_salts);
    if (!json_is_array(list) || json_array_size(list) > LINE_SALTS_NODES_MAX)
        return err_set(error, ERR_CORRUPT, "its salts are no list, or too long a one");
    ret_salts->nodes = mem_new(json_array_size(list) + 1, sizeof *ret_salts->nodes);
    ret_salts->capacity = json_array_size(list) + 1;
    json_array_foreach(list, i, value) {
        struct line_salt_node *node = &ret_salts->nodes[i];
        if (!read_node(value, node) || begin_of(node) < end) {
            line_salts_release(ret_salts);
            return err_set(error, ERR_CORRUPT, "node %zu of its salts is damaged", i + 1);
        }
        ret_salts->count++;
        end = end_of(node);
    }
    return OK;
}
