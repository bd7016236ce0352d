/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* special: finds the tokens that are matched as whole texts before all others: control tokens,
 * user-defined ones, and the added tokens of a tokenizer.json.
 *
 * They are in a trie; at each place the longest token wins. The time is linear in the text, times
 * at most the length of the longest token, which is bounded.
 *
 * Thread: any; immutable once filled.
 * Memory: owns its nodes. */

#include "base/err.h"
#include "base/str.h"
#include "base/text_ranges.h"

/* Most bytes of a token. The longest in use are runs of 31 spaces or newlines. */
#define SPECIAL_BYTES_MAX 1024
/* Most bytes of all tokens together, shared beginnings counted once. A node takes 20 bytes. */
#define SPECIAL_NODES_MAX (1u << 22)

struct special_node;

struct special_set {
    struct special_node *nodes;
    size_t node_count;
    size_t node_capacity;
    size_t count;
    uint32_t first[256]; /* the node of each first byte; 0: no token begins with it */
    size_t first_count;  /* number of first bytes */
    char last_first;     /* the first byte that was added last */
};

void special_init(struct special_set *set);
void special_release(struct special_set *set);
/* When a token is matched. special_search.plain names the plain bytes of a text. */
enum special_rule {
    SPECIAL_ON_REQUEST,   /* when special tokens are parsed, and none of its bytes is plain */
    SPECIAL_UNLESS_PLAIN, /* when none of its bytes is plain */
    SPECIAL_ALWAYS,
};

/* ERR_LIMIT when `text` exceeds SPECIAL_BYTES_MAX, or all texts together SPECIAL_NODES_MAX. The
 * first of two equal texts stays. */
enum err special_add(struct special_set *set, struct str text, int32_t id, enum special_rule rule,
                     struct error *error) MUST_CHECK;

/* A walk over the matches of one text. */
struct special_search {
    struct str text;
    bool parse_special;
    struct text_ranges plain; /* plain bytes of the text; borrowed */
    size_t plain_at;          /* the first span that does not end before `from` */
    size_t from;              /* where the search goes on; it only grows */
};

struct special_match {
    size_t start;
    size_t end;
    int32_t id;
};

/* The leftmost match at or after search->from, and of several there the longest. */
bool special_find(const struct special_set *set, struct special_search *search,
                  struct special_match *ret_match);
