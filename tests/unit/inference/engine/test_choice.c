/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "base/utf8.h"
#include "engine/choice.h"
#include "toy.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WHOLE_BYTES_MAX 32

/* A vocabulary that holds every part of one short text. */
struct parts {
    struct tokenizer *tokenizer;
    int32_t ids[WHOLE_BYTES_MAX][WHOLE_BYTES_MAX + 1]; /* [from][bytes] */
};

static void parts_open(struct parts *parts, const char *whole) {
    struct str tokens[WHOLE_BYTES_MAX * WHOLE_BYTES_MAX];
    uint8_t kinds[WHOLE_BYTES_MAX * WHOLE_BYTES_MAX];
    size_t length = strlen(whole), count = 0;
    for (size_t from = 0; from < length; from++) {
        for (size_t bytes = 1; from + bytes <= length; bytes++) {
            struct str token = {whole + from, bytes};
            size_t id = 0;
            while (id < count && !str_equals(tokens[id], token)) id++;
            if (id == count) {
                kinds[count] = TOKEN_USER_DEFINED;
                tokens[count++] = token;
            }
            parts->ids[from][bytes] = (int32_t)id;
        }
    }
    const struct tokenizer_source source = {.model = STR("gpt2"),
                                            .pre = STR("gpt-2"),
                                            .tokens = tokens,
                                            .kinds = kinds,
                                            .token_count = count,
                                            .bos = TOKEN_NONE,
                                            .eos = TOKEN_NONE,
                                            .eot = TOKEN_NONE,
                                            .unknown = TOKEN_NONE,
                                            .padding = TOKEN_NONE};
    struct error error;
    if (tokenizer_open(&parts->tokenizer, &source, &error) != OK) fail_msg("%s", error.text);
}

/* Where the first stop string becomes whole, byte by byte; the definition. */
static struct str cut_by_definition(const char *whole, const struct request *request) {
    for (size_t end = 1; end <= strlen(whole); end++) {
        size_t longest = 0;
        for (size_t i = 0; i < request->stop_count; i++)
            if (str_ends_with((struct str){whole, end}, request->stops[i]) &&
                request->stops[i].bytes > longest)
                longest = request->stops[i].bytes;
        if (longest > 0) return (struct str){whole, request->include_stop ? end : end - longest};
    }
    return str_from(whole);
}

/* Feeds `whole` in the pieces that the bits of `split` say and checks every moment. */
static void check_split(const struct parts *parts, const char *whole, unsigned split,
                        const struct request *request) {
    struct choice choice;
    choice_init(&choice, request);
    struct str expected = cut_by_definition(whole, request);
    size_t length = strlen(whole), from = 0, shown = 0;
    while (from < length) {
        size_t end = from + 1;
        while (end < length && !(split & 1u << (end - 1))) end++;
        struct sample sample = {.token = parts->ids[from][end - from]};
        from = end;
        bool is_stopped = choice_add(&choice, request, parts->tokenizer, &sample, false);
        size_t now = choice_shown(&choice, request);
        assert_true(now >= shown);
        shown = now;
        /* What was shown stays part of the answer. */
        assert_true(shown <= expected.bytes);
        assert_memory_equal(choice.raw.at, expected.at, shown);
        if (is_stopped) break;
    }
    choice.is_done = true;
    assert_int_equal(choice_shown(&choice, request), expected.bytes);
    assert_int_equal(choice.raw.bytes, expected.bytes);
    if (expected.bytes > 0) assert_memory_equal(choice.raw.at, expected.at, expected.bytes);
    choice_release(&choice);
}

static void a_stop_string_cuts_the_same_at_every_split_into_tokens(void **state) {
    (void)state;
    static const struct {
        const char *whole;
        const char *stops[4];
    } cases[] = {
        {"abcXYZdefg", {"XYZ"}},
        {"ababababab", {"bab"}},
        {"aaaaaaaaab", {"aab"}},
        {"abcdefghij", {"XYZ"}},
        {"aXYZbcdefg", {"Y", "XYZ"}},
        {"abcdefghij", {"a"}},
        {"abcdefghij", {"j"}},
        {"abcdefghij", {"hijk"}},
        {"abcabcabcd", {"abcd", "bca"}},
        {"a\xC3\xA9"
         "b\xE2\x82\xAC"
         "cde",
         {"\xE2\x82\xAC"}},
        {"xyxyxyxyxz", {"xyxz", "yxyxz", "z"}},
        {"ENDENEENDE", {"ENDE", "NEE", "END"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parts parts;
        parts_open(&parts, cases[i].whole);
        for (int include = 0; include < 2; include++) {
            struct request request = {.include_stop = include, .skip_special_tokens = true};
            for (size_t k = 0; k < 4 && cases[i].stops[k]; k++)
                request.stops[request.stop_count++] = str_from(cases[i].stops[k]);
            unsigned splits = 1u << (strlen(cases[i].whole) - 1);
            for (unsigned split = 0; split < splits; split++)
                check_split(&parts, cases[i].whole, split, &request);
        }
        tokenizer_close(parts.tokenizer);
    }
}

static void a_part_of_a_stop_string_is_shown_once_it_cannot_become_whole(void **state) {
    (void)state;
    struct toy toy;
    toy_open(&toy, &(struct toy_options){.chat_template = ""});
    struct request request = {.stop_count = 1, .stops = {STR("STOP")}, .skip_special_tokens = true};
    struct choice choice;
    choice_init(&choice, &request);
    static const char bytes[] = "aSTOSTx";
    static const size_t expected[] = {1, 1, 1, 1, 4, 4, 7};
    for (size_t i = 0; i < 7; i++) {
        struct sample sample = {.token = bytes[i]};
        assert_false(choice_add(&choice, &request, toy.model.vocabulary.tokenizer, &sample, false));
        assert_int_equal(choice_shown(&choice, &request), expected[i]);
    }
    choice_release(&choice);
    toy_close(&toy);
}

/* Any bytes at all, one a token: what is shown piece by piece is the repair of the whole. */
static void pieces_of_any_bytes_join_to_the_repaired_whole(void **state) {
    (void)state;
    struct toy toy;
    toy_open(&toy, &(struct toy_options){.chat_template = ""});
    struct request request = {.skip_special_tokens = true};
    struct rng rng = {7};
    static const unsigned char often[] = {0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98,
                                          0x80, 0xC3, 0xA9, 'a',  0xED, 0xA0};
    for (int round = 0; round < 2000; round++) {
        struct choice choice;
        choice_init(&choice, &request);
        struct buf all, pieces, whole;
        buf_init(&all, 1000);
        buf_init(&pieces, 10000);
        buf_init(&whole, 10000);
        size_t shown = 0, length = rng_below(&rng, 20) + 1;
        for (size_t i = 0; i < length; i++) {
            unsigned char byte = rng_below(&rng, 8) ? often[rng_below(&rng, sizeof often)]
                                                    : (unsigned char)rng_below(&rng, 256);
            struct sample sample = {.token = byte};
            buf_add_byte(&all, (char)byte);
            choice_add(&choice, &request, toy.model.vocabulary.tokenizer, &sample, false);
            if (i + 1 == length) choice.is_done = true;
            size_t now = choice_shown(&choice, &request);
            struct str piece = {choice.raw.at + shown, now - shown};
            size_t before = pieces.bytes;
            utf8_add_repaired(&pieces, piece);
            assert_true(utf8_is_valid(str_skip(buf_str(&pieces), before)));
            shown = now;
        }
        utf8_add_repaired(&whole, buf_str(&all));
        assert_int_equal(pieces.bytes, whole.bytes);
        assert_memory_equal(pieces.at, whole.at, whole.bytes);
        buf_release(&all);
        buf_release(&pieces);
        buf_release(&whole);
        choice_release(&choice);
    }
    toy_close(&toy);
}

static void no_stop_string_matches_before_min_tokens(void **state) {
    (void)state;
    struct toy toy;
    toy_open(&toy, &(struct toy_options){.chat_template = ""});
    struct request request = {
        .stop_count = 1, .stops = {STR("ab")}, .min_tokens = 3, .skip_special_tokens = true};
    struct choice choice;
    choice_init(&choice, &request);
    static const char bytes[] = "ababab";
    size_t count = 0;
    bool is_stopped = false;
    while (!is_stopped && count < 6) {
        struct sample sample = {.token = bytes[count++]};
        is_stopped = choice_add(&choice, &request, toy.model.vocabulary.tokenizer, &sample, false);
    }
    /* The third token's text may not be part of it either. */
    assert_int_equal(count, 6);
    assert_int_equal(choice.raw.bytes, 4);
    choice_release(&choice);
    toy_close(&toy);
}

static void the_text_of_an_end_token_is_not_part_of_the_answer(void **state) {
    (void)state;
    struct toy toy;
    toy_open(&toy, &(struct toy_options){.chat_template = ""});
    for (int include = 0; include < 2; include++) {
        struct request request = {
            .skip_special_tokens = false, .include_stop = include, .logprobs = true};
        struct choice choice;
        choice_init(&choice, &request);
        choice_add(&choice, &request, toy.model.vocabulary.tokenizer,
                   &(struct sample){.token = 'x'}, false);
        choice_add(&choice, &request, toy.model.vocabulary.tokenizer,
                   &(struct sample){.token = TOY_END}, true);
        choice.is_done = true;
        assert_string_equal(choice.raw.at, include ? "x<|end|>" : "x");
        assert_int_equal(choice_logprobs_shown(&choice, choice.raw.bytes), include ? 2 : 1);
        assert_int_equal(choice.token_count, 2);
        choice_release(&choice);
    }
    toy_close(&toy);
}

static void log_probabilities_go_with_the_text_they_belong_to(void **state) {
    (void)state;
    struct toy toy;
    toy_open(&toy, &(struct toy_options){.chat_template = ""});
    struct request request = {
        .stop_count = 1, .stops = {STR("STOP")}, .logprobs = true, .skip_special_tokens = true};
    struct choice choice;
    choice_init(&choice, &request);
    static const char bytes[] = "aSTOP";
    for (size_t i = 0; i < 5; i++) {
        struct sample sample = {
            .token = bytes[i], .logprob = -1, .top_count = 1, .top = {{bytes[i], -1}}};
        choice_add(&choice, &request, toy.model.vocabulary.tokenizer, &sample, false);
        size_t shown = choice_shown(&choice, &request);
        assert_int_equal(choice_logprobs_shown(&choice, shown), 1);
    }
    assert_true(choice.stopped);
    choice_release(&choice);
    toy_close(&toy);
}

static void a_mark_of_tool_calls_is_text_though_it_is_a_control_token(void **state) {
    (void)state;
    struct toy toy;
    toy_open(&toy, &(struct toy_options){.block_count = 0});
    struct request request = {
        .skip_special_tokens = true, .shown_tokens = {TOY_USER}, .shown_token_count = 1};
    struct choice choice;
    choice_init(&choice, &request);
    static const int32_t tokens[] = {TOY_ASSISTANT, 'a', TOY_USER, 'b', TOY_END};
    for (size_t i = 0; i < 5; i++) {
        const struct sample sample = {.token = tokens[i]};
        assert_false(
            choice_add(&choice, &request, toy.model.vocabulary.tokenizer, &sample, i == 4));
    }
    assert_true(str_is(buf_str(&choice.raw), "a<|user|>b"));
    choice_release(&choice);
    toy_close(&toy);
}

/* Feeds `whole` in the pieces that the bits of `split` say, as a model that may think has it. */
static void check_thinking(const struct parts *parts, const char *whole, unsigned split,
                           bool wraps_answer, const char *thought, const char *answer) {
    const struct thought_marks marks = {
        .begin = "<t>", .end = "/t", .may_lack_begin = true, .wraps_answer = wraps_answer};
    struct request request = {.stops = {STR("s")},
                              .stop_count = !wraps_answer,
                              .thought_marks = marks,
                              .thought_start = THOUGHT_MAY};
    struct choice choice;
    size_t length = strlen(whole), from = 0;
    bool is_stopped = false;
    struct buf streamed;
    buf_init(&streamed, BUF_UNLIMITED);
    choice_init(&choice, &request);
    while (from < length && !is_stopped) {
        size_t end = from + 1, content = streamed.bytes;
        while (end < length && !(split & 1u << (end - 1))) end++;
        struct sample sample = {.token = parts->ids[from][end - from]};
        from = end;
        is_stopped = choice_add(&choice, &request, parts->tokenizer, &sample, false);
        struct str now = choice_answer(&choice, choice_shown(&choice, &request));
        assert_true(now.bytes >= content); /* a stream takes nothing back */
        buf_add_str(&streamed, str_skip(now, content));
    }
    choice_end(&choice, &request, FINISH_STOP);
    struct str rest = choice_answer(&choice, choice.raw.bytes);
    assert_true(str_starts_with(rest, buf_str(&streamed)));
    if (!str_is(rest, answer) || !str_is(choice_thought(&choice, choice.raw.bytes), thought))
        fail_msg("%s, split %u: '%.*s'", whole, split, STR_ARGS(rest));
    buf_release(&streamed);
    choice_release(&choice);
}

static void a_stop_string_ends_an_answer_and_no_thought(void **state) {
    (void)state;
    static const struct {
        const char *whole, *thought, *answer;
    } cases[] = {
        {"<t>as/tbsc", "as", "b"},
        {"as b/tcd", "as b", "cd"},
        {"as/tbs", "as", "b"},
        {"absc", "", "ab"},
        {"s", "", ""},
        {"<t>asb", "asb", ""},
        {"/ts", "", ""},
        {"<ts>abc", "", "<t"},
        {"\n\nas", "", "\n\na"},
        {"as<t>b/tc", "", "a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parts parts;
        parts_open(&parts, cases[i].whole);
        for (unsigned split = 0; split < 1u << (strlen(cases[i].whole) - 1); split++)
            check_thinking(&parts, cases[i].whole, split, false, cases[i].thought, cases[i].answer);
        tokenizer_close(parts.tokenizer);
    }
}

static void the_marks_of_an_answer_are_not_shown(void **state) {
    (void)state;
    static const unsigned splits[] = {0, UINT_MAX, 0x55555555u, 0x0FF00FF0u, 0x12345678u};
    static const char whole[] = "<t>a/t<answer>\nb\n\n</answer>";
    struct parts parts;
    parts_open(&parts, whole);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        check_thinking(&parts, whole, splits[i], true, "a", "b");
    tokenizer_close(parts.tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_string_cuts_the_same_at_every_split_into_tokens),
        cmocka_unit_test(a_stop_string_ends_an_answer_and_no_thought),
        cmocka_unit_test(the_marks_of_an_answer_are_not_shown),
        cmocka_unit_test(a_part_of_a_stop_string_is_shown_once_it_cannot_become_whole),
        cmocka_unit_test(pieces_of_any_bytes_join_to_the_repaired_whole),
        cmocka_unit_test(no_stop_string_matches_before_min_tokens),
        cmocka_unit_test(the_text_of_an_end_token_is_not_part_of_the_answer),
        cmocka_unit_test(log_probabilities_go_with_the_text_they_belong_to),
        cmocka_unit_test(a_mark_of_tool_calls_is_text_though_it_is_a_control_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
