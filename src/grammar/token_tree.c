/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/token_tree.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    struct str bytes;
    int32_t token;
};

static int compare(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int order = str_compare(x->bytes, y->bytes);
    return order ? order : x->token < y->token ? -1 : x->token > y->token;
}

/* The nodes while they are made: the open ones, from the root on, are on the way to the last. */
struct making {
    struct token_tree *tree;
    size_t bytes_capacity, depths_capacity, ends_capacity, tokens_capacity;
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
    tree->tokens = vec_grow(tree->tokens, count, &making->tokens_capacity, sizeof *tree->tokens);
    making->open[making->open_count++] = (uint32_t)count;
    tree->bytes[count] = byte;
    tree->depths[count] = (uint8_t)making->open_count;
    tree->tokens[count] = -1;
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
    int32_t *place = &tree->tokens[making->open[making->open_count - 1]];
    tree->next[entry->token] = *place;
    *place = entry->token;
    if (entry->bytes.bytes > tree->depth_max) tree->depth_max = (uint32_t)entry->bytes.bytes;
}

void token_tree_open(struct token_tree *tree, const struct str *tokens, uint32_t token_count) {
    struct making making = {.tree = tree};
    struct entry *entries = mem_new((size_t)token_count + 1, sizeof *entries);
    size_t count = 0;
    *tree = (struct token_tree){.token_count = token_count};
    tree->next = mem_new((size_t)token_count + 1, sizeof *tree->next);
    for (uint32_t i = 0; i < token_count; i++) {
        tree->next[i] = -1;
        if (tokens[i].bytes > 0 && tokens[i].bytes <= TOKEN_BYTES_MAX)
            entries[count++] = (struct entry){tokens[i], (int32_t)i};
    }
    if (count > 1) qsort(entries, count, sizeof *entries, compare);
    for (size_t i = 0; i < count; i++)
        add_entry(&making, &entries[i], i ? entries[i - 1].bytes : (struct str){NULL, 0});
    close_to(&making, 0);
    free(entries);
}

void token_tree_close(struct token_tree *tree) {
    free(tree->bytes);
    free(tree->depths);
    free(tree->ends);
    free(tree->tokens);
    free(tree->next);
    *tree = (struct token_tree){0};
}
