/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a request that shape its answer, through a whole engine. */
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

#define CHAT ENDPOINT_CHAT
#define TEXT ENDPOINT_COMPLETIONS

/* The toy's turns, for a model that was shown tools in the form of Hermes. */
#define TOOL_TEMPLATE                                                                              \
    "{% if tools %}{% for t in tools %}{{ t.function.name }}{% endfor %}{# <tool_call> #}"         \
    "{% endif %}{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|assistant|>"

static struct harness h;

static int open_engine(void **state) {
    (void)state;
    harness_open(&h, NULL, NULL);
    return 0;
}

static int open_tool_engine(void **state) {
    (void)state;
    harness_open(&h, &(struct toy_options){.chat_template = TOOL_TEMPLATE},
                 &(struct wire_hello){.prefix_caching = true, .trust_request_chat_template = true});
    return 0;
}

static int close_engine(void **state) {
    (void)state;
    harness_close(&h);
    return 0;
}

static const char *chat(const char *prompt, const char *members) {
    static char body[4096];
    snprintf(body, sizeof body,
             "{\"model\":\"toy\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]%s%s}",
             prompt, *members ? "," : "", members);
    return body;
}

static const char *text(const char *prompt, const char *members) {
    static char body[4096];
    snprintf(body, sizeof body, "{\"model\":\"toy\",\"prompt\":%s%s%s}", prompt,
             *members ? "," : "", members);
    return body;
}

static json_t *choice_of(uint64_t id, size_t index) {
    return json_array_get(json_object_get(h.jobs[id].body, "choices"), index);
}

static json_int_t usage(uint64_t id, const char *key) {
    return json_integer_value(json_object_get(json_object_get(h.jobs[id].body, "usage"), key));
}

static const char *error_member(uint64_t id, const char *key) {
    return json_string_value(json_object_get(json_object_get(h.jobs[id].body, "error"), key));
}

/* ---- streams ---- */

/* Adds the elements of every array in `part` to those of `whole`. */
static void join_arrays(json_t *whole, json_t *part) {
    const char *key;
    json_t *value;
    json_object_foreach(part, key, value) {
        if (!json_is_array(value)) {
            json_object_set(whole, key, value);
        } else {
            json_t *list = json_object_get(whole, key);
            if (!list) json_object_set_new(whole, key, list = json_array());
            json_array_extend(list, value);
        }
    }
}

static void join_call(json_t *calls, json_t *part) {
    size_t index = (size_t)json_integer_value(json_object_get(part, "index"));
    json_t *function = json_object_get(part, "function");
    if (index == json_array_size(calls)) {
        assert_string_equal(json_string_value(json_object_get(function, "arguments")), "");
        json_array_append_new(calls, json_deep_copy(part));
        json_object_del(json_array_get(calls, index), "index");
        return;
    }
    assert_null(json_object_get(part, "id"));
    json_t *own = json_object_get(json_array_get(calls, index), "function");
    json_object_set_new(own, "arguments",
                        json_sprintf("%s%s", json_string_value(json_object_get(own, "arguments")),
                                     json_string_value(json_object_get(function, "arguments"))));
}

/* Adds what one chunk says of its choice to `whole`, which grows into what a body has. */
static void join_chunk(json_t *whole, json_t *choice) {
    static const char *const lists[] = {"token_ids", "prompt_token_ids"};
    json_t *delta = json_object_get(choice, "delta"), *piece;
    piece = delta ? json_object_get(delta, "content") : json_object_get(choice, "text");
    const char *text_key = delta ? "content" : "text";
    if (piece) {
        const json_t *before = json_object_get(whole, text_key);
        json_object_set_new(whole, text_key,
                            json_sprintf("%s%s", before ? json_string_value(before) : "",
                                         json_string_value(piece)));
    }
    json_t *calls = json_object_get(delta, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        if (!json_object_get(whole, "tool_calls"))
            json_object_set_new(whole, "tool_calls", json_array());
        join_call(json_object_get(whole, "tool_calls"), json_array_get(calls, i));
    }
    json_t *logprobs = json_object_get(choice, "logprobs");
    if (json_is_object(logprobs)) {
        if (!json_is_object(json_object_get(whole, "logprobs")))
            json_object_set_new(whole, "logprobs", json_object());
        join_arrays(json_object_get(whole, "logprobs"), logprobs);
    }
    for (size_t i = 0; i < 2; i++) {
        json_t *list = json_object_get(choice, lists[i]);
        if (!list) continue;
        if (!json_object_get(whole, lists[i])) json_object_set_new(whole, lists[i], json_array());
        json_array_extend(json_object_get(whole, lists[i]), list);
    }
    json_object_set(whole, "finish_reason", json_object_get(choice, "finish_reason"));
}

/* What the stream of job `id` says of one choice, all in all. The caller releases it. */
static json_t *joined(uint64_t id, size_t index) {
    struct str all = buf_str(&h.jobs[id].deltas);
    json_t *whole = json_object();
    for (size_t at = 0; at < all.bytes;) {
        size_t end = str_find_byte(all, '\n', at);
        json_t *chunk;
        assert_int_equal(json_read(&chunk, (struct str){all.at + at, end - at}, NULL), OK);
        json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
        if (choice && json_integer_value(json_object_get(choice, "index")) == (json_int_t)index)
            join_chunk(whole, choice);
        json_decref(chunk);
        at = end + 1;
    }
    return whole;
}

static void check_equal(const json_t *a, const json_t *b, const char *name) {
    if (json_equal(a, b) || (!a && !b)) return;
    char *of_a = json_dumps(a, JSON_ENCODE_ANY), *of_b = json_dumps(b, JSON_ENCODE_ANY);
    fail_msg("%s: %s is not %s", name, of_a, of_b);
}

/* The chunks of a stream say what the body says. */
static void check_stream(uint64_t id) {
    json_t *choices = json_object_get(h.jobs[id].body, "choices");
    assert_true(json_array_size(choices) > 0);
    for (size_t i = 0; i < json_array_size(choices); i++) {
        json_t *choice = json_array_get(choices, i), *whole = joined(id, i);
        json_t *message = json_object_get(choice, "message");
        json_t *content = json_object_get(message ? message : choice, message ? "content" : "text");
        json_t *streamed = json_object_get(whole, message ? "content" : "text");
        if (json_is_null(content))
            assert_string_equal(json_string_value(streamed), "");
        else
            check_equal(streamed, content, "text");
        check_equal(json_object_get(whole, "tool_calls"), json_object_get(message, "tool_calls"),
                    "tool_calls");
        check_equal(json_object_get(whole, "finish_reason"),
                    json_object_get(choice, "finish_reason"), "finish_reason");
        check_equal(json_object_get(whole, "token_ids"), json_object_get(choice, "token_ids"),
                    "token_ids");
        json_t *logprobs = json_object_get(whole, "logprobs");
        if (logprobs) check_equal(logprobs, json_object_get(choice, "logprobs"), "logprobs");
        json_decref(whole);
    }
}

static void every_field_gives_in_a_stream_what_it_gives_whole(void **state) {
    (void)state;
    static const char *const both[] = {
        "\"max_tokens\":9,\"n\":3,\"seed\":1",
        "\"stop\":[\"e\"],\"max_tokens\":30,\"seed\":2",
        "\"include_stop_str_in_output\":true,\"stop\":\"a\",\"seed\":3,\"max_tokens\":30",
        "\"return_token_ids\":true,\"max_tokens\":5,\"seed\":4",
        "\"bad_words\":[\"e\"],\"max_tokens\":20,\"temperature\":0",
        "\"allowed_token_ids\":[97,98],\"max_tokens\":6,\"seed\":5",
        "\"logit_bias\":{\"258\":100},\"min_tokens\":4,\"max_tokens\":8,\"seed\":6",
        "\"skip_special_tokens\":false,\"max_tokens\":40,\"seed\":7",
        "\"presence_penalty\":1,\"repetition_penalty\":1.5,\"max_tokens\":9,\"seed\":8",
        ("\"stream\":true,\"stream_options\":{\"include_usage\":true,"
         "\"continuous_usage_stats\":true},\"max_tokens\":5,\"seed\":9")};
    static const char *const of_chats[] = {
        "\"logprobs\":true,\"top_logprobs\":3,\"max_tokens\":7,\"seed\":1",
        "\"logprobs\":true,\"logprob_token_ids\":[97,98],\"max_tokens\":4,\"n\":2,\"seed\":2",
        "\"logprobs\":true,\"return_tokens_as_token_ids\":true,\"stop\":\"t\",\"seed\":3"};
    static const char *const of_texts[] = {
        "\"logprobs\":1,\"max_tokens\":7,\"seed\":1",
        "\"echo\":true,\"max_tokens\":7,\"seed\":2",
        "\"echo\":true,\"logprobs\":1,\"max_tokens\":7,\"n\":3,\"seed\":3",
        "\"echo\":true,\"logprobs\":0,\"max_tokens\":0",
        "\"echo\":true,\"logprobs\":1,\"truncate_prompt_tokens\":2,\"max_tokens\":2",
        "\"echo\":true,\"return_token_ids\":true,\"max_tokens\":3"};
    static const char *const prompts[] = {"\"free\"", "\"x@caf\\u00e9 hello\"", "[97,98,99]"};
    uint64_t id = 0;
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        harness_submit(&h, ++id, CHAT, true, chat("free", both[i]));
        harness_submit(&h, ++id, TEXT, true, text("[\"free\",\"more\"]", both[i]));
    }
    for (size_t i = 0; i < sizeof of_chats / sizeof *of_chats; i++)
        harness_submit(&h, ++id, CHAT, true, chat("free", of_chats[i]));
    for (size_t i = 0; i < sizeof of_texts / sizeof *of_texts; i++)
        for (size_t k = 0; k < sizeof prompts / sizeof *prompts; k++)
            harness_submit(&h, ++id, TEXT, true, text(prompts[k], of_texts[i]));
    for (uint64_t done = 1; done <= id; done++) {
        assert_int_equal(harness_wait(&h, done), 200);
        check_stream(done);
    }
}

static void usage_goes_with_every_chunk_when_asked_for(void **state) {
    (void)state;
    harness_submit(&h, 1, CHAT, true,
                   chat("@abc", "\"stream\":true,\"stream_options\":{\"include_usage\":true,"
                                "\"continuous_usage_stats\":true}"));
    assert_int_equal(harness_wait(&h, 1), 200);
    struct str all = buf_str(&h.jobs[1].deltas);
    json_int_t last = 0;
    for (size_t at = 0; at < all.bytes;) {
        size_t end = str_find_byte(all, '\n', at);
        json_t *chunk;
        assert_int_equal(json_read(&chunk, (struct str){all.at + at, end - at}, NULL), OK);
        json_t *of_chunk = json_object_get(chunk, "usage");
        assert_int_equal(json_integer_value(json_object_get(of_chunk, "prompt_tokens")), 6);
        json_int_t made = json_integer_value(json_object_get(of_chunk, "completion_tokens"));
        assert_true(made >= last);
        last = made;
        json_decref(chunk);
        at = end + 1;
    }
    assert_int_equal(last, 4);
}

/* ---- logprobs ---- */

static void the_logprobs_of_a_prompt_are_those_of_its_tokens_one_by_one(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, TEXT, text("[97,98,99,100,101]", "\"prompt_logprobs\":3")),
                     200);
    const json_t *list = json_object_get(choice_of(1, 0), "prompt_logprobs");
    assert_int_equal(json_array_size(list), 5);
    assert_true(json_is_null(json_array_get(list, 0)));
    /* What is likely after a prompt is what a longer prompt says of its next token. */
    for (unsigned at = 1; at < 5; at++) {
        char prompt[64] = "[97", members[128];
        for (unsigned i = 1; i < at; i++)
            snprintf(prompt + strlen(prompt), sizeof prompt - strlen(prompt), ",%u", 97 + i);
        strncat(prompt, "]", sizeof prompt - strlen(prompt) - 1);
        snprintf(members, sizeof members,
                 "\"max_tokens\":1,\"logprobs\":3,\"allowed_token_ids\":[%u],"
                 "\"return_tokens_as_token_ids\":true",
                 97 + at);
        assert_int_equal(harness_ask(&h, 1 + at, TEXT, text(prompt, members)), 200);
        json_t *scores = json_array_get(list, at);
        const json_t *columns = json_object_get(choice_of(1 + at, 0), "logprobs");
        const json_t *tops = json_array_get(json_object_get(columns, "top_logprobs"), 0);
        assert_int_equal(json_object_size(scores), json_object_size(tops));
        char key[32];
        const char *token;
        json_t *score;
        json_object_foreach(scores, token, score) {
            snprintf(key, sizeof key, "token_id:%s", token);
            assert_true(json_number_value(json_object_get(score, "logprob")) ==
                        json_number_value(json_object_get(tops, key)));
            assert_true(json_integer_value(json_object_get(score, "rank")) >= 1);
        }
    }
}

static void a_prompt_is_scored_once_and_again_though_it_is_in_the_cache(void **state) {
    (void)state;
    char prompt[400] = "[97";
    for (unsigned i = 1; i < 60; i++)
        snprintf(prompt + strlen(prompt), sizeof prompt - strlen(prompt), ",%u", 97 + i % 20);
    strncat(prompt, "]", sizeof prompt - strlen(prompt) - 1);
    const char *body = text(prompt, "\"prompt_logprobs\":1,\"n\":3,\"temperature\":0");
    assert_int_equal(harness_ask(&h, 1, TEXT, body), 200);
    assert_int_equal(harness_ask(&h, 2, TEXT, body), 200);
    for (uint64_t id = 1; id <= 2; id++)
        for (size_t i = 0; i < 3; i++) {
            const json_t *list = json_object_get(choice_of(id, i), "prompt_logprobs");
            assert_int_equal(json_array_size(list), 60);
            check_equal(list, json_object_get(choice_of(1, 0), "prompt_logprobs"), "scores");
        }
    assert_int_equal(usage(2, "prompt_tokens"), 60);
    /* A chat has them once, beside its choices. */
    assert_int_equal(harness_ask(&h, 3, CHAT, chat("free", "\"prompt_logprobs\":0")), 200);
    assert_int_equal(json_array_size(json_object_get(h.jobs[3].body, "prompt_logprobs")),
                     usage(3, "prompt_tokens"));
}

static void echoed_logprobs_come_before_those_of_the_answer(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, TEXT, text("\"ab@hello\"", "\"echo\":true,\"logprobs\":1")),
                     200);
    const json_t *columns = json_object_get(choice_of(1, 0), "logprobs");
    static const char *const tokens[] = {"a", "b", "@", "hell", "o", "hell", "o"};
    static const json_int_t offsets[] = {0, 1, 2, 3, 7, 8, 12};
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(
            json_string_value(json_array_get(json_object_get(columns, "tokens"), i)), tokens[i]);
        assert_int_equal(
            json_integer_value(json_array_get(json_object_get(columns, "text_offset"), i)),
            offsets[i]);
        const json_t *logprob = json_array_get(json_object_get(columns, "token_logprobs"), i);
        const json_t *top = json_array_get(json_object_get(columns, "top_logprobs"), i);
        assert_true(i == 0 ? json_is_null(logprob) && json_is_null(top)
                           : json_number_value(logprob) <= 0 && json_is_object(top));
    }
    assert_string_equal(harness_text(&h, 1, 0), "ab@hellohello");
    /* Nothing is generated when nothing is asked for. */
    assert_int_equal(harness_ask(&h, 2, TEXT,
                                 text("\"ab@hello\"", "\"echo\":true,\"logprobs\":1,"
                                                      "\"max_tokens\":0")),
                     200);
    assert_string_equal(harness_text(&h, 2, 0), "ab@hello");
    assert_string_equal(harness_reason(&h, 2, 0), "length");
    assert_int_equal(usage(2, "completion_tokens"), 0);
    columns = json_object_get(choice_of(2, 0), "logprobs");
    assert_int_equal(json_array_size(json_object_get(columns, "tokens")), 5);
}

static void named_tokens_stand_in_for_the_likely_ones(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT,
                                 chat("free", "\"logprobs\":true,\"logprob_token_ids\":[122,97,0],"
                                              "\"max_tokens\":1,\"temperature\":0")),
                     200);
    const json_t *entry =
        json_array_get(json_object_get(json_object_get(choice_of(1, 0), "logprobs"), "content"), 0);
    const json_t *tops = json_object_get(entry, "top_logprobs");
    assert_int_equal(json_array_size(tops), 3);
    double last = 0;
    for (size_t i = 0; i < 3; i++) {
        double logprob = json_number_value(json_object_get(json_array_get(tops, i), "logprob"));
        assert_true(logprob <= last && logprob >= -9999);
        last = logprob;
    }
    const json_t *bytes = json_object_get(json_array_get(tops, 2), "bytes");
    assert_int_equal(json_integer_value(json_array_get(bytes, 0)), 0);
}

/* ---- what may be generated ---- */

static void only_allowed_tokens_come(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, TEXT,
                                 text("\"free\"", "\"allowed_token_ids\":[120,121],"
                                                  "\"max_tokens\":30,\"seed\":1")),
                     200);
    assert_int_equal(strspn(harness_text(&h, 1, 0), "xy"), 30);
}

static void a_bad_word_does_not_come_and_its_parts_do(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, TEXT, text("\"@hello\"", "\"bad_words\":[\"o\"]")), 200);
    assert_null(strstr(harness_text(&h, 1, 0), "o"));
    assert_memory_equal(harness_text(&h, 1, 0), "hell", 4);
    /* hell and o are one word of two tokens; only together they are bad. */
    assert_int_equal(
        harness_ask(&h, 2, TEXT, text("\"@ohello\"", "\"bad_words\":[\"hello\",\"nothing\"]")),
        200);
    assert_memory_equal(harness_text(&h, 2, 0), "ohell", 5);
    assert_null(strstr(harness_text(&h, 2, 0), "hello"));
}

static void the_best_of_many_are_the_most_likely_ones(void **state) {
    (void)state;
    const char *members = "\"max_tokens\":12,\"seed\":50,\"ignore_eos\":true,\"logprobs\":0,\"n\":";
    char all[160], best[160];
    snprintf(all, sizeof all, "%s6", members);
    snprintf(best, sizeof best, "%s2,\"best_of\":6", members);
    assert_int_equal(harness_ask(&h, 1, TEXT, text("[\"free\",\"more\"]", all)), 200);
    assert_int_equal(harness_ask(&h, 2, TEXT, text("[\"free\",\"more\"]", best)), 200);
    assert_int_equal(json_array_size(json_object_get(h.jobs[2].body, "choices")), 4);
    assert_int_equal(usage(2, "completion_tokens"), 2 * 6 * 12);
    for (size_t p = 0; p < 2; p++) {
        double means[6];
        for (size_t k = 0; k < 6; k++) {
            const json_t *columns = json_object_get(choice_of(1, p * 6 + k), "logprobs");
            means[k] = 0;
            for (size_t i = 0; i < 12; i++)
                means[k] += json_number_value(
                    json_array_get(json_object_get(columns, "token_logprobs"), i));
        }
        for (size_t rank = 0; rank < 2; rank++) {
            size_t most = 0;
            for (size_t k = 1; k < 6; k++)
                if (means[k] > means[most]) most = k;
            assert_string_equal(harness_text(&h, 2, p * 2 + rank),
                                harness_text(&h, 1, p * 6 + most));
            means[most] = -INFINITY;
        }
    }
}

/* ---- names and owners ---- */

static void a_request_names_its_answer(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("@a", "\"request_id\":\"row-7 \\u00e9\"")), 200);
    assert_string_equal(json_string_value(json_object_get(h.jobs[1].body, "id")),
                        "chatcmpl-row-7 \xC3\xA9");
}

static json_int_t cached(uint64_t id) {
    const json_t *details =
        json_object_get(json_object_get(h.jobs[id].body, "usage"), "prompt_tokens_details");
    return json_integer_value(json_object_get(details, "cached_tokens"));
}

static void a_salt_divides_the_cache(void **state) {
    (void)state;
    char prompt[200];
    memset(prompt, 'p', sizeof prompt - 1);
    prompt[sizeof prompt - 1] = '\0';
    static const struct {
        const char *members;
        bool is_found;
    } rows[] = {{"\"max_tokens\":1", false},
                {"\"max_tokens\":1,\"cache_salt\":\"a\"", false},
                {"\"max_tokens\":1,\"cache_salt\":\"b\"", false},
                {"\"max_tokens\":1,\"cache_salt\":\"a\"", true},
                {"\"max_tokens\":1", true},
                {"\"max_tokens\":1,\"cache_salt\":\"b\"", true}};
    for (uint64_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(harness_ask(&h, i + 1, CHAT, chat(prompt, rows[i].members)), 200);
        assert_true((cached(i + 1) > 0) == rows[i].is_found);
    }
}

static void the_tier_is_echoed(void **state) {
    (void)state;
    static const struct {
        enum tier tier;
        const char *asked, *answered;
    } rows[] = {{TIER_PRIORITY, "fast", "priority"},
                {TIER_DEFAULT, "auto", "default"},
                {TIER_FLEX, "flex", "flex"},
                {TIER_BATCH, "batch", "batch"},
                {TIER_BATCH, "priority", "default"}};
    for (uint64_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char members[64];
        snprintf(members, sizeof members, "\"service_tier\":\"%s\"", rows[i].asked);
        const struct wire_job job = {
            CHAT, rows[i].tier, false, false, 0, str_from(chat("@a", members)), STR("")};
        assert_true(engine_submit(h.engine, i + 1, &job));
        assert_int_equal(harness_wait(&h, i + 1), 200);
        assert_string_equal(json_string_value(json_object_get(h.jobs[i + 1].body, "service_tier")),
                            rows[i].answered);
    }
}

/* ---- tools ---- */

#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define CALL(name, arguments)                                                                      \
    "<tool_call>\\n{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": " arguments                 \
    "}\\n</tool_call>"

static void calls_in_the_text_become_tool_calls(void **state) {
    (void)state;
    const char *prompt =
        "@So: " CALL("f", "{\\\"x\\\": 1.50}") "\\n" CALL("g", "{}") "^ and no more";
    harness_submit(&h, 1, CHAT, true, chat(prompt, TOOLS ",\"return_token_ids\":true"));
    assert_int_equal(harness_wait(&h, 1), 200);
    const json_t *message = json_object_get(choice_of(1, 0), "message");
    assert_string_equal(json_string_value(json_object_get(message, "content")), "So:");
    assert_string_equal(harness_reason(&h, 1, 0), "tool_calls");
    const json_t *calls = json_object_get(message, "tool_calls");
    assert_int_equal(json_array_size(calls), 2);
    const json_t *function = json_object_get(json_array_get(calls, 0), "function");
    assert_string_equal(json_string_value(json_object_get(function, "name")), "f");
    assert_string_equal(json_string_value(json_object_get(function, "arguments")), "{\"x\": 1.50}");
    assert_memory_equal(json_string_value(json_object_get(json_array_get(calls, 0), "id")), "call_",
                        5);
    check_stream(1);
    /* Only a call: no content at all. */
    harness_submit(&h, 2, CHAT, true, chat("@" CALL("f", "{}") "^", TOOLS));
    assert_int_equal(harness_wait(&h, 2), 200);
    message = json_object_get(choice_of(2, 0), "message");
    assert_true(json_is_null(json_object_get(message, "content")));
    check_stream(2);
    harness_submit(&h, 3, CHAT, true, chat(prompt, TOOLS ",\"parallel_tool_calls\":false"));
    assert_int_equal(harness_wait(&h, 3), 200);
    message = json_object_get(choice_of(3, 0), "message");
    assert_int_equal(json_array_size(json_object_get(message, "tool_calls")), 1);
    check_stream(3);
}

static void without_a_call_tools_leave_the_text_alone(void **state) {
    (void)state;
    static const char *const members[] = {TOOLS, TOOLS ",\"tool_choice\":\"none\"", "",
                                          TOOLS ",\"max_tokens\":20"};
    static const char *const prompts[] = {"@no <tool_call>{} </tool_call> ^",
                                          "@" CALL("f", "{}") "^", "@" CALL("f", "{}") "^",
                                          "@" CALL("f", "{}") "^"};
    static const char *const texts[] = {
        "no <tool_call>{} </tool_call> ",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": "};
    for (uint64_t i = 0; i < 4; i++) {
        harness_submit(&h, i + 1, CHAT, true, chat(prompts[i], members[i]));
        assert_int_equal(harness_wait(&h, i + 1), 200);
        assert_string_equal(harness_text(&h, i + 1, 0), texts[i]);
        assert_string_equal(harness_reason(&h, i + 1, 0), i == 3 ? "length" : "stop");
        assert_null(json_object_get(json_object_get(choice_of(i + 1, 0), "message"), "tool_calls"));
        check_stream(i + 1);
    }
}

static void tools_that_the_template_does_not_show_are_refused(void **state) {
    (void)state;
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("@a", TOOLS)), 400);
    assert_string_equal(error_member(1, "param"), "tools");
    assert_string_equal(error_member(1, "code"), "unsupported_parameter");
    assert_int_equal(harness_ask(&h, 2, CHAT, chat("@a", TOOLS ",\"tool_choice\":\"none\"")), 200);
}

/* ---- templates ---- */

static void a_template_of_a_request_is_used_only_when_trusted(void **state) {
    (void)state;
    const char *members = "\"chat_template\":\"{{ '<|user|>@' + messages[0].content[::-1] }}\"";
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("abc", members)), 400);
    assert_string_equal(error_member(1, "param"), "chat_template");
    assert_string_equal(error_member(1, "code"), "unsupported_parameter");
    assert_non_null(strstr(error_member(1, "message"), "--trust-request-chat-template"));
}

static void a_trusted_template_renders_the_prompt(void **state) {
    (void)state;
    const char *members = "\"chat_template\":\"{{ '<|user|>@' + messages[0].content[::-1] }}\"";
    assert_int_equal(harness_ask(&h, 1, CHAT, chat("abc", members)), 200);
    assert_string_equal(harness_text(&h, 1, 0), "cba");
    assert_int_equal(harness_ask(&h, 2, CHAT, chat("abc", "\"chat_template\":\"{% if %}\"")), 400);
    assert_string_equal(error_member(2, "param"), "chat_template");
    assert_string_equal(error_member(2, "code"), "invalid_value");
}

/* ---- hostile bodies ---- */

static const char *const names[] = {"temperature",
                                    "top_p",
                                    "top_k",
                                    "min_p",
                                    "presence_penalty",
                                    "frequency_penalty",
                                    "repetition_penalty",
                                    "n",
                                    "best_of",
                                    "max_tokens",
                                    "max_completion_tokens",
                                    "min_tokens",
                                    "logprobs",
                                    "top_logprobs",
                                    "prompt_logprobs",
                                    "logprob_token_ids",
                                    "allowed_token_ids",
                                    "bad_words",
                                    "logit_bias",
                                    "stop",
                                    "stop_token_ids",
                                    "seed",
                                    "stream",
                                    "stream_options",
                                    "echo",
                                    "ignore_eos",
                                    "include_stop_str_in_output",
                                    "skip_special_tokens",
                                    "spaces_between_special_tokens",
                                    "add_special_tokens",
                                    "parse_special",
                                    "add_generation_prompt",
                                    "continue_final_message",
                                    "truncate_prompt_tokens",
                                    "chat_template",
                                    "chat_template_kwargs",
                                    "tools",
                                    "tool_choice",
                                    "parallel_tool_calls",
                                    "return_token_ids",
                                    "return_tokens_as_token_ids",
                                    "request_id",
                                    "cache_salt",
                                    "priority",
                                    "service_tier",
                                    "reasoning_effort",
                                    "response_format",
                                    "structured_outputs",
                                    "guided_json",
                                    "modalities",
                                    "user",
                                    "metadata",
                                    "suffix",
                                    "documents",
                                    "messages",
                                    "prompt",
                                    "model",
                                    "mirostat",
                                    "unknown"};

static const char *const values[] = {
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2",
    "3",
    "0.5",
    "1.0",
    "-0.0",
    "1e308",
    "-1e-308",
    "9223372036854775807",
    "-9223372036854775808",
    "1e400",
    "\"\"",
    "\"a\"",
    "\"none\"",
    "\"auto\"",
    "\"\\u0000\"",
    "\"\\ud83d\"",
    "\"caf\xC3\xA9\"",
    "\"{{ messages }}\"",
    "[]",
    "{}",
    "[1]",
    "[97,98]",
    "[260]",
    "[262]",
    "[-1]",
    "[1.5]",
    "[\"a\"]",
    "[\"a\",\"bc\",\" d\"]",
    "[[97]]",
    "[null]",
    "[{}]",
    "{\"97\":5}",
    "{\"a\":1}",
    "{\"type\":\"text\"}",
    "{\"include_usage\":true}",
    "[{\"role\":\"user\",\"content\":\"x\"}]",
    "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]",
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]"};

static size_t random_body(struct rng *rng, char *body, size_t bytes, bool is_chat) {
    size_t at = (size_t)snprintf(body, bytes, "{\"model\":\"toy\",%s,\"max_tokens\":3",
                                 is_chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
                                         : "\"prompt\":\"hi\"");
    for (uint64_t i = rng_below(rng, 5); i > 0; i--)
        at += (size_t)snprintf(body + at, bytes - at, ",\"%s\":%s",
                               names[rng_below(rng, sizeof names / sizeof *names)],
                               values[rng_below(rng, sizeof values / sizeof *values)]);
    at += (size_t)snprintf(body + at, bytes - at, "}");
    /* Now and then it is cut, or a byte of it is another. */
    if (rng_below(rng, 8) == 0) body[at = rng_below(rng, at)] = '\0';
    if (rng_below(rng, 8) == 0 && at > 0) body[rng_below(rng, at)] = (char)rng_below(rng, 256);
    return at;
}

static void check_answer(uint64_t id, const char *body) {
    int status = harness_wait(&h, id);
    if (status == 200) return;
    const char *message = error_member(id, "message");
    if ((status != 400 && status != 404) || !message || !*message)
        fail_msg("%s: %d %s", body, status, message ? message : "");
}

static void ten_thousand_bodies_are_answered_or_refused_clearly(void **state) {
    (void)state;
    struct rng rng = {.state = 11};
    enum { ROUNDS = 40, EACH = 250 };
    static char bodies[EACH][4096];
    uint32_t answered = 0;
    for (int round = 0; round < ROUNDS; round++) {
        if (round > 0) {
            harness_close(&h);
            harness_open(&h, NULL, NULL);
        }
        for (uint64_t id = 0; id < EACH; id++) {
            bool is_chat = rng_below(&rng, 2);
            size_t bytes = random_body(&rng, bodies[id], sizeof bodies[id], is_chat);
            const struct wire_job job = {
                is_chat ? CHAT : TEXT, TIER_DEFAULT, rng_below(&rng, 2), false, 0,
                {bodies[id], bytes},   STR("")};
            assert_true(engine_submit(h.engine, id, &job));
        }
        for (uint64_t id = 0; id < EACH; id++) {
            check_answer(id, bodies[id]);
            answered += h.jobs[id].result.status == 200;
        }
    }
    /* Enough of both. */
    assert_true(answered > ROUNDS * EACH / 10 && answered < ROUNDS * EACH * 9 / 10);
}

#define PLAIN(name) cmocka_unit_test_setup_teardown(name, open_engine, close_engine)
#define TOOL(name) cmocka_unit_test_setup_teardown(name, open_tool_engine, close_engine)

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(every_field_gives_in_a_stream_what_it_gives_whole),
        PLAIN(usage_goes_with_every_chunk_when_asked_for),
        PLAIN(the_logprobs_of_a_prompt_are_those_of_its_tokens_one_by_one),
        PLAIN(a_prompt_is_scored_once_and_again_though_it_is_in_the_cache),
        PLAIN(echoed_logprobs_come_before_those_of_the_answer),
        PLAIN(named_tokens_stand_in_for_the_likely_ones),
        PLAIN(only_allowed_tokens_come),
        PLAIN(a_bad_word_does_not_come_and_its_parts_do),
        PLAIN(the_best_of_many_are_the_most_likely_ones),
        PLAIN(a_request_names_its_answer),
        PLAIN(a_salt_divides_the_cache),
        PLAIN(the_tier_is_echoed),
        TOOL(calls_in_the_text_become_tool_calls),
        TOOL(without_a_call_tools_leave_the_text_alone),
        PLAIN(tools_that_the_template_does_not_show_are_refused),
        PLAIN(a_template_of_a_request_is_used_only_when_trusted),
        TOOL(a_trusted_template_renders_the_prompt),
        PLAIN(ten_thousand_bodies_are_answered_or_refused_clearly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
