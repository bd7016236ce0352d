/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* shapes: the grammars that the answers of an engine are held to, and the masks of its vocabulary.
 *
 * GIVEN TOKENS. Where a shape has one continuation, such as the name of the next member, its tokens
 * are not sampled. The forced bytes are encoded behind the last token of the answer. Their tokens
 * are given if the encoding has that last token, too; otherwise the model goes on by itself. No
 * token is taken back, because it may have been streamed. The last one is left to the model if a
 * longer token may come in its place: where ':' is forced, the model may write ':"'. So given
 * tokens allow all texts that masks allow.
 *
 * Thread: shapes_compile and shapes_begin: any. shapes_allowed, shapes_given and shapes_take: the
 *     loop. A thread of its own ("quern-masks") makes the trees of the masks after the start, or
 * the first job that needs them does. They exist before a job with a shape gets to the loop.
 * Memory: owns the grammars and masks. */

#include "engine/job.h"
#include "engine/served_model.h"

struct shapes;

struct shapes *shapes_open(const struct served_model *model, const int32_t *end_tokens,
                           uint32_t end_token_count);
void shapes_close(struct shapes *shapes); /* NULL is allowed */

/* Compiles the shape that the job's request asks for, if it does; *ret_grammar is NULL if not.
 * False and *ret_refusal if it cannot be held. */
bool shapes_compile(struct shapes *shapes, struct job *job, struct grammar **ret_grammar,
                    struct refusal *ret_refusal);
/* Gives the choices of the job their grammar (NULL allowed), whose hold it takes. */
void shapes_begin(struct job *job, struct grammar *grammar);

/* Finds how long the thoughts of the job may be, and the masks that close them. */
void shapes_limit_thought(struct shapes *shapes, struct job *job);

/* The tokens that may come next in a choice. NULL if it may be any token, or if its grammar has
 * gone over a limit, or if the vocabulary has no token for its next byte; shapes_take then returns
 * false. */
const uint32_t *shapes_allowed(struct shapes *shapes, struct job *job, uint32_t index);
/* Tells how many of `count` tokens the shape of a choice allows one after another, and writes the
 * tokens that may come behind each of them. */
uint32_t shapes_ahead(struct shapes *shapes, struct job *job, uint32_t index, const int32_t *tokens,
                      uint32_t count, const uint32_t **ret_allowed);
/* Writes the tokens that must come next in a choice, at most `room`, and returns their number: the
 * tokenizer's own of the bytes that the shape forces. */
uint32_t shapes_given(struct shapes *shapes, struct job *job, uint32_t index, uint32_t room,
                      int32_t *ret_tokens);
/* Takes the token of a choice; `is_end` tokens end it. False if its grammar does not hold the
 * answer; *ret_refusal says why. */
bool shapes_take(struct shapes *shapes, struct job *job, uint32_t index, int32_t token, bool is_end,
                 struct refusal *ret_refusal);
