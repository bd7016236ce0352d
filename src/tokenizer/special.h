/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* special: finds the tokens that are matched as whole texts before anything else: control tokens,
 * user-defined ones, the added tokens of a tokenizer.json. A trie; at each place the longest wins.
 *
 * Thread: immutable once filled.  Memory: owns its nodes.  Time: linear in the text, times at most
 * the length of the longest token, which is bounded. */

#include "base/err.h"
#include "base/span.h"
#include "base/str.h"

/* The longest in use are runs of 31 spaces or newlines. */
#define SPECIAL_BYTES_MAX 1024
/* Of all of them, but for the beginnings they share: a byte takes twenty of memory. */
#define SPECIAL_NODES_MAX (1u << 22)

struct special_node;

struct special_set {
    struct special_node *nodes;
    size_t node_count;
    size_t node_capacity;
    size_t count;
    uint32_t first[256]; /* the node of each first byte; 0 when nothing begins with it */
    size_t first_count;  /* how many bytes something begins with */
    char last_first;     /* the newest of them */
};

void special_init(struct special_set *set);
void special_release(struct special_set *set);
/* When a token is matched. Plain bytes are those that a special_search says are. */
enum special_rule {
    SPECIAL_ON_REQUEST,   /* where special tokens are parsed, and no byte is plain */
    SPECIAL_UNLESS_PLAIN, /* where no byte is plain */
    SPECIAL_ALWAYS,
};

/* ERR_LIMIT when `text` is longer than SPECIAL_BYTES_MAX or all texts together than
 * SPECIAL_NODES_MAX. The first of two equal texts stands. */
enum err special_add(struct special_set *set, struct str text, int32_t id, enum special_rule rule,
                     struct error *error) MUST_CHECK;

/* A walk over the matches of one text. */
struct special_search {
    struct str text;
    bool parse_special;
    struct spans plain; /* of text: borrowed */
    size_t plain_at;    /* those before it are over */
    size_t from;        /* where to go on; it never goes back */
};

struct special_match {
    size_t start;
    size_t end;
    int32_t id;
};

/* The leftmost match that begins at or after search->from, the longest there. */
bool special_find(const struct special_set *set, struct special_search *search,
                  struct special_match *ret_match);
