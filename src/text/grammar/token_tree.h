/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* token_tree: tokens of a vocabulary by their bytes, as a tree in flat arrays.
 *
 * Nodes stand in the order of a walk from each node to its first child. So a walk over all tokens
 * is one loop, and a beginning that no text has skips all tokens behind it. The tokens below a node
 * stand in one run, so that they can be allowed without a walk.
 *
 * Thread: any, once open.
 * Memory: owns its arrays; about 12 bytes per node and 5 per token. */

#include "base/str.h"

#define TOKEN_BYTES_MAX 255

struct token_tree {
    uint32_t node_count;
    uint32_t token_count; /* tokens in the tree */
    uint32_t depth_max;   /* bytes of the longest token */
    uint8_t *bytes;       /* (node_count) the last byte of the node's beginning */
    uint8_t *depths;      /* (node_count) its number of bytes, from 1 on */
    uint8_t *plain;  /* (node_count) the most characters from this byte on to the end of a token
                             if all tokens of the node are plain from here on (reach.h), else 0 */
    uint8_t *before; /* (node_count) characters that begin before this byte */
    uint32_t *ends;  /* (node_count) the first node that is not below it */
    uint32_t *first; /* (node_count + 1) place in `tokens` of the first token of it or below it */
    int32_t *tokens; /* (token_count) in the order of the nodes; first[i] to first[i + 1]: those
                             that have exactly the bytes of node i */
    uint8_t *characters; /* (token_count) for each of `tokens`: characters that begin in it */
};

/* A tree of the tokens that have bytes_min to bytes_max bytes, at least 1 and at most
 * TOKEN_BYTES_MAX. */
void token_tree_open(struct token_tree *tree, const struct str *tokens, uint32_t token_count,
                     uint32_t bytes_min, uint32_t bytes_max);
void token_tree_close(struct token_tree *tree);
