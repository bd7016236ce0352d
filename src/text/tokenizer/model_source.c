/* SPDX-License-Identifier: Apache-2.0 */

/* tokenizer_open_model: a struct tokenizer_source from SentencePiece's tokenizer.model, a message
 * of protocol buffers (sentencepiece_model.proto). A setting that changes ids and is not known is
 * refused by name; training's other settings are not looked at.
 *
 *   ModelProto      1 pieces (repeated), 2 trainer_spec, 3 normalizer_spec
 *   SentencePiece   1 piece, 2 score (float), 3 type (default 1)
 *   TrainerSpec     3 model_type (default 1: Unigram; 2: BPE), 24 treat_whitespace_as_suffix,
 *                   35 byte_fallback, 40 unk_id, 41 bos_id, 42 eos_id, 43 pad_id
 *   NormalizerSpec  2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces,
 *                   5 escape_whitespaces (the last three are true by default)
 *
 * A field is a varint of number · 8 + wire type, then a varint (0), 8 bytes (1), a varint of a
 * length and its bytes (2), or 4 bytes (5). A message is valid if its fields fill it. */

#include "base/arena.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

#include <math.h>
#include <string.h>

enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct field {
    uint64_t number;
    unsigned wire;
    uint64_t value;   /* wire types 0 and 5 */
    struct str bytes; /* wire type 2 */
};

struct reading {
    struct arena arena;
    struct tokenizer_source source;
    struct str *tokens;
    uint8_t *kinds;
    uint8_t *flags;
    float *scores;
    size_t capacity;
    uint64_t model_type;
    int64_t unknown, bos, eos, padding;
    bool has_byte_fallback, has_suffix, has_prefix, collapses, escapes;
    struct str charsmap;
};

static bool read_varint(struct str *rest, uint64_t *ret_value) {
    uint64_t value = 0;
    for (unsigned i = 0; i < 10 && i < rest->bytes; i++) {
        const unsigned char byte = (unsigned char)rest->at[i];
        value |= (uint64_t)(byte & 0x7F) << 7 * i;
        if (byte & 0x80) continue;
        *rest = str_skip(*rest, i + 1);
        *ret_value = value;
        return true;
    }
    return false;
}

/* The next field of a message; false at an end that is no field. */
static bool read_field(struct str *rest, struct field *ret_field) {
    uint64_t key, bytes = 0;
    if (!read_varint(rest, &key)) return false;
    *ret_field = (struct field){.number = key >> 3, .wire = key & 7};
    switch (ret_field->wire) {
    case 0: return read_varint(rest, &ret_field->value);
    case 1: bytes = 8; break;
    case 2:
        if (!read_varint(rest, &bytes)) return false;
        break;
    case 5: bytes = 4; break;
    default: return false;
    }
    if (bytes > rest->bytes) return false;
    ret_field->bytes = (struct str){rest->at, (size_t)bytes};
    if (ret_field->wire == 5) {
        uint32_t value;
        memcpy(&value, rest->at, sizeof value);
        ret_field->value = value;
    }
    *rest = str_skip(*rest, (size_t)bytes);
    return true;
}

static enum err refuse_damage(const char *part, struct error *error) {
    return err_set(error, ERR_INVALID, "%s: its fields do not fill it", part);
}

static enum err read_piece(struct reading *reading, struct str message, struct error *error) {
    const size_t id = reading->source.token_count;
    struct field field;
    uint64_t kind = TOKEN_NORMAL;
    float score = 0.0f;
    struct str text = {0};
    while (message.bytes > 0) {
        if (!read_field(&message, &field)) return refuse_damage("a piece", error);
        if (field.number == 1 && field.wire == 2) text = field.bytes;
        if (field.number == 3 && field.wire == 0) kind = field.value;
        if (field.number == 2 && field.wire == 5) {
            const uint32_t bits = (uint32_t)field.value;
            memcpy(&score, &bits, sizeof score);
        }
    }
    if (text.bytes == 0 || kind < TOKEN_NORMAL || kind > TOKEN_BYTE || !isfinite(score))
        return err_set(error, ERR_INVALID, "piece %zu has no text, kind or score", id);
    if (id == reading->capacity)
        return err_set(error, ERR_LIMIT, "more than %zu pieces", reading->capacity);
    reading->tokens[id] = text;
    reading->kinds[id] = (uint8_t)kind;
    reading->scores[id] = score;
    reading->source.token_count++;
    return OK;
}

static enum err read_trainer(struct reading *reading, struct str message, struct error *error) {
    struct field field;
    while (message.bytes > 0) {
        if (!read_field(&message, &field)) return refuse_damage("trainer_spec", error);
        if (field.wire != 0) continue;
        switch (field.number) {
        case 3: reading->model_type = field.value; break;
        case 24: reading->has_suffix = field.value != 0; break;
        case 35: reading->has_byte_fallback = field.value != 0; break;
        case 40: reading->unknown = (int64_t)field.value; break;
        case 41: reading->bos = (int64_t)field.value; break;
        case 42: reading->eos = (int64_t)field.value; break;
        case 43: reading->padding = (int64_t)field.value; break;
        default: break;
        }
    }
    return OK;
}

static enum err read_normalizer(struct reading *reading, struct str message, struct error *error) {
    struct field field;
    while (message.bytes > 0) {
        if (!read_field(&message, &field)) return refuse_damage("normalizer_spec", error);
        if (field.number == 2 && field.wire == 2) reading->charsmap = field.bytes;
        if (field.wire != 0) continue;
        if (field.number == 3) reading->has_prefix = field.value != 0;
        if (field.number == 4) reading->collapses = field.value != 0;
        if (field.number == 5) reading->escapes = field.value != 0;
    }
    return OK;
}

static enum err read_model(struct reading *reading, struct str bytes, struct error *error) {
    struct field field;
    enum err err = OK;
    while (bytes.bytes > 0 && err == OK) {
        if (!read_field(&bytes, &field)) return refuse_damage("the model", error);
        if (field.wire != 2) continue;
        if (field.number == 1) err = read_piece(reading, field.bytes, error);
        if (field.number == 2) err = read_trainer(reading, field.bytes, error);
        if (field.number == 3) err = read_normalizer(reading, field.bytes, error);
    }
    return err;
}

/* An id of the trainer's; below 0: none. */
static int32_t id_of(const struct reading *reading, int64_t id) {
    return id >= 0 && (uint64_t)id < reading->source.token_count ? (int32_t)id : TOKEN_NONE;
}

static enum err make_source(struct reading *reading, struct error *error) {
    struct tokenizer_source *source = &reading->source;
    const bool is_unigram = reading->model_type == MODEL_UNIGRAM;
    if (!is_unigram && reading->model_type != MODEL_BPE)
        return err_set(error, ERR_INVALID, "model_type %llu is not supported (Unigram and BPE are)",
                       (unsigned long long)reading->model_type);
    if (is_unigram && reading->has_byte_fallback)
        return err_set(error, ERR_INVALID, "Unigram with byte_fallback is not supported");
    if (reading->has_suffix || !reading->escapes)
        return err_set(error, ERR_INVALID, "%s is not supported",
                       reading->has_suffix ? "treat_whitespace_as_suffix"
                                           : "escape_whitespaces false");
    if (!is_unigram && (reading->charsmap.bytes > 0 || reading->collapses))
        return err_set(error, ERR_INVALID, "BPE with %s is not supported",
                       reading->collapses ? "remove_extra_whitespaces" : "a precompiled_charsmap");
    source->model = is_unigram ? STR("t5") : STR("llama");
    source->tokens = reading->tokens;
    source->kinds = reading->kinds;
    source->scores = reading->scores;
    source->kinds_are_exact = true;
    source->unknown = id_of(reading, reading->unknown);
    source->bos = id_of(reading, reading->bos);
    source->eos = id_of(reading, reading->eos);
    source->padding = id_of(reading, reading->padding);
    source->space_prefix = reading->has_prefix ? SPACE_PREFIX_ALWAYS : SPACE_PREFIX_NONE;
    source->unigram = (struct unigram_rules){.charsmap = reading->charsmap,
                                             .strips_left = reading->collapses,
                                             .strips_right = reading->collapses,
                                             .collapses = reading->collapses,
                                             .is_whole = true,
                                             .is_sentencepiece = true};
    return OK;
}

/* Puts the pieces into the order of fairseq's ids. The arrays have room for two more. */
static enum err order_as_fairseq(struct reading *reading, struct error *error) {
    struct tokenizer_source *source = &reading->source;
    const size_t count = source->token_count;
    static const char *const texts[] = {"<s>", "<pad>", "</s>", "<unk>"};
    const bool has_three = count > 3 && reading->kinds[0] == TOKEN_UNKNOWN &&
                           reading->kinds[1] == TOKEN_CONTROL && reading->kinds[2] == TOKEN_CONTROL;
    if (!has_three || !str_is(source->model, "t5"))
        return err_set(error, ERR_INVALID,
                       "it is no Unigram model whose first pieces are <unk>, <s> and </s>");
    reading->flags = arena_alloc(&reading->arena, count + 2);
    if (!reading->flags) return err_set(error, ERR_LIMIT, "no memory for %zu pieces", count);
    for (size_t id = count; id > 3; id--) {
        reading->tokens[id] = reading->tokens[id - 1];
        reading->kinds[id] = reading->kinds[id - 1];
        reading->scores[id] = reading->scores[id - 1];
    }
    for (size_t id = 0; id < 4; id++) {
        reading->tokens[id] = str_from(texts[id]);
        reading->kinds[id] = id == 3 ? TOKEN_UNKNOWN : TOKEN_CONTROL;
        reading->scores[id] = 0.0f;
    }
    reading->tokens[count + 1] = STR("<mask>");
    reading->kinds[count + 1] = TOKEN_CONTROL;
    reading->flags[count + 1] = TOKEN_TAKES_LEFT;
    reading->scores[count + 1] = 0.0f;
    source->flags = reading->flags;
    source->token_count = count + 2;
    source->bos = 0;
    source->padding = 1;
    source->eos = 2;
    source->unknown = 3;
    source->add_bos = source->add_eos = true;
    return OK;
}

static enum err open_bytes(struct tokenizer **ret_tokenizer, struct str bytes, bool add_bos,
                           bool add_eos, bool is_fairseq, struct error *error) {
    /* A piece takes two bytes and more. */
    size_t most = bytes.bytes / 2 + 1;
    if (most > TOKENIZER_VOCAB_TOKENS_MAX) most = TOKENIZER_VOCAB_TOKENS_MAX;
    struct reading reading = {.source = {.eot = TOKEN_NONE, .add_bos = add_bos, .add_eos = add_eos},
                              .capacity = most,
                              .model_type = MODEL_UNIGRAM,
                              .bos = 1,
                              .eos = 2,
                              .padding = -1,
                              .has_prefix = true,
                              .collapses = true,
                              .escapes = true};
    enum err err = OK;
    arena_init(&reading.arena, TOKENIZER_VOCAB_BYTES_MAX);
    reading.tokens = arena_array(&reading.arena, most + 2, sizeof *reading.tokens);
    reading.kinds = arena_alloc(&reading.arena, most + 2);
    reading.scores = arena_array(&reading.arena, most + 2, sizeof *reading.scores);
    if (!reading.tokens || !reading.kinds || !reading.scores)
        err = err_set(error, ERR_LIMIT, "no memory for %zu pieces", most);
    if (err == OK) err = read_model(&reading, bytes, error);
    if (err == OK) err = make_source(&reading, error);
    if (err == OK && is_fairseq) err = order_as_fairseq(&reading, error);
    if (err == OK) err = tokenizer_open(ret_tokenizer, &reading.source, error);
    if (err != OK) err_prefix(error, is_fairseq ? "sentencepiece.bpe.model" : "tokenizer.model");
    arena_release(&reading.arena);
    return err;
}

enum err tokenizer_open_model(struct tokenizer **ret_tokenizer, struct str bytes, bool add_bos,
                              bool add_eos, struct error *error) {
    return open_bytes(ret_tokenizer, bytes, add_bos, add_eos, false, error);
}

enum err tokenizer_open_fairseq(struct tokenizer **ret_tokenizer, struct str bytes,
                                struct error *error) {
    return open_bytes(ret_tokenizer, bytes, true, true, true, error);
}
