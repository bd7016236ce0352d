/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/embed.h"

#include "base/least.h"
#include "base/mem.h"
#include "cpu/encoder.h"
#include "cpu/forward.h"
#include "cpu/label_head.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Texts go through in one step, and a step's workspace grows with its rows: about 70 MB for each
 * thousand in a model of 7B. */
#define TOKENS_MAX 8192u

struct embedder {
    struct embedder_options options;
    struct encoder *encoder; /* one of the two */
    struct forward *forward;
    struct label_weights labels; /* all NULL: vectors, or a judge without answers */
    float *judge;                /* (width) row of yes less that of no, or NULL */
    float *state, *scratch;      /* (state_width) the widest of a text's vector on its way */
    bool *is_second;             /* (rows_max) true: a row of the second text of a pair */
    uint32_t rows_max;           /* rows_max and tokens_max of the options */
    int32_t *tokens;             /* (rows_max), as all of these */
    uint32_t *positions;
    uint32_t *blocks;
    uint32_t *wanted;
    struct step_sequence *sequences;
};

/* ---- how a model pools ---- */

static bool has_word(struct str text, const char *word) {
    size_t bytes = strlen(word);
    for (size_t i = 0; i + bytes <= text.bytes; i++)
        if (strncasecmp(text.at + i, word, bytes) == 0) return true;
    return false;
}

bool embed_is_judge(const struct model_config *config) {
    return strcmp(config->architecture->name, "qwen3") == 0 && config->labels == 0 &&
           has_word(config->name, "reranker");
}

static uint32_t dense_count(const struct model_config *config) {
    uint32_t count = 0;
    while (count < CONFIG_DENSE_MAX && config->dense_widths[count] > 0) count++;
    return count;
}

uint32_t embed_width(const struct model_config *config) {
    if (embed_is_judge(config)) return 1;
    return config->labels > 0 ? config->labels : config_dense_width(config, dense_count(config));
}

enum pooling embed_pooling(const struct model_config *config, enum pooling asked) {
    if (embed_is_judge(config)) return POOLING_LAST;
    const bool states_it = config->architecture->embedding_is_normed; /* for its labels, too */
    if (config->labels > 0 && !states_it)
        return config->architecture->is_encoder ? POOLING_CLS : POOLING_LAST;
    if (config->labels > 0) return config->pooling == POOLING_MEAN ? POOLING_MEAN : POOLING_CLS;
    if (asked != POOLING_NONE) return asked;
    if (config->pooling != POOLING_NONE) return config->pooling;
    bool is_mean = config->architecture->is_encoder || has_word(config->name, "gritlm");
    return is_mean ? POOLING_MEAN : POOLING_NONE;
}

uint32_t embed_tokens_max(const struct model_config *config, uint32_t context_max) {
    uint32_t most = context_max < TOKENS_MAX ? context_max : TOKENS_MAX;
    return config->embed_tokens_max > 0 && config->embed_tokens_max < most
               ? config->embed_tokens_max
               : most;
}

/* ---- opening ---- */

static enum err open_program(struct embedder *embedder, struct error *error) {
    const struct embedder_options *options = &embedder->options;
    const struct model_config *config = options->config;
    if (config->architecture->is_encoder) {
        struct encoder_options encoder = {.config = config,
                                          .weights = options->weights,
                                          .kernels = options->kernels,
                                          .pool = options->pool,
                                          .rows_max = embedder->rows_max,
                                          .block_count = embedder->rows_max};
        return encoder_open(&embedder->encoder, &encoder, error);
    }
    struct forward_options forward = {.config = config,
                                      .weights = options->weights,
                                      .kernels = options->kernels,
                                      .pool = options->pool,
                                      .rows_max = embedder->rows_max,
                                      .page_count = embedder->rows_max,
                                      .is_one_pass = true,
                                      .is_bidirectional = config->is_bidirectional ||
                                                          options->pooling != POOLING_LAST};
    return forward_open(&embedder->forward, &forward, error);
}

enum err embedder_open(struct embedder **ret_embedder, const struct embedder_options *options,
                       struct error *error) {
    assert(options->pooling != POOLING_NONE && options->rows_max > 0 && options->tokens_max > 0);
    struct embedder *embedder = mem_new(1, sizeof *embedder);
    embedder->options = *options;
    uint32_t rows =
        options->rows_max > options->tokens_max ? options->rows_max : options->tokens_max;
    embedder->rows_max = rows;
    embedder->tokens = calloc(rows, sizeof *embedder->tokens);
    embedder->positions = calloc(rows, sizeof *embedder->positions);
    embedder->blocks = calloc(rows, sizeof *embedder->blocks);
    embedder->wanted = calloc(rows, sizeof *embedder->wanted);
    embedder->sequences = calloc(rows, sizeof *embedder->sequences);
    embedder->is_second = mem_new(rows, sizeof *embedder->is_second);
    uint32_t state_width = options->config->width;
    for (uint32_t i = 0; i < CONFIG_DENSE_MAX; i++)
        state_width = most_u32(state_width, options->config->dense_widths[i]);
    embedder->state = mem_new(state_width, sizeof *embedder->state);
    embedder->scratch = mem_new(state_width, sizeof *embedder->scratch);
    embedder->labels = options->weights->labels;
    if (!embedder->tokens || !embedder->positions || !embedder->blocks || !embedder->wanted ||
        !embedder->sequences)
        abort();
    for (uint32_t i = 0; i < rows; i++) embedder->blocks[i] = i;
    enum err err = open_program(embedder, error);
    if (err == OK)
        *ret_embedder = embedder;
    else
        embedder_close(embedder);
    return err;
}

void embedder_close(struct embedder *embedder) {
    if (!embedder) return;
    encoder_close(embedder->encoder);
    forward_close(embedder->forward);
    free(embedder->tokens);
    free(embedder->positions);
    free(embedder->blocks);
    free(embedder->wanted);
    free(embedder->sequences);
    free(embedder->is_second);
    free(embedder->state);
    free(embedder->scratch);
    free(embedder->judge);
    free(embedder);
}

enum err embedder_set_answers(struct embedder *embedder, int32_t yes, int32_t no,
                              struct error *error) {
    const struct model_config *config = embedder->options.config;
    const struct matrix *head = embedder->options.weights->head;
    if (yes < 0 || no < 0 || (uint32_t)yes >= config->vocab_rows ||
        (uint32_t)no >= config->vocab_rows)
        return err_set(error, ERR_INVALID, "the vocabulary has no tokens for yes and no");
    float *row = embedder->judge = mem_new(config->width, sizeof *row);
    matrix_row(head, (uint32_t)yes, row);
    matrix_row(head, (uint32_t)no, embedder->scratch);
    for (uint32_t i = 0; i < config->width; i++) row[i] -= embedder->scratch[i];
    embedder->labels = (struct label_weights){.output = row};
    return OK;
}

uint64_t embedder_bytes(const struct embedder *embedder) {
    if (!embedder) return 0;
    return embedder->encoder ? encoder_workspace_bytes(embedder->encoder)
                             : forward_workspace_bytes(embedder->forward);
}

/* ---- running ---- */

static enum err check_sequence(const struct embedder *embedder,
                               const struct embed_sequence *sequence, uint32_t index,
                               struct error *error) {
    uint32_t vocab = embedder->options.config->token_count;
    if (sequence->count == 0) return err_set(error, ERR_INVALID, "text %u has no tokens", index);
    if (sequence->count > embedder->options.tokens_max)
        return err_set(error, ERR_LIMIT, "text %u has %u tokens, more than the %u of the model",
                       index, sequence->count, embedder->options.tokens_max);
    if (sequence->pool_first >= sequence->count)
        return err_set(error, ERR_INVALID, "text %u has no token to pool: %u of %u are left out",
                       index, sequence->pool_first, sequence->count);
    for (uint32_t i = 0; i < sequence->count; i++)
        if (sequence->ids[i] < 0 || (uint32_t)sequence->ids[i] >= vocab)
            return err_set(error, ERR_INVALID, "text %u: token %u is %d, not 0..%u", index, i,
                           sequence->ids[i], vocab - 1);
    return OK;
}

/* Takes as many texts as fit into a step, at least one. */
static uint32_t fill_step(struct embedder *embedder, const struct embed_sequence *sequences,
                          uint32_t count, struct step *ret_step) {
    uint32_t rows = 0, blocks = 0, taken = 0;
    for (; taken < count; taken++) {
        const struct embed_sequence *from = &sequences[taken];
        if (taken > 0 && (from->count > embedder->options.rows_max ||
                          rows > embedder->options.rows_max - from->count))
            break;
        uint32_t block_count = (from->count + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
        embedder->sequences[taken] = (struct step_sequence){.row_first = rows,
                                                            .row_count = from->count,
                                                            .block_count = block_count,
                                                            .page_stride = block_count,
                                                            .pages = embedder->blocks + blocks};
        memcpy(embedder->tokens + rows, from->ids, from->count * sizeof *from->ids);
        for (uint32_t i = 0; i < from->count; i++) {
            embedder->positions[rows + i] = i;
            embedder->is_second[rows + i] = from->second_first > 0 && i >= from->second_first;
        }
        rows += from->count;
        blocks += block_count;
    }
    *ret_step = (struct step){.row_count = rows,
                              .sequence_count = taken,
                              .tokens = embedder->tokens,
                              .positions = embedder->positions,
                              .sequences = embedder->sequences};
    return taken;
}

/* The hidden states of the step's rows, or with POOLING_LAST of the last row of each text alone. */
static const float *run_step(struct embedder *embedder, const struct step *step) {
    if (embedder->encoder) return encoder_run(embedder->encoder, step, embedder->is_second);
    uint32_t count = 0;
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *sequence = &step->sequences[i];
        uint32_t end = sequence->row_first + sequence->row_count;
        bool is_last = embedder->options.pooling == POOLING_LAST;
        for (uint32_t row = is_last ? end - 1 : sequence->row_first; row < end; row++)
            embedder->wanted[count++] = row;
    }
    forward_run(embedder->forward, step, embedder->wanted, count);
    return forward_hidden(embedder->forward, 0, count);
}

/* Rows of hidden states, from the first one that counts. */
struct pooled_rows {
    const float *at;
    uint32_t count;
};

static struct pooled_rows pooled_rows(const struct embedder *embedder,
                                      const struct embed_sequence *sequence, const float *rows) {
    const size_t width = embedder->options.config->width;
    switch (embedder->options.pooling) {
    case POOLING_MEAN:
        return (struct pooled_rows){rows + (size_t)sequence->pool_first * width,
                                    sequence->count - sequence->pool_first};
    case POOLING_LAST:
        return (struct pooled_rows){
            embedder->encoder ? rows + (size_t)(sequence->count - 1) * width : rows, 1};
    case POOLING_CLS:
    case POOLING_NONE: break;
    }
    return (struct pooled_rows){rows, 1};
}

static void sum_rows(struct pooled_rows rows, size_t width, float *ret_sum) {
    memset(ret_sum, 0, width * sizeof *ret_sum);
    for (uint32_t i = 0; i < rows.count; i++, rows.at += width)
        for (size_t j = 0; j < width; j++) ret_sum[j] += rows.at[j];
}

/* Divides a sum by its length: the divisor of the mean would cancel. */
static enum err normalise(float *vector, uint32_t width, uint32_t index, struct error *error) {
    double squares = 0;
    for (uint32_t j = 0; j < width; j++) squares += (double)vector[j] * (double)vector[j];
    if (!(squares > 0 && isfinite(squares)))
        return err_set(error, ERR_INVALID,
                       "text %u: its vector has no length, so the weights are unsound", index);
    double factor = 1.0 / sqrt(squares);
    for (uint32_t j = 0; j < width; j++) vector[j] = (float)((double)vector[j] * factor);
    return OK;
}

/* A vector, through the products behind the pooling. */
static enum err finish_vector(struct embedder *embedder, struct pooled_rows pooled, uint32_t index,
                              float *ret_vector, struct error *error) {
    const struct model_config *config = embedder->options.config;
    const uint32_t count = dense_count(config);
    float *from = embedder->state, *to = embedder->scratch;
    sum_rows(pooled, config->width, count == 0 ? ret_vector : from);
    for (uint32_t i = 0; i < count; i++) {
        float *last = i + 1 == count ? ret_vector : to;
        label_head_multiply(embedder->options.weights->dense[i], from,
                            config_dense_width(config, i), config_dense_width(config, i + 1), last);
        to = from;
        from = last;
    }
    return normalise(ret_vector, embed_width(config), index, error);
}

/* `rows` begin with the text's first, or are its last alone. */
static enum err pool_text(struct embedder *embedder, const struct embed_sequence *sequence,
                          const float *rows, uint32_t index, float *ret_vector,
                          struct error *error) {
    const struct model_config *config = embedder->options.config;
    const struct pooled_rows pooled = pooled_rows(embedder, sequence, rows);
    if (config->labels == 0 && !embed_is_judge(config))
        return finish_vector(embedder, pooled, index, ret_vector, error);
    sum_rows(pooled, config->width, embedder->state);
    for (uint32_t j = 0; j < config->width; j++) embedder->state[j] /= (float)pooled.count;
    const struct label_head head = {.weights = &embedder->labels,
                                    .width = config->width,
                                    .labels = embed_width(config),
                                    .epsilon = config->eps,
                                    .scratch = embedder->scratch};
    return label_head_run(&head, embedder->state, index, ret_vector, error);
}

enum err embedder_run(struct embedder *embedder, const struct embed_sequence *sequences,
                      uint32_t count, float *ret_vectors, struct error *error) {
    enum err err = OK;
    if (embed_is_judge(embedder->options.config) && !embedder->judge)
        return err_set(error, ERR_INVALID, "its tokens for yes and no are not known here");
    const bool is_last_row = !embedder->encoder && embedder->options.pooling == POOLING_LAST;
    for (uint32_t i = 0; i < count && err == OK; i++)
        err = check_sequence(embedder, &sequences[i], i, error);
    for (uint32_t done = 0; done < count && err == OK;) {
        struct step step;
        uint32_t taken = fill_step(embedder, sequences + done, count - done, &step);
        const float *rows = run_step(embedder, &step);
        size_t width = embedder->options.config->width;
        size_t vector = embed_width(embedder->options.config);
        for (uint32_t i = 0; i < taken && err == OK; i++) {
            size_t row = is_last_row ? i : step.sequences[i].row_first;
            err = pool_text(embedder, &sequences[done + i], rows + row * width, done + i,
                            ret_vectors + (done + i) * vector, error);
        }
        done += taken;
    }
    return err;
}
