/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "cpu/sampler.h"
#include "gpu/gpu_sampling.h"
#include "plain_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 1000u
#define ROWS 6u
#define WORDS ((VOCAB + 31) / 32)
#define PROMPT 40u
#define GENERATED 30u

/* One step's rows, sampled by the CPU and, from the same logits, by the GPU of the tests. */
struct rig {
    struct rng rng;
    struct sampler sampler;
    struct gpu_sampling *sampling;
    struct gpu_record record;
    struct gpu gpu; /* its sampling part alone */
    struct gpu_result result;
    struct sampling requests[ROWS];
    struct logit_row rows[ROWS];
    struct step_sequence sequences[ROWS];
    struct step step;
    struct sample expected[ROWS], samples[ROWS];
    float logits[ROWS * VOCAB];
    int32_t prompts[ROWS][PROMPT], generated[ROWS][GENERATED], scored[ROWS];
    uint32_t masks[ROWS][WORDS];
    struct logit_bias biases[ROWS][8];
    int32_t lists[ROWS][3][8];
    int32_t bad_words[ROWS][700];
    int32_t tokens[ROWS];
    struct gpu_answer answers[ROWS];
    float named_logits[ROWS * SAMPLING_LOGPROB_TOKENS_MAX];
};

static const struct gpu_sampling_options options = {.vocab = VOCAB,
                                                    .logit_rows_max = ROWS,
                                                    .sequences_max = ROWS,
                                                    .context_max = PROMPT + GENERATED};

static struct rig *open_rig(void) {
    struct error error;
    struct rig *rig = calloc(1, sizeof *rig);
    assert_int_equal(sampler_open(&rig->sampler, kernels_choose("ref"), VOCAB, &error), OK);
    assert_int_equal(gpu_sampling_open(&rig->sampling, &options, &error), OK);
    assert_int_equal(gpu_record_open(&rig->record, &options, &error), OK);
    struct gpu *gpu = &rig->gpu;
    gpu->program.vocab = gpu->program.vocab_rows = VOCAB;
    gpu->logits = rig->logits;
    gpu->edited = calloc(VOCAB, sizeof *gpu->edited);
    gpu->order = calloc(VOCAB, sizeof *gpu->order);
    gpu->is_held = calloc(VOCAB, sizeof *gpu->is_held);
    gpu->tokens = rig->tokens;
    gpu->is_drawn = calloc(ROWS, sizeof *gpu->is_drawn);
    gpu->last_token = calloc(ROWS, sizeof *gpu->last_token);
    rig->result = (struct gpu_result){
        .tokens = rig->tokens, .answers = rig->answers, .named_logits = rig->named_logits};
    return rig;
}

static void close_rig(struct rig *rig) {
    free(rig->gpu.edited);
    free(rig->gpu.order);
    free(rig->gpu.is_held);
    free(rig->gpu.is_drawn);
    free(rig->gpu.last_token);
    gpu_record_close(&rig->record);
    gpu_sampling_close(rig->sampling);
    sampler_close(&rig->sampler);
    free(rig);
}

static uint32_t below(struct rig *rig, uint32_t bound) {
    return (uint32_t)rng_below(&rig->rng, bound);
}

static bool one_in(struct rig *rig, uint32_t count) {
    return below(rig, count) == 0;
}

static int32_t token_of(struct rig *rig) {
    return (int32_t)below(rig, one_in(rig, 2) ? 20 : VOCAB);
}

static uint32_t make_list(struct rig *rig, int32_t *list, uint32_t bound) {
    uint32_t count = 1 + below(rig, bound);
    for (uint32_t i = 0; i < count; i++) list[i] = token_of(rig);
    return count;
}

static void make_bad_words(struct rig *rig, uint32_t at) {
    struct sampling *request = &rig->requests[at];
    int32_t *words = rig->bad_words[at];
    bool has_many = one_in(rig, 3);
    uint32_t count = has_many ? 300 : 1 + below(rig, 4), ints = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool is_run = !has_many && one_in(rig, 2);
        words[ints++] = is_run ? 2 : 1;
        if (is_run) words[ints++] = rig->generated[at][GENERATED - 1];
        words[ints++] = has_many ? (int32_t)i : token_of(rig);
    }
    request->bad_words = words;
    request->bad_word_ints = ints;
}

static void make_mask(struct rig *rig, uint32_t at) {
    memset(rig->masks[at], 0, sizeof rig->masks[at]);
    uint32_t count = one_in(rig, 5) ? 0 : 1 + below(rig, 30);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t token = (uint32_t)token_of(rig);
        rig->masks[at][token / 32] |= 1u << token % 32;
    }
    rig->rows[at].allowed = rig->masks[at];
}

static void make_logprobs(struct rig *rig, uint32_t at) {
    struct sampling *request = &rig->requests[at];
    request->logprobs = true;
    request->top_logprobs = below(rig, 6);
    request->prompt_top_logprobs = below(rig, 6);
    if (one_in(rig, 3)) {
        request->logprob_tokens = rig->lists[at][2];
        request->logprob_token_count = make_list(rig, rig->lists[at][2], 8);
    }
    if (one_in(rig, 3)) {
        rig->scored[at] = token_of(rig);
        rig->rows[at].scored = &rig->scored[at];
    }
}

static void make_request(struct rig *rig, uint32_t at) {
    struct sampling *request = &rig->requests[at];
    *request =
        (struct sampling){.temperature = one_in(rig, 2) ? 0.0f : 0.2f + (float)below(rig, 20) / 10};
    if (one_in(rig, 2)) request->top_p = (float)below(rig, 100) / 100;
    if (one_in(rig, 2)) request->top_k = below(rig, 50);
    if (one_in(rig, 3)) request->min_p = (float)below(rig, 50) / 100;
    if (one_in(rig, 3)) request->repetition_penalty = 0.5f + (float)below(rig, 20) / 10;
    if (one_in(rig, 3)) request->presence_penalty = (float)below(rig, 30) / 10 - 1;
    if (one_in(rig, 3)) request->frequency_penalty = (float)below(rig, 30) / 10 - 1;
    if (one_in(rig, 3)) {
        request->biases = rig->biases[at];
        request->bias_count = 1 + below(rig, 8);
        for (uint32_t i = 0; i < request->bias_count; i++)
            rig->biases[at][i] =
                (struct logit_bias){(int32_t)(i * 7 + below(rig, 7)), (float)below(rig, 200) - 100};
    }
    if (one_in(rig, 4)) {
        request->allowed_tokens = rig->lists[at][0];
        request->allowed_token_count = make_list(rig, rig->lists[at][0], 8);
    }
    if (one_in(rig, 3)) {
        request->min_tokens = GENERATED + 2 - below(rig, 4);
        request->stop_tokens = rig->lists[at][1];
        request->stop_token_count = make_list(rig, rig->lists[at][1], 8);
        request->end_tokens = rig->lists[at][0];
        request->end_token_count = request->allowed_token_count;
    }
    if (one_in(rig, 3)) make_bad_words(rig, at);
    if (one_in(rig, 4)) make_mask(rig, at);
    if (one_in(rig, 2)) make_logprobs(rig, at);
}

static void make_row(struct rig *rig, uint32_t at) {
    float *logits = rig->logits + (size_t)at * VOCAB;
    for (uint32_t i = 0; i < VOCAB; i++) logits[i] = (float)below(rig, 2000) / 100 - 10;
    if (one_in(rig, 8)) logits[below(rig, 20)] = NAN;
    if (one_in(rig, 8)) logits[below(rig, 20)] = INFINITY;
    if (one_in(rig, 8))
        for (uint32_t i = 0; i < 20; i++) logits[i] = -INFINITY;
    for (uint32_t i = 0; i < PROMPT; i++) rig->prompts[at][i] = token_of(rig);
    for (uint32_t i = 0; i < GENERATED; i++) rig->generated[at][i] = token_of(rig);
    rig->sequences[at] = (struct step_sequence){.slot = ROWS - 1 - at};
    rig->rows[at] = (struct logit_row){.row = at,
                                       .sequence = at,
                                       .index = at,
                                       .sampling = &rig->requests[at],
                                       .seed = rng_next(&rig->rng),
                                       .counter = GENERATED,
                                       .prompt = rig->prompts[at],
                                       .prompt_count = PROMPT,
                                       .generated = rig->generated[at]};
    make_request(rig, at);
    rig->rows[at].is_late = !rig->rows[at].scored && one_in(rig, 3);
    sampler_sample(&rig->sampler, &rig->rows[at], logits, &rig->expected[at]);
}

static void expect_equal(const struct rig *rig, uint32_t at) {
    const struct sample *expected = &rig->expected[at], *sample = &rig->samples[at];
    assert_int_equal(sample->token, expected->token);
    assert_true(fabsf(sample->logprob - expected->logprob) < 1e-3f ||
                expected->logprob == sample->logprob);
    assert_int_equal(sample->rank, expected->rank);
    assert_int_equal(sample->top_count, expected->top_count);
    for (uint32_t i = 0; i < expected->top_count; i++) {
        assert_int_equal(sample->top[i].token, expected->top[i].token);
        assert_true(fabsf(sample->top[i].logprob - expected->top[i].logprob) < 1e-3f);
    }
    if (!rig->rows[at].scored)
        assert_int_equal(rig->gpu.last_token[ROWS - 1 - at], expected->token);
}

/* Copies, as table->submit and table->sample do, by running at once. */
static void run_samples(struct rig *rig, const struct gpu_samples *samples, uint32_t *answers,
                        uint32_t *named) {
    if (!samples) return;
    for (uint32_t i = 1; i < samples->edit_count; i++) {
        const struct draw_edit *a = &samples->edits[i - 1], *b = &samples->edits[i];
        assert_true(a->row < b->row ||
                    (a->row == b->row &&
                     (a->token < b->token || (a->token == b->token && a->kind < b->kind))));
    }
    plain_samples(&rig->gpu, samples, &rig->result, answers, named);
}

static void equal_logits_give_the_token_of_the_cpu(void **state) {
    (void)state;
    struct rig *rig = open_rig();
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        rig->rng = (struct rng){seed};
        for (uint32_t i = 0; i < ROWS; i++) make_row(rig, i);
        rig->step = (struct step){
            .logit_count = ROWS, .sequences = rig->sequences, .logit_rows = rig->rows};
        uint32_t answers = 0, named = 0, late_count = 0;
        run_samples(rig, gpu_sampling_begin(rig->sampling, &rig->record, &rig->step, seed),
                    &answers, &named);
        struct logit_row late[ROWS];
        for (uint32_t i = 0; i < ROWS; i++)
            if (rig->rows[i].is_late) late[late_count++] = rig->rows[i];
        if (late_count > 0)
            run_samples(rig, gpu_sampling_late(rig->sampling, &rig->record, late, late_count, seed),
                        &answers, &named);
        gpu_sampling_answer(&rig->record, &rig->result, rig->samples);
        for (uint32_t i = 0; i < ROWS; i++) expect_equal(rig, i);
    }
    close_rig(rig);
}

static void a_late_row_that_is_never_sampled_is_left_alone(void **state) {
    (void)state;
    struct rig *rig = open_rig();
    rig->rng = (struct rng){7};
    for (uint32_t i = 0; i < ROWS; i++) {
        make_row(rig, i);
        rig->rows[i].is_late = true;
        rig->rows[i].scored = NULL;
        rig->samples[i].token = -77;
    }
    rig->step =
        (struct step){.logit_count = ROWS, .sequences = rig->sequences, .logit_rows = rig->rows};
    assert_null(gpu_sampling_begin(rig->sampling, &rig->record, &rig->step, 1));
    gpu_sampling_answer(&rig->record, &rig->result, rig->samples);
    for (uint32_t i = 0; i < ROWS; i++) assert_int_equal(rig->samples[i].token, -77);
    close_rig(rig);
}

/* Rows whose penalties are over every token: together more edits than a call has room for. */
static void rows_whose_edits_exceed_a_call_s_room_keep_them_all(void **state) {
    (void)state;
    enum { vocab = 9000, count = 4 };
    const struct gpu_sampling_options large = {
        .vocab = vocab, .logit_rows_max = count, .sequences_max = count, .context_max = 2 * vocab};
    struct sampler sampler;
    struct gpu_sampling *sampling;
    struct gpu_record record;
    struct error error;
    assert_int_equal(sampler_open(&sampler, kernels_choose("ref"), vocab, &error), OK);
    assert_int_equal(gpu_sampling_open(&sampling, &large, &error), OK);
    assert_int_equal(gpu_record_open(&record, &large, &error), OK);
    float *logits = calloc((size_t)count * vocab, sizeof *logits);
    int32_t *context = calloc(vocab, sizeof *context);
    /* The likeliest token by far has the highest id; each row's own is likely without penalty. */
    for (uint32_t i = 0; i < vocab; i++) context[i] = (int32_t)i;
    struct sampling request = {.repetition_penalty = 1.5f, .presence_penalty = 2.0f};
    struct step_sequence sequences[count];
    struct logit_row rows[count];
    int32_t tokens[count], last[count];
    bool is_drawn[count] = {false};
    for (uint32_t i = 0; i < count; i++) {
        float *own = logits + (size_t)i * vocab;
        own[vocab - 1] = 10.0f, own[i] = 8.0f;
        sequences[i] = (struct step_sequence){.slot = i};
        rows[i] = (struct logit_row){.sequence = i,
                                     .index = i,
                                     .sampling = &request,
                                     .counter = vocab - 1 - i,
                                     .prompt = context + i + 1,
                                     .prompt_count = vocab - 1 - i,
                                     .generated = context + i + 1,
                                     .is_late = i >= 2};
    }
    struct gpu gpu = {.logits = logits,
                      .edited = calloc(vocab, sizeof(float)),
                      .order = calloc(vocab, sizeof(uint32_t)),
                      .is_held = calloc(vocab, sizeof(bool)),
                      .tokens = tokens,
                      .is_drawn = is_drawn,
                      .last_token = last};
    gpu.program.vocab = gpu.program.vocab_rows = vocab;
    struct gpu_result result = {.tokens = tokens};
    struct step step = {.logit_count = count, .sequences = sequences, .logit_rows = rows};
    uint32_t calls = 0, answers = 0, named = 0;
    for (uint32_t late = 0; late < 2; late++) {
        const struct gpu_samples *samples =
            late ? gpu_sampling_late(sampling, &record, rows + 2, 2, 1)
                 : gpu_sampling_begin(sampling, &record, &step, 1);
        for (; samples; samples = gpu_sampling_more(sampling), calls++) {
            assert_true(samples->edit_count <= gpu_sampling_edits_max(&large));
            plain_samples(&gpu, samples, &result, &answers, &named);
        }
    }
    assert_int_equal(calls, count);
    for (uint32_t i = 0; i < count; i++) {
        struct sample expected;
        sampler_sample(&sampler, &rows[i], logits + (size_t)i * vocab, &expected);
        assert_int_equal(expected.token, i);
        assert_int_equal(tokens[i], i);
    }
    free(gpu.edited);
    free(gpu.order);
    free(gpu.is_held);
    free(context);
    free(logits);
    gpu_record_close(&record);
    gpu_sampling_close(sampling);
    sampler_close(&sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_logits_give_the_token_of_the_cpu),
        cmocka_unit_test(a_late_row_that_is_never_sampled_is_left_alone),
        cmocka_unit_test(rows_whose_edits_exceed_a_call_s_room_keep_them_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
