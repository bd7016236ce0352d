/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/grammar_mask.h"

#include "base/mem.h"
#include "grammar/grammar_internal.h"
#include "grammar/reach.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define MASKS_MAX 65536u
#define SHORT_BYTES_MAX 16 /* limit for a short token; about 1 of 100 tokens is longer */
#define KNOWN_STEPS 8      /* steps of a walk that are known already and take one fuel together */
#define ASKED_BITS 12      /* states that are remembered with their masks: 4096 */

/* A mask and the state that it is of. */
struct kept {
    uint64_t grammar;
    uint32_t epoch, state;
    bool is_part;     /* has short tokens only, and none that ends an answer */
    bool has_any;     /* a token is allowed */
    uint64_t used_at; /* number of the last question */
    uint64_t made_at; /* number of the mask; no two have one */
    uint32_t next;    /* in its bucket */
    uint32_t *words;
};

/* A state that was asked for, and its mask. */
struct asked {
    uint64_t grammar;
    uint32_t epoch, state;
    uint32_t index;   /* number of the mask */
    uint64_t made_at; /* its number; 0: nothing is remembered */
};

struct grammar_masks {
    struct token_tree shorts, longs;
    uint32_t depth_max; /* bytes of the longest token */
    int32_t *end_tokens;
    uint32_t end_token_count;
    size_t words, grammar_bytes_max;
    struct kept *kept; /* (capacity), of which `count` are in use */
    uint32_t count, capacity;
    uint32_t *buckets; /* (bucket_mask + 1) first in each; NONE: empty */
    uint32_t bucket_mask;
    struct asked *asked;                  /* (1 << ASKED_BITS) by hash */
    uint32_t states[TOKEN_BYTES_MAX + 1]; /* on the way through a tree */
    struct grammar_mask_stats stats;
};

struct grammar_masks *grammar_masks_open(const struct grammar_masks_options *options) {
    struct grammar_masks *masks = mem_new(1, sizeof *masks);
    uint32_t count = options->token_count < options->vocab ? options->token_count : options->vocab;
    token_tree_open(&masks->shorts, options->tokens, count, 1, SHORT_BYTES_MAX);
    token_tree_open(&masks->longs, options->tokens, count, SHORT_BYTES_MAX + 1, TOKEN_BYTES_MAX);
    masks->depth_max =
        masks->longs.token_count > 0 ? masks->longs.depth_max : masks->shorts.depth_max;
    masks->words = ((size_t)options->vocab + 31) / 32;
    size_t capacity = GRAMMAR_MASK_BYTES / (masks->words * sizeof(uint32_t) + 1);
    size_t capacity_min = 2 * ((size_t)options->masks_min + 1); /* a question makes at most two */
    if (capacity > MASKS_MAX) capacity = MASKS_MAX;
    if (capacity < capacity_min) capacity = capacity_min;
    masks->capacity = (uint32_t)capacity;
    masks->grammar_bytes_max = options->grammar_bytes_max;
    masks->kept = mem_new(capacity, sizeof *masks->kept);
    masks->bucket_mask = 1;
    while (masks->bucket_mask < capacity) masks->bucket_mask = masks->bucket_mask * 2 + 1;
    masks->buckets = mem_new((size_t)masks->bucket_mask + 1, sizeof *masks->buckets);
    memset(masks->buckets, 0xff, ((size_t)masks->bucket_mask + 1) * sizeof *masks->buckets);
    masks->asked = mem_new((size_t)1 << ASKED_BITS, sizeof *masks->asked);
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
    free(masks->asked);
    free(masks->end_tokens);
    token_tree_close(&masks->shorts);
    token_tree_close(&masks->longs);
    free(masks);
}

/* --- masks that are kept --- */

static uint64_t hash_of(uint64_t grammar, uint32_t epoch, uint32_t state) {
    uint64_t hash = (grammar * 0x9E3779B97F4A7C15u) ^ ((uint64_t)epoch << 32 | state);
    return (hash * 0xD6E8FEB86659FD93u) >> 32;
}

static uint32_t *bucket_of(struct grammar_masks *masks, uint64_t grammar, uint32_t epoch,
                           uint32_t state) {
    return &masks->buckets[hash_of(grammar, epoch, state) & masks->bucket_mask];
}

/* NULL: there is none. */
static struct kept *find(struct grammar_masks *masks, const struct grammar *grammar, uint32_t state,
                         bool is_part) {
    uint32_t at = *bucket_of(masks, grammar->id, grammar->epoch, state);
    for (; at != NONE; at = masks->kept[at].next) {
        struct kept *kept = &masks->kept[at];
        if (kept->grammar == grammar->id && kept->epoch == grammar->epoch && kept->state == state &&
            kept->is_part == is_part) {
            kept->used_at = masks->stats.asked;
            return kept;
        }
    }
    return NULL;
}

static void link_kept(struct grammar_masks *masks, uint32_t index) {
    struct kept *kept = &masks->kept[index];
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

/* Adds a mask without a token. */
static struct kept *add(struct grammar_masks *masks, const struct grammar *grammar, uint32_t state,
                        bool is_part) {
    uint32_t index = make_room(masks);
    struct kept *kept = &masks->kept[index];
    *kept = (struct kept){.grammar = grammar->id,
                          .epoch = grammar->epoch,
                          .state = state,
                          .is_part = is_part,
                          .used_at = masks->stats.asked,
                          .made_at = ++masks->stats.made,
                          .words = kept->words};
    link_kept(masks, index);
    memset(kept->words, 0, masks->words * sizeof *kept->words);
    return kept;
}

/* Takes back a mask that could not be finished: its place is the first that a new one gets. */
static void spoil(struct grammar_masks *masks, struct kept *kept) {
    uint32_t index = (uint32_t)(kept - masks->kept);
    unlink_kept(masks, index);
    *kept = (struct kept){.words = kept->words}; /* no grammar has the number 0 */
    link_kept(masks, index);
}

/* --- states that were asked for --- */

static struct asked *asked_of(struct grammar_masks *masks, const struct grammar *grammar,
                              uint32_t state) {
    uint64_t hash = hash_of(grammar->id, grammar->epoch, state);
    return &masks->asked[hash & ((1u << ASKED_BITS) - 1)];
}

/* The mask that a state had the last time; NULL: it is not known. */
static struct kept *recall(struct grammar_masks *masks, const struct grammar *grammar,
                           uint32_t state) {
    const struct asked *asked = asked_of(masks, grammar, state);
    if (asked->made_at == 0 || asked->grammar != grammar->id || asked->epoch != grammar->epoch ||
        asked->state != state)
        return NULL;
    struct kept *kept = &masks->kept[asked->index];
    if (kept->made_at != asked->made_at) return NULL;
    kept->used_at = masks->stats.asked;
    return kept;
}

static void remember(struct grammar_masks *masks, const struct grammar *grammar, uint32_t state,
                     const struct kept *kept) {
    *asked_of(masks, grammar, state) = (struct asked){.grammar = grammar->id,
                                                      .epoch = grammar->epoch,
                                                      .state = state,
                                                      .index = (uint32_t)(kept - masks->kept),
                                                      .made_at = kept->made_at};
}

/* --- making one --- */

static void allow(struct kept *kept, const int32_t *tokens, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) kept->words[tokens[i] / 32] |= 1u << (tokens[i] % 32);
    kept->has_any = kept->has_any || count > 0;
}

/* Allows those tokens of node `i`, which is plain, that have at most `most` characters more than
 * the beginning has. */
static void allow_short(struct kept *kept, const struct token_tree *tree, uint32_t i,
                        uint32_t most) {
    uint32_t characters = tree->before[i] + most;
    for (uint32_t k = tree->first[i]; k < tree->first[tree->ends[i]]; k++)
        if (tree->characters[k] <= characters) allow(kept, &tree->tokens[k], 1);
}

/* Allows the tokens of a tree. Meaningless when the automaton overflowed. */
static void walk(struct grammar_masks *masks, const struct token_tree *tree, struct exprs *exprs,
                 uint32_t state, struct kept *kept) {
    uint32_t *states = masks->states, to, visited = 0;
    states[0] = state;
    for (uint32_t i = 0; i < tree->node_count && !exprs->overflowed; i = to) {
        uint32_t depth = tree->depths[i], from = states[depth - 1];
        struct reach reach = {0, false};
        to = tree->ends[i];
        if (visited++ % KNOWN_STEPS == 0 && !exprs_use_fuel(exprs, 1)) break;
        if (tree->plain[i] > 0) reach = expr_reach(exprs, from);
        if (reach.is_closed && tree->plain[i] > reach.characters) {
            if (reach.characters > 0) allow_short(kept, tree, i, reach.characters);
            continue;
        }
        if (tree->plain[i] == 0 || tree->plain[i] > reach.characters) {
            states[depth] = expr_step(exprs, from, tree->bytes[i]);
            if (states[depth] == EXPR_NEVER) continue;
            to = i + 1;
        }
        allow(kept, tree->tokens + tree->first[i], tree->first[to] - tree->first[i]);
    }
}

/* The mask of `state`, or of short tokens in it. NULL if the automaton overflowed. */
static struct kept *make(struct grammar_masks *masks, struct grammar *grammar, uint32_t state) {
    struct exprs *exprs = &grammar->exprs;
    uint32_t state_for_shorts = expr_clamped(exprs, state, SHORT_BYTES_MAX);
    struct kept *part = find(masks, grammar, state_for_shorts, true);
    if (!part) {
        part = add(masks, grammar, state_for_shorts, true);
        walk(masks, &masks->shorts, exprs, state_for_shorts, part);
        if (exprs->overflowed) spoil(masks, part);
    }
    if (exprs->overflowed) return NULL;
    struct kept *kept = add(masks, grammar, state, false);
    memcpy(kept->words, part->words, masks->words * sizeof *kept->words);
    kept->has_any = part->has_any;
    walk(masks, &masks->longs, exprs, state, kept);
    if (expr_is_nullable(exprs, state)) allow(kept, masks->end_tokens, masks->end_token_count);
    if (exprs->overflowed) spoil(masks, kept);
    return exprs->overflowed ? NULL : kept;
}

/* The mask of a state that was not asked for lately. NULL if the automaton overflowed. */
static struct kept *find_or_make(struct grammar_masks *masks, struct grammar *grammar,
                                 uint32_t state) {
    uint32_t key = expr_clamped(&grammar->exprs, state, masks->depth_max);
    struct kept *kept = grammar->exprs.overflowed ? NULL : find(masks, grammar, key, false);
    if (!kept && !grammar->exprs.overflowed && (kept = make(masks, grammar, key)))
        grammar_count(grammar, masks->grammar_bytes_max);
    return kept;
}

const uint32_t *grammar_mask(struct grammar_masks *masks, struct grammar_state *state) {
    struct grammar *grammar = state->grammar;
    masks->stats.asked++;
    grammar_refuel(state, 1);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (!grammar_state_renew(state)) return NULL;
        struct kept *kept = recall(masks, grammar, state->state);
        if (!kept) {
            uint32_t epoch = grammar->epoch;
            kept = find_or_make(masks, grammar, state->state);
            if (kept && grammar->epoch == epoch) remember(masks, grammar, state->state, kept);
        }
        uint64_t work = GRAMMAR_STEP_FUEL - (uint64_t)grammar->exprs.fuel;
        if (grammar->exprs.fuel < GRAMMAR_STEP_FUEL && work > masks->stats.work_max)
            masks->stats.work_max = work;
        if (kept) return kept->has_any ? kept->words : NULL;
        if (!grammar_state_retry(state)) return NULL;
    }
    return NULL;
}

/* --- tokens that cross a border --- */

/* The node of a beginning; UINT32_MAX: no token has it. */
static uint32_t node_of(const struct token_tree *tree, struct str beginning) {
    uint32_t at = 0, end = tree->node_count, node = NONE;
    for (size_t i = 0; i < beginning.bytes; i++) {
        while (at < end && tree->bytes[at] != (unsigned char)beginning.at[i]) at = tree->ends[at];
        if (at >= end) return NONE;
        node = at;
        end = tree->ends[at++];
    }
    return node;
}

/* Whether a token of the tree begins with `beginning` and goes on with bytes that `state` takes. */
static bool goes_on(struct grammar_masks *masks, const struct token_tree *tree, struct exprs *exprs,
                    struct str beginning, uint32_t state) {
    uint32_t *states = masks->states, node = node_of(tree, beginning);
    if (node == NONE) return false;
    states[tree->depths[node]] = state;
    for (uint32_t i = node + 1; i < tree->ends[node];) {
        uint32_t depth = tree->depths[i];
        uint32_t next = expr_step(exprs, states[depth - 1], tree->bytes[i]);
        if (next != EXPR_NEVER && tree->first[i + 1] > tree->first[i]) return true;
        states[depth] = next;
        i = next == EXPR_NEVER ? tree->ends[i] : i + 1;
    }
    return false;
}

bool grammar_token_crosses(struct grammar_masks *masks, struct grammar_state *state,
                           struct str forced, size_t tail) {
    grammar_refuel(state, 1);
    if (!grammar_state_renew(state)) return true;
    struct exprs *exprs = &state->grammar->exprs;
    uint32_t at = state->state;
    bool crosses = false;
    for (size_t i = 0; i < forced.bytes && at != EXPR_NEVER; i++) {
        at = expr_step(exprs, at, (unsigned char)forced.at[i]);
    }
    for (size_t i = forced.bytes - tail; i < forced.bytes && !crosses && at != EXPR_NEVER; i++) {
        struct str beginning = str_skip(forced, i);
        crosses = goes_on(masks, &masks->shorts, exprs, beginning, at) ||
                  goes_on(masks, &masks->longs, exprs, beginning, at);
    }
    if (!exprs->overflowed) return crosses;
    (void)grammar_state_retry(state);
    return true;
}

struct grammar_mask_stats grammar_mask_stats(const struct grammar_masks *masks) {
    return masks->stats;
}
