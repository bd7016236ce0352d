/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CHAT ENDPOINT_CHAT
#define TEXT ENDPOINT_COMPLETIONS

/* A model file in shared/ or in the user's model folder. Skips the test when there is none. */
static void find_shared(char path[4096], const char *name) {
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, 4096, "%s/%s", shared ? shared : "../shared", name);
    if (access(path, R_OK) != 0) skip();
}

static void find_cached(char path[4096], const char *name) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache)
        snprintf(path, 4096, "%s/quern/models/%s", cache, name);
    else
        snprintf(path, 4096, "%s/.cache/quern/models/%s", home ? home : "", name);
    if (access(path, R_OK) != 0) skip();
}

static void open_file(struct harness *harness, struct served_model *model, const char *path) {
    const struct wire_hello hello = {.model_path = str_from(path),
                                     .names = {{STR("m")}, 1},
                                     .threads = 2,
                                     .max_num_seqs = 8,
                                     .max_num_batched_tokens = 128,
                                     .kv_bytes = 64 << 20,
                                     .prefix_caching = true};
    struct error error;
    if (served_model_open(model, &hello, NULL, &error) != OK) fail_msg("%s", error.text);
    harness_open_model(harness, model, &hello);
}

static struct harness h;

static void a_tiny_llama_answers_the_same_alone_in_company_and_in_a_stream(void **state) {
    (void)state;
    char path[4096];
    find_shared(path, "tiny/llama3/model-q8_0.gguf");
    struct served_model model;
    open_file(&h, &model, path);
    const char *body = "{\"model\":\"m\",\"prompt\":\"The quick brown fox\",\"max_tokens\":24,"
                       "\"seed\":11,\"temperature\":0.8,\"ignore_eos\":true}";
    assert_int_equal(harness_ask(&h, 1, TEXT, body), 200);
    for (uint64_t id = 2; id < 20; id++) harness_submit(&h, id, TEXT, id % 2, body);
    for (uint64_t id = 2; id < 20; id++) {
        assert_int_equal(harness_wait(&h, id), 200);
        assert_string_equal(harness_text(&h, id, 0), harness_text(&h, 1, 0));
        if (id % 2 == 0) continue;
        char *streamed = harness_streamed(&h, id, 0);
        assert_string_equal(streamed, harness_text(&h, 1, 0));
        free(streamed);
    }
    assert_int_equal(h.jobs[1].result.usage.output_tokens, 24);
    harness_close(&h);
    served_model_close(&model);
}

static void a_small_chat_model_knows_a_capital(void **state) {
    (void)state;
    char path[4096];
    find_cached(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
    struct served_model model;
    open_file(&h, &model, path);
    const char *body = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":"
                       "\"What is the capital of France? Answer in one sentence.\"}],"
                       "\"temperature\":0,\"max_tokens\":24}";
    assert_int_equal(harness_ask(&h, 1, CHAT, body), 200);
    if (!strstr(harness_text(&h, 1, 0), "Paris")) fail_msg("it said: %s", harness_text(&h, 1, 0));
    assert_string_equal(harness_reason(&h, 1, 0), "stop");
    harness_submit(&h, 2, CHAT, true, body);
    assert_int_equal(harness_wait(&h, 2), 200);
    char *streamed = harness_streamed(&h, 2, 0);
    assert_string_equal(streamed, harness_text(&h, 1, 0));
    free(streamed);
    assert_true(h.jobs[2].result.usage.cached_tokens > 0);
    assert_int_equal(h.jobs[1].result.usage.input_tokens, h.jobs[2].result.usage.input_tokens);
    harness_close(&h);
    served_model_close(&model);
}

static void a_file_that_is_cut_short_is_refused_with_one_sentence(void **state) {
    (void)state;
    char path[4096], cut[] = "/tmp/quern-test-XXXXXX";
    find_shared(path, "tiny/llama3/model-q8_0.gguf");
    int to = mkstemp(cut);
    assert_true(to >= 0);
    FILE *from = fopen(path, "rb");
    static char bytes[100000];
    size_t count = fread(bytes, 1, sizeof bytes, from);
    fclose(from);
    assert_int_equal(write(to, bytes, count), count);
    close(to);
    struct served_model model;
    struct error error;
    const struct wire_hello hello = {.model_path = str_from(cut)};
    assert_int_not_equal(served_model_open(&model, &hello, NULL, &error), OK);
    unlink(cut);
    assert_true(strlen(error.text) > 10);
    assert_null(strchr(error.text, '\n'));
}

static void a_file_that_is_not_there_is_not_found(void **state) {
    (void)state;
    struct served_model model;
    struct error error;
    const struct wire_hello hello = {.model_path = STR("/nonexistent/m.gguf")};
    assert_int_equal(served_model_open(&model, &hello, NULL, &error), ERR_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tiny_llama_answers_the_same_alone_in_company_and_in_a_stream),
        cmocka_unit_test(a_small_chat_model_knows_a_capital),
        cmocka_unit_test(a_file_that_is_cut_short_is_refused_with_one_sentence),
        cmocka_unit_test(a_file_that_is_not_there_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
