/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* token_layout: where text that requests share stands inside them.
 *
 * A prefix cache computes shared text once if it stands in front of all private text, and once per
 * request if it stands behind some. The advice is judged from a sample of the requests, line of
 * text by line of text.
 *
 * Thread: one at a time.
 * Memory: 16 bytes per line of text, at most 256 lines per request. */

#include "base/str.h"
#include "json/json.h"

/* Zero is empty. */
struct token_layout {
    struct token_layout_piece *pieces;
    size_t count, capacity;
    uint32_t requests;
};

/* Adds a request: its messages or its prompt; the other one is NULL. */
void token_layout_add(struct token_layout *layout, const json_t *messages, const json_t *prompt);

struct token_layout_advice {
    double late_bytes_mean; /* bytes per request of shared text behind private text */
    double late_share;      /* 0..1: requests that have 200 such bytes or more */
};

/* Judges the sample, which it does not change. */
struct token_layout_advice token_layout_look(const struct token_layout *layout);
void token_layout_release(struct token_layout *layout);
