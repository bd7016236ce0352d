/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/grammar_mask.h"

#include "base/mem.h"
#include "grammar/grammar_internal.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define MASKS_MAX 65536u

/* A mask and the state that it is of. */
struct kept {
    uint64_t grammar;
    uint32_t epoch, state;
    uint64_t used_at; /* number of the last question */
    uint32_t next;    /* in its bucket */
    bool has_any;     /* a token is allowed */
    uint32_t *words;
};

struct grammar_masks {
    struct token_tree tree;
    int32_t *end_tokens;
    uint32_t end_token_count;
    size_t words, grammar_bytes_max;
    struct kept *kept; /* (capacity), of which `count` are in use */
    uint32_t count, capacity;
    uint32_t *buckets; /* (bucket_mask + 1) first in each; NONE: empty */
    uint32_t bucket_mask;
    uint32_t *states; /* (depth_max + 1) on the way through the tree */
    struct grammar_mask_stats stats;
};

struct grammar_masks *grammar_masks_open(const struct grammar_masks_options *options) {
    struct grammar_masks *masks = mem_new(1, sizeof *masks);
    uint32_t count = options->token_count < options->vocab ? options->token_count : options->vocab;
    token_tree_open(&masks->tree, options->tokens, count);
    masks->words = ((size_t)options->vocab + 31) / 32;
    size_t capacity = GRAMMAR_MASK_BYTES / (masks->words * sizeof(uint32_t) + 1);
    if (capacity > MASKS_MAX) capacity = MASKS_MAX;
    if (capacity < options->masks_min + 1u) capacity = options->masks_min + 1u;
    masks->capacity = (uint32_t)capacity;
    masks->grammar_bytes_max = options->grammar_bytes_max;
    masks->kept = mem_new(capacity, sizeof *masks->kept);
    masks->bucket_mask = 1;
    while (masks->bucket_mask < capacity) masks->bucket_mask = masks->bucket_mask * 2 + 1;
    masks->buckets = mem_new((size_t)masks->bucket_mask + 1, sizeof *masks->buckets);
    memset(masks->buckets, 0xff, ((size_t)masks->bucket_mask + 1) * sizeof *masks->buckets);
    masks->states = mem_new((size_t)masks->tree.depth_max + 1, sizeof *masks->states);
    masks->end_tokens = mem_new((size_t)options->end_token_count + 1, sizeof *masks->end_tokens);
    for (uint32_t i = 0; i < options->end_token_count; i++)
        if ((uint32_t)options->end_tokens[i] < options->vocab)
            masks->end_tokens[masks->end_token_count++] = options->end_tokens[i];
    return masks;
}

void grammar_masks_close(struct grammar_masks *masks) {
    if (!masks) return;
    for (uint32_t i = 0; i < masks->count; i++) free(masks->kept[i].words);
    free(masks->kept);
    free(masks->buckets);
    free(masks->states);
    free(masks->end_tokens);
    token_tree_close(&masks->tree);
    free(masks);
}

/* --- masks that are kept --- */

static uint32_t *bucket_of(struct grammar_masks *masks, uint64_t grammar, uint32_t epoch,
                           uint32_t state) {
    uint64_t hash = (grammar * 0x9E3779B97F4A7C15u) ^ ((uint64_t)epoch << 32 | state);
    hash *= 0xD6E8FEB86659FD93u;
    return &masks->buckets[(hash >> 32) & masks->bucket_mask];
}

static struct kept *find(struct grammar_masks *masks, uint64_t grammar, uint32_t epoch,
                         uint32_t state) {
    uint32_t at = *bucket_of(masks, grammar, epoch, state);
    for (; at != NONE; at = masks->kept[at].next) {
        struct kept *kept = &masks->kept[at];
        if (kept->grammar == grammar && kept->epoch == epoch && kept->state == state) return kept;
    }
    return NULL;
}

/* Gives a mask the name by which it is found. */
static void link_kept(struct grammar_masks *masks, uint32_t index, const struct grammar *grammar,
                      uint32_t state) {
    struct kept *kept = &masks->kept[index];
    kept->grammar = grammar->id;
    kept->epoch = grammar->epoch;
    kept->state = state;
    uint32_t *bucket = bucket_of(masks, kept->grammar, kept->epoch, kept->state);
    kept->next = *bucket;
    *bucket = index;
}

static void unlink_kept(struct grammar_masks *masks, uint32_t index) {
    const struct kept *kept = &masks->kept[index];
    uint32_t *at = bucket_of(masks, kept->grammar, kept->epoch, kept->state);
    while (*at != index) at = &masks->kept[*at].next;
    *at = kept->next;
}

/* A place for a new mask: a free one, or the one that was not needed for longest. */
static uint32_t make_room(struct grammar_masks *masks) {
    if (masks->count < masks->capacity) {
        masks->kept[masks->count].words = mem_alloc(masks->words * sizeof(uint32_t));
        return masks->count++;
    }
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < masks->count; i++)
        if (masks->kept[i].used_at < masks->kept[oldest].used_at) oldest = i;
    unlink_kept(masks, oldest);
    return oldest;
}

/* --- making one --- */

/* True if a token is allowed. Meaningless when the automaton overflowed. */
static bool fill(struct grammar_masks *masks, struct exprs *exprs, uint32_t state,
                 uint32_t *words) {
    const struct token_tree *tree = &masks->tree;
    uint32_t *states = masks->states;
    bool has_any = false;
    memset(words, 0, masks->words * sizeof *words);
    exprs->fuel = EXPR_FUEL;
    states[0] = state;
    for (uint32_t i = 0; i < tree->node_count;) {
        uint32_t depth = tree->depths[i];
        uint32_t next = expr_step(exprs, states[depth - 1], tree->bytes[i]);
        if (next == EXPR_NEVER) {
            i = tree->ends[i];
            continue;
        }
        states[depth] = next;
        for (int32_t token = tree->tokens[i]; token >= 0; token = tree->next[token]) {
            words[token / 32] |= 1u << (token % 32);
            has_any = true;
        }
        i++;
    }
    bool is_whole = expr_is_nullable(exprs, state);
    for (uint32_t i = 0; is_whole && i < masks->end_token_count; i++) {
        words[masks->end_tokens[i] / 32] |= 1u << (masks->end_tokens[i] % 32);
        has_any = true;
    }
    return has_any;
}

/* Adds the mask of `state`. NULL if the automaton overflowed. */
static struct kept *make(struct grammar_masks *masks, struct grammar *grammar, uint32_t state) {
    uint32_t index = make_room(masks);
    struct kept *kept = &masks->kept[index];
    masks->stats.made++;
    kept->has_any = fill(masks, &grammar->exprs, state, kept->words);
    bool is_good = !grammar->exprs.overflowed;
    if (!is_good) kept->used_at = 0;
    link_kept(masks, index, grammar, is_good ? state : EXPR_NEVER); /* nobody asks for that */
    return is_good ? kept : NULL;
}

const uint32_t *grammar_mask(struct grammar_masks *masks, struct grammar_state *state) {
    struct grammar *grammar = state->grammar;
    masks->stats.asked++;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (!grammar_state_renew(state)) return NULL;
        grammar->exprs.fuel = EXPR_FUEL;
        uint32_t key = expr_clamped(&grammar->exprs, state->state, masks->tree.depth_max);
        struct kept *kept = NULL;
        if (!grammar->exprs.overflowed) kept = find(masks, grammar->id, grammar->epoch, key);
        if (!kept && !grammar->exprs.overflowed && (kept = make(masks, grammar, key)))
            grammar_count(grammar, masks->grammar_bytes_max);
        if (kept) {
            kept->used_at = masks->stats.asked;
            return kept->has_any ? kept->words : NULL;
        }
        grammar_forget(grammar);
    }
    return NULL;
}

struct grammar_mask_stats grammar_mask_stats(const struct grammar_masks *masks) {
    return masks->stats;
}
