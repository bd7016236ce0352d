/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/special.h"

#include "base/mem.h"

#include <stdlib.h>

/* Children are a list of siblings; node 0 is no node. */
struct special_node {
    uint32_t first_child;
    uint32_t next_sibling;
    int32_t id; /* id of the token that ends here, or -1 */
    unsigned char byte;
    uint8_t rule; /* enum special_rule */
};

void special_init(struct special_set *set) {
    *set = (struct special_set){.node_count = 1};
}

void special_release(struct special_set *set) {
    free(set->nodes);
    special_init(set);
}

static bool grow(struct special_set *set) {
    if (set->node_count < set->node_capacity) return true;
    size_t capacity = set->node_capacity ? set->node_capacity * 2 : 256;
    if (capacity > SPECIAL_NODES_MAX) return false;
    struct special_node *nodes = mem_resize(set->nodes, capacity, sizeof *nodes);
    set->nodes = nodes;
    set->node_capacity = capacity;
    return true;
}

static uint32_t child_of(const struct special_set *set, uint32_t node, unsigned char byte) {
    uint32_t child = set->nodes[node].first_child;
    while (child && set->nodes[child].byte != byte) child = set->nodes[child].next_sibling;
    return child;
}

/* The child for `byte`, added if missing; parent 0 is the root. 0 without room. */
static uint32_t child_take(struct special_set *set, uint32_t parent, unsigned char byte) {
    uint32_t child = parent ? child_of(set, parent, byte) : set->first[byte];
    if (child) return child;
    if (!grow(set)) return 0;
    child = (uint32_t)set->node_count++;
    set->nodes[child] = (struct special_node){.byte = byte, .id = -1};
    if (parent) {
        set->nodes[child].next_sibling = set->nodes[parent].first_child;
        set->nodes[parent].first_child = child;
    } else {
        set->first[byte] = child;
        set->first_count++;
        set->last_first = (char)byte;
    }
    return child;
}

enum err special_add(struct special_set *set, struct str text, int32_t id, enum special_rule rule,
                     struct error *error) {
    if (text.bytes > SPECIAL_BYTES_MAX)
        return err_set(error, ERR_LIMIT,
                       "token %d: a special token of %zu bytes is over the %d that are matched", id,
                       text.bytes, SPECIAL_BYTES_MAX);
    if (text.bytes == 0) return OK;
    uint32_t node = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        node = child_take(set, node, (unsigned char)text.at[i]);
        if (node == 0)
            return err_set(error, ERR_LIMIT, "the special tokens have over %u bytes",
                           SPECIAL_NODES_MAX);
    }
    if (set->nodes[node].id >= 0) return OK;
    set->nodes[node].id = id;
    set->nodes[node].rule = (uint8_t)rule;
    set->count++;
    return OK;
}

/* From `start` on, how far bytes are not plain. */
static size_t free_end(struct special_search *search, size_t start) {
    const struct text_ranges *plain = &search->plain;
    while (search->plain_at < plain->count && plain->at[search->plain_at].end <= start)
        search->plain_at++;
    return search->plain_at < plain->count ? plain->at[search->plain_at].start : SIZE_MAX;
}

/* The longest token at text[start], its end in *ret_end; -1 without one. */
static int32_t longest_at(const struct special_set *set, struct special_search *search,
                          size_t start, size_t *ret_end) {
    struct str text = search->text;
    size_t end_free = free_end(search, start);
    int32_t id = -1;
    uint32_t node = set->first[(unsigned char)text.at[start]];
    for (size_t at = start + 1; node; at++) {
        const struct special_node *here = &set->nodes[node];
        bool fits =
            here->rule == SPECIAL_ALWAYS ||
            (at <= end_free && (here->rule == SPECIAL_UNLESS_PLAIN || search->parse_special));
        if (here->id >= 0 && fits) {
            id = here->id;
            *ret_end = at;
        }
        node = at < text.bytes ? child_of(set, node, (unsigned char)text.at[at]) : 0;
    }
    return id;
}

/* The next place where a token may begin, or text.bytes. */
static size_t next_start(const struct special_set *set, struct str text, size_t from) {
    if (set->first_count == 1) { /* '<' in many vocabularies */
        size_t at = str_find_byte(text, set->last_first, from);
        return at == SIZE_MAX ? text.bytes : at;
    }
    while (from < text.bytes && !set->first[(unsigned char)text.at[from]]) from++;
    return from;
}

bool special_find(const struct special_set *set, struct special_search *search,
                  struct special_match *ret_match) {
    struct str text = search->text;
    if (set->count == 0) return false;
    for (size_t start = search->from; start < text.bytes; start++) {
        start = next_start(set, text, start);
        if (start == text.bytes) break;
        size_t end = start;
        int32_t id = longest_at(set, search, start, &end);
        if (id < 0) continue;
        *ret_match = (struct special_match){start, end, id};
        return true;
    }
    return false;
}
