/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/sampler.h"

#include "base/rng.h"
#include "kernels/draw.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VOCAB 1000u
#define DRAWS 20000u

/* A row with its own logits, for one call. */
struct fixture {
    struct sampler sampler;
    struct sampling sampling;
    struct logit_row row;
    float logits[VOCAB];
};

static void open_fixture(struct fixture *fixture, uint64_t seed) {
    struct error error = {0};
    memset(fixture, 0, sizeof *fixture);
    assert_int_equal(sampler_open(&fixture->sampler, kernels_choose(NULL), VOCAB, &error), OK);
    fixture->row = (struct logit_row){.sampling = &fixture->sampling, .seed = seed};
    struct rng rng = {.state = seed};
    for (uint32_t i = 0; i < VOCAB; i++) fixture->logits[i] = (float)(rng_unit(&rng) * 10.0 - 5.0);
}

static struct sample sample_of(struct fixture *fixture) {
    struct sample sample;
    float before[VOCAB];
    memcpy(before, fixture->logits, sizeof before);
    sampler_sample(&fixture->sampler, &fixture->row, fixture->logits, &sample);
    assert_memory_equal(before, fixture->logits, sizeof before);
    for (uint32_t i = 0; i < VOCAB; i++) assert_int_equal(fixture->sampler.counts[i], 0);
    return sample;
}

static void greedy_takes_the_highest_and_the_lowest_id_among_equals(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 1);
    fixture.logits[700] = fixture.logits[300] = fixture.logits[999] = 9.0f;
    assert_int_equal(sample_of(&fixture).token, 300);
    fixture.sampling.min_tokens = 1; /* leaves the short path */
    assert_int_equal(sample_of(&fixture).token, 300);
    sampler_close(&fixture.sampler);
}

/* Draws DRAWS tokens, one for each counter. */
static void draw_many(struct fixture *fixture, uint32_t counts[VOCAB]) {
    memset(counts, 0, VOCAB * sizeof *counts);
    static int32_t generated[DRAWS];
    fixture->row.generated = generated;
    for (uint32_t i = 0; i < DRAWS; i++) {
        fixture->row.counter = i;
        counts[sample_of(fixture).token]++;
    }
}

/* Chi-squared of draws against the softmax of the kept tokens; no other token is drawn. */
static void check_distribution(struct fixture *fixture, const bool kept[VOCAB]) {
    static uint32_t counts[VOCAB];
    draw_many(fixture, counts);
    double total = 0.0, chi = 0.0, rest_expected = 0.0, rest_seen = 0.0;
    uint32_t cells = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        if (kept[i])
            total += exp((double)fixture->logits[i] / (double)fixture->sampling.temperature);
    for (uint32_t i = 0; i < VOCAB; i++) {
        if (!kept[i]) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        double expected =
            DRAWS * exp((double)fixture->logits[i] / (double)fixture->sampling.temperature) / total;
        if (expected < 10.0) {
            rest_expected += expected;
            rest_seen += counts[i];
            continue;
        }
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        cells++;
    }
    if (rest_expected > 10.0) {
        chi += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
        cells++;
    }
    /* Mean cells - 1, variance twice that: five standard deviations. The draws are fixed by the
     * seed, so this either holds always or never. */
    assert_true(chi < (cells - 1) + 5.0 * sqrt(2.0 * (cells - 1)));
}

static void temperature_alone_draws_from_the_softmax(void **state) {
    (void)state;
    struct fixture fixture;
    bool kept[VOCAB];
    open_fixture(&fixture, 2);
    for (uint32_t i = 0; i < VOCAB; i++) kept[i] = true;
    fixture.sampling.temperature = 0.8f;
    check_distribution(&fixture, kept);
    sampler_close(&fixture.sampler);
}

static void a_temperature_next_to_zero_is_greedy(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 12);
    int32_t greedy = sample_of(&fixture).token;
    fixture.sampling.temperature = 1e-40f;
    for (uint64_t seed = 0; seed < 20; seed++) {
        fixture.row.seed = seed;
        fixture.sampling.top_k = seed % 2 ? 5 : 0;
        assert_int_equal(sample_of(&fixture).token, greedy);
    }
    sampler_close(&fixture.sampler);
}

static int compare_down(const void *a, const void *b) {
    float first = *(const float *)a, second = *(const float *)b;
    return (first < second) - (first > second);
}

/* Keeps logits at or above the logit of this rank. */
static void keep_best(const struct fixture *fixture, uint32_t count, bool kept[VOCAB]) {
    float sorted[VOCAB];
    memcpy(sorted, fixture->logits, sizeof sorted);
    qsort(sorted, VOCAB, sizeof *sorted, compare_down);
    for (uint32_t i = 0; i < VOCAB; i++) kept[i] = fixture->logits[i] >= sorted[count - 1];
}

static void top_k_keeps_the_k_most_likely(void **state) {
    (void)state;
    struct fixture fixture;
    bool kept[VOCAB];
    open_fixture(&fixture, 3);
    fixture.sampling.temperature = 1.5f;
    fixture.sampling.top_k = 17;
    keep_best(&fixture, 17, kept);
    check_distribution(&fixture, kept);
    sampler_close(&fixture.sampler);
}

/* How many of the `among` most likely are needed for a share of `top_p` of them. */
static uint32_t count_for(const struct fixture *fixture, uint32_t among, double top_p) {
    float sorted[VOCAB];
    memcpy(sorted, fixture->logits, sizeof sorted);
    qsort(sorted, VOCAB, sizeof *sorted, compare_down);
    double temperature = (double)fixture->sampling.temperature, total = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < among; i++) total += exp((double)sorted[i] / temperature);
    for (uint32_t i = 0; i < among; i++) {
        sum += exp((double)sorted[i] / temperature);
        if (sum >= top_p * total) return i + 1;
    }
    return among;
}

static void a_large_top_k_is_another_way_to_the_same(void **state) {
    (void)state;
    struct fixture fixture;
    bool kept[VOCAB];
    open_fixture(&fixture, 13);
    fixture.sampling.temperature = 4.0f;
    fixture.sampling.top_k = 400;
    keep_best(&fixture, 400, kept);
    check_distribution(&fixture, kept);
    fixture.sampling.top_p = 0.5f;
    keep_best(&fixture, count_for(&fixture, 400, 0.5), kept);
    check_distribution(&fixture, kept);
    sampler_close(&fixture.sampler);
}

static void top_p_keeps_the_fewest_that_reach_it(void **state) {
    (void)state;
    struct fixture fixture;
    bool kept[VOCAB];
    open_fixture(&fixture, 4);
    fixture.sampling.temperature = 0.7f;
    fixture.sampling.top_p = 0.6f;
    keep_best(&fixture, count_for(&fixture, VOCAB, 0.6), kept);
    check_distribution(&fixture, kept);
    sampler_close(&fixture.sampler);
}

static void top_p_after_top_k_looks_only_at_what_top_k_left(void **state) {
    (void)state;
    struct fixture fixture;
    bool kept[VOCAB];
    open_fixture(&fixture, 5);
    fixture.sampling.temperature = 2.0f;
    fixture.sampling.top_k = 20;
    fixture.sampling.top_p = 0.5f;
    uint32_t count = count_for(&fixture, 20, 0.5);
    assert_in_range(count, 2, 15); /* and far from the result of top_p alone */
    assert_true(count_for(&fixture, VOCAB, 0.5) > 30);
    keep_best(&fixture, count, kept);
    check_distribution(&fixture, kept);
    sampler_close(&fixture.sampler);
}

static void min_p_keeps_what_is_near_the_most_likely(void **state) {
    (void)state;
    struct fixture fixture;
    bool kept[VOCAB];
    open_fixture(&fixture, 6);
    fixture.sampling.temperature = 1.0f;
    fixture.sampling.min_p = 0.3f;
    float max = fixture.logits[0];
    for (uint32_t i = 0; i < VOCAB; i++) max = fmaxf(max, fixture.logits[i]);
    for (uint32_t i = 0; i < VOCAB; i++)
        kept[i] = exp((double)(fixture.logits[i] - max)) >= (double)0.3f;
    check_distribution(&fixture, kept);
    sampler_close(&fixture.sampler);
}

static void a_seed_and_a_counter_give_the_same_token_always(void **state) {
    (void)state;
    struct fixture one, other;
    open_fixture(&one, 7);
    open_fixture(&other, 7);
    one.sampling.temperature = other.sampling.temperature = 1.0f;
    static int32_t generated[100];
    one.row.generated = other.row.generated = generated;
    uint32_t changed = 0;
    for (uint32_t i = 0; i < 100; i++) {
        one.row.counter = i;
        int32_t token = sample_of(&one).token;
        other.row.counter = 99 - i; /* something else runs in between */
        (void)sample_of(&other);
        other.row.counter = i;
        assert_int_equal(sample_of(&other).token, token);
        other.row.seed++;
        changed += sample_of(&other).token != token;
        other.row.seed--;
    }
    assert_true(changed > 80);
    sampler_close(&one.sampler);
    sampler_close(&other.sampler);
}

/* ---- the definition, written down as a loop ---- */

static const float *order_logits; /* for the sort, which takes no argument */

/* By likelihood: the higher logit first, the lower id among equals. */
static int compare_likelihood(const void *a, const void *b) {
    uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    if (order_logits[first] != order_logits[second])
        return order_logits[first] < order_logits[second] ? 1 : -1;
    return first < second ? -1 : 1;
}

/* The token that kernels/draw.h defines for cleaned logits, of which one at least is a number. */
static uint32_t defined_token(const struct sampling *sampling, const float *logits, uint64_t bits) {
    uint32_t order[VOCAB], count = VOCAB;
    bool is_kept[VOCAB] = {0};
    float factor = draw_factor(sampling->temperature);
    for (uint32_t i = 0; i < VOCAB; i++) order[i] = i;
    order_logits = logits;
    qsort(order, VOCAB, sizeof order[0], compare_likelihood);
    float max = logits[order[0]];
    float least = draw_least(max, draw_offset(sampling->temperature, sampling->min_p));
    while (logits[order[count - 1]] < least) count--;
    if (sampling->top_k > 0 && sampling->top_k < count) count = sampling->top_k;
    uint64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++) total += draw_weight(logits[order[i]], max, factor);
    if (sampling->top_p > 0.0f && sampling->top_p < 1.0f) {
        uint64_t enough = draw_enough(sampling->top_p, total);
        count = 0;
        while (sum < enough) sum += draw_weight(logits[order[count++]], max, factor);
        total = sum;
    }
    for (uint32_t i = 0; i < count; i++) is_kept[order[i]] = true;
    uint64_t wanted = draw_wanted(bits, total);
    sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        if (is_kept[i]) sum += draw_weight(logits[i], max, factor);
        if (sum > wanted) return i;
    }
    return VOCAB;
}

/* Rows as models give them, and such with many equal logits, flat, peaked and broken ones. */
static float random_logit(struct rng *rng, uint32_t look) {
    static const float broken[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0.0f, -0.0f, 1e-40f};
    float value = (float)(rng_unit(rng) + rng_unit(rng) + rng_unit(rng) - 1.5) * 8;
    switch (look) {
    case 1: return floorf(value * 4) / 4;
    case 2: return value * 0.001f;
    case 3: return 1.5f;
    case 4: return rng_below(rng, 200) == 0 ? value * 5 : value - 20;
    case 5: return rng_below(rng, 50) == 0 ? broken[rng_below(rng, 8)] : value;
    default: return value;
    }
}

/* On every instruction set, for all that can be asked. */
static void tokens_are_those_of_the_definition(void **state) {
    (void)state;
    static const float temperatures[] = {1e-40f, 0.2f, 0.7f, 1, 2, 100};
    static const float top_ps[] = {0, 0, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 1, 1e-9f};
    static const float min_ps[] = {0, 0, 0.05f, 0.9f};
    static const uint32_t top_ks[] = {0, 0, 1, 2, 40, 256, 257, 600, VOCAB, 5000};
    struct rng rng = {31};
    struct fixture fixture;
    float cleaned[VOCAB];
    open_fixture(&fixture, 31);
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t look = round % 6;
        for (uint32_t i = 0; i < VOCAB; i++) fixture.logits[i] = random_logit(&rng, look);
        fixture.logits[rng_below(&rng, VOCAB)] = 1;
        for (uint32_t i = 0; i < VOCAB; i++) cleaned[i] = draw_clean(fixture.logits[i]);
        fixture.sampling = (struct sampling){.temperature = temperatures[rng_below(&rng, 6)],
                                             .top_p = top_ps[rng_below(&rng, 9)],
                                             .min_p = min_ps[rng_below(&rng, 4)],
                                             .top_k = top_ks[rng_below(&rng, 10)]};
        fixture.row.seed = rng_next(&rng);
        fixture.row.counter = (uint32_t)rng_below(&rng, 5000);
        uint64_t bits = rng_at(fixture.row.seed, fixture.row.counter);
        uint32_t wanted = defined_token(&fixture.sampling, cleaned, bits);
        for (size_t i = 0; kernels_at(i); i++) {
            fixture.sampler.kernels = kernels_at(i);
            assert_int_equal(sample_of(&fixture).token, wanted);
        }
    }
    sampler_close(&fixture.sampler);
}

/* A change of the definition changes what clients with a seed get: these tokens stand for them. */
static void seeded_tokens_stay_what_they_are(void **state) {
    (void)state;
    static const int32_t plain[] = {906, 513, 472, 554, 453, 745, 737, 996};
    static const int32_t narrowed[] = {898, 464, 434, 494, 423, 737, 696, 999};
    struct fixture fixture;
    open_fixture(&fixture, 41);
    for (uint32_t i = 0; i < VOCAB; i++) fixture.logits[i] = (float)(i * 37 % 101) / 8.0f;
    fixture.sampling.temperature = 0.8f;
    for (uint32_t i = 0; i < 8; i++) {
        fixture.row.counter = i;
        assert_int_equal(sample_of(&fixture).token, plain[i]);
    }
    fixture.sampling.top_k = 40;
    fixture.sampling.top_p = 0.9f;
    for (uint32_t i = 0; i < 8; i++) {
        fixture.row.counter = i;
        assert_int_equal(sample_of(&fixture).token, narrowed[i]);
    }
    sampler_close(&fixture.sampler);
}

static void penalties_count_prompt_and_output_as_their_definitions_say(void **state) {
    (void)state;
    struct fixture fixture;
    static const int32_t prompt[] = {10, 11, 11, 12}, generated[] = {11, 13, 13, 14};
    open_fixture(&fixture, 8);
    for (uint32_t i = 0; i < VOCAB; i++) fixture.logits[i] = -10.0f;
    fixture.row.prompt = prompt;
    fixture.row.prompt_count = 4;
    fixture.row.generated = generated;
    fixture.row.counter = 4;
    /* Repetition divides a positive logit once, however often the token was seen. */
    fixture.logits[11] = 4.0f;
    fixture.logits[20] = 2.1f;
    fixture.sampling.repetition_penalty = 1.9f;
    assert_int_equal(sample_of(&fixture).token, 11);
    fixture.sampling.repetition_penalty = 2.0f;
    assert_int_equal(sample_of(&fixture).token, 20);
    /* …and multiplies a negative one. */
    for (uint32_t i = 0; i < VOCAB; i++) fixture.logits[i] = -10.0f;
    fixture.logits[12] = -1.0f;
    fixture.logits[20] = -1.5f;
    assert_int_equal(sample_of(&fixture).token, 20);
    /* Frequency counts each time in the output, the prompt not at all. */
    fixture.sampling = (struct sampling){.frequency_penalty = 1.0f};
    fixture.logits[12] = -1.0f;
    assert_int_equal(sample_of(&fixture).token, 12);
    fixture.logits[13] = 1.2f;
    assert_int_equal(sample_of(&fixture).token, 13); /* 1.2 - 2 = -0.8 */
    fixture.logits[13] = 0.9f;
    assert_int_equal(sample_of(&fixture).token, 12); /* 0.9 - 2 = -1.1 */
    fixture.sampling = (struct sampling){.presence_penalty = 1.0f};
    assert_int_equal(sample_of(&fixture).token, 13); /* 0.9 - 1 */
    sampler_close(&fixture.sampler);
}

static void biases_masks_and_min_tokens_decide_what_can_be_sampled(void **state) {
    (void)state;
    struct fixture fixture;
    static const struct logit_bias biases[] = {{40, 100.0f}, {41, -100.0f}};
    static const int32_t stops[] = {40}, ends[] = {50};
    uint32_t allowed[(VOCAB + 31) / 32];
    open_fixture(&fixture, 9);
    fixture.logits[41] = 50.0f;
    fixture.logits[50] = 40.0f;
    assert_int_equal(sample_of(&fixture).token, 41);
    fixture.sampling.biases = biases;
    fixture.sampling.bias_count = 2;
    assert_int_equal(sample_of(&fixture).token, 40);
    fixture.sampling.stop_tokens = stops;
    fixture.sampling.end_tokens = ends;
    fixture.sampling.stop_token_count = fixture.sampling.end_token_count = 1;
    assert_int_equal(sample_of(&fixture).token, 40);
    fixture.sampling.min_tokens = 1;
    int32_t token = sample_of(&fixture).token;
    assert_true(token != 40 && token != 50 && token != 41);
    /* A mask that leaves only the end token wins over min_tokens. */
    memset(allowed, 0, sizeof allowed);
    allowed[50 / 32] = 1u << 50 % 32;
    fixture.row.allowed = allowed;
    assert_int_equal(sample_of(&fixture).token, 50);
    allowed[7 / 32] |= 1u << 7 % 32;
    assert_int_equal(sample_of(&fixture).token, 7);
    fixture.sampling.temperature = 5.0f;
    for (uint32_t i = 0; i < 50; i++) {
        fixture.row.seed = i;
        assert_int_equal(sample_of(&fixture).token, 7);
    }
    /* A mask that leaves no token counts as no mask. */
    memset(allowed, 0, sizeof allowed);
    fixture.sampling.temperature = 0.0f;
    fixture.sampling.min_tokens = 0;
    assert_int_equal(sample_of(&fixture).token, 40);
    sampler_close(&fixture.sampler);
}

static void logprobs_are_those_of_the_logits_as_the_model_gave_them(void **state) {
    (void)state;
    struct fixture fixture;
    static const struct logit_bias bias = {123, 100.0f};
    open_fixture(&fixture, 10);
    fixture.logits[5] = fixture.logits[6] = 7.0f;
    fixture.sampling = (struct sampling){.temperature = 0.5f,
                                         .biases = &bias,
                                         .bias_count = 1,
                                         .logprobs = true,
                                         .top_logprobs = 20};
    double sum = 0.0;
    for (uint32_t i = 0; i < VOCAB; i++) sum += exp((double)fixture.logits[i]);
    struct sample sample = sample_of(&fixture);
    assert_int_equal(sample.token, 123);
    assert_true(fabs((double)sample.logprob - ((double)fixture.logits[123] - log(sum))) < 1e-5);
    assert_int_equal(sample.top_count, 20);
    assert_int_equal(sample.top[0].token, 5);
    assert_int_equal(sample.top[1].token, 6);
    for (uint32_t i = 0; i < 20; i++) {
        double expected = (double)fixture.logits[sample.top[i].token] - log(sum);
        assert_true(fabs((double)sample.top[i].logprob - expected) < 1e-5);
        if (i > 0) assert_true(sample.top[i].logprob <= sample.top[i - 1].logprob);
    }
    sampler_close(&fixture.sampler);
}

static void only_listed_tokens_are_sampled(void **state) {
    (void)state;
    struct fixture fixture;
    static const int32_t listed[] = {600, 30, 600, 999};
    uint32_t mask[(VOCAB + 31) / 32] = {[30 / 32] = 1u << 30 % 32};
    open_fixture(&fixture, 21);
    fixture.logits[600] = -3.0f;
    fixture.logits[30] = -4.0f;
    fixture.logits[999] = -5.0f;
    fixture.sampling.allowed_tokens = listed;
    fixture.sampling.allowed_token_count = 4;
    assert_int_equal(sample_of(&fixture).token, 600);
    fixture.sampling.temperature = 2.0f;
    bool kept[VOCAB] = {[600] = true, [30] = true, [999] = true};
    check_distribution(&fixture, kept);
    fixture.row.counter = 0;
    fixture.row.allowed = mask; /* both hold */
    assert_int_equal(sample_of(&fixture).token, 30);
    /* With nothing left the list still holds. */
    for (uint32_t i = 0; i < VOCAB; i++) fixture.logits[i] = NAN;
    fixture.row.allowed = NULL;
    assert_int_equal(sample_of(&fixture).token, 30);
    sampler_close(&fixture.sampler);
}

static void the_end_of_a_bad_word_is_not_sampled_after_its_beginning(void **state) {
    (void)state;
    struct fixture fixture;
    static const int32_t words[] = {1, 5, 3, 10, 11, 12, 2, 11, 7};
    static const int32_t generated[] = {10, 11, 11};
    open_fixture(&fixture, 22);
    fixture.logits[5] = 9.0f;
    fixture.logits[12] = 8.0f;
    fixture.logits[7] = 7.0f;
    fixture.logits[3] = 6.0f;
    fixture.row.generated = generated;
    fixture.sampling.bad_words = words;
    fixture.sampling.bad_word_ints = 9;
    assert_int_equal(sample_of(&fixture).token, 12); /* 5 alone is bad */
    fixture.row.counter = 1;
    assert_int_equal(sample_of(&fixture).token, 12);
    fixture.row.counter = 2; /* after 10 11 both 12 and 7 are */
    assert_int_equal(sample_of(&fixture).token, 3);
    fixture.row.counter = 3; /* after 11 11 only 7 is */
    assert_int_equal(sample_of(&fixture).token, 12);
    sampler_close(&fixture.sampler);
}

static void a_scored_row_gives_the_probability_and_the_rank_of_its_token(void **state) {
    (void)state;
    struct fixture fixture;
    static const struct logit_bias bias = {123, 100.0f};
    static const int32_t token = 444;
    open_fixture(&fixture, 23);
    fixture.sampling = (struct sampling){.temperature = 0.5f,
                                         .biases = &bias,
                                         .bias_count = 1,
                                         .prompt_logprobs = true,
                                         .prompt_top_logprobs = 3};
    fixture.row.scored = &token;
    fixture.logits[400] = fixture.logits[444] = fixture.logits[500] = 2.0f;
    double sum = 0.0;
    uint32_t rank = 1;
    for (uint32_t i = 0; i < VOCAB; i++) {
        sum += exp((double)fixture.logits[i]);
        rank += fixture.logits[i] > 2.0f || (fixture.logits[i] == 2.0f && i < 444);
    }
    struct sample sample = sample_of(&fixture);
    assert_int_equal(sample.token, 444);
    assert_int_equal(sample.rank, rank);
    assert_int_equal(sample.top_count, 3);
    assert_true(fabs((double)sample.logprob - (2.0 - log(sum))) < 1e-5);
    sampler_close(&fixture.sampler);
}

static void named_tokens_come_in_the_order_of_their_likelihood(void **state) {
    (void)state;
    struct fixture fixture;
    static const int32_t named[] = {9, 700, 8, 1, 0};
    open_fixture(&fixture, 24);
    fixture.logits[9] = fixture.logits[8] = 3.0f;
    fixture.logits[700] = -INFINITY;
    fixture.sampling = (struct sampling){
        .logprobs = true, .top_logprobs = 2, .logprob_tokens = named, .logprob_token_count = 5};
    struct sample sample = sample_of(&fixture);
    assert_int_equal(sample.top_count, 5);
    assert_int_equal(sample.top[4].token, 700);
    assert_true(sample.top[4].logprob == -9999.0f);
    uint32_t at[VOCAB] = {0};
    for (uint32_t i = 0; i < 5; i++) {
        at[sample.top[i].token] = i;
        if (i > 0) assert_true(sample.top[i].logprob <= sample.top[i - 1].logprob);
    }
    assert_int_equal(at[9], at[8] + 1); /* equals by id */
    sampler_close(&fixture.sampler);
}

static void logits_that_are_no_numbers_are_survived(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 11);
    fixture.sampling =
        (struct sampling){.temperature = 1.0f, .top_p = 0.9f, .logprobs = true, .top_logprobs = 5};
    for (uint32_t i = 0; i < VOCAB; i++) fixture.logits[i] = i % 2 ? NAN : fixture.logits[i];
    struct sample sample = sample_of(&fixture);
    assert_int_equal(sample.token % 2, 0);
    assert_true(isfinite(sample.logprob));
    fixture.logits[77] = INFINITY;
    sample = sample_of(&fixture);
    assert_int_equal(sample.token, 77);
    assert_true(isfinite(sample.logprob));
    for (uint32_t i = 0; i < VOCAB; i++) fixture.logits[i] = NAN;
    sample = sample_of(&fixture);
    assert_in_range(sample.token, 0, VOCAB - 1);
    assert_true(isfinite(sample.logprob));
    for (uint32_t i = 0; i < sample.top_count; i++) assert_true(isfinite(sample.top[i].logprob));
    /* Not even then is a mask broken. */
    uint32_t allowed[(VOCAB + 31) / 32] = {[4] = 1u << 7};
    fixture.row.allowed = allowed;
    assert_int_equal(sample_of(&fixture).token, 4 * 32 + 7);
    assert_int_equal(fixture.sampler.nonfinite_rows, 4);
    for (uint32_t i = 0; i < VOCAB; i++) fixture.logits[i] = i == 9 ? 0.0f : -INFINITY;
    (void)sample_of(&fixture);
    assert_int_equal(fixture.sampler.nonfinite_rows, 4); /* -inf is how a mask looks */
    sampler_close(&fixture.sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_highest_and_the_lowest_id_among_equals),
        cmocka_unit_test(temperature_alone_draws_from_the_softmax),
        cmocka_unit_test(a_temperature_next_to_zero_is_greedy),
        cmocka_unit_test(top_k_keeps_the_k_most_likely),
        cmocka_unit_test(a_large_top_k_is_another_way_to_the_same),
        cmocka_unit_test(top_p_keeps_the_fewest_that_reach_it),
        cmocka_unit_test(top_p_after_top_k_looks_only_at_what_top_k_left),
        cmocka_unit_test(min_p_keeps_what_is_near_the_most_likely),
        cmocka_unit_test(a_seed_and_a_counter_give_the_same_token_always),
        cmocka_unit_test(tokens_are_those_of_the_definition),
        cmocka_unit_test(seeded_tokens_stay_what_they_are),
        cmocka_unit_test(penalties_count_prompt_and_output_as_their_definitions_say),
        cmocka_unit_test(biases_masks_and_min_tokens_decide_what_can_be_sampled),
        cmocka_unit_test(logprobs_are_those_of_the_logits_as_the_model_gave_them),
        cmocka_unit_test(only_listed_tokens_are_sampled),
        cmocka_unit_test(the_end_of_a_bad_word_is_not_sampled_after_its_beginning),
        cmocka_unit_test(a_scored_row_gives_the_probability_and_the_rank_of_its_token),
        cmocka_unit_test(named_tokens_come_in_the_order_of_their_likelihood),
        cmocka_unit_test(logits_that_are_no_numbers_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
