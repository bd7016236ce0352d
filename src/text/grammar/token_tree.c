/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/token_tree.h"

#include "base/mem.h"
#include "grammar/reach.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 8
#define PILES 65536 /* beginnings of two bytes */

struct entry {
    uint64_t key; /* its first bytes, the first of them highest; 0 behind its end */
    struct str bytes;
    int32_t token;
};

static uint64_t key_of(struct str bytes) {
    uint64_t key = 0;
    for (size_t i = 0; i < KEY_BYTES; i++)
        key = key << 8 | (i < bytes.bytes ? (unsigned char)bytes.at[i] : 0u);
    return key;
}

static int compare(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    int order = str_compare(x->bytes, y->bytes);
    return order ? order : x->token < y->token ? -1 : x->token > y->token;
}

static size_t pile_of(const struct entry *entry) {
    return (size_t)(entry->key >> 48);
}

/* Puts the entries on piles by their first two bytes and sorts each pile: the piles are short. */
static struct entry *sort(struct entry *entries, size_t count) {
    struct entry *sorted = mem_new(count + 1, sizeof *sorted);
    uint32_t *ends = mem_new(PILES + 1, sizeof *ends); /* sizes of the piles before each */
    for (size_t i = 0; i < count; i++) ends[pile_of(&entries[i]) + 1]++;
    for (size_t i = 0; i < PILES; i++) ends[i + 1] += ends[i];
    for (size_t i = 0; i < count; i++) sorted[ends[pile_of(&entries[i])]++] = entries[i];
    for (size_t i = 0, first = 0; i < PILES; first = ends[i++])
        if (ends[i] - first > 1) qsort(sorted + first, ends[i] - first, sizeof *sorted, compare);
    free(ends);
    free(entries);
    return sorted;
}

/* The nodes while they are made: the open ones, from the root on, are on the way to the last. */
struct making {
    struct token_tree *tree;
    size_t bytes_capacity, depths_capacity, ends_capacity, first_capacity;
    uint32_t open[TOKEN_BYTES_MAX];
    size_t open_count;
};

static void close_to(struct making *making, size_t depth) {
    while (making->open_count > depth)
        making->tree->ends[making->open[--making->open_count]] = making->tree->node_count;
}

static void add_node(struct making *making, uint8_t byte) {
    struct token_tree *tree = making->tree;
    size_t count = tree->node_count;
    tree->bytes = vec_grow(tree->bytes, count, &making->bytes_capacity, sizeof *tree->bytes);
    tree->depths = vec_grow(tree->depths, count, &making->depths_capacity, sizeof *tree->depths);
    tree->ends = vec_grow(tree->ends, count, &making->ends_capacity, sizeof *tree->ends);
    tree->first = vec_grow(tree->first, count, &making->first_capacity, sizeof *tree->first);
    making->open[making->open_count++] = (uint32_t)count;
    tree->bytes[count] = byte;
    tree->depths[count] = (uint8_t)making->open_count;
    tree->first[count] = tree->token_count;
    tree->node_count++;
}

static size_t shared_bytes(struct str a, struct str b) {
    size_t count = 0;
    while (count < a.bytes && count < b.bytes && a.at[count] == b.at[count]) count++;
    return count;
}

static void add_entry(struct making *making, const struct entry *entry, struct str before) {
    struct token_tree *tree = making->tree;
    close_to(making, shared_bytes(before, entry->bytes));
    while (making->open_count < entry->bytes.bytes)
        add_node(making, (uint8_t)entry->bytes.at[making->open_count]);
    tree->tokens[tree->token_count++] = entry->token;
    if (entry->bytes.bytes > tree->depth_max) tree->depth_max = (uint32_t)entry->bytes.bytes;
}

/* --- which nodes are plain --- */

/* The place behind each node, decoded from the root on. A byte that does not continue a character
 * begins a new one. */
static uint8_t *find_places(const struct token_tree *tree, bool *is_broken) {
    uint8_t way[TOKEN_BYTES_MAX + 1] = {PLAIN_WHOLE}; /* by depth */
    uint8_t *places = mem_new((size_t)tree->node_count + 1, sizeof *places);
    for (uint32_t i = 0; i < tree->node_count; i++) {
        enum plain_place before = (enum plain_place)way[tree->depths[i] - 1];
        if (before == PLAIN_NOT) before = PLAIN_WHOLE;
        enum plain_place after = plain_step(before, tree->bytes[i]);
        is_broken[i] = after == PLAIN_NOT;
        if (is_broken[i] && before != PLAIN_WHOLE) after = plain_step(PLAIN_WHOLE, tree->bytes[i]);
        places[i] = way[tree->depths[i]] = (uint8_t)after;
    }
    return places;
}

/* Counts the bytes on each way that begin a plain character. */
static void count_characters(struct token_tree *tree) {
    uint8_t way[TOKEN_BYTES_MAX + 1] = {0}; /* by depth */
    for (uint32_t i = 0; i < tree->node_count; i++) {
        uint32_t depth = tree->depths[i];
        bool begins = plain_step(PLAIN_WHOLE, tree->bytes[i]) != PLAIN_NOT;
        tree->before[i] = way[depth - 1];
        way[depth] = (uint8_t)(tree->before[i] + begins);
        for (uint32_t k = tree->first[i]; k < tree->first[i + 1]; k++)
            tree->characters[k] = way[depth];
    }
}

/* Fills `plain` from the last node to the first, children before parents: the most characters of a
 * way down, and whether all ways are plain. */
static void find_plain(struct token_tree *tree) {
    bool *is_broken = mem_new((size_t)tree->node_count + 1, sizeof *is_broken);
    uint8_t *places = find_places(tree, is_broken);
    uint8_t *most = mem_new((size_t)tree->node_count + 1, sizeof *most);
    bool *is_bad = mem_new((size_t)tree->node_count + 1, sizeof *is_bad);
    for (uint32_t i = tree->node_count; i-- > 0;) {
        for (uint32_t child = i + 1; child < tree->ends[i]; child = tree->ends[child]) {
            is_bad[i] = is_bad[i] || is_bad[child];
            if (most[child] > most[i]) most[i] = most[child];
        }
        bool begins = plain_step(PLAIN_WHOLE, tree->bytes[i]) != PLAIN_NOT;
        most[i] = (uint8_t)(most[i] + begins);
        if (begins && !is_bad[i]) tree->plain[i] = most[i];
        is_bad[i] = is_bad[i] || is_broken[i] || places[i] == PLAIN_NOT;
    }
    free(is_bad);
    free(most);
    free(places);
    free(is_broken);
}

void token_tree_open(struct token_tree *tree, const struct str *tokens, uint32_t token_count,
                     uint32_t bytes_min, uint32_t bytes_max) {
    struct making making = {.tree = tree};
    struct entry *entries = mem_new((size_t)token_count + 1, sizeof *entries);
    size_t count = 0;
    assert(bytes_min > 0 && bytes_max <= TOKEN_BYTES_MAX);
    *tree = (struct token_tree){0};
    for (uint32_t i = 0; i < token_count; i++)
        if (tokens[i].bytes >= bytes_min && tokens[i].bytes <= bytes_max)
            entries[count++] = (struct entry){key_of(tokens[i]), tokens[i], (int32_t)i};
    entries = sort(entries, count);
    tree->tokens = mem_new(count + 1, sizeof *tree->tokens);
    for (size_t i = 0; i < count; i++)
        add_entry(&making, &entries[i], i ? entries[i - 1].bytes : (struct str){NULL, 0});
    close_to(&making, 0);
    free(entries);
    tree->first =
        vec_grow(tree->first, tree->node_count, &making.first_capacity, sizeof *tree->first);
    tree->first[tree->node_count] = tree->token_count;
    tree->plain = mem_new((size_t)tree->node_count + 1, sizeof *tree->plain);
    tree->before = mem_new((size_t)tree->node_count + 1, sizeof *tree->before);
    tree->characters = mem_new((size_t)tree->token_count + 1, sizeof *tree->characters);
    find_plain(tree);
    count_characters(tree);
}

void token_tree_close(struct token_tree *tree) {
    free(tree->bytes);
    free(tree->depths);
    free(tree->plain);
    free(tree->before);
    free(tree->characters);
    free(tree->ends);
    free(tree->first);
    free(tree->tokens);
    *tree = (struct token_tree){0};
}
