/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* json_source: a tokenizer.json while it is read: its vocabulary by json_source.c, the rules for
 * its text by json_rules.c, what only Unigram has by json_unigram.c. Only these include it, and
 * tekken_source.c, whose file names an expression too.
 *
 * Thread: one per struct.
 * Memory: json_source.c releases the arena. */

#include "base/arena.h"
#include "json/json.h"
#include "tokenizer/tokenizer.h"

/* Strings are borrowed from the JSON value; arrays and joined merges live in the arena. */
struct json_reading {
    json_t *root;
    struct arena arena;
    struct tokenizer_source source;
    struct str *tokens;
    uint8_t *kinds;
    uint8_t *flags;
    bool saw_spaces; /* a rule turns spaces into U+2581 */
};

static inline struct str json_kind(const json_t *object) {
    return json_member_str(object, "type");
}

static inline bool json_says(const json_t *object, const char *key) {
    return json_is_true(json_member(object, key));
}

/* "PART: the type 'X' is not supported". */
enum err json_refuse_type(const char *part, const json_t *object, struct error *error);

/* The steps of `part`: the list of a Sequence, or the part itself as the one step; 0 without a
 * part. */
size_t json_step_count(const json_t *part, const char *list_key);
json_t *json_step(json_t *part, const char *list_key, size_t index);

/* json_source.c: makes room for `count` tokens and the added ones, places one, and reads the added
 * ones. ERR_INVALID, naming it, for a token that cannot be. */
enum err json_open_vocab(struct json_reading *reading, size_t count,
                         struct error *error) MUST_CHECK;
enum err json_place_token(struct json_reading *reading, struct str text, int32_t id,
                          struct error *error) MUST_CHECK;
enum err json_read_added_tokens(struct json_reading *reading, struct error *error) MUST_CHECK;
/* json_rules.c: the name of the rules that a Split's expression stands for; NULL: it is unknown. */
const char *json_split_pre(struct str expression);
/* json_unigram.c: the vocabulary, a step of the normalizer, and the pre_tokenizer of Unigram. */
enum err json_read_unigram(struct json_reading *reading, const json_t *model,
                           struct error *error) MUST_CHECK;
enum err json_read_unigram_normalizer(struct json_reading *reading, const json_t *step,
                                      struct error *error) MUST_CHECK;
enum err json_read_unigram_steps(struct json_reading *reading, struct error *error) MUST_CHECK;

/* Fill the source's rules from "normalizer" and "pre_tokenizer". The source's model must be set. */
enum err json_read_normalizer(struct json_reading *reading, struct error *error) MUST_CHECK;
enum err json_read_pre_tokenizer(struct json_reading *reading, struct error *error) MUST_CHECK;
