/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* masks: the masks of a real vocabulary, for tests of them against another implementation and for
 * their times.
 *
 * Thread: one.
 * Memory: vocabulary_tokens_close frees the tokens. */

#include "engine/vocabulary.h"
#include "grammar/grammar_mask.h"

/* The tokens of a vocabulary as an engine gives them to masks. */
struct vocabulary_tokens {
    struct str *at; /* (count) borrowed from the vocabulary; empty: it never comes */
    uint32_t count;
    int32_t ends[VOCABULARY_ENDS_MAX];
    uint32_t end_count;
};

struct grammar_masks *masks_of(const struct vocabulary_tokens *tokens);
/* A kind by its name; exits for an unknown one. */
enum grammar_kind kind_of(const char *name);

/* Answers questions of a pipe until it ends. */
int masks_asked(const struct vocabulary_tokens *tokens);
/* Times `answers` random answers to the schema of a file, and the longest answers that it has. */
int masks_bench(const struct vocabulary_tokens *tokens, const char *schema_path, uint32_t answers);
