/* SPDX-License-Identifier: Apache-2.0 */

/* The parts of a tokenizer.json that only a Unigram model has: a list of tokens with scores, rules
 * of SentencePiece for the text, and how it is cut into words. */

#include "base/base64.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/json_source.h"

#include <math.h>

#define SPACE "\xE2\x96\x81" /* U+2581 */

static enum err read_token(struct json_reading *reading, const json_t *pair, size_t index,
                           float *ret_score, struct error *error) {
    const struct str text = json_str(json_array_get(pair, 0));
    const json_t *score = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || text.bytes == 0 || !json_is_number(score) ||
        !isfinite((float)json_number_value(score)))
        return err_set(error, ERR_INVALID, "model: token %zu is not a text and its score", index);
    *ret_score = (float)json_number_value(score);
    return json_place_token(reading, text, (int32_t)index, error);
}

enum err json_read_unigram(struct json_reading *reading, const json_t *model, struct error *error) {
    const json_t *vocab = json_member(model, "vocab"), *unknown = json_member(model, "unk_id");
    const size_t count = json_array_size(vocab);
    if (json_says(model, "byte_fallback"))
        return err_set(error, ERR_INVALID, "model: Unigram with byte_fallback is not supported");
    if (!json_is_integer(unknown) || json_integer_value(unknown) < 0 ||
        (uint64_t)json_integer_value(unknown) >= count)
        return err_set(error, ERR_INVALID, "model: unk_id is none of the %zu tokens", count);
    reading->source.unknown = (int32_t)json_integer_value(unknown);
    enum err err = json_open_vocab(reading, count, error);
    if (err != OK) return err;
    float *scores = arena_array(&reading->arena, reading->source.token_count, sizeof *scores);
    if (!scores) return err_set(error, ERR_LIMIT, "no memory for %zu scores", count);
    for (size_t i = count; i < reading->source.token_count; i++) scores[i] = 0.0f;
    for (size_t i = 0; i < count && err == OK; i++)
        err = read_token(reading, json_array_get(vocab, i), i, &scores[i], error);
    reading->source.scores = scores;
    if (err != OK) return err;
    err = json_read_added_tokens(reading, error);
    uint8_t *kind = &reading->kinds[reading->source.unknown];
    if (err == OK && *kind == TOKEN_NORMAL) *kind = TOKEN_UNKNOWN;
    return err;
}

static enum err read_charsmap(struct json_reading *reading, const json_t *step,
                              struct error *error) {
    const struct str text = json_member_str(step, "precompiled_charsmap");
    const size_t room = text.bytes / 4 * 3 + 3;
    size_t bytes = 0;
    char *map = arena_alloc(&reading->arena, room);
    if (!map) return err_set(error, ERR_LIMIT, "no memory for the precompiled_charsmap");
    if (text.bytes == 0 || !base64_read(text, map, room, &bytes))
        return err_set(error, ERR_INVALID, "normalizer: the precompiled_charsmap is no base64");
    reading->source.unigram.charsmap = (struct str){map, bytes};
    return OK;
}

/* Runs of spaces become one. */
static bool collapses(const json_t *step) {
    const struct str content = json_member_str(step, "content");
    return str_is(json_kind(step), "Replace") &&
           str_is(json_member_str(json_member(step, "pattern"), "Regex"), " {2,}") &&
           (str_is(content, " ") || str_is(content, SPACE));
}

enum err json_read_unigram_normalizer(struct json_reading *reading, const json_t *step,
                                      struct error *error) {
    struct unigram_rules *rules = &reading->source.unigram;
    if (str_is(json_kind(step), "Precompiled")) return read_charsmap(reading, step, error);
    if (str_is(json_kind(step), "Strip")) {
        rules->strips_left = json_says(step, "strip_left");
        rules->strips_right = json_says(step, "strip_right");
        return OK;
    }
    if (!collapses(step)) return json_refuse_type("normalizer", step, error);
    rules->collapses = true;
    return OK;
}

/* Metaspace: a space before the text, or before each word. */
static enum err read_metaspace(struct json_reading *reading, const json_t *step,
                               struct error *error) {
    const struct str scheme = json_member_str(step, "prepend_scheme");
    const json_t *adds = json_member(step, "add_prefix_space");
    struct unigram_rules *rules = &reading->source.unigram;
    if (!str_is(json_member_str(step, "replacement"), SPACE))
        return err_set(error, ERR_INVALID, "pre_tokenizer: a Metaspace of other than U+2581");
    rules->is_whole = json_is_false(json_member(step, "split"));
    if (str_is(scheme, "always") || (scheme.bytes == 0 && (!adds || json_is_true(adds))))
        reading->source.space_prefix = SPACE_PREFIX_UNLESS_SPACE;
    else if (str_is(scheme, "first"))
        reading->source.space_prefix = SPACE_PREFIX_FIRST;
    reading->saw_spaces = true;
    return OK;
}

enum err json_read_unigram_steps(struct json_reading *reading, struct error *error) {
    json_t *part = json_member(reading->root, "pre_tokenizer");
    for (size_t i = 0; i < json_step_count(part, "pretokenizers"); i++) {
        json_t *step = json_step(part, "pretokenizers", i);
        enum err err = OK;
        if (i == 0 && str_is(json_kind(step), "WhitespaceSplit"))
            reading->source.unigram.drops_spaces = true;
        else if (str_is(json_kind(step), "Metaspace"))
            err = read_metaspace(reading, step, error);
        else
            err = json_refuse_type("pre_tokenizer", step, error);
        if (err != OK) return err;
    }
    return reading->saw_spaces
               ? OK
               : err_set(error, ERR_INVALID, "pre_tokenizer: Unigram without a Metaspace");
}
