/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG 1000

/* `count` different tokens of LONG bytes. */
static struct str *long_tokens(size_t count) {
    struct str *tokens = calloc(count, sizeof *tokens);
    char *bytes = malloc(count * LONG + 1);
    if (!tokens || !bytes) abort();
    memset(bytes, 'a', count * LONG);
    for (size_t i = 0; i < count; i++) {
        char number[16];
        tokens[i] = (struct str){bytes + i * LONG, LONG};
        snprintf(number, sizeof number, "%06zu", i);
        memcpy(bytes + i * LONG, number, 6);
    }
    return tokens;
}

static void free_tokens(struct str *tokens) {
    free((char *)(uintptr_t)tokens[0].at);
    free(tokens);
}

static enum err open_long(struct str model, size_t count, uint8_t kind, struct error *error) {
    struct tokenizer *tokenizer = NULL;
    struct str *tokens = long_tokens(count);
    float *scores = calloc(count, sizeof *scores);
    uint8_t *kinds = malloc(count);
    if (!scores || !kinds) abort();
    memset(kinds, kind, count);
    const struct tokenizer_source source = {.model = model,
                                            .pre = STR("gpt-2"),
                                            .tokens = tokens,
                                            .kinds = kinds,
                                            .scores = str_is(model, "llama") ? scores : NULL,
                                            .token_count = count,
                                            .bos = TOKEN_NONE,
                                            .eos = TOKEN_NONE,
                                            .eot = TOKEN_NONE,
                                            .unknown = TOKEN_NONE,
                                            .padding = TOKEN_NONE};
    enum err err = tokenizer_open(&tokenizer, &source, error);
    tokenizer_close(tokenizer);
    free_tokens(tokens);
    free(scores);
    free(kinds);
    return err;
}

static void tokens_that_would_take_long_to_score_are_refused(void **state) {
    (void)state;
    struct error error;
    assert_int_equal(open_long(STR("llama"), 100, TOKEN_NORMAL, &error), OK);
    assert_int_equal(open_long(STR("llama"), 1100, TOKEN_NORMAL, &error), ERR_LIMIT);
    assert_string_equal(error.text, "the tokens are too many and too long to be scored");
}

static void special_tokens_that_would_take_much_memory_are_refused(void **state) {
    (void)state;
    struct error error;
    assert_int_equal(open_long(STR("gpt2"), 1000, TOKEN_CONTROL, &error), OK);
    assert_int_equal(open_long(STR("gpt2"), 4300, TOKEN_CONTROL, &error), ERR_LIMIT);
    assert_string_equal(error.text, "the special tokens have over 4194304 bytes");
}

static void a_tokenizer_json_with_millions_of_values_is_refused_unread(void **state) {
    (void)state;
    const size_t values = (size_t)5 << 20;
    struct tokenizer *tokenizer;
    struct error error;
    struct buf json;
    buf_init(&json, BUF_UNLIMITED);
    buf_add_text(&json, "{\"model\":[");
    for (size_t i = 0; i < values; i++) buf_add_text(&json, "1,");
    buf_add_text(&json, "1]}");
    assert_int_equal(tokenizer_open_json(&tokenizer, buf_str(&json), &error), ERR_LIMIT);
    assert_non_null(strstr(error.text, "5242883 values, over the limit of 4194304"));
    buf_release(&json);
}

static void a_tokenizer_json_that_nests_deep_is_refused(void **state) {
    (void)state;
    struct tokenizer *tokenizer;
    struct error error;
    struct buf json;
    buf_init(&json, BUF_UNLIMITED);
    for (size_t i = 0; i < 1000000; i++) buf_add_text(&json, "[");
    assert_int_equal(tokenizer_open_json(&tokenizer, buf_str(&json), &error), ERR_INVALID);
    buf_release(&json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_that_would_take_long_to_score_are_refused),
        cmocka_unit_test(special_tokens_that_would_take_much_memory_are_refused),
        cmocka_unit_test(a_tokenizer_json_with_millions_of_values_is_refused_unread),
        cmocka_unit_test(a_tokenizer_json_that_nests_deep_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
