/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* harmony: the messages of an answer in the format of gpt-oss, which its authors call Harmony.
 *
 *     <|channel|>analysis<|message|>…<|end|>
 *     <|start|>assistant<|channel|>commentary to=functions.f<|message|>{…}<|call|>
 *     <|start|>assistant<|channel|>final<|message|>…<|return|>
 *
 * A message has a header and a body. The header names a channel and perhaps a recipient, before or
 * behind the channel. They tell what the body is:
 *
 *     THOUGHT  channel analysis, unless a function of the request is the recipient
 *     CALL     another channel with a recipient, or a recipient that begins with "functions."
 *     TEXT     everything else: channel final, channel commentary without a recipient, no header
 *
 * The prompt ends with the start of a message, so the answer begins with the rest of its header. A
 * body ends at the next mark, also if the model has left <|end|> out. A header that has no body is
 * dropped. It knows no JSON, no tools and no tokens.
 *
 * Thread: one per struct.
 * Memory: plain struct; pieces point into the text.
 * Invariant: the bodies do not depend on how the text was cut into feeds. The time over all feeds
 *     is linear in the text. */

#include "base/str.h"

#define HARMONY_THOUGHT_BEGIN "<|channel|>analysis<|message|>"
#define HARMONY_END "<|end|>"
#define HARMONY_NEXT "<|start|>assistant" /* begins each message behind the first one */
#define HARMONY_FINAL "<|channel|>final"
#define HARMONY_BODY "<|message|>"
#define HARMONY_JSON " <|constrain|>json"
#define HARMONY_FUNCTION "<|channel|>commentary to=functions."

enum harmony_kind { HARMONY_TEXT, HARMONY_THOUGHT, HARMONY_CALL };

/* Zero is the start of an answer whose prompt ends with HARMONY_NEXT. */
struct harmony {
    enum { HARMONY_BETWEEN, HARMONY_IN_HEADER, HARMONY_IN_BODY } state;
    enum harmony_kind kind; /* kind of the body */
    size_t body;            /* where the body begins */

    /* private */
    size_t at;     /* bytes that were read */
    size_t header; /* where the header begins */
    size_t name, name_bytes;
    bool has_mark;  /* the header begins with a mark */
    bool has_begun; /* a piece of the body was returned */
};

/* Begins inside a body. */
void harmony_init(struct harmony *harmony, enum harmony_kind kind);

/* New bytes of a body. */
struct harmony_piece {
    enum harmony_kind kind;
    bool is_first, is_last; /* place in the body */
    bool is_cut;            /* it is last because the text ends */
    struct str bytes;
    struct str body; /* all of the body so far */
    struct str name; /* from a call: the recipient without "functions." */
};

/* The next piece of `text`, which is that of the last call and more. False: there is none yet.
 * `is_end`: no more text comes. */
bool harmony_next(struct harmony *harmony, struct str text, bool is_end,
                  struct harmony_piece *ret_piece);
