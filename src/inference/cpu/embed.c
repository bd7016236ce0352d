/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/embed.h"

#include "base/mem.h"
#include "base/min_max.h"
#include "base/no_memory.h"
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
    float *state, *scratch;      /* (threads, state_width) a text's vector on its way */
    uint32_t state_width;        /* the widest of it */
    bool *has_failed;            /* (rows_max) texts of a step that have no vector */
    struct text_pool *pools;     /* (rows_max) with a runner, as the next one */
    float *sums;                 /* (texts_max, width) */
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

bool embed_is_for_texts(const struct model_config *config) {
    return config->is_bidirectional || config->architecture->is_encoder || config->labels > 0 ||
           config->pooling != POOLING_NONE || embed_is_judge(config);
}

bool embed_sees_both(const struct model_config *config, enum pooling pooling) {
    return config->architecture->is_encoder || config->is_bidirectional || pooling != POOLING_LAST;
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
                                      .is_bidirectional =
                                          embed_sees_both(config, options->pooling)};
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
        state_width = max_u32(state_width, options->config->dense_widths[i]);
    const size_t threads = pool_threads(options->pool);
    embedder->state_width = state_width;
    embedder->state = mem_new(threads * state_width, sizeof *embedder->state);
    embedder->scratch = mem_new(threads * state_width, sizeof *embedder->scratch);
    embedder->has_failed = mem_new(rows, sizeof *embedder->has_failed);
    if (options->runner) {
        embedder->pools = mem_new(rows, sizeof *embedder->pools);
        embedder->sums = mem_new((size_t)options->runner->texts_max * options->config->width,
                                 sizeof *embedder->sums);
    }
    embedder->labels = options->weights->labels;
    if (!embedder->tokens || !embedder->positions || !embedder->blocks || !embedder->wanted ||
        !embedder->sequences)
        no_memory();
    for (uint32_t i = 0; i < rows; i++) embedder->blocks[i] = i;
    enum err err = options->runner ? OK : open_program(embedder, error);
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
    free(embedder->has_failed);
    free(embedder->pools);
    free(embedder->sums);
    free(embedder->judge);
    free(embedder);
}

void embedder_set_answers(struct embedder *embedder, const float *yes, const float *no) {
    const uint32_t width = embedder->options.config->width;
    float *row = embedder->judge = mem_new(width, sizeof *row);
    for (uint32_t i = 0; i < width; i++) row[i] = yes[i] - no[i];
    embedder->labels = (struct label_weights){.output = row};
}

uint64_t embedder_bytes(const struct embedder *embedder) {
    if (!embedder || embedder->options.runner) return 0;
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
    const struct text_runner *runner = embedder->options.runner;
    for (; taken < count && (!runner || taken < runner->texts_max); taken++) {
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

/* Rows of hidden states, from the first one that counts; or their sum, as one row. */
struct pooled_rows {
    const float *at;
    uint32_t count;
    uint32_t summed; /* rows that the sum of all is of */
};

/* The rows of a text that are summed. */
static struct text_pool pool_of(const struct embedder *embedder,
                                const struct embed_sequence *sequence) {
    switch (embedder->options.pooling) {
    case POOLING_MEAN:
        return (struct text_pool){sequence->pool_first, sequence->count - sequence->pool_first};
    case POOLING_LAST: return (struct text_pool){sequence->count - 1, 1};
    case POOLING_CLS:
    case POOLING_NONE: break;
    }
    return (struct text_pool){0, 1};
}

/* `rows` begin with the text's first; or with those that are summed, or their sum. */
static struct pooled_rows pooled_rows(const struct embedder *embedder,
                                      const struct embed_sequence *sequence, const float *rows) {
    const size_t width = embedder->options.config->width;
    const struct text_pool pool = pool_of(embedder, sequence);
    const bool is_sum = embedder->options.runner != NULL;
    const bool is_last_alone = !embedder->encoder && embedder->options.pooling == POOLING_LAST;
    const bool is_first = !is_sum && !is_last_alone;
    return (struct pooled_rows){.at = rows + (is_first ? pool.first * width : 0),
                                .count = is_sum ? 1 : pool.count,
                                .summed = pool.count};
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

/* A text's way from its rows to its vector, in one thread's memory. */
struct finish {
    const struct embedder *embedder;
    const struct embed_sequence *sequences; /* those of the step */
    const struct step *step;
    const float *rows;   /* hidden states; or a row per text */
    bool is_row_by_text; /* rows has one per text */
    uint32_t first;      /* number of the step's first text in the call */
    float *vectors;      /* (texts of the step, embed_width) */
};

/* A vector, through the products behind the pooling. */
static enum err finish_vector(const struct embedder *embedder, struct pooled_rows pooled,
                              uint32_t index, uint32_t worker, float *ret_vector,
                              struct error *error) {
    const struct model_config *config = embedder->options.config;
    const uint32_t count = dense_count(config);
    float *from = embedder->state + (size_t)worker * embedder->state_width;
    float *to = embedder->scratch + (size_t)worker * embedder->state_width;
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

/* The vector of text `i` of the step. */
static enum err finish_text(const struct finish *finish, uint32_t i, uint32_t worker,
                            struct error *error) {
    const struct embedder *embedder = finish->embedder;
    const struct model_config *config = embedder->options.config;
    const size_t row = finish->is_row_by_text ? i : finish->step->sequences[i].row_first;
    const struct pooled_rows pooled =
        pooled_rows(embedder, &finish->sequences[i], finish->rows + row * config->width);
    float *vector = finish->vectors + (size_t)i * embed_width(config);
    const uint32_t index = finish->first + i;
    if (config->labels == 0 && !embed_is_judge(config))
        return finish_vector(embedder, pooled, index, worker, vector, error);
    float *state = embedder->state + (size_t)worker * embedder->state_width;
    sum_rows(pooled, config->width, state);
    for (uint32_t j = 0; j < config->width; j++) state[j] /= (float)pooled.summed;
    const struct label_head head = {.weights = &embedder->labels,
                                    .width = config->width,
                                    .labels = embed_width(config),
                                    .epsilon = config->eps,
                                    .scratch =
                                        embedder->scratch + (size_t)worker * embedder->state_width};
    return label_head_run(&head, state, index, vector, error);
}

static void finish_task(void *context, uint32_t task, uint32_t worker) {
    const struct finish *finish = context;
    struct error ignored;
    finish->embedder->has_failed[task] = finish_text(finish, task, worker, &ignored) != OK;
}

/* The vectors of a step. The first text that has none tells why. */
static enum err finish_step(struct finish *finish, struct error *error) {
    const struct embedder *embedder = finish->embedder;
    const uint32_t count = finish->step->sequence_count;
    pool_run(embedder->options.pool, finish_task, finish, count);
    for (uint32_t i = 0; i < count; i++)
        if (embedder->has_failed[i]) return finish_text(finish, i, 0, error);
    return OK;
}

static enum err run_on_cpu(struct embedder *embedder, const struct embed_sequence *sequences,
                           uint32_t count, float *ret_vectors, struct error *error) {
    const size_t width = embed_width(embedder->options.config);
    enum err err = OK;
    for (uint32_t done = 0; done < count && err == OK;) {
        struct step step;
        uint32_t taken = fill_step(embedder, sequences + done, count - done, &step);
        struct finish finish = {.embedder = embedder,
                                .sequences = sequences + done,
                                .step = &step,
                                .rows = run_step(embedder, &step),
                                .is_row_by_text =
                                    !embedder->encoder && embedder->options.pooling == POOLING_LAST,
                                .first = done,
                                .vectors = ret_vectors + done * width};
        err = finish_step(&finish, error);
        done += taken;
    }
    return err;
}

/* Starts the step of the next texts; returns how many. */
static enum err submit_step(struct embedder *embedder, const struct embed_sequence *sequences,
                            uint32_t count, uint32_t *ret_taken, struct error *error) {
    const struct text_runner *runner = embedder->options.runner;
    struct step step;
    *ret_taken = fill_step(embedder, sequences, count, &step);
    for (uint32_t i = 0; i < *ret_taken; i++) embedder->pools[i] = pool_of(embedder, &sequences[i]);
    const struct text_step text = {
        .step = &step, .pools = embedder->pools, .is_second = embedder->is_second};
    return runner->ops->submit(runner->self, &text, error);
}

/* Steps are under way while texts of the one before are finished here. After a text without a
 * vector the others are waited for, because the device is sound. */
static enum err run_on_device(struct embedder *embedder, const struct embed_sequence *sequences,
                              uint32_t count, float *ret_vectors, struct error *error) {
    const struct text_runner *runner = embedder->options.runner;
    const size_t width = embed_width(embedder->options.config);
    uint32_t taken[2] = {0}, begun = 0, done = 0, under_way = 0, next = 0;
    enum err text_err = OK;
    assert(runner->steps_max <= 2);
    while (done < begun || (begun < count && text_err == OK)) {
        if (begun < count && under_way < runner->steps_max && text_err == OK) {
            uint32_t *texts = &taken[(next + under_way++) % 2];
            enum err err = submit_step(embedder, sequences + begun, count - begun, texts, error);
            if (err != OK) return err;
            begun += *texts;
            continue;
        }
        enum err err = runner->ops->wait(runner->self, embedder->sums, error);
        if (err != OK) return err;
        const struct step step = {.sequence_count = taken[next]};
        struct finish finish = {.embedder = embedder,
                                .sequences = sequences + done,
                                .step = &step,
                                .rows = embedder->sums,
                                .is_row_by_text = true,
                                .first = done,
                                .vectors = ret_vectors + done * width};
        if (text_err == OK) text_err = finish_step(&finish, error);
        done += taken[next];
        next = (next + 1) % 2;
        under_way--;
    }
    return text_err;
}

enum err embedder_run(struct embedder *embedder, const struct embed_sequence *sequences,
                      uint32_t count, float *ret_vectors, struct error *error) {
    enum err err = OK;
    if (embed_is_judge(embedder->options.config) && !embedder->judge)
        return err_set(error, ERR_INVALID, "its tokens for yes and no are not known here");
    for (uint32_t i = 0; i < count && err == OK; i++)
        err = check_sequence(embedder, &sequences[i], i, error);
    if (err != OK) return err;
    return embedder->options.runner ? run_on_device(embedder, sequences, count, ret_vectors, error)
                                    : run_on_cpu(embedder, sequences, count, ret_vectors, error);
}
