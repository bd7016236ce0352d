/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions through an engine: their probabilities against those of chats and completions that ask
 * the toy for the same tokens, how many tokens they count, and how they end early. */
#include "engine/decision.h"
#include "engine/decision_labels.h"
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

#define DECIDE ENDPOINT_DECISIONS
#define CONTEXT 8192

static struct harness h;

static int open_engine(void **state) {
    (void)state;
    const struct wire_hello hello = {.prefix_caching = true};
    harness_open(&h, &(struct toy_options){.context_tokens_max = CONTEXT, .block_count = 2048},
                 &hello);
    return 0;
}

static int open_engine_of_two_steps(void **state) {
    (void)state;
    const struct wire_hello hello = {.prefix_caching = true};
    harness_open(&h,
                 &(struct toy_options){
                     .context_tokens_max = CONTEXT, .block_count = 2048, .two_steps = true},
                 &hello);
    return 0;
}

static int close_engine(void **state) {
    (void)state;
    harness_close(&h);
    return 0;
}

/* A body about "state" with the questions, in a buffer that the next call overwrites. */
static const char *body_of(const char *questions) {
    static struct buf body;
    if (!body.bytes_max) buf_init(&body, 1 << 22);
    buf_clear(&body);
    buf_printf(&body, "{\"model\":\"toy\",\"input\":\"the state\",\"questions\":[%s]}", questions);
    return body.at;
}

/* A choice among so many numbers. The caller releases. */
static struct buf choice_of(uint32_t options) {
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add_text(&text, "{\"type\":\"choice\",\"instructions\":\"which\",\"choices\":[");
    for (uint32_t i = 0; i < options; i++)
        buf_printf(&text, "%s{\"value\":\"%u\"}", i ? "," : "", i);
    buf_add_text(&text, "]}");
    return text;
}

static json_t *answer_at(uint64_t id, size_t index) {
    return json_array_get(json_object_get(h.jobs[id].body, "answers"), index);
}

static double share_at(const json_t *answer, size_t index) {
    const json_t *all = json_object_get(answer, "probabilities");
    return json_number_value(json_object_get(json_array_get(all, index), "probability"));
}

static json_int_t usage(uint64_t id, const char *key) {
    return json_integer_value(json_object_get(json_object_get(h.jobs[id].body, "usage"), key));
}

static json_int_t cached(uint64_t id) {
    const json_t *usage = json_object_get(h.jobs[id].body, "usage");
    return json_integer_value(
        json_object_get(json_object_get(usage, "input_tokens_details"), "cached_tokens"));
}

/* The log probabilities of the letters from A on behind a prompt, by a completion. */
static void letters_behind(uint64_t id, const char *prompt, uint32_t count, double *ret_logprobs) {
    struct buf body;
    buf_init(&body, 1 << 20);
    buf_add_text(&body, "{\"model\":\"toy\",\"temperature\":0,\"max_tokens\":1,\"logprobs\":1,"
                        "\"return_tokens_as_token_ids\":true,\"prompt\":");
    json_write_string(&body, str_from(prompt));
    buf_add_text(&body, ",\"logprob_token_ids\":[");
    for (uint32_t i = 0; i < count; i++) buf_printf(&body, "%s%u", i ? "," : "", 'A' + i);
    buf_add_text(&body, "]}");
    assert_int_equal(harness_ask(&h, id, ENDPOINT_COMPLETIONS, body.at), 200);
    const json_t *choice = json_array_get(json_object_get(h.jobs[id].body, "choices"), 0);
    const json_t *tops = json_object_get(json_object_get(choice, "logprobs"), "top_logprobs");
    for (uint32_t i = 0; i < count; i++) {
        char token[32];
        snprintf(token, sizeof token, "token_id:%u", 'A' + i);
        const json_t *logprob = json_object_get(json_array_get(tops, 0), token);
        assert_non_null(logprob);
        ret_logprobs[i] = json_number_value(logprob);
    }
    buf_release(&body);
}

/* The shares of the probabilities; *ret_mass is their sum. */
static void make_shares(double *logprobs, uint32_t count, double *ret_mass) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += logprobs[i] = exp(logprobs[i]);
    for (uint32_t i = 0; i < count; i++) logprobs[i] /= sum;
    *ret_mass = sum;
}

static void check_near(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-5)) fail_msg("%.9f instead of %.9f", got, expected);
}

#define LAST "Answer with the letter of one option only.<|assistant|>"

static void each_question_is_asked_in_its_own_prompt(void **state) {
    (void)state;
    double logprobs[3], mass;
    assert_int_equal(
        harness_ask(&h, 1, DECIDE,
                    body_of("{\"type\":\"predicate\",\"name\":\"p\",\"instructions\":\"so?\"},"
                            "{\"type\":\"choice\",\"instructions\":\"which?\",\"choices\":["
                            "{\"value\":\"a\",\"description\":\"first\"},{\"value\":true}]},"
                            "{\"type\":\"score\",\"instructions\":\"how?\",\"levels\":["
                            "{\"label\":\"l\"},{\"label\":\"m\"},{\"label\":\"h\"}]}")),
        200);
    letters_behind(2, "<|user|>the state\n\nQuestion: so?\nA: false\nB: true\n" LAST, 2, logprobs);
    make_shares(logprobs, 2, &mass);
    check_near(json_number_value(json_object_get(answer_at(1, 0), "probability")), logprobs[1]);
    assert_string_equal(json_string_value(json_object_get(answer_at(1, 0), "name")), "p");
    letters_behind(3, "<|user|>the state\n\nQuestion: which?\nA: \"a\" - first\nB: true\n" LAST, 2,
                   logprobs);
    make_shares(logprobs, 2, &mass);
    for (size_t i = 0; i < 2; i++) check_near(share_at(answer_at(1, 1), i), logprobs[i]);
    letters_behind(4, "<|user|>the state\n\nQuestion: how?\nA: l\nB: m\nC: h\n" LAST, 3, logprobs);
    make_shares(logprobs, 3, &mass);
    for (size_t i = 0; i < 3; i++) check_near(share_at(answer_at(1, 2), i), logprobs[i]);
    double got = json_number_value(json_object_get(answer_at(1, 2), "label_mass"));
    assert_true(fabs(got / mass - 1) < 1e-5);
    assert_string_equal(json_string_value(json_object_get(h.jobs[1].body, "model")), "toy");
    assert_int_equal(json_object_size(h.jobs[1].body), 3);
}

/* The toy has no pair of capitals as a token. */
static void labels_of_two_tokens_keep_the_chain_rule(void **state) {
    (void)state;
    enum { OPTIONS = 60 };
    struct buf question = choice_of(OPTIONS), prompt;
    double firsts[3], seconds[WORDING_LETTERS], logprobs[OPTIONS], mass;
    assert_int_equal(harness_ask(&h, 1, DECIDE, body_of(question.at)), 200);
    buf_init(&prompt, 1 << 20);
    buf_add_text(&prompt, "<|user|>the state\n\nQuestion: which\n");
    for (uint32_t i = 0; i < OPTIONS; i++) buf_printf(&prompt, "%s: \"%u\"\n", label_pair(i).at, i);
    buf_add_text(&prompt, LAST);
    letters_behind(2, prompt.at, 3, firsts);
    for (uint32_t i = 0; i < OPTIONS; i++) {
        if (i % WORDING_LETTERS == 0) {
            buf_add_byte(&prompt, (char)('A' + i / WORDING_LETTERS));
            letters_behind(3 + i, prompt.at, WORDING_LETTERS, seconds);
            buf_truncate(&prompt, prompt.bytes - 1);
        }
        logprobs[i] = firsts[i / WORDING_LETTERS] + seconds[i % WORDING_LETTERS];
    }
    make_shares(logprobs, OPTIONS, &mass);
    for (size_t i = 0; i < OPTIONS; i++) check_near(share_at(answer_at(1, 0), i), logprobs[i]);
    buf_release(&question);
    buf_release(&prompt);
}

static void systemone_asks_in_its_own_words(void **state) {
    (void)state;
    double logprobs[3], mass;
    assert_int_equal(
        harness_ask(&h, 1, ENDPOINT_SYSTEMONE,
                    "{\"model\":\"toy\",\"state\":{\"a\":[1,2]},\"temperatures\":{\"fit\":1},"
                    "\"questions\":{\"team\":{\"type\":\"choice\",\"instructions\":\"w?\","
                    "\"criteria\":{\"x\":null,\"true\":\"d\"}},\"fit\":{\"type\":\"score\","
                    "\"criteria\":[\"lo\",\"mid\",\"hi\"]}}}"),
        200);
    const json_t *answers = json_object_get(h.jobs[1].body, "answers");
    const json_t *team = json_object_get(json_object_get(answers, "team"), "probabilities");
    letters_behind(2, "<|user|>{\"a\": [1, 2]}\n\nQuestion: w?\nA: x\nB: true - d\n" LAST, 2,
                   logprobs);
    make_shares(logprobs, 2, &mass);
    check_near(json_number_value(json_object_get(team, "x")), logprobs[0]);
    check_near(json_number_value(json_object_get(team, "true")), logprobs[1]);
    const json_t *fit = json_object_get(json_object_get(answers, "fit"), "probabilities");
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        char key[2] = {(char)('0' + i), '\0'};
        sum += json_number_value(json_object_get(fit, key));
    }
    assert_true(fabs(sum - 1) < 1e-12);
    /* The toy spells words by bytes, so that it has no token for yes. */
    assert_int_equal(harness_ask(&h, 3, ENDPOINT_SYSTEMONE,
                                 "{\"model\":\"toy\",\"state\":\"x\",\"questions\":{\"q\":{"
                                 "\"type\":\"noul\"}}}"),
                     400);
}

static void any_number_of_options_is_answered(void **state) {
    (void)state;
    static const uint32_t counts[] = {2, 26, 27, 52, 53, 255};
    for (uint64_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct buf question = choice_of(counts[i]);
        double sum = 0;
        assert_int_equal(harness_ask(&h, i, DECIDE, body_of(question.at)), 200);
        for (size_t k = 0; k < counts[i]; k++) sum += share_at(answer_at(i, 0), k);
        assert_true(fabs(sum - 1) < 1e-12);
        buf_release(&question);
    }
}

static void the_text_is_computed_once(void **state) {
    (void)state;
    enum { QUESTIONS = 100 };
    struct buf questions;
    buf_init(&questions, 1 << 20);
    for (int i = 0; i < QUESTIONS; i++)
        buf_printf(&questions, "%s{\"type\":\"predicate\",\"instructions\":\"%03d\"}", i ? "," : "",
                   i);
    assert_int_equal(harness_ask(&h, 1, DECIDE, body_of(questions.at)), 200);
    /* <|user|>, "the state" and the rest by bytes, where "he" is one token; <|assistant|>. */
    const json_int_t prompt = 1 + 8 + 2 + 13 + 1 + 9 + 8 + 41 + 1, own = prompt - (1 + 8 + 2 + 10);
    assert_int_equal(usage(1, "input_tokens"), QUESTIONS * prompt);
    assert_int_equal(usage(1, "total_tokens"), QUESTIONS * prompt);
    assert_int_equal(usage(1, "output_tokens"), 0);
    json_int_t computed = usage(1, "input_tokens") - cached(1);
    assert_true(computed <= prompt + QUESTIONS * (own + 15));
    assert_int_equal(h.jobs[1].result.usage.input_tokens, QUESTIONS * prompt);
    assert_int_equal(h.jobs[1].result.usage.output_tokens, 0);
    buf_release(&questions);
}

static void the_same_request_brings_the_same_bytes(void **state) {
    (void)state;
    struct buf question = choice_of(30);
    assert_int_equal(harness_ask(&h, 1, DECIDE, body_of(question.at)), 200);
    for (uint64_t id = 2; id < 20; id++) {
        harness_submit(&h, id, DECIDE, false, body_of(question.at));
        harness_submit(&h, id + 20, ENDPOINT_CHAT, false,
                       "{\"model\":\"toy\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                       "\"max_tokens\":20,\"ignore_eos\":true}");
    }
    size_t answers = str_find(buf_str(&h.jobs[1].text), STR(",\"usage\""), 0);
    for (uint64_t id = 2; id < 20; id++) {
        assert_int_equal(harness_wait(&h, id), 200);
        assert_memory_equal(h.jobs[id].text.at, h.jobs[1].text.at, answers);
        assert_int_equal(harness_wait(&h, id + 20), 200);
    }
    buf_release(&question);
}

static void a_cancelled_request_ends_once(void **state) {
    (void)state;
    struct buf questions;
    buf_init(&questions, 1 << 20);
    for (int i = 0; i < 400; i++)
        buf_printf(&questions, "%s{\"type\":\"predicate\",\"instructions\":\"%d\"}", i ? "," : "",
                   i);
    for (uint64_t id = 1; id <= 12; id++) {
        harness_submit(&h, id, DECIDE, false, body_of(questions.at));
        if (id % 2 == 0) engine_cancel(h.engine, id);
        if (id > 6 && id % 2 == 1) engine_cancel(h.engine, id - 6);
    }
    for (uint64_t id = 1; id <= 12; id++) {
        int status = harness_wait(&h, id);
        assert_true(status == 499 || (status == 200 && (id > 6 || id % 2 == 1)));
    }
    /* Reads of a job that was cancelled leave nothing behind. */
    assert_int_equal(
        harness_ask(&h, 20, DECIDE, body_of("{\"type\":\"predicate\",\"instructions\":\"x\"}")),
        200);
    buf_release(&questions);
}

static void a_refusal_names_the_field(void **state) {
    (void)state;
    static const struct {
        const char *body, *code, *param;
    } rows[] = {
        {"{", NULL, NULL},
        {"{\"input\":\"x\",\"questions\":[]}", "missing_required_parameter", "model"},
        {"{\"model\":\"toy\",\"questions\":[]}", "missing_required_parameter", "input"},
        {"{\"model\":\"toy\",\"input\":\"x\"}", "missing_required_parameter", "questions"},
        {"{\"model\":\"toy\",\"input\":\"x\",\"stream\":true}", "invalid_value", "stream"},
        {"{\"model\":\"toy\",\"input\":\"x\",\"stream\":1}", "invalid_type", "stream"},
        {"{\"model\":\"toy\",\"input\":\"x\",\"temperature\":0}", "missing_required_parameter",
         "questions"},
        {"{\"model\":\"toy\",\"input\":\"x\",\"reasoning_effort\":\"high\"}",
         "unsupported_parameter", "reasoning_effort"},
        {"{\"model\":\"toy\",\"input\":\"x\",\"temperature\":1,\"n\":1,\"stream\":false,"
         "\"reasoning_effort\":\"none\",\"safety_identifier\":\"s\",\"prompt_cache_key\":\"k\"}",
         "missing_required_parameter", "questions"},
    };
    for (uint64_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(harness_ask(&h, i, DECIDE, rows[i].body), 400);
        const json_t *error = json_object_get(h.jobs[i].body, "error");
        const char *code = json_string_value(json_object_get(error, "code"));
        const char *param = json_string_value(json_object_get(error, "param"));
        if (rows[i].code) assert_string_equal(code, rows[i].code);
        if (rows[i].param) assert_string_equal(param, rows[i].param);
    }
}

static void a_text_that_is_too_long_is_refused(void **state) {
    (void)state;
    struct buf body;
    buf_init(&body, 1 << 20);
    buf_add_text(&body, "{\"model\":\"toy\",\"questions\":[{\"type\":\"predicate\","
                        "\"instructions\":\"x\"}],\"input\":\"");
    for (int i = 0; i < CONTEXT; i++) buf_add_byte(&body, 'x');
    buf_add_text(&body, "\"}");
    assert_int_equal(harness_ask(&h, 1, DECIDE, body.at), 400);
    const json_t *error = json_object_get(h.jobs[1].body, "error");
    assert_string_equal(json_string_value(json_object_get(error, "code")),
                        "context_length_exceeded");
    assert_string_equal(json_string_value(json_object_get(error, "param")), "input");
    buf_release(&body);
}

/* The text of the only prompt of a question under a template; or the refusal's message. */
static char *prompt_under(const char *template, const char *input) {
    struct toy toy;
    struct decision decision = {.next_read = 0};
    struct refusal refusal;
    struct ids ids = {.at = NULL};
    struct buf body, text;
    const struct prep_options options = {.context_tokens_max = 4096};
    toy_open(&toy, &(struct toy_options){.chat_template = template});
    buf_init(&body, 1 << 20);
    buf_init(&text, 1 << 20);
    buf_printf(&body,
               "{\"model\":\"toy\",\"input\":%s,\"questions\":[{\"type\":\"predicate\","
               "\"instructions\":\"\"}]}",
               input);
    if (decision_prepare(&decision, DECIDE, buf_str(&body), &toy.model, &options, NULL, &refusal)) {
        decision_read_tokens(&decision, &decision.reads[0], &ids);
        for (size_t i = 0; i < ids.count; i++)
            tokenizer_decode(toy.model.vocabulary.tokenizer, ids.at[i], true, &text);
    } else {
        buf_add_text(&text, refusal.message);
    }
    ids_release(&ids);
    decision_release(&decision);
    buf_release(&body);
    toy_close(&toy);
    return text.at;
}

#define TURNS "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}<|assistant|>"
#define BLOCK "A: false\nB: true\nAnswer with the letter of one option only."

static void check_prompt(const char *template, const char *input, const char *expected) {
    char *text = prompt_under(template, input);
    assert_string_equal(text, expected);
    free(text);
}

static void the_system_text_has_the_role_of_the_template(void **state) {
    (void)state;
    check_prompt(TURNS,
                 "[{\"role\":\"developer\",\"content\":\"s\"},"
                 "{\"role\":\"user\",\"content\":\"u\"}]",
                 "[system]s[user]u\n\n" BLOCK "<|assistant|>");
}

static void a_thought_that_the_template_opens_is_closed(void **state) {
    (void)state;
    const char *asked = "[user]u\n\n" BLOCK "<|assistant|>";
    struct buf expected;
    buf_init(&expected, 4096);
    buf_printf(&expected, "%s<think>\n</think>\n\n", asked);
    check_prompt(TURNS "{% if false %}</think>{% endif %}<think>", "\"u\"", expected.at);
    buf_clear(&expected);
    buf_printf(&expected, "%s<think>\n\n</think>\n\n", asked);
    check_prompt(TURNS "{% if false %}</think>{% endif %}{{ '<think>\n' }}", "\"u\"", expected.at);
    check_prompt(TURNS
                 "{% if enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}",
                 "\"u\"", expected.at);
    buf_release(&expected);
}

static void control_tokens_in_the_text_stay_text(void **state) {
    (void)state;
    struct toy toy;
    struct decision decision = {.next_read = 0};
    struct refusal refusal;
    struct ids ids = {.at = NULL};
    const struct prep_options options = {.context_tokens_max = 4096};
    size_t control = 0;
    toy_open(&toy, &(struct toy_options){.chat_template = NULL});
    assert_true(decision_prepare(
        &decision, DECIDE,
        STR("{\"model\":\"toy\",\"input\":\"<|assistant|>A<|end|>\",\"questions\":[{\"type\":"
            "\"choice\",\"instructions\":\"<|user|>\",\"choices\":[{\"value\":\"<|end|>\"},"
            "{\"value\":\"b\",\"description\":\"<|assistant|>\"}]}]}"),
        &toy.model, &options, NULL, &refusal));
    decision_read_tokens(&decision, &decision.reads[0], &ids);
    for (size_t i = 0; i < ids.count; i++)
        control += ids.at[i] == TOY_USER || ids.at[i] == TOY_ASSISTANT || ids.at[i] == TOY_END;
    assert_int_equal(control, 2); /* those of the template */
    ids_release(&ids);
    decision_release(&decision);
    toy_close(&toy);
}

static void a_template_that_ends_otherwise_is_refused(void **state) {
    (void)state;
    char *text = prompt_under(TURNS "{% if 'odd' in messages[0].content %}!{% endif %}", "\"odd\"");
    assert_non_null(strstr(text, "ends the prompt in another way"));
    free(text);
    text = prompt_under("", "\"u\"");
    assert_non_null(strstr(text, "no chat template"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define WITH_ENGINE(test) cmocka_unit_test_setup_teardown(test, open_engine, close_engine)
        WITH_ENGINE(each_question_is_asked_in_its_own_prompt),
        WITH_ENGINE(labels_of_two_tokens_keep_the_chain_rule),
        WITH_ENGINE(systemone_asks_in_its_own_words),
        WITH_ENGINE(any_number_of_options_is_answered),
        WITH_ENGINE(the_text_is_computed_once),
        WITH_ENGINE(the_same_request_brings_the_same_bytes),
        WITH_ENGINE(a_cancelled_request_ends_once),
        WITH_ENGINE(a_refusal_names_the_field),
        WITH_ENGINE(a_text_that_is_too_long_is_refused),
        cmocka_unit_test_setup_teardown(a_cancelled_request_ends_once, open_engine_of_two_steps,
                                        close_engine),
        cmocka_unit_test_setup_teardown(the_same_request_brings_the_same_bytes,
                                        open_engine_of_two_steps, close_engine),
        cmocka_unit_test(the_system_text_has_the_role_of_the_template),
        cmocka_unit_test(a_thought_that_the_template_opens_is_closed),
        cmocka_unit_test(control_tokens_in_the_text_stay_text),
        cmocka_unit_test(a_template_that_ends_otherwise_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
