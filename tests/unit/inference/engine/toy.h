/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* toy: a model small enough to hold in the head, for tests of the engine: a vocabulary of bytes and
 * a backend whose next token is a function of the tokens before it.
 *
 * Token 0..255 is that byte; TOY_USER, TOY_ASSISTANT and TOY_END are control tokens (TOY_END is the
 * end of a sequence); then come the merged tokens "he", "ll", "hell". A prompt that holds '@' is
 * copied: the answer is what stands between the last '@' and the '^' after it (or the prompt's
 * end), then TOY_END; that is the greedy answer and, the other logits being very low, every answer.
 * A prompt without '@' brings logits that are a hash of the last four tokens, over letters, spaces
 * and TOY_END, so that sampling has something to choose from. The logits of capital letters, which
 * are too low to be sampled, are a hash of all tokens: they tell prompts apart.
 *
 * Its vectors have TOY_WIDTH numbers and are those of a bag: the mean of the vectors of the pooled
 * tokens, one for each token id, so that equal texts have equal vectors whatever stands beside
 * them. A text that holds '!' cannot be embedded.
 *
 * The backend keeps the tokens in its KV blocks and reads them back from there, so that a block
 * that is shared or reused wrongly changes the answer. With two steps under way it copies a step at
 * its submit, as a device does, and computes it when it is waited for.
 *
 * Thread: as served_model.
 * Memory: toy_close frees. */

#include "base/arena.h"
#include "engine/served_model.h"

#include <stdatomic.h>

enum { TOY_USER = 256, TOY_ASSISTANT, TOY_END, TOY_HE, TOY_LL, TOY_HELL, TOY_VOCAB };

#define TOY_WIDTH 8

#define TOY_SLOTS_MAX 64

/* A copy of a step under way, in `memory`. */
struct toy_held {
    struct arena memory;
    struct step step;
    int32_t *tokens;
    struct logit_row *logit_rows;
};

struct toy {
    struct served_model model;
    struct backend backend;
    double logits[TOY_VOCAB];
    int32_t *kv;                             /* (blocks, BACKEND_BLOCK_TOKENS) */
    const struct step *step;                 /* under way; with two_steps they are `held` */
    struct toy_held held[BACKEND_STEPS_MAX]; /* (held_count) the oldest first */
    uint32_t held_count;
    int32_t last_tokens[TOY_SLOTS_MAX]; /* sampled last, by slot */
    int64_t until_ns;                   /* it lasts so long */
    atomic_int delay_us;                /* duration of each step */
    atomic_int fail_at_step;            /* submit fails at this one; 0: never */
    atomic_bool is_held; /* a step does not end while this is set; urgent ones pass it */
    _Atomic uint64_t step_count;
    atomic_uint embed_calls;
    atomic_uint embed_texts_max; /* limit for one call */
    atomic_uint embed_tokens_max;
    atomic_bool is_embed_broken; /* a call fails as a device does */
};

struct toy_options {
    uint32_t block_count;        /* 0: 256 */
    uint32_t sequences_max;      /* 0: 16 */
    uint32_t rows_max;           /* 0: 64 */
    uint32_t context_tokens_max; /* 0: 512 */
    const char *chat_template;   /* NULL: "<|user|>…<|assistant|>" turns; "": none */
    bool embeds;
    bool generates_nothing;
    bool two_steps; /* two steps may be under way; none can be passed */
};

void toy_open(struct toy *toy, const struct toy_options *options);
void toy_close(struct toy *toy);
