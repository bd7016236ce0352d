/* SPDX-License-Identifier: Apache-2.0 */
#include "toy.h"

#include "base/clock.h"
#include "base/rng.h"
#include "base/utf8.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEMPLATE                                                                                   \
    "{% for m in messages %}<|{{ 'assistant' if m.role == 'assistant' else 'user' }}|>"            \
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"

/* The byte-level alphabet of GPT-2: a byte that prints is itself, the others follow U+00FF. */
static bool is_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

static uint32_t byte_code_point(unsigned byte) {
    if (is_itself(byte)) return byte;
    uint32_t code_point = 256;
    for (unsigned other = 0; other < byte; other++)
        if (!is_itself(other)) code_point++;
    return code_point;
}

static void open_tokenizer(struct toy *toy) {
    static const char *const special[] = {"<|user|>", "<|assistant|>", "<|end|>", "he",
                                          "ll",       "hell"};
    char spelled[256][4];
    struct str tokens[TOY_VOCAB];
    uint8_t kinds[TOY_VOCAB];
    for (unsigned byte = 0; byte < 256; byte++) {
        size_t bytes = utf8_encode(byte_code_point(byte), spelled[byte]);
        tokens[byte] = (struct str){spelled[byte], bytes};
        kinds[byte] = TOKEN_NORMAL;
    }
    for (unsigned id = 256; id < TOY_VOCAB; id++) {
        tokens[id] = str_from(special[id - 256]);
        kinds[id] = id <= TOY_END ? TOKEN_CONTROL : TOKEN_NORMAL;
    }
    const struct str merges[] = {STR("h e"), STR("l l"), STR("he ll")};
    const struct tokenizer_source source = {.model = STR("gpt2"),
                                            .pre = STR("gpt-2"),
                                            .tokens = tokens,
                                            .kinds = kinds,
                                            .token_count = TOY_VOCAB,
                                            .merges = merges,
                                            .merge_count = 3,
                                            .bos = TOKEN_NONE,
                                            .eos = TOY_END,
                                            .eot = TOKEN_NONE,
                                            .unknown = TOKEN_NONE,
                                            .padding = TOKEN_NONE};
    struct error error;
    enum err err = tokenizer_open(&toy->model.vocabulary.tokenizer, &source, &error);
    assert(err == OK);
    vocabulary_find_marks(&toy->model.vocabulary);
}

/* The token at a position of a sequence, out of the cache. */
static int32_t token_at(const struct toy *toy, const struct step_sequence *sequence, uint32_t at) {
    return toy->kv[sequence->pages[at / BACKEND_BLOCK_TOKENS] * BACKEND_BLOCK_TOKENS +
                   at % BACKEND_BLOCK_TOKENS];
}

/* What the prompt wants copied at place `counter`, or -1 when it holds no '@'. */
static int32_t copied(const struct toy *toy, const struct logit_row *row,
                      const struct step_sequence *sequence) {
    uint32_t at = row->prompt_count;
    while (at > 0 && token_at(toy, sequence, at - 1) != '@') at--;
    if (at == 0) return -1;
    for (uint32_t i = 0; i <= row->counter; i++) {
        if (at + i >= row->prompt_count) return TOY_END;
        int32_t token = token_at(toy, sequence, at + i);
        if (token == '^' || token == TOY_ASSISTANT) return TOY_END;
        if (i == row->counter) return token;
    }
    return TOY_END;
}

static void compute_logits(struct toy *toy, const struct step *step, const struct logit_row *row) {
    const struct step_sequence *sequence = &step->sequences[row->sequence];
    for (int32_t token = 0; token < TOY_VOCAB; token++) toy->logits[token] = -200;
    toy->logits[0] = -300; /* no key of a JSON object can hold it */
    int32_t wanted = row->scored ? -1 : copied(toy, row, sequence);
    if (wanted >= 0) {
        toy->logits[wanted] = 10;
        return;
    }
    uint32_t length = step->positions[row->row] + 1;
    uint64_t hash = 1;
    for (uint32_t at = length > 4 ? length - 4 : 0; at < length; at++)
        hash = rng_at(hash, (uint64_t)token_at(toy, sequence, at));
    for (int32_t token = 'a'; token <= 'z'; token++)
        toy->logits[token] = rng_unit_at(hash, (uint64_t)token) * 6;
    for (uint32_t at = 0; at < length; at++)
        hash = rng_at(hash, (uint64_t)token_at(toy, sequence, at));
    for (int32_t token = 'A'; token <= 'Z'; token++)
        toy->logits[token] = rng_unit_at(hash, (uint64_t)token) * 6 - 50;
    toy->logits[' '] = 5;
    toy->logits[TOY_END] = 1;
}

static int32_t best_of(const double *logits) {
    int32_t best = 0;
    for (int32_t token = 1; token < TOY_VOCAB; token++)
        if (logits[token] > logits[best]) best = token;
    return best;
}

/* The logarithm of what the logits sum to. */
static double log_sum(const double *logits) {
    double sum = 0, best = logits[best_of(logits)];
    for (int32_t token = 0; token < TOY_VOCAB; token++) sum += exp(logits[token] - best);
    return best + log(sum);
}

static int32_t draw(const double *logits, const struct logit_row *row) {
    double left = rng_unit_at(row->seed, row->counter), whole = log_sum(logits);
    for (int32_t token = 0; token < TOY_VOCAB; token++) {
        left -= exp(logits[token] - whole);
        if (left < 0) return token;
    }
    return best_of(logits);
}

static bool is_named(const struct sampling *sampling, int32_t token) {
    for (uint32_t i = 0; i < sampling->logprob_token_count; i++)
        if (sampling->logprob_tokens[i] == token) return true;
    return false;
}

/* The most likely tokens, or those that are named. */
static void report_logprobs(const double *logits, const struct logit_row *row,
                            struct sample *sample) {
    const struct sampling *sampling = row->sampling;
    double rest[TOY_VOCAB], whole = log_sum(logits);
    sample->logprob = (float)(logits[sample->token] - whole);
    memcpy(rest, logits, sizeof rest);
    uint32_t count = row->scored ? sampling->prompt_top_logprobs : sampling->top_logprobs;
    if (!row->scored && sampling->logprob_token_count > 0) {
        count = sampling->logprob_token_count;
        for (int32_t token = 0; token < TOY_VOCAB; token++)
            if (!is_named(sampling, token)) rest[token] = -INFINITY;
    }
    sample->rank = 1;
    for (int32_t token = 0; row->scored && token < TOY_VOCAB; token++)
        sample->rank += logits[token] > logits[sample->token] ||
                        (logits[token] == logits[sample->token] && token < sample->token);
    for (sample->top_count = 0; sample->top_count < count; sample->top_count++) {
        int32_t best = best_of(rest);
        sample->top[sample->top_count] =
            (struct token_logprob){best, (float)(logits[best] - whole)};
        rest[best] = -INFINITY;
    }
}

static void forbid(const struct sampling *sampling, const struct logit_row *row, double *logits) {
    bool is_allowed[TOY_VOCAB] = {false};
    for (uint32_t i = 0; i < sampling->allowed_token_count; i++)
        is_allowed[sampling->allowed_tokens[i]] = true;
    for (int32_t token = 0; sampling->allowed_token_count && token < TOY_VOCAB; token++)
        if (!is_allowed[token]) logits[token] = -INFINITY;
    for (uint32_t at = 0; at < sampling->bad_word_ints;
         at += (uint32_t)sampling->bad_words[at] + 1) {
        uint32_t before = (uint32_t)sampling->bad_words[at] - 1;
        const int32_t *word = &sampling->bad_words[at + 1];
        bool is_here = before <= row->counter;
        for (uint32_t i = 0; i < before && is_here; i++)
            is_here = row->generated[row->counter - before + i] == word[i];
        if (is_here) logits[word[before]] = -INFINITY;
    }
}

/* As scheduler/sampling.h says, as far as the tests need it. */
static void sample_row(struct toy *toy, const struct logit_row *row, struct sample *ret_sample) {
    const struct sampling *sampling = row->sampling;
    double logits[TOY_VOCAB];
    memcpy(logits, toy->logits, sizeof logits);
    if (row->scored) {
        *ret_sample = (struct sample){.token = *row->scored};
        report_logprobs(logits, row, ret_sample);
        return;
    }
    forbid(sampling, row, logits);
    for (uint32_t i = 0; i < sampling->bias_count; i++)
        logits[sampling->biases[i].token] += sampling->biases[i].bias;
    if (row->counter < sampling->min_tokens) {
        logits[TOY_END] = -INFINITY;
        for (uint32_t i = 0; i < sampling->stop_token_count; i++)
            logits[sampling->stop_tokens[i]] = -INFINITY;
    }
    *ret_sample = (struct sample){.token = best_of(logits)};
    if (sampling->temperature > 0) {
        for (int32_t token = 0; token < TOY_VOCAB; token++) logits[token] /= sampling->temperature;
        ret_sample->token = draw(logits, row);
    }
    if (sampling->logprobs) report_logprobs(toy->logits, row, ret_sample);
}

static enum err check_device(struct toy *toy, const struct step *step, struct error *error) {
    int fail_at = atomic_load(&toy->fail_at_step);
    if (fail_at > 0 && step->number >= (uint64_t)fail_at)
        return err_set(error, ERR_IO, "toy: the device is gone at step %llu",
                       (unsigned long long)step->number);
    return OK;
}

static void store_tokens(struct toy *toy, const struct step *step) {
    for (uint32_t s = 0; s < step->sequence_count; s++) {
        const struct step_sequence *sequence = &step->sequences[s];
        for (uint32_t i = 0; i < sequence->row_count; i++) {
            uint32_t at = sequence->kv_tokens + i;
            assert(at / BACKEND_BLOCK_TOKENS < sequence->block_count);
            toy->kv[sequence->pages[at / BACKEND_BLOCK_TOKENS] * BACKEND_BLOCK_TOKENS +
                    at % BACKEND_BLOCK_TOKENS] = step->tokens[sequence->row_first + i];
        }
    }
}

static void sample_rows(struct toy *toy, const struct step *step, struct step_result *result) {
    for (uint32_t i = 0; i < step->logit_count; i++) {
        compute_logits(toy, step, &step->logit_rows[i]);
        sample_row(toy, &step->logit_rows[i], &result->samples[i]);
    }
    atomic_fetch_add(&toy->step_count, 1);
}

static enum err toy_submit(void *self, const struct step *step, struct error *error) {
    struct toy *toy = self;
    toy->step = step;
    toy->until_ns = clock_monotonic_ns() + (int64_t)atomic_load(&toy->delay_us) * 1000;
    return check_device(toy, step, error);
}

/* A slice is a millisecond of a step that is held or delayed. */
static enum err toy_advance(void *self, bool *ret_done, struct error *error) {
    (void)error;
    struct toy *toy = self;
    *ret_done = !atomic_load(&toy->is_held) && clock_monotonic_ns() >= toy->until_ns;
    if (!*ret_done) clock_sleep_ms(1);
    return OK;
}

/* Tokens are stored only here, so that who passes cannot find them. */
static enum err toy_wait(void *self, struct step_result *result, struct error *error) {
    struct toy *toy = self;
    bool is_done = false;
    while (!is_done) (void)toy_advance(self, &is_done, error);
    store_tokens(toy, toy->step);
    sample_rows(toy, toy->step, result);
    return OK;
}

static enum err toy_interject(void *self, const struct step *step, struct step_result *result,
                              struct error *error) {
    struct toy *toy = self;
    enum err err = check_device(toy, step, error);
    if (err != OK) return err;
    store_tokens(toy, step);
    sample_rows(toy, step, result);
    return OK;
}

/* ---- two steps under way ---- */

static void *copy_of(struct toy_held *held, const void *from, size_t count, size_t bytes) {
    void *copy = arena_array(&held->memory, count + 1, bytes);
    assert(copy);
    if (count > 0) memcpy(copy, from, count * bytes);
    return copy;
}

static enum err toy_submit_copy(void *self, const struct step *step, struct error *error) {
    struct toy *toy = self;
    assert(toy->held_count < BACKEND_STEPS_MAX);
    struct toy_held *held = &toy->held[toy->held_count++];
    arena_init(&held->memory, (size_t)1 << 24);
    held->step = *step;
    held->tokens = copy_of(held, step->tokens, step->row_count, sizeof *step->tokens);
    held->logit_rows = copy_of(held, step->logit_rows, step->logit_count, sizeof *held->logit_rows);
    struct step_sequence *sequences =
        copy_of(held, step->sequences, step->sequence_count, sizeof *sequences);
    for (uint32_t i = 0; i < step->sequence_count; i++)
        sequences[i].pages =
            copy_of(held, sequences[i].pages, sequences[i].block_count, sizeof(uint32_t));
    for (uint32_t i = 0; i < step->logit_count; i++) {
        struct logit_row *row = &held->logit_rows[i];
        if (row->generated)
            row->generated = copy_of(held, row->generated, row->counter, sizeof *row->generated);
    }
    held->step.tokens = held->tokens;
    held->step.logit_rows = held->logit_rows;
    held->step.sequences = sequences;
    held->step.positions = copy_of(held, step->positions, step->row_count, sizeof *step->positions);
    toy->until_ns = clock_monotonic_ns() + (int64_t)atomic_load(&toy->delay_us) * 1000;
    return check_device(toy, step, error);
}

/* A late row is sampled in toy_wait_oldest, like all others. */
static enum err toy_sample(void *self, uint64_t number, const struct logit_row *rows,
                           uint32_t count, struct error *error) {
    (void)error;
    struct toy *toy = self;
    struct toy_held *held = &toy->held[0];
    assert(toy->held_count == 1 && held->step.number == number);
    for (uint32_t i = 0; i < count; i++) {
        struct logit_row *row = &held->logit_rows[rows[i].index];
        assert(row->is_late);
        row->is_late = false;
        row->generated = copy_of(held, rows[i].generated, rows[i].counter, sizeof(int32_t));
    }
    return OK;
}

static enum err toy_wait_oldest(void *self, struct step_result *result, struct error *error) {
    struct toy *toy = self;
    struct toy_held *held = &toy->held[0];
    const struct step *step = &held->step;
    bool is_done = false;
    assert(toy->held_count > 0);
    while (!is_done) (void)toy_advance(self, &is_done, error);
    for (uint32_t i = 0; i < step->row_count; i++)
        if (backend_is_pending(held->tokens[i]))
            held->tokens[i] = toy->last_tokens[backend_pending_slot(held->tokens[i])];
    store_tokens(toy, step);
    for (uint32_t i = 0; i < step->logit_count; i++) {
        const struct logit_row *row = &step->logit_rows[i];
        if (row->is_late) continue; /* nobody wants it any more */
        compute_logits(toy, step, row);
        sample_row(toy, row, &result->samples[i]);
        if (!row->scored)
            toy->last_tokens[step->sequences[row->sequence].slot] = result->samples[i].token;
    }
    atomic_fetch_add(&toy->step_count, 1);
    arena_release(&held->memory);
    toy->held[0] = toy->held[1];
    toy->held_count--;
    return OK;
}

static void toy_close_backend(void *self) {
    (void)self;
}

static bool is_refused(const struct embed_sequence *sequence) {
    for (uint32_t i = 0; i < sequence->count; i++)
        if (sequence->ids[i] == '!') return true;
    return false;
}

static void embed_text(const struct embed_sequence *sequence, float *ret_vector) {
    double sum[TOY_WIDTH] = {0}, squares = 0;
    for (uint32_t i = sequence->pool_first; i < sequence->count; i++)
        for (uint32_t j = 0; j < TOY_WIDTH; j++)
            sum[j] += rng_unit_at((uint64_t)sequence->ids[i], j) - 0.5;
    for (uint32_t j = 0; j < TOY_WIDTH; j++) squares += sum[j] * sum[j];
    for (uint32_t j = 0; j < TOY_WIDTH; j++) ret_vector[j] = (float)(sum[j] / sqrt(squares));
}

static void note_most(atomic_uint *most, unsigned value) {
    if (value > atomic_load(most)) atomic_store(most, value);
}

static enum err toy_embed(void *self, const struct embed_sequence *sequences, uint32_t count,
                          float *ret_vectors, struct error *error) {
    struct toy *toy = self;
    unsigned tokens = 0;
    atomic_fetch_add(&toy->embed_calls, 1);
    while (atomic_load(&toy->is_held)) clock_sleep_ms(1);
    if (atomic_load(&toy->is_embed_broken)) return err_set(error, ERR_IO, "toy: no device");
    for (uint32_t i = 0; i < count; i++) {
        assert(sequences[i].count > sequences[i].pool_first);
        if (is_refused(&sequences[i])) return err_set(error, ERR_INVALID, "text %u is refused", i);
        embed_text(&sequences[i], ret_vectors + (size_t)i * TOY_WIDTH);
        tokens += sequences[i].count;
    }
    note_most(&toy->embed_texts_max, count);
    note_most(&toy->embed_tokens_max, tokens);
    return OK;
}

static uint32_t or_else(uint32_t value, uint32_t otherwise) {
    return value ? value : otherwise;
}

void toy_open(struct toy *toy, const struct toy_options *options) {
    static const struct backend_ops ops = {.submit = toy_submit,
                                           .wait = toy_wait,
                                           .close = toy_close_backend,
                                           .advance = toy_advance,
                                           .interject = toy_interject};
    static const struct backend_ops two_ops = {.submit = toy_submit_copy,
                                               .sample = toy_sample,
                                               .wait = toy_wait_oldest,
                                               .close = toy_close_backend};
    *toy = (struct toy){.model = {.vocabulary = {.unknown = TOKEN_NONE, .padding = TOKEN_NONE},
                                  .name = "toy",
                                  .description = "a toy",
                                  .created_unix_s = 1700000000}};
    open_tokenizer(toy);
    struct error error;
    const char *template = options->chat_template ? options->chat_template : TEMPLATE;
    enum err err = OK;
    if (*template)
        err = jinja_template_open(&toy->model.vocabulary.template, str_from(template), &error);
    assert(err == OK);
    toy->backend = (struct backend){
        options->two_steps ? &two_ops : &ops,
        toy,
        {.block_tokens = BACKEND_BLOCK_TOKENS,
         .page_count = or_else(options->block_count, 256),
         .full_pages = 1,
         .rows_max = or_else(options->rows_max, 64),
         .sequences_max = or_else(options->sequences_max, 16),
         .context_tokens_max = or_else(options->context_tokens_max, 512),
         .vocab = TOY_VOCAB,
         .urgent_rows_max = options->two_steps ? 0 : 32,
         .steps_max = options->two_steps ? 2 : 1},
    };
    assert(toy->backend.caps.sequences_max <= TOY_SLOTS_MAX);
    if (!options->generates_nothing) toy->model.backend = &toy->backend;
    if (options->embeds)
        toy->model.embedder =
            (struct served_embedder){.embed = toy_embed,
                                     .self = toy,
                                     .width = TOY_WIDTH,
                                     .vocab = TOY_VOCAB,
                                     .text_tokens_max = toy->backend.caps.context_tokens_max,
                                     .step_tokens = toy->backend.caps.rows_max};
    toy->kv = calloc((size_t)toy->backend.caps.page_count * BACKEND_BLOCK_TOKENS, sizeof *toy->kv);
    assert(toy->kv);
}

void toy_close(struct toy *toy) {
    jinja_template_close(toy->model.vocabulary.template);
    tokenizer_close(toy->model.vocabulary.tokenizer);
    for (uint32_t i = 0; i < toy->held_count; i++) arena_release(&toy->held[i].memory);
    free(toy->kv);
}
