/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* stream: token bytes in, text out; a character that is split over tokens comes out when it is
 * whole. Knows no vocabulary.
 *
 * Thread: one struct, one thread.  Memory: none of its own; at most 3 bytes are held.
 * Invariant: all that was taken out is valid UTF-8, and joins to utf8_add_repaired of all that was
 * put in. */

#include "base/buf.h"

/* Zero is a valid start. */
struct token_stream {
    char held[3];
    uint8_t held_bytes;
};

/* Appends to `text` what is complete now; bytes that can never complete come out as U+FFFD. */
void token_stream_feed(struct token_stream *stream, struct str bytes, struct buf *text);
/* Nothing more will come: what is held comes out as U+FFFD. */
void token_stream_flush(struct token_stream *stream, struct buf *text);
