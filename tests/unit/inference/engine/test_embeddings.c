/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/rng.h"
#include "harness.h"
#include "json/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EMBED ENDPOINT_EMBEDDINGS

static struct harness h;

/* 64 tokens a step, 96 a text. */
static void open_with(const struct toy_options *options) {
    struct toy_options toy = *options;
    toy.embeds = true;
    toy.context_tokens_max = 96;
    harness_open(&h, &toy, &(struct wire_hello){.prep_threads = 1});
}

static int open_embedder(void **state) {
    (void)state;
    open_with(&(struct toy_options){.generates_nothing = true});
    return 0;
}

static int close_engine(void **state) {
    (void)state;
    harness_close(&h);
    return 0;
}

static const char *body(const char *input, const char *members) {
    static char text[8192];
    snprintf(text, sizeof text, "{\"model\":\"toy\",\"input\":%s%s%s}", input, *members ? "," : "",
             members);
    return text;
}

static int ask(uint64_t id, const char *input, const char *members) {
    return harness_ask(&h, id, EMBED, body(input, members));
}

static const json_t *data(uint64_t id) {
    return json_object_get(h.jobs[id].body, "data");
}

static const json_t *vector(uint64_t id, size_t index) {
    return json_object_get(json_array_get(data(id), index), "embedding");
}

static json_int_t usage(uint64_t id, const char *key) {
    return json_integer_value(json_object_get(json_object_get(h.jobs[id].body, "usage"), key));
}

static const char *error_member(uint64_t id, const char *key) {
    return json_string_value(json_object_get(json_object_get(h.jobs[id].body, "error"), key));
}

/* The vector that the toy gives these ids, as it is read back from its text. */
static void assert_vector(const json_t *got, const int32_t *ids, uint32_t count) {
    double sum[TOY_WIDTH] = {0}, squares = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < TOY_WIDTH; j++) sum[j] += rng_unit_at((uint64_t)ids[i], j) - 0.5;
    for (uint32_t j = 0; j < TOY_WIDTH; j++) squares += sum[j] * sum[j];
    assert_int_equal(json_array_size(got), TOY_WIDTH);
    for (uint32_t j = 0; j < TOY_WIDTH; j++) {
        float expected = (float)(sum[j] / sqrt(squares));
        assert_true(json_is_real(json_array_get(got, j)));
        assert_true((float)json_real_value(json_array_get(got, j)) == expected);
    }
}

static void assert_text(const json_t *got, const char *text) {
    int32_t ids[256];
    uint32_t count = 0;
    for (; text[count]; count++) ids[count] = (unsigned char)text[count];
    assert_vector(got, ids, count);
}

static void a_text_has_the_vector_of_its_tokens_to_the_last_bit(void **state) {
    (void)state;
    assert_int_equal(ask(1, "\"abc\"", ""), 200);
    const json_t *answer = h.jobs[1].body;
    assert_string_equal(json_string_value(json_object_get(answer, "object")), "list");
    assert_string_equal(json_string_value(json_object_get(answer, "model")), "toy");
    const json_t *entry = json_array_get(data(1), 0);
    assert_string_equal(json_string_value(json_object_get(entry, "object")), "embedding");
    assert_int_equal(json_integer_value(json_object_get(entry, "index")), 0);
    assert_text(vector(1, 0), "abc");
    assert_int_equal(usage(1, "prompt_tokens"), 3);
    assert_int_equal(usage(1, "total_tokens"), 3);
    assert_int_equal(h.jobs[1].result.usage.input_tokens, 3);
    assert_int_equal(h.jobs[1].result.usage.output_tokens, 0);
}

static void a_text_its_tokens_and_lists_of_them_are_the_same(void **state) {
    static const char *const forms[] = {"\"abc\"", "[\"abc\"]", "[97,98,99]", "[[97,98,99]]"};
    (void)state;
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(ask(i + 1, forms[i], ""), 200);
        assert_int_equal(json_array_size(data(i + 1)), 1);
        assert_text(vector(i + 1, 0), "abc");
    }
}

static void vectors_come_in_the_order_of_the_texts(void **state) {
    (void)state;
    assert_int_equal(ask(1, "[\"x\",\"yy\",\"zzz\"]", ""), 200);
    static const char *const texts[] = {"x", "yy", "zzz"};
    assert_int_equal(json_array_size(data(1)), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *entry = json_array_get(data(1), i);
        assert_int_equal(json_integer_value(json_object_get(entry, "index")), i);
        assert_text(vector(1, i), texts[i]);
    }
    assert_int_equal(usage(1, "prompt_tokens"), 6);
}

static void base64_is_of_the_same_floats(void **state) {
    (void)state;
    assert_int_equal(ask(1, "\"abc\"", "\"encoding_format\":\"base64\""), 200);
    const char *text = json_string_value(vector(1, 0));
    assert_int_equal(strlen(text), 44);
    assert_int_equal(ask(2, "\"abc\"", "\"encoding_format\":\"float\""), 200);
    float first = (float)json_real_value(json_array_get(vector(2, 0), 0));
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; i++)
        bits = bits << 6 | (uint64_t)(strchr(letters, text[i]) - letters);
    unsigned char bytes[6];
    for (size_t i = 0; i < 6; i++) bytes[i] = (unsigned char)(bits >> (40 - 8 * i));
    float decoded;
    memcpy(&decoded, bytes, sizeof decoded);
    assert_true(decoded == first);
}

static void what_is_wrong_is_named(void **state) {
    static const struct {
        const char *input, *members, *param, *code;
    } cases[] = {
        {"[]", "", "input", "invalid_value"},
        {"\"\"", "", "input", "invalid_value"},
        {"[\"a\",\"\"]", "", "input[1]", "invalid_value"},
        {"[[1],[]]", "", "input[1]", "invalid_value"},
        {"{}", "", "input", "invalid_type"},
        {"[\"a\",1]", "", "input[1]", "invalid_type"},
        {"[1,\"a\"]", "", "input", "invalid_type"},
        {"[1,2.5]", "", "input", "invalid_type"},
        {"[\"a\",[1]]", "", "input", "invalid_type"},
        {"[-1]", "", "input", "invalid_value"},
        {"[[1],[262]]", "", "input[1]", "invalid_value"},
        {"null", "", "input", "missing_required_parameter"},
        {"\"a\"", "\"encoding_format\":\"hex\"", "encoding_format", "invalid_value"},
        {"\"a\"", "\"encoding_format\":1", "encoding_format", "invalid_type"},
        {"\"a\"", "\"dimensions\":0", "dimensions", "integer_below_min_value"},
        {"\"a\"", "\"dimensions\":9", "dimensions", "integer_above_max_value"},
        {"\"a\"", "\"dimensions\":4", "dimensions", "unsupported_parameter"},
        {"\"a\"", "\"dimensions\":\"4\"", "dimensions", "invalid_type"},
        {"\"a\"", "\"truncate_prompt_tokens\":0", "truncate_prompt_tokens", "invalid_value"},
        {"\"a\"", "\"truncate_prompt_tokens\":-2", "truncate_prompt_tokens",
         "integer_below_min_value"},
        {"\"a\"", "\"truncate_prompt_tokens\":97", "truncate_prompt_tokens",
         "integer_above_max_value"},
        {"\"a\"", "\"instruction\":\"find\"", "instruction", "unsupported_parameter"},
        {"\"a\"", "\"user\":1", "user", "invalid_type"},
        {"\"a\"", "\"priority\":\"high\"", "priority", "invalid_type"},
        {"\"a\"", "\"normalize\":false", "normalize", "unsupported_parameter"},
        {"\"a\"", "\"embed_dtype\":\"float16\"", "embed_dtype", "unsupported_parameter"},
        {"\"a\"", "\"messages\":[]", "messages", "unsupported_parameter"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ask(i + 1, cases[i].input, cases[i].members), 400);
        assert_string_equal(error_member(i + 1, "param"), cases[i].param);
        assert_string_equal(error_member(i + 1, "code"), cases[i].code);
    }
    assert_int_equal(harness_ask(&h, 100, EMBED, "{\"input\":\"a\"}"), 400);
    assert_string_equal(error_member(100, "param"), "model");
    assert_int_equal(harness_ask(&h, 101, EMBED, "[]"), 400);
}

static void what_asks_for_what_is_done_anyway_is_taken(void **state) {
    (void)state;
    assert_int_equal(ask(1, "\"abc\"",
                         "\"dimensions\":8,\"user\":\"me\",\"priority\":3,\"normalize\":true,"
                         "\"embed_dtype\":\"float32\",\"truncation_side\":\"right\","
                         "\"service_tier\":\"flex\",\"nobody_knows\":1"),
                     200);
    assert_text(vector(1, 0), "abc");
}

static void special_tokens_in_a_text_are_tokens_unless_that_is_switched_off(void **state) {
    (void)state;
    assert_int_equal(ask(1, "\"<|user|>a\"", ""), 200);
    assert_int_equal(usage(1, "prompt_tokens"), 2);
    assert_int_equal(ask(2, "\"<|user|>a\"", "\"parse_special\":false"), 200);
    assert_text(vector(2, 0), "<|user|>a");
    assert_int_equal(ask(3, "\"a\"", "\"parse_special\":1"), 400);
    assert_string_equal(error_member(3, "param"), "parse_special");
}

/* The body of a request with a text so many times. The caller frees it. */
static char *list_of(const char *text, size_t count) {
    struct buf list;
    buf_init(&list, 1 << 20);
    buf_add_text(&list, "{\"model\":\"toy\",\"input\":");
    for (size_t i = 0; i < count; i++) buf_printf(&list, "%c\"%s\"", i ? ',' : '[', text);
    buf_add_text(&list, "]}");
    assert_false(list.overflowed);
    return list.at;
}

static void two_thousand_and_forty_eight_texts_are_taken_and_one_more_is_not(void **state) {
    (void)state;
    char *most = list_of("ab", 2048), *more = list_of("ab", 2049);
    assert_int_equal(harness_ask(&h, 1, EMBED, most), 200);
    assert_int_equal(json_array_size(data(1)), 2048);
    assert_text(vector(1, 2047), "ab");
    assert_int_equal(harness_ask(&h, 2, EMBED, more), 400);
    assert_string_equal(error_member(2, "code"), "array_above_max_length");
    free(most);
    free(more);
}

static void a_text_that_is_too_long_is_refused_with_its_place_and_its_length(void **state) {
    char input[256] = "[\"a\",\"";
    (void)state;
    memset(input + 6, 'b', 97);
    memcpy(input + 103, "\"]", 3);
    assert_int_equal(ask(1, input, ""), 400);
    assert_string_equal(error_member(1, "code"), "context_length_exceeded");
    assert_string_equal(error_member(1, "param"), "input[1]");
    assert_non_null(strstr(error_member(1, "message"), "97 tokens"));
    assert_non_null(strstr(error_member(1, "message"), "96 tokens"));
    assert_int_equal(ask(2, input, "\"truncate_prompt_tokens\":-1"), 200);
    assert_int_equal(usage(2, "prompt_tokens"), 1 + 96);
}

static void a_text_is_cut_to_its_first_tokens(void **state) {
    (void)state;
    assert_int_equal(ask(1, "[\"abcdef\",\"ab\"]", "\"truncate_prompt_tokens\":3"), 200);
    assert_text(vector(1, 0), "abc");
    assert_text(vector(1, 1), "ab");
    assert_int_equal(ask(2, "[97,98,99,100]", "\"truncate_prompt_tokens\":2"), 200);
    assert_text(vector(2, 0), "ab");
    assert_int_equal(usage(2, "prompt_tokens"), 2);
}

static void shorter_vectors_of_a_model_made_for_them_have_length_one(void **state) {
    (void)state;
    h.toy.model.embedder.is_matryoshka = true;
    assert_int_equal(ask(1, "\"abc\"", "\"dimensions\":3"), 200);
    assert_int_equal(ask(2, "\"abc\"", ""), 200);
    assert_int_equal(json_array_size(vector(1, 0)), 3);
    double squares = 0, ratio = 0;
    for (size_t i = 0; i < 3; i++) {
        double value = json_real_value(json_array_get(vector(1, 0), i));
        squares += value * value;
        ratio = value / json_real_value(json_array_get(vector(2, 0), i));
        assert_true(ratio > 1);
    }
    assert_true(fabs(squares - 1) < 1e-6);
}

static void an_instruction_is_wrapped_and_not_pooled(void **state) {
    (void)state;
    h.toy.model.embedder.takes_instruction = true;
    assert_int_equal(ask(1, "[\"abc\"]", "\"instruction\":\"find it\""), 200);
    assert_text(vector(1, 0), "abc");
    /* <|user|> is one token of the toy; \n, 7, \n, <|embed|>\n are a token for each byte. */
    assert_int_equal(usage(1, "prompt_tokens"), 1 + 1 + 7 + 1 + 10 + 3);
    assert_int_equal(ask(2, "\"abc\"", ""), 200);
    assert_text(vector(2, 0), "abc");
    assert_int_equal(usage(2, "prompt_tokens"), 10 + 3);
    assert_int_equal(ask(3, "[1,2]", "\"instruction\":\"find it\""), 400);
    assert_string_equal(error_member(3, "param"), "instruction");
    assert_int_equal(ask(4, "\"abc\"", "\"truncate_prompt_tokens\":10"), 400);
    assert_string_equal(error_member(4, "param"), "truncate_prompt_tokens");
}

static void wait_for_calls(unsigned calls) {
    while (atomic_load(&h.toy.embed_calls) < calls) clock_sleep_ms(1);
}

/* Until all that was submitted before is with the loop: there is one thread that prepares, and what
 * it refuses does not go there. */
static void wait_for_prep(uint64_t id) {
    assert_int_equal(ask(id, "[]", ""), 400);
}

static void many_short_texts_share_a_step(void **state) {
    (void)state;
    char *one = list_of("abcd", 1);
    atomic_store(&h.toy.is_held, true);
    harness_submit(&h, 1, EMBED, false, one);
    wait_for_calls(1);
    for (uint64_t id = 2; id <= 201; id++) harness_submit(&h, id, EMBED, false, one);
    wait_for_prep(300);
    atomic_store(&h.toy.is_held, false);
    for (uint64_t id = 1; id <= 201; id++) {
        assert_int_equal(harness_wait(&h, id), 200);
        assert_text(vector(id, 0), "abcd");
    }
    /* 16 texts of 4 tokens fill the 64 of a step. */
    assert_int_equal(atomic_load(&h.toy.embed_texts_max), 16);
    assert_int_equal(atomic_load(&h.toy.embed_tokens_max), 64);
    assert_int_equal(atomic_load(&h.toy.embed_calls), 1 + (200 + 15) / 16);
    free(one);
}

static void a_text_longer_than_a_step_goes_alone(void **state) {
    char input[256] = "[\"a\",\"";
    (void)state;
    memset(input + 6, 'b', 90);
    memcpy(input + 96, "\",\"c\"]", 7);
    assert_int_equal(ask(1, input, ""), 200);
    assert_text(vector(1, 0), "a");
    assert_text(vector(1, 2), "c");
    assert_int_equal(atomic_load(&h.toy.embed_tokens_max), 90);
}

static void a_long_request_lets_a_short_one_pass(void **state) {
    (void)state;
    char *big = list_of("abcdefgh", 2048);
    atomic_store(&h.toy.is_held, true);
    harness_submit(&h, 1, EMBED, false, big);
    wait_for_calls(1);
    harness_submit(&h, 2, EMBED, false, body("\"xyz\"", ""));
    wait_for_prep(3);
    atomic_store(&h.toy.is_held, false);
    assert_int_equal(harness_wait(&h, 2), 200);
    assert_int_equal(harness_wait(&h, 1), 200);
    assert_true(h.jobs[2].done_rank < h.jobs[1].done_rank);
    assert_int_equal(usage(1, "prompt_tokens"), 2048 * 8);
    free(big);
}

static void submit_line(uint64_t id, const char *text) {
    const struct wire_job job = {EMBED, TIER_BATCH, false, true, 0, str_from(text), STR("")};
    assert_true(engine_submit(h.engine, id, &job));
}

static void lines_of_a_batch_are_finished_one_after_the_other(void **state) {
    (void)state;
    char *big = list_of("abcdefgh", 300), *small = list_of("abcdefgh", 20);
    atomic_store(&h.toy.is_held, true);
    submit_line(1, big);
    wait_for_calls(1);
    submit_line(2, small);
    submit_line(3, small);
    harness_submit(&h, 4, EMBED, false, body("\"xyz\"", ""));
    submit_line(5, "[]"); /* refused by the one thread that prepares, after all the others */
    assert_int_equal(harness_wait(&h, 5), 400);
    atomic_store(&h.toy.is_held, false);
    for (uint64_t id = 1; id <= 4; id++) assert_int_equal(harness_wait(&h, id), 200);
    assert_true(h.jobs[4].done_rank < h.jobs[1].done_rank);
    assert_true(h.jobs[1].done_rank < h.jobs[2].done_rank);
    assert_true(h.jobs[2].done_rank < h.jobs[3].done_rank);
    free(big);
    free(small);
}

static void a_cancelled_request_ends_with_499(void **state) {
    (void)state;
    char *big = list_of("abcdefgh", 2048);
    atomic_store(&h.toy.is_held, true);
    harness_submit(&h, 1, EMBED, false, big);
    wait_for_calls(1);
    engine_cancel(h.engine, 1);
    atomic_store(&h.toy.is_held, false);
    assert_int_equal(harness_wait(&h, 1), 499);
    assert_true(atomic_load(&h.toy.embed_calls) < 2048 / 8);
    assert_int_equal(ask(2, "\"abc\"", ""), 200);
    free(big);
}

static void a_text_the_model_cannot_do_spoils_its_own_request_only(void **state) {
    (void)state;
    atomic_store(&h.toy.is_held, true);
    harness_submit(&h, 1, EMBED, false, body("\"first\"", ""));
    wait_for_calls(1);
    harness_submit(&h, 2, EMBED, false, body("\"a!\"", ""));
    harness_submit(&h, 3, EMBED, false, body("\"abc\"", ""));
    atomic_store(&h.toy.is_held, false);
    assert_int_equal(harness_wait(&h, 2), 500);
    assert_int_equal(h.jobs[2].result.outcome, OUTCOME_DONE);
    assert_non_null(strstr(error_member(2, "message"), "is refused"));
    assert_int_equal(harness_wait(&h, 3), 200);
    assert_text(vector(3, 0), "abc");
}

static void a_device_that_is_gone_ends_all_as_the_machines_fault(void **state) {
    (void)state;
    atomic_store(&h.toy.is_embed_broken, true);
    assert_int_equal(ask(1, "\"abc\"", ""), 500);
    assert_int_equal(h.jobs[1].result.outcome, OUTCOME_TRY_AGAIN);
    assert_string_equal(h.fatal, "toy: no device");
}

static void a_ping_is_answered_with_the_steps_and_tokens(void **state) {
    (void)state;
    assert_int_equal(ask(1, "[\"abc\",\"de\"]", ""), 200);
    engine_ping(h.engine, 7);
    pthread_mutex_lock(&h.lock);
    while (h.last_ping != 7) pthread_cond_wait(&h.changed, &h.lock);
    assert_int_equal(h.stats.steps, 1);
    assert_int_equal(h.stats.prompt_tokens, 5);
    assert_int_equal(h.stats.running + h.stats.waiting, 0);
    pthread_mutex_unlock(&h.lock);
}

static void a_model_that_only_embeds_says_so(void **state) {
    (void)state;
    struct wire_ready ready;
    engine_ready(h.engine, &ready);
    assert_true(ready.embeds && !ready.generates);
    assert_int_equal(ready.context_tokens_max, 96);
    assert_int_equal(harness_ask(&h, 1, ENDPOINT_CHAT, "{}"), 400);
    assert_string_equal(error_member(1, "code"), "unsupported_endpoint");
    assert_non_null(strstr(error_member(1, "message"),
                           "it serves /v1/embeddings, /v1/score, /v1/rerank and /v1/pooling only"));
    assert_int_equal(harness_ask(&h, 2, ENDPOINT_SCORE, "{}"), 400);
}

static void a_model_that_does_both_does_both_at_once(void **state) {
    (void)state;
    open_with(&(struct toy_options){.sequences_max = 4});
    const char *chat =
        "{\"model\":\"toy\",\"messages\":[{\"role\":\"user\",\"content\":\"@hello\"}]}";
    char *texts = list_of("abcd", 300);
    for (uint64_t id = 1; id <= 20; id++) {
        harness_submit(&h, id, EMBED, false, texts);
        harness_submit(&h, id + 20, ENDPOINT_CHAT, false, chat);
    }
    for (uint64_t id = 1; id <= 20; id++) {
        assert_int_equal(harness_wait(&h, id), 200);
        assert_text(vector(id, 299), "abcd");
        assert_int_equal(harness_wait(&h, id + 20), 200);
        assert_string_equal(harness_text(&h, id + 20, 0), "hello");
    }
    struct wire_ready ready;
    engine_ready(h.engine, &ready);
    assert_true(ready.embeds && ready.generates);
    free(texts);
    harness_close(&h);
}

/* As of a model that saw pictures, too, whose text part has fewer rows. */
static void a_token_that_the_model_does_not_have_is_refused(void **state) {
    (void)state;
    h.toy.model.embedder.vocab = 'x';
    assert_int_equal(ask(1, "[\"abc\",\"xyz\"]", ""), 400);
    assert_string_equal(error_member(1, "param"), "input[1]");
    assert_int_equal(ask(2, "[[97],[120]]", ""), 400);
    assert_string_equal(error_member(2, "param"), "input[1]");
    assert_int_equal(ask(3, "\"abc\"", ""), 200);
}

/* What an answer cannot hold is refused before it is computed. */
static void an_answer_is_never_larger_than_a_frame(void **state) {
    (void)state;
    char *big = list_of("a", 2048);
    h.toy.model.embedder.width = 4096;
    assert_int_equal(harness_ask(&h, 1, EMBED, big), 400);
    assert_string_equal(error_member(1, "param"), "input");
    assert_non_null(strstr(error_member(1, "message"), "an answer holds at most"));
    h.toy.model.embedder.width = TOY_WIDTH;
    assert_int_equal(atomic_load(&h.toy.embed_calls), 0);
    free(big);
}

#define SPEC(name) cmocka_unit_test_setup_teardown(name, open_embedder, close_engine)

int main(void) {
    const struct CMUnitTest tests[] = {
        SPEC(a_text_has_the_vector_of_its_tokens_to_the_last_bit),
        SPEC(a_text_its_tokens_and_lists_of_them_are_the_same),
        SPEC(vectors_come_in_the_order_of_the_texts),
        SPEC(base64_is_of_the_same_floats),
        SPEC(what_is_wrong_is_named),
        SPEC(special_tokens_in_a_text_are_tokens_unless_that_is_switched_off),
        SPEC(what_asks_for_what_is_done_anyway_is_taken),
        SPEC(two_thousand_and_forty_eight_texts_are_taken_and_one_more_is_not),
        SPEC(a_text_that_is_too_long_is_refused_with_its_place_and_its_length),
        SPEC(a_text_is_cut_to_its_first_tokens),
        SPEC(shorter_vectors_of_a_model_made_for_them_have_length_one),
        SPEC(an_instruction_is_wrapped_and_not_pooled),
        SPEC(many_short_texts_share_a_step),
        SPEC(a_text_longer_than_a_step_goes_alone),
        SPEC(a_long_request_lets_a_short_one_pass),
        SPEC(lines_of_a_batch_are_finished_one_after_the_other),
        SPEC(a_cancelled_request_ends_with_499),
        SPEC(a_text_the_model_cannot_do_spoils_its_own_request_only),
        SPEC(a_device_that_is_gone_ends_all_as_the_machines_fault),
        SPEC(a_ping_is_answered_with_the_steps_and_tokens),
        SPEC(a_model_that_only_embeds_says_so),
        SPEC(a_token_that_the_model_does_not_have_is_refused),
        SPEC(an_answer_is_never_larger_than_a_frame),
        cmocka_unit_test(a_model_that_does_both_does_both_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
