/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* line_salts: a secret salt for each line of a file, of which single ones can be taken out.
 *
 * The salts are the leaves of a binary tree of LINE_SALTS_LEVELS levels. The root is random; the
 * two children of a node are SHA-256(node, 0) and SHA-256(node, 1). What is kept is a list of
 * nodes, at first the root. Taking a salt out puts, for the node above it, the other children of
 * each node on the way: all other salts can still be computed, and this one by nobody.
 *
 * As JSON it is a list of texts "LEVEL INDEX NODE": decimal numbers, the index of the node in its
 * level, and 64 hexadecimal digits.
 *
 * It is valid if (1) each text is spelled as it is written, (2) the level is at most
 * LINE_SALTS_LEVELS and the index lies in it, and (3) the nodes are in the order of their lines, no
 * one above another.
 *
 * Thread: one at a time.
 * Memory: the nodes; line_salts_release wipes and frees them. */

#include "base/hash.h"
#include "json/json.h"

#define LINE_SALTS_LEVELS 32
#define LINE_SALTS_NODES_MAX ((size_t)1 << 20)

struct line_salt_node {
    uint32_t level;
    uint64_t index; /* in its level */
    unsigned char seed[SHA256_BYTES];
};

struct line_salts {
    struct line_salt_node *nodes; /* (count) */
    size_t count, capacity;
    /* The way to the salt that was asked for last, so that the next line's costs two sums. */
    size_t way_node; /* SIZE_MAX: none */
    uint64_t way_line;
    unsigned char way[LINE_SALTS_LEVELS + 1][SHA256_BYTES];
};

/* Salts of a new file. */
void line_salts_make(struct line_salts *ret_salts);
void line_salts_release(struct line_salts *salts);
/* The salt of a line, counted from 0. False if it was taken out, or lies behind the last line that
 * a file can have. */
bool line_salts_get(struct line_salts *salts, uint64_t line, unsigned char ret_salt[SHA256_BYTES]);
/* Takes the salts of lines out, which are in ascending order; one that is not there is no error. */
void line_salts_remove(struct line_salts *salts, const uint64_t *lines, size_t count);

/* The JSON; the caller owns it. */
json_t *line_salts_json(const struct line_salts *salts);
/* ERR_CORRUPT for anything that is not valid. After OK the caller releases it. */
enum err line_salts_read(struct line_salts *ret_salts, const json_t *list,
                         struct error *error) MUST_CHECK;
