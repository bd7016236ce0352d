/* SPDX-License-Identifier: Apache-2.0 */
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

#define CHAT ENDPOINT_CHAT
#define TEXT ENDPOINT_COMPLETIONS

static struct harness h;

static int open_engine(void **state) {
    (void)state;
    harness_open(&h, NULL, NULL);
    return 0;
}

static int open_engine_of_two_steps(void **state) {
    (void)state;
    harness_open(&h, &(struct toy_options){.two_steps = true}, NULL);
    return 0;
}

static int close_engine(void **state) {
    (void)state;
    harness_close(&h);
    return 0;
}

static json_int_t usage(uint64_t id, const char *key) {
    return json_integer_value(json_object_get(json_object_get(h.jobs[id].body, "usage"), key));
}

static json_int_t cached(uint64_t id) {
    const json_t *details =
        json_object_get(json_object_get(h.jobs[id].body, "usage"), "prompt_tokens_details");
    return json_integer_value(json_object_get(details, "cached_tokens"));
}

static const char *error_code(uint64_t id) {
    return json_string_value(json_object_get(json_object_get(h.jobs[id].body, "error"), "code"));
}

/* A body whose only message or prompt is `prompt`, with `members` put in. */
static const char *chat(const char *prompt, const char *members) {
    static char body[4096];
    snprintf(body, sizeof body,
             "{\"model\":\"toy\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]%s%s}",
             prompt, *members ? "," : "", members);
    return body;
}

static const char *text(const char *prompt, const char *members) {
    static char body[8192];
    snprintf(body, sizeof body, "{\"model\":\"toy\",\"prompt\":%s%s%s}", prompt,
             *members ? "," : "", members);
    return body;
}

static void a_chat_is_answered(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("say @hello", "")), 200);
    assert_string_equal(harness_text(&h, 1, 0), "hello");
    assert_string_equal(harness_reason(&h, 1, 0), "stop");
    const json_t *body = h.jobs[1].body;
    assert_string_equal(json_string_value(json_object_get(body, "object")), "chat.completion");
    assert_string_equal(json_string_value(json_object_get(body, "model")), "toy");
    assert_string_equal(json_string_value(json_object_get(body, "service_tier")), "default");
    assert_memory_equal(json_string_value(json_object_get(body, "id")), "chatcmpl-", 9);
    assert_true(json_integer_value(json_object_get(body, "created")) > 1700000000);
    assert_true(json_is_string(json_object_get(body, "system_fingerprint")));
    const json_t *message =
        json_object_get(json_array_get(json_object_get(body, "choices"), 0), "message");
    assert_string_equal(json_string_value(json_object_get(message, "role")), "assistant");
    assert_true(json_is_null(json_object_get(message, "refusal")));
    assert_null(json_object_get(message, "tool_calls"));
}

static void usage_counts_the_prompt_and_every_generated_token(void **state) {
    (void)state;
    /* <|user|> s a y ␣ @ hell o <|assistant|>, and hell o <|end|> */
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("say @hello", "")), 200);
    assert_int_equal(usage(1, "prompt_tokens"), 9);
    assert_int_equal(usage(1, "completion_tokens"), 3);
    assert_int_equal(usage(1, "total_tokens"), 12);
    assert_int_equal(cached(1), 0);
    assert_int_equal(h.jobs[1].result.usage.input_tokens, 9);
    assert_int_equal(h.jobs[1].result.usage.output_tokens, 3);
}

static void one_token_ends_with_length(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("@hello", "\"max_tokens\":1")), 200);
    assert_string_equal(harness_text(&h, 1, 0), "hell");
    assert_string_equal(harness_reason(&h, 1, 0), "length");
    assert_int_equal(usage(1, "completion_tokens"), 1);
}

static void a_completion_makes_sixteen_tokens_by_default(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, TEXT, text("\"@abcdefghijklmnopqrstuvwxyz\"", "")), 200);
    assert_string_equal(harness_text(&h, 1, 0), "abcdefghijklmnop");
    assert_string_equal(harness_reason(&h, 1, 0), "length");
    assert_string_equal(json_string_value(json_object_get(h.jobs[1].body, "object")),
                        "text_completion");
}

static void choices_of_several_prompts_are_numbered_prompt_by_prompt(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, TEXT, text("[\"@one\",\"@two\"]", "\"n\":2")), 200);
    static const char *const expected[] = {"one", "one", "two", "two"};
    const json_t *choices = json_object_get(h.jobs[1].body, "choices");
    assert_int_equal(json_array_size(choices), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(harness_text(&h, 1, i), expected[i]);
        assert_int_equal(json_integer_value(json_object_get(json_array_get(choices, i), "index")),
                         i);
    }
    assert_int_equal(usage(1, "prompt_tokens"), 8); /* each prompt once */
    assert_int_equal(usage(1, "completion_tokens"), 16);
}

static void prompts_of_token_ids_are_taken_as_they_are(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, TEXT, text("[64,259,260]", "")), 200);
    assert_string_equal(harness_text(&h, 1, 0), "hell");
    assert_int_equal(harness_ask(&h, 2, TEXT, text("[[64,120],[64,121,122]]", "")), 200);
    assert_string_equal(harness_text(&h, 2, 1), "yz");
}

static void a_stop_string_over_two_tokens_ends_the_text_before_it(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("@say hello now", "\"stop\":[\"llo n\"]")), 200);
    assert_string_equal(harness_text(&h, 1, 0), "say he");
    assert_string_equal(harness_reason(&h, 1, 0), "stop");
    assert_int_equal(harness_ask(&h, 2, CHAT,
                                 chat("@say hello now", "\"stop\":[\"llo n\"],"
                                                        "\"include_stop_str_in_output\":true")),
                     200);
    assert_string_equal(harness_text(&h, 2, 0), "say hello n");
    /* s a y ␣ hell o ␣ n: nothing after the token that completes it */
    assert_int_equal(usage(1, "completion_tokens"), 8);
    assert_int_equal(usage(2, "completion_tokens"), 8);
}

static void a_stop_token_ends_the_text_before_it(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("@abcde", "\"stop_token_ids\":[99]")), 200);
    assert_string_equal(harness_text(&h, 1, 0), "ab");
    assert_string_equal(harness_reason(&h, 1, 0), "stop");
}

static void ignore_eos_goes_on_to_the_limit(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT,
                                 chat("@ab", "\"ignore_eos\":true,\"max_tokens\":4,"
                                             "\"skip_special_tokens\":false")),
                     200);
    assert_string_equal(harness_text(&h, 1, 0), "ab<|end|><|end|>");
    assert_string_equal(harness_reason(&h, 1, 0), "length");
}

static void min_tokens_holds_the_end_back(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("@ab", "\"min_tokens\":5")), 200);
    assert_true(usage(1, "completion_tokens") >= 5);
}

static void a_character_over_several_tokens_stays_whole_in_a_stream(void **state) {
    (void)state;
    harness_submit(&h, 1, CHAT, true, chat("@caf\\u00e9 \\u20ac\\ud83d\\ude00!", ""));
    assert_int_equal(harness_wait(&h, 1), 200);
    assert_string_equal(harness_text(&h, 1, 0), "café €😀!");
    char *streamed = harness_streamed(&h, 1, 0);
    assert_string_equal(streamed, "café €😀!");
    assert_null(strstr(h.jobs[1].deltas.at, "fffd"));
    free(streamed);
}

static void an_answer_cut_inside_a_character_ends_in_a_replacement(void **state) {
    (void)state;
    harness_submit(&h, 1, CHAT, true, chat("@a\\u20ac", "\"max_tokens\":3"));
    assert_int_equal(harness_wait(&h, 1), 200);
    assert_string_equal(harness_text(&h, 1, 0), "a\xEF\xBF\xBD");
    char *streamed = harness_streamed(&h, 1, 0);
    assert_string_equal(streamed, "a\xEF\xBF\xBD");
    free(streamed);
}

static void a_stream_joins_to_the_text_of_its_result(void **state) {
    (void)state;
    static const char *const members[] = {
        "",
        "\"stop\":\"lo\"",
        "\"n\":3,\"temperature\":1.5,\"seed\":5",
        "\"stream\":true,\"stream_options\":{\"include_usage\":true}",
        "\"stop\":[\"hellx\",\" wo\"]",
        "\"max_tokens\":1",
        "\"logprobs\":true,\"top_logprobs\":3"};
    static const char *const prompts[] = {"@hello world", "free", "@", "@\\u00e9\\u00e9^"};
    uint64_t id = 0;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        for (size_t k = 0; k < sizeof prompts / sizeof *prompts; k++) {
            harness_submit(&h, ++id, CHAT, true, chat(prompts[k], members[i]));
            assert_int_equal(harness_wait(&h, id), 200);
            size_t choices = json_array_size(json_object_get(h.jobs[id].body, "choices"));
            for (size_t choice = 0; choice < choices; choice++) {
                char *streamed = harness_streamed(&h, id, (uint32_t)choice);
                assert_string_equal(streamed, harness_text(&h, id, choice));
                free(streamed);
            }
        }
    }
}

/* The chunk number `index` of a job. The caller releases it. */
static json_t *chunk_at(uint64_t id, size_t index) {
    struct str all = buf_str(&h.jobs[id].deltas);
    size_t at = 0;
    while (index-- > 0) at = str_find_byte(all, '\n', at) + 1;
    json_t *chunk;
    size_t end = str_find_byte(all, '\n', at);
    assert_int_equal(json_read(&chunk, (struct str){all.at + at, end - at}, NULL), OK);
    return chunk;
}

static void a_stream_begins_with_the_role_and_ends_with_the_usage(void **state) {
    (void)state;
    harness_submit(&h, 1, CHAT, true,
                   chat("@ab", "\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    assert_int_equal(harness_wait(&h, 1), 200);
    /* role, a, b, end, usage */
    assert_int_equal(h.jobs[1].delta_count, 5);
    json_t *first = chunk_at(1, 0), *last = chunk_at(1, 4), *end = chunk_at(1, 3);
    const json_t *delta =
        json_object_get(json_array_get(json_object_get(first, "choices"), 0), "delta");
    assert_string_equal(json_string_value(json_object_get(delta, "role")), "assistant");
    assert_string_equal(json_string_value(json_object_get(delta, "content")), "");
    assert_true(json_is_null(json_object_get(first, "usage")));
    assert_string_equal(json_string_value(json_object_get(first, "object")),
                        "chat.completion.chunk");
    const json_t *choice = json_array_get(json_object_get(end, "choices"), 0);
    assert_int_equal(json_object_size(json_object_get(choice, "delta")), 0);
    assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), "stop");
    assert_int_equal(json_array_size(json_object_get(last, "choices")), 0);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(last, "usage"), "completion_tokens")),
        3);
    assert_string_equal(json_string_value(json_object_get(first, "id")),
                        json_string_value(json_object_get(last, "id")));
    assert_string_equal(json_string_value(json_object_get(first, "id")),
                        json_string_value(json_object_get(h.jobs[1].body, "id")));
    json_decref(first);
    json_decref(last);
    json_decref(end);
}

static void echo_puts_the_prompt_before_the_answer(void **state) {
    (void)state;
    harness_submit(&h, 1, TEXT, true, text("\"x@yz\"", "\"echo\":true"));
    assert_int_equal(harness_wait(&h, 1), 200);
    assert_string_equal(harness_text(&h, 1, 0), "x@yzyz");
    char *streamed = harness_streamed(&h, 1, 0);
    assert_string_equal(streamed, "x@yzyz");
    free(streamed);
    harness_submit(&h, 2, CHAT, true,
                   "{\"model\":\"toy\",\"messages\":[{\"role\":\"user\",\"content\":\"@ab^\"},"
                   "{\"role\":\"assistant\",\"content\":\"so: \"}],\"echo\":true,"
                   "\"continue_final_message\":true}");
    assert_int_equal(harness_wait(&h, 2), 200);
    assert_string_equal(harness_text(&h, 2, 0), "so: ab");
    streamed = harness_streamed(&h, 2, 0);
    assert_string_equal(streamed, "so: ab");
    free(streamed);
}

static void log_probabilities_name_every_token(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT,
                                 chat("free", "\"logprobs\":true,\"top_logprobs\":2,\"seed\":3,"
                                              "\"max_tokens\":6")),
                     200);
    const json_t *choice = json_array_get(json_object_get(h.jobs[1].body, "choices"), 0);
    const json_t *content = json_object_get(json_object_get(choice, "logprobs"), "content");
    assert_int_equal(json_array_size(content), usage(1, "completion_tokens"));
    struct buf joined;
    buf_init(&joined, 1000);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *entry = json_array_get(content, i);
        double logprob = json_number_value(json_object_get(entry, "logprob"));
        assert_true(logprob <= 0 && logprob > -9999);
        const json_t *bytes = json_object_get(entry, "bytes");
        for (size_t k = 0; k < json_array_size(bytes); k++)
            buf_add_byte(&joined, (char)json_integer_value(json_array_get(bytes, k)));
        const json_t *top = json_object_get(entry, "top_logprobs");
        assert_int_equal(json_array_size(top), 2);
        double best = json_number_value(json_object_get(json_array_get(top, 0), "logprob"));
        double next = json_number_value(json_object_get(json_array_get(top, 1), "logprob"));
        assert_true(best >= next && best >= logprob);
    }
    assert_string_equal(joined.at, harness_text(&h, 1, 0));
    assert_true(json_is_null(json_object_get(json_object_get(choice, "logprobs"), "refusal")));
    buf_release(&joined);
}

static void a_completion_lists_its_log_probabilities_in_columns(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, TEXT, text("\"@h\\u00e9llo\"", "\"logprobs\":1")), 200);
    const json_t *choice = json_array_get(json_object_get(h.jobs[1].body, "choices"), 0);
    const json_t *logprobs = json_object_get(choice, "logprobs");
    /* h C3 A9 ll o */
    static const json_int_t offsets[] = {0, 1, 2, 2, 4};
    assert_int_equal(json_array_size(json_object_get(logprobs, "tokens")), 5);
    assert_int_equal(json_array_size(json_object_get(logprobs, "token_logprobs")), 5);
    const json_t *top = json_array_get(json_object_get(logprobs, "top_logprobs"), 3);
    assert_int_equal(json_object_size(top), 1);
    assert_non_null(json_object_get(top, "ll"));
    const json_t *offset = json_object_get(logprobs, "text_offset");
    for (size_t i = 0; i < 5; i++) {
        /* Half a character is U+FFFD when it stands alone, which the offsets of the next tokens
         * then count. */
        json_int_t at = json_integer_value(json_array_get(offset, i));
        assert_true(at >= offsets[i] && at <= offsets[i] + 1);
    }
}

static void the_same_seed_gives_the_same_text_alone_and_in_company(void **state) {
    (void)state;
    const char *members = "\"seed\":42,\"temperature\":1.2,\"max_tokens\":40,\"ignore_eos\":true";
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("free", members)), 200);
    for (uint64_t id = 10; id < 40; id++)
        harness_submit(&h, id, CHAT, id % 2, chat(id % 3 ? "other" : "free", "\"max_tokens\":60"));
    harness_submit(&h, 2, CHAT, false, chat("free", members));
    for (uint64_t id = 40; id < 60; id++)
        harness_submit(&h, id, CHAT, false, chat("more", "\"temperature\":0.3"));
    assert_int_equal(harness_wait(&h, 2), 200);
    assert_string_equal(harness_text(&h, 1, 0), harness_text(&h, 2, 0));
    assert_int_equal(strlen(harness_text(&h, 1, 0)), 40);
    for (uint64_t id = 10; id < 60; id++) assert_int_equal(harness_wait(&h, id), 200);
}

static void choice_k_is_what_seed_plus_k_gives_alone(void **state) {
    (void)state;
    assert_int_equal(
        harness_ask(&h, 1, CHAT, chat("free", "\"seed\":100,\"n\":4,\"max_tokens\":20")), 200);
    for (unsigned k = 0; k < 4; k++) {
        char members[64];
        snprintf(members, sizeof members, "\"seed\":%u,\"max_tokens\":20", 100 + k);
        assert_int_equal(harness_ask(&h, 2 + k, CHAT, chat("free", members)), 200);
        assert_string_equal(harness_text(&h, 1, k), harness_text(&h, 2 + k, 0));
    }
    assert_string_not_equal(harness_text(&h, 1, 0), harness_text(&h, 1, 1));
}

static void without_a_seed_two_requests_differ(void **state) {
    (void)state;
    const char *body = chat("free", "\"temperature\":2,\"max_tokens\":60,\"ignore_eos\":true");
    assert_int_equal(harness_ask(&h, 1, CHAT, body), 200);
    assert_int_equal(harness_ask(&h, 2, CHAT, body), 200);
    assert_string_not_equal(harness_text(&h, 1, 0), harness_text(&h, 2, 0));
}

static void greedy_choices_are_equal(void **state) {
    (void)state;
    const char *body = chat("free", "\"temperature\":0,\"n\":3,\"max_tokens\":20");
    assert_int_equal(harness_ask(&h, 1, CHAT, body), 200);
    for (size_t k = 1; k < 3; k++)
        assert_string_equal(harness_text(&h, 1, 0), harness_text(&h, 1, k));
    assert_int_equal(harness_ask(&h, 2, CHAT, chat("free", "\"top_p\":0,\"max_tokens\":20")), 200);
    assert_string_equal(harness_text(&h, 1, 0), harness_text(&h, 2, 0));
}

static void a_second_equal_prompt_is_found_in_the_cache(void **state) {
    (void)state;
    char prompt[200];
    memset(prompt, 'p', sizeof prompt - 1);
    prompt[sizeof prompt - 1] = '\0';
    const char *body = chat(prompt, "\"max_tokens\":3");
    assert_int_equal(harness_ask(&h, 1, CHAT, body), 200);
    assert_int_equal(cached(1), 0);
    assert_int_equal(harness_ask(&h, 2, CHAT, body), 200);
    assert_true(cached(2) >= 128 && cached(2) <= usage(2, "prompt_tokens"));
}

static void a_prompt_that_does_not_fit_is_refused_with_the_numbers(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("hi", "\"max_tokens\":512")), 400);
    assert_string_equal(error_code(1), "context_length_exceeded");
    const char *message =
        json_string_value(json_object_get(json_object_get(h.jobs[1].body, "error"), "message"));
    assert_non_null(strstr(message, "512 tokens"));
    assert_non_null(strstr(message, "516 tokens (4 in the messages, 512 in the completion)"));
    assert_int_equal(harness_ask(&h, 2, CHAT, chat("hi", "\"max_tokens\":508")), 200);
    assert_int_equal(harness_ask(&h, 3, TEXT, text("\"abcdef\"", "\"max_tokens\":510")), 400);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(h.jobs[3].body, "error"), "param")),
        "prompt");
}

static void without_max_tokens_a_chat_may_use_the_rest_of_the_context(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("free", "\"ignore_eos\":true")), 200);
    assert_int_equal(usage(1, "total_tokens"), 512);
    assert_string_equal(harness_reason(&h, 1, 0), "length");
}

static void a_prompt_can_be_cut_to_its_last_tokens(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, TEXT, text("\"abc@def\"", "\"truncate_prompt_tokens\":4")),
                     200);
    assert_int_equal(usage(1, "prompt_tokens"), 4);
    assert_string_equal(harness_text(&h, 1, 0), "def");
}

static void other_endpoints_are_refused(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, ENDPOINT_EMBEDDINGS, "{}"), 400);
    assert_string_equal(error_code(1), "unsupported_endpoint");
    assert_int_equal(harness_ask(&h, 2, ENDPOINT_SCORE, "{}"), 400);
}

static void a_bad_body_is_a_result_and_harms_nobody(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, "{\"model\":"), 400);
    assert_int_equal(harness_ask(&h, 2, CHAT, chat("@ok", "")), 200);
}

static void names_are_aliases_and_the_first_is_reported(void **state) {
    (void)state;
    struct wire_hello hello = {.prefix_caching = true};
    hello.names.at[0] = STR("main");
    hello.names.at[1] = STR("other");
    hello.names.count = 2;
    harness_close(&h);
    harness_open(&h, NULL, &hello);
    assert_int_equal(
        harness_ask(&h, 1, CHAT,
                    "{\"model\":\"other\",\"messages\":[{\"role\":\"user\",\"content\":\"@x\"}]}"),
        200);
    assert_string_equal(json_string_value(json_object_get(h.jobs[1].body, "model")), "main");
    /* Whoever sends the job knows which model this is, under whatever name. */
    assert_int_equal(harness_ask(&h, 2, CHAT, chat("@x", "")), 200);
    struct wire_ready ready;
    engine_ready(h.engine, &ready);
    assert_int_equal(ready.names.count, 2);
    assert_int_equal(ready.context_tokens_max, 512);
    assert_int_equal(ready.vocabulary_count, TOY_VOCAB);
    assert_int_equal(ready.kv_tokens, 4096);
}

static void a_cancelled_job_ends_with_499_and_frees_its_place(void **state) {
    (void)state;
    atomic_store(&h.toy.is_held, true);
    harness_submit(&h, 1, CHAT, true, chat("free", "\"ignore_eos\":true,\"n\":3"));
    harness_submit(&h, 2, CHAT, false, chat("@ok", ""));
    engine_cancel(h.engine, 1);
    engine_cancel(h.engine, 77);
    atomic_store(&h.toy.is_held, false);
    assert_int_equal(harness_wait(&h, 1), 499);
    assert_string_equal(error_code(1), "cancelled");
    assert_int_equal(harness_wait(&h, 2), 200);
    engine_cancel(h.engine, 1); /* done already */
    assert_int_equal(harness_ask(&h, 3, CHAT, chat("@ok", "")), 200);
}

static void a_job_cancelled_at_any_moment_has_one_result(void **state) {
    (void)state;
    for (uint64_t id = 1; id < 300; id++) {
        harness_submit(&h, id, CHAT, id % 2, chat("free", "\"max_tokens\":30,\"n\":2"));
        if (id % 3 == 0) engine_cancel(h.engine, id);
        if (id > 20 && id % 3 == 1) engine_cancel(h.engine, id - 20);
    }
    for (uint64_t id = 1; id < 300; id++) {
        int status = harness_wait(&h, id);
        assert_true(status == 200 || status == 499);
    }
}

static void many_jobs_under_little_memory_all_end(void **state) {
    (void)state;
    const struct toy_options options = {.block_count = 24,
                                        .context_tokens_max = 256,
                                        .two_steps = h.toy.backend.caps.steps_max > 1};
    harness_close(&h);
    harness_open(&h, &options, NULL);
    for (uint64_t id = 0; id < 200; id++) {
        char members[64];
        snprintf(members, sizeof members, "\"max_tokens\":%u,\"seed\":7,\"ignore_eos\":true",
                 (unsigned)(id % 50 + 60));
        harness_submit(&h, id, CHAT, false, chat("free", members));
    }
    for (uint64_t id = 0; id < 200; id++) {
        assert_int_equal(harness_wait(&h, id), 200);
        /* Longer answers begin like shorter ones, whatever was preempted in between. */
        assert_memory_equal(harness_text(&h, id, 0), harness_text(&h, 0, 0), 60);
    }
}

static void a_request_larger_than_the_whole_cache_is_refused(void **state) {
    (void)state;
    harness_close(&h);
    harness_open(&h, &(struct toy_options){.block_count = 4}, NULL);
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("free", "\"max_tokens\":100")), 400);
    assert_string_equal(error_code(1), "context_length_exceeded");
    assert_int_equal(harness_ask(&h, 2, CHAT, chat("free", "\"ignore_eos\":true")), 200);
    assert_int_equal(usage(2, "total_tokens"), 64);
}

static void a_ping_is_answered_between_steps(void **state) {
    (void)state;
    harness_submit(&h, 1, CHAT, false, chat("free", "\"ignore_eos\":true"));
    engine_ping(h.engine, 4711);
    assert_int_equal(harness_wait(&h, 1), 200);
    engine_ping(h.engine, 4712);
    pthread_mutex_lock(&h.lock);
    while (h.last_ping != 4712) pthread_cond_wait(&h.changed, &h.lock);
    struct wire_stats stats = h.stats;
    pthread_mutex_unlock(&h.lock);
    assert_int_equal(stats.completion_tokens, usage(1, "completion_tokens"));
    assert_int_equal(stats.prompt_tokens, usage(1, "prompt_tokens"));
    assert_true(stats.steps > 0 && stats.running == 0 && stats.waiting == 0);
}

static uint64_t count_of(const struct histogram *histogram) {
    uint64_t count = 0;
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS_MAX; i++) count += histogram->counts[i];
    return count;
}

static struct wire_stats stats_after(uint64_t ping) {
    engine_ping(h.engine, ping);
    pthread_mutex_lock(&h.lock);
    while (h.last_ping != ping) pthread_cond_wait(&h.changed, &h.lock);
    struct wire_stats stats = h.stats;
    pthread_mutex_unlock(&h.lock);
    return stats;
}

/* Times add up: each is taken from the same clock, once per step. */
static void a_request_is_timed_part_by_part(void **state) {
    (void)state;
    const struct wire_job line = {.endpoint = CHAT,
                                  .tier = TIER_BATCH,
                                  .is_line = true,
                                  .body = str_from(chat("free", "\"ignore_eos\":true,\"n\":2"))};
    assert_true(engine_submit(h.engine, 1, &line));
    assert_int_equal(harness_wait(&h, 1), 200);
    assert_int_equal(harness_ask(&h, 2, CHAT, chat("free", "\"max_tokens\":1,\"ignore_eos\":true")),
                     200);
    struct wire_stats stats = stats_after(4713);
    const struct histogram *lines = stats.timings.of[TIMING_LINE];
    const struct histogram *clients = stats.timings.of[TIMING_CLIENT];
    for (int timing = 0; timing < TIMING_COUNT; timing++) {
        if (timing == TIMING_BETWEEN_TOKENS || timing == TIMING_PER_TOKEN) continue;
        assert_int_equal(count_of(&lines[timing]), 1);
        assert_int_equal(count_of(&clients[timing]), 1);
    }
    uint64_t tokens = (uint64_t)usage(1, "completion_tokens");
    assert_int_equal(count_of(&lines[TIMING_BETWEEN_TOKENS]), tokens - 2);
    assert_int_equal(count_of(&lines[TIMING_PER_TOKEN]), 1);
    assert_int_equal(count_of(&clients[TIMING_BETWEEN_TOKENS]), 0);
    assert_true(lines[TIMING_GENERATED_TOKENS].sum == (double)tokens);
    assert_true(lines[TIMING_PROMPT_TOKENS].sum == (double)usage(1, "prompt_tokens"));
    assert_true(lines[TIMING_CHOICES].sum == 2 && clients[TIMING_MAX_TOKENS].sum == 1);
    double parts = lines[TIMING_QUEUE].sum + lines[TIMING_PREFILL].sum;
    assert_true(fabs(parts - lines[TIMING_FIRST_TOKEN].sum) < 1e-6);
    assert_true(fabs(lines[TIMING_PREFILL].sum + lines[TIMING_DECODE].sum -
                     lines[TIMING_INFERENCE].sum) < 1e-6);
    assert_true(parts + lines[TIMING_DECODE].sum <= lines[TIMING_WHOLE].sum + 1e-6);
    assert_int_equal(stats.timings.ends[TIMING_LINE][ENDED_LENGTH], 1);
    assert_int_equal(stats.timings.ends[TIMING_CLIENT][ENDED_LENGTH], 1);
    assert_true(count_of(&stats.timings.step_tokens) > 0);
    assert_true(stats.prefix_queries == stats.prompt_tokens);
}

static void stats_come_by_themselves_while_nothing_runs(void **state) {
    (void)state;
    pthread_mutex_lock(&h.lock);
    while (h.stats_count < 1) pthread_cond_wait(&h.changed, &h.lock);
    pthread_mutex_unlock(&h.lock);
    assert_int_equal(h.last_ping, 0);
}

static void a_failing_model_ends_every_job_as_the_machines_fault(void **state) {
    (void)state;
    atomic_store(&h.toy.fail_at_step, 5);
    struct wire_job job = {CHAT, TIER_DEFAULT, false, false, 0, STR(""), STR("")};
    job.body = str_from(chat("free", "\"ignore_eos\":true"));
    /* The fifth step may come before the last of them, which are then not taken. */
    uint64_t taken = 0;
    while (taken < 20 && engine_submit(h.engine, taken, &job)) taken++;
    assert_true(taken > 0);
    for (uint64_t id = 0; id < taken; id++) {
        assert_int_equal(harness_wait(&h, id), 500);
        assert_int_equal(h.jobs[id].result.outcome, OUTCOME_TRY_AGAIN);
    }
    assert_non_null(strstr(h.fatal, "the device is gone"));
    assert_false(engine_submit(h.engine, 99, &job));
}

static void a_draining_engine_takes_nothing_and_finishes_what_it_has(void **state) {
    (void)state;
    harness_submit(&h, 1, CHAT, false, chat("@hello", ""));
    engine_drain(h.engine, 0);
    const struct wire_job job = {CHAT, TIER_DEFAULT, false, false, 0, STR("{}"), STR("")};
    assert_false(engine_submit(h.engine, 2, &job));
    assert_true(engine_drain(h.engine, 60000));
    assert_true(h.jobs[1].is_done);
    assert_int_equal(h.jobs[1].result.status, 200);
}

static void closing_ends_what_runs(void **state) {
    (void)state;
    atomic_store(&h.toy.delay_us, 2000);
    for (uint64_t id = 1; id < 50; id++)
        harness_submit(&h, id, CHAT, true, chat("free", "\"ignore_eos\":true"));
    engine_close(h.engine);
    h.engine = NULL;
    for (uint64_t id = 1; id < 50; id++) {
        assert_true(h.jobs[id].is_done);
        assert_int_equal(h.jobs[id].result.status, 499);
    }
}

/* Pings until `waiting` sequences wait for the one that runs. */
static void wait_for_waiting(uint32_t waiting) {
    for (uint64_t ping = 1;; ping++) {
        engine_ping(h.engine, ping);
        pthread_mutex_lock(&h.lock);
        while (h.last_ping != ping) pthread_cond_wait(&h.changed, &h.lock);
        bool is_there = h.stats.running == 1 && h.stats.waiting == waiting;
        bool is_late = h.jobs[0].is_done;
        pthread_mutex_unlock(&h.lock);
        if (is_there) return;
        assert_false(is_late);
    }
}

static void tiers_and_then_lower_priorities_go_first(void **state) {
    (void)state;
    harness_close(&h);
    /* One thread of prep keeps the order of arrival among equals. */
    harness_open(&h, &(struct toy_options){.sequences_max = 1},
                 &(struct wire_hello){.prep_threads = 1});
    atomic_store(&h.toy.delay_us, 10000);
    harness_submit(&h, 0, CHAT, false, chat("free", "\"ignore_eos\":true"));
    wait_for_waiting(0);
    static const struct {
        enum tier tier;
        int32_t priority;
        uint32_t rank;
    } rows[] = {{TIER_BATCH, INT32_MIN, 6}, {TIER_FLEX, INT32_MAX, 5},
                {TIER_DEFAULT, 0, 3},       {TIER_DEFAULT, 0, 4},
                {TIER_DEFAULT, -1, 2},      {TIER_PRIORITY, INT32_MAX, 1}};
    for (uint32_t i = 0; i < 6; i++) {
        const struct wire_job job = {CHAT,   rows[i].tier,     false,
                                     false,  rows[i].priority, str_from(chat("@abc", "")),
                                     STR("")};
        assert_true(engine_submit(h.engine, i + 1, &job));
    }
    /* The thread that reads bodies has read them all once it has refused this one. */
    assert_int_equal(harness_ask(&h, 7, CHAT, "{"), 400);
    assert_false(h.jobs[0].is_done);
    atomic_store(&h.toy.delay_us, 0);
    engine_cancel(h.engine, 0);
    for (uint64_t id = 0; id < 7; id++) harness_wait(&h, id);
    assert_int_equal(h.jobs[0].done_rank, 1);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(h.jobs[i + 1].done_rank, rows[i].rank + 1);
}

/* Leaves a line of a batch, job 0, in a step that does not end. */
static void hold_a_batch_step(void) {
    atomic_store(&h.toy.is_held, true);
    const struct wire_job job = {
        CHAT,   TIER_BATCH, false,
        true,   0,          str_from(chat("free", "\"ignore_eos\":true,\"max_tokens\":9")),
        STR("")};
    assert_true(engine_submit(h.engine, 0, &job));
    wait_for_waiting(0);
}

static void a_chat_is_answered_while_a_step_of_a_batch_is_under_way(void **state) {
    (void)state;
    hold_a_batch_step();
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("@hello", "\"max_tokens\":1")), 200);
    assert_string_equal(harness_text(&h, 1, 0), "hell");
    assert_false(h.jobs[0].is_done);
    atomic_store(&h.toy.is_held, false);
    assert_int_equal(harness_wait(&h, 0), 200);
    assert_int_equal(usage(0, "completion_tokens"), 9);
}

static void a_batch_line_waits_for_the_step_under_way(void **state) {
    (void)state;
    hold_a_batch_step();
    const struct wire_job job = {CHAT,   TIER_FLEX, false, false, 0, str_from(chat("@hello", "")),
                                 STR("")};
    assert_true(engine_submit(h.engine, 1, &job));
    wait_for_waiting(1);
    atomic_store(&h.toy.is_held, false);
    assert_int_equal(harness_wait(&h, 1), 200);
}

static void a_chat_cancelled_in_the_middle_of_a_step_is_gone_before_its_end(void **state) {
    (void)state;
    hold_a_batch_step();
    harness_submit(&h, 1, CHAT, true, chat("free", "\"ignore_eos\":true"));
    pthread_mutex_lock(&h.lock);
    while (h.jobs[1].delta_count == 0) pthread_cond_wait(&h.changed, &h.lock);
    pthread_mutex_unlock(&h.lock);
    engine_cancel(h.engine, 1);
    assert_int_equal(harness_wait(&h, 1), 499);
    wait_for_waiting(0); /* only the line runs */
    atomic_store(&h.toy.is_held, false);
    assert_int_equal(harness_wait(&h, 0), 200);
}

#define ENGINE_TEST(name) cmocka_unit_test_setup_teardown(name, open_engine, close_engine)
/* Once more over a model with two steps under way. */
#define TWO_STEPS_TEST(name)                                                                       \
    { "two_steps_" #name, name, open_engine_of_two_steps, close_engine, NULL }

int main(void) {
    const struct CMUnitTest tests[] = {
        ENGINE_TEST(a_chat_is_answered),
        ENGINE_TEST(usage_counts_the_prompt_and_every_generated_token),
        ENGINE_TEST(one_token_ends_with_length),
        ENGINE_TEST(a_completion_makes_sixteen_tokens_by_default),
        ENGINE_TEST(choices_of_several_prompts_are_numbered_prompt_by_prompt),
        ENGINE_TEST(prompts_of_token_ids_are_taken_as_they_are),
        ENGINE_TEST(a_stop_string_over_two_tokens_ends_the_text_before_it),
        ENGINE_TEST(a_stop_token_ends_the_text_before_it),
        ENGINE_TEST(ignore_eos_goes_on_to_the_limit),
        ENGINE_TEST(min_tokens_holds_the_end_back),
        ENGINE_TEST(a_character_over_several_tokens_stays_whole_in_a_stream),
        ENGINE_TEST(an_answer_cut_inside_a_character_ends_in_a_replacement),
        ENGINE_TEST(a_stream_joins_to_the_text_of_its_result),
        ENGINE_TEST(a_stream_begins_with_the_role_and_ends_with_the_usage),
        ENGINE_TEST(echo_puts_the_prompt_before_the_answer),
        ENGINE_TEST(log_probabilities_name_every_token),
        ENGINE_TEST(a_completion_lists_its_log_probabilities_in_columns),
        ENGINE_TEST(the_same_seed_gives_the_same_text_alone_and_in_company),
        ENGINE_TEST(choice_k_is_what_seed_plus_k_gives_alone),
        ENGINE_TEST(without_a_seed_two_requests_differ),
        ENGINE_TEST(greedy_choices_are_equal),
        ENGINE_TEST(a_second_equal_prompt_is_found_in_the_cache),
        ENGINE_TEST(a_prompt_that_does_not_fit_is_refused_with_the_numbers),
        ENGINE_TEST(without_max_tokens_a_chat_may_use_the_rest_of_the_context),
        ENGINE_TEST(a_prompt_can_be_cut_to_its_last_tokens),
        ENGINE_TEST(other_endpoints_are_refused),
        ENGINE_TEST(a_bad_body_is_a_result_and_harms_nobody),
        ENGINE_TEST(names_are_aliases_and_the_first_is_reported),
        ENGINE_TEST(a_cancelled_job_ends_with_499_and_frees_its_place),
        ENGINE_TEST(a_job_cancelled_at_any_moment_has_one_result),
        ENGINE_TEST(many_jobs_under_little_memory_all_end),
        ENGINE_TEST(a_request_larger_than_the_whole_cache_is_refused),
        ENGINE_TEST(a_request_is_timed_part_by_part),
        ENGINE_TEST(a_ping_is_answered_between_steps),
        ENGINE_TEST(stats_come_by_themselves_while_nothing_runs),
        ENGINE_TEST(a_failing_model_ends_every_job_as_the_machines_fault),
        ENGINE_TEST(a_draining_engine_takes_nothing_and_finishes_what_it_has),
        ENGINE_TEST(closing_ends_what_runs),
        ENGINE_TEST(a_chat_is_answered_while_a_step_of_a_batch_is_under_way),
        ENGINE_TEST(a_batch_line_waits_for_the_step_under_way),
        ENGINE_TEST(a_chat_cancelled_in_the_middle_of_a_step_is_gone_before_its_end),
        ENGINE_TEST(tiers_and_then_lower_priorities_go_first),
        TWO_STEPS_TEST(a_chat_is_answered),
        TWO_STEPS_TEST(usage_counts_the_prompt_and_every_generated_token),
        TWO_STEPS_TEST(one_token_ends_with_length),
        TWO_STEPS_TEST(choices_of_several_prompts_are_numbered_prompt_by_prompt),
        TWO_STEPS_TEST(a_stop_string_over_two_tokens_ends_the_text_before_it),
        TWO_STEPS_TEST(a_stop_token_ends_the_text_before_it),
        TWO_STEPS_TEST(ignore_eos_goes_on_to_the_limit),
        TWO_STEPS_TEST(min_tokens_holds_the_end_back),
        TWO_STEPS_TEST(a_stream_joins_to_the_text_of_its_result),
        TWO_STEPS_TEST(log_probabilities_name_every_token),
        TWO_STEPS_TEST(the_same_seed_gives_the_same_text_alone_and_in_company),
        TWO_STEPS_TEST(choice_k_is_what_seed_plus_k_gives_alone),
        TWO_STEPS_TEST(a_second_equal_prompt_is_found_in_the_cache),
        TWO_STEPS_TEST(without_max_tokens_a_chat_may_use_the_rest_of_the_context),
        TWO_STEPS_TEST(a_cancelled_job_ends_with_499_and_frees_its_place),
        TWO_STEPS_TEST(a_job_cancelled_at_any_moment_has_one_result),
        TWO_STEPS_TEST(many_jobs_under_little_memory_all_end),
        TWO_STEPS_TEST(a_failing_model_ends_every_job_as_the_machines_fault),
        TWO_STEPS_TEST(a_draining_engine_takes_nothing_and_finishes_what_it_has),
        TWO_STEPS_TEST(closing_ends_what_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
