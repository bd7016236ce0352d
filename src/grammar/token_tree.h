/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* token_tree: the tokens of a vocabulary by their bytes, as a tree in flat arrays.
 *
 * Nodes stand in the order of a walk from each node to its first child. So a walk over all tokens
 * is one loop, and a beginning that no text has skips all tokens behind it.
 *
 * Thread: any, once open.
 * Memory: owns its arrays; about 10 bytes per node and 4 per token. */

#include "base/str.h"

#define TOKEN_BYTES_MAX 255

struct token_tree {
    uint32_t node_count;
    uint32_t token_count;
    uint32_t depth_max; /* bytes of the longest token */
    uint8_t *bytes;     /* (node_count) the last byte of the node's beginning */
    uint8_t *depths;    /* (node_count) its number of bytes, from 1 on */
    uint32_t *ends;     /* (node_count) the first node that is not below it */
    int32_t *tokens;    /* (node_count) a token with exactly these bytes; -1: none */
    int32_t *next;      /* (token_count) another token with the same bytes; -1: none */
};

/* A tree of the tokens that have bytes; those without, and those with more than TOKEN_BYTES_MAX, are
 * left out. */
void token_tree_open(struct token_tree *tree, const struct str *tokens, uint32_t token_count);
void token_tree_close(struct token_tree *tree);
