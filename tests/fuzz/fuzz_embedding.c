/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/embedding.h"
#include "engine/score.h"
#include "json/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_TOKENS 16

/* WordPiece with two letters. */
static struct tokenizer *open_words(void) {
    const struct str tokens[] = {STR("[CLS]"), STR("[SEP]"), STR("[UNK]"),
                                 STR("\xE2\x96\x81"
                                     "a"),
                                 STR("b")};
    const uint8_t kinds[] = {TOKEN_CONTROL, TOKEN_CONTROL, TOKEN_UNKNOWN, TOKEN_NORMAL,
                             TOKEN_NORMAL};
    const struct tokenizer_source source = {.model = STR("bert"),
                                            .tokens = tokens,
                                            .kinds = kinds,
                                            .token_count = 5,
                                            .bos = 0,
                                            .eos = 1,
                                            .eot = TOKEN_NONE,
                                            .unknown = 2,
                                            .padding = TOKEN_NONE,
                                            .add_bos = true,
                                            .add_eos = true,
                                            .bert = tokenizer_bert_uncased()};
    struct tokenizer *tokenizer = NULL;
    struct error error;
    enum err err = tokenizer_open(&tokenizer, &source, &error);
    assert(err == OK);
    return tokenizer;
}

/* The promises of embedding.h and embed_request.h for an accepted request. */
static void check(const struct embedding *embedding, const struct served_embedder *model) {
    const struct embed_request *request = &embedding->request;
    assert(request->count >= 1 && request->count <= EMBED_INPUTS_MAX);
    assert(request->dimensions >= 1 && request->dimensions <= model->width);
    assert(request->dimensions == model->width || model->is_matryoshka);
    assert(embedding->ids.count <= EMBED_TOKENS_MAX);
    size_t tokens = 0;
    for (uint32_t i = 0; i < request->count; i++) {
        const struct embed_sequence *text = &embedding->sequences[i];
        assert(text->ids == embedding->ids.at + tokens);
        assert(text->count > text->pool_first && text->count <= TEXT_TOKENS);
        for (uint32_t k = 0; k < text->count; k++) assert(text->ids[k] >= 0 && text->ids[k] < 5);
        tokens += text->count;
    }
    assert(tokens == embedding->ids.count);
}

/* The promises of score.h; false for a request that is refused. */
static bool read_scores(const struct served_model *model, struct str body, bool is_rerank,
                        struct refusal *ret_refusal) {
    const struct score_question question = {.endpoint =
                                                is_rerank ? ENDPOINT_RERANK : ENDPOINT_SCORE,
                                            .body = body,
                                            .model = model,
                                            .text_tokens_max = TEXT_TOKENS};
    struct score score = {.pairs = 0};
    struct embedding embedding = {.given = 0};
    bool is_good = score_prepare(&score, &embedding, &question, ret_refusal);
    size_t tokens = 0;
    for (uint32_t i = 0; is_good && i < embedding.request.count; i++) {
        const struct embed_sequence *text = &embedding.sequences[i];
        assert(text->ids == embedding.ids.at + tokens);
        assert(text->count > 0 && text->count <= TEXT_TOKENS && text->second_first < text->count);
        for (uint32_t k = 0; k < text->count; k++) assert(text->ids[k] >= 0 && text->ids[k] < 5);
        tokens += text->count;
    }
    assert(!is_good || (tokens == embedding.ids.count && score.pairs >= 1));
    score_release(&score);
    embedding_release(&embedding);
    return is_good;
}

/* The first byte chooses the kind of model and request, the rest is the body. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tokenizer *words; /* for all inputs */
    if (size == 0) return 0;
    if (!words) words = open_words();
    char *body = malloc(size);
    if (!body) abort();
    memcpy(body, data + 1, size - 1);
    const struct served_model model = {
        .vocabulary.tokenizer = words,
        .embedder = {.width = 8,
                     .vocab = 5,
                     .takes_instruction = data[0] & 1,
                     .is_matryoshka = data[0] & 2,
                     .head = {.labels = data[0] >> 3 & 1,
                              .is_judge = data[0] >> 3 & 1 && data[0] >> 4 & 1,
                              .pair_form = data[0] >> 5 & 1 ? PAIR_TWO_MARKS : PAIR_ONE_MARK}}};
    struct embedding embedding = {.given = 0};
    struct refusal refusal;
    bool is_good =
        data[0] & 4 ? read_scores(&model, (struct str){body, size - 1}, data[0] >> 6 & 1, &refusal)
                    : embedding_prepare(&embedding, (struct str){body, size - 1}, &model,
                                        TEXT_TOKENS, &refusal);
    if (is_good && !(data[0] & 4)) check(&embedding, &model.embedder);
    if (!is_good) {
        struct buf text;
        buf_init(&text, 1 << 20);
        refusal_write(&text, &refusal);
        json_t *value;
        enum err err = json_read(&value, buf_str(&text), NULL);
        assert(err == OK); /* an answer is JSON for every question */
        json_decref(value);
        buf_release(&text);
    }
    embedding_release(&embedding);
    free(body);
    return 0;
}
