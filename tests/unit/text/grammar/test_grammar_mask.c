/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "compiled.h"
#include "grammar/grammar_internal.h"
#include "grammar/grammar_mask.h"
#include "grammar/grammar_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define TOKENS 1000
#define TEXT_BYTES_MAX 40
#define END_TOKEN 0
#define NO_TEXT 1

/* A vocabulary of all bytes, of pieces of JSON drawn from an alphabet, and of words, which are
 * plain for the most part and of which many are long. */
struct vocabulary {
    struct str at[TOKENS];
    char bytes[TOKENS][TEXT_BYTES_MAX];
};

static void add_text(struct str *text, char *bytes, struct str more) {
    if (text->bytes + more.bytes > TEXT_BYTES_MAX) return;
    memcpy(bytes + text->bytes, more.at, more.bytes);
    text->bytes += more.bytes;
}

/* One of the first `count` pieces. */
static struct str piece_of(const char *const *pieces, size_t count, struct rng *rng) {
    return str_from(pieces[rng_below(rng, count)]);
}

static void open_vocabulary(struct vocabulary *vocabulary, struct rng *rng) {
    static const char *const pieces[] = {"{",    "}",    "[",  "]", ",",    ":", "\"", " ",
                                         "a",    "b",    "k",  "1", "0",    ".", "-",  "e",
                                         "true", "null", "\\", "é", "\xc3", "\n"};
    static const char *const plain[] = {"a",
                                        "b",
                                        "ab",
                                        " ",
                                        "ba ",
                                        "\xc3\xa9",
                                        "\xe2\x82\xac",
                                        "\xf0\x9f\x98\x80",
                                        "\xf0\x9f",
                                        "\xc3",
                                        "\xa9",
                                        "\xed\x9f\xbf",
                                        "\xed\xa0\x80",
                                        "\"",
                                        "\x7f"};
    for (int i = 0; i < TOKENS; i++) {
        char *bytes = vocabulary->bytes[i];
        struct str *text = &vocabulary->at[i];
        *text = (struct str){bytes, 0};
        if (i >= 2 && i < 258) {
            bytes[text->bytes++] = (char)(i - 2);
        } else if (i >= 258 && i < 600) {
            for (uint64_t k = 1 + rng_below(rng, 3); k > 0; k--)
                add_text(text, bytes, piece_of(pieces, sizeof pieces / sizeof *pieces, rng));
        } else if (i >= 600) {
            size_t count = sizeof plain / sizeof *plain;
            for (uint64_t k = 1 + rng_below(rng, 30); k > 0; k--)
                add_text(text, bytes, piece_of(plain, rng_below(rng, 8) ? 5 : count, rng));
        }
    }
}

static bool has_bit(const uint32_t *mask, int token) {
    return mask[token / 32] >> (token % 32) & 1;
}

/* The mask says of each token what the automaton says of its bytes. */
static void check_mask(const struct vocabulary *vocabulary, struct grammar_state *state,
                       const uint32_t *mask) {
    for (int token = 0; token < TOKENS; token++) {
        struct grammar_state copy;
        bool is_good = false;
        if (token == END_TOKEN) {
            is_good = grammar_can_end(state);
        } else if (vocabulary->at[token].bytes > 0) {
            grammar_state_init(&copy, state->grammar);
            assert_int_equal(grammar_accept(&copy, buf_str(&state->text)), GRAMMAR_ACCEPTED);
            is_good = grammar_accept(&copy, vocabulary->at[token]) == GRAMMAR_ACCEPTED;
            grammar_state_release(&copy);
        }
        if (has_bit(mask, token) != is_good)
            fail_msg("after '%.*s' token %d '%.*s' is %sallowed", STR_ARGS(buf_str(&state->text)),
                     token, STR_ARGS(vocabulary->at[token]), is_good ? "" : "not ");
    }
}

/* A token that the mask allows. */
static int draw(const uint32_t *mask, struct rng *rng) {
    int count = 0, token = -1;
    for (int i = 0; i < TOKENS; i++)
        if (has_bit(mask, i) && rng_below(rng, (uint64_t)++count) == 0) token = i;
    return token;
}

static const char *const schemas[] = {
    "{\"type\":\"object\"}",
    "true",
    ("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":3},\"k\":{"
     "\"type\":"
     "\"integer\",\"minimum\":-5,\"maximum\":120}},\"required\":[\"a\",\"k\"],"
     "\"additionalProperties\":"
     "false}"),
    ("{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",1,10,null]},\"minItems\":2,\"maxItems\":"
     "4}"),
    "{\"type\":\"string\",\"pattern\":\"^(a|bé)+$\",\"minLength\":2,\"maxLength\":9}",
    "{\"type\":\"number\",\"minimum\":0.5,\"multipleOf\":0.5}",
    "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":2}",
    "{\"type\":\"string\",\"minLength\":20,\"maxLength\":30}",
    "{\"type\":\"string\",\"minLength\":3,\"maxLength\":12}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":17},\"maxItems\":3}",
    "{\"type\":\"string\",\"pattern\":\"^.{4}(a|b)*$\"}",
    "{\"type\":\"string\",\"pattern\":\"^(.{2}a.{6}|[ab]{30})$\"}",
};

static void walk(const struct vocabulary *vocabulary, struct grammar_masks *masks,
                 struct grammar *grammar, struct rng *rng, bool forgets) {
    struct grammar_state state;
    grammar_state_init(&state, grammar);
    for (int i = 0; i < 30; i++) {
        const uint32_t *mask = grammar_mask(masks, &state);
        assert_non_null(mask); /* an answer can always go on or end */
        if (i % 5 == 0) check_mask(vocabulary, &state, mask);
        int token = draw(mask, rng);
        if (token == END_TOKEN) break;
        assert_int_equal(grammar_accept(&state, vocabulary->at[token]), GRAMMAR_ACCEPTED);
        if (forgets && i % 7 == 3) grammar_forget(grammar);
    }
    grammar_state_release(&state);
}

/* Masks equal a look at every token, on random ways through the grammars; also when the automaton
 * was forgotten on the way, and when few masks are kept. */
static void test_masks(void **state) {
    static const int32_t ends[] = {END_TOKEN};
    struct rng rng = {12};
    struct vocabulary vocabulary;
    (void)state;
    open_vocabulary(&vocabulary, &rng);
    struct grammar_masks *masks = grammar_masks_open(&(struct grammar_masks_options){
        vocabulary.at, TOKENS, ends, 1, TOKENS, 4, GRAMMAR_BYTES_MAX});
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct error error;
        json_t *schema = value_of(schemas[i]);
        struct grammar *grammar = compiled(GRAMMAR_SCHEMA, schema, &error);
        assert_non_null(grammar);
        for (int k = 0; k < 20; k++) walk(&vocabulary, masks, grammar, &rng, k % 2);
        grammar_drop(grammar);
        json_decref(schema);
    }
    grammar_masks_close(masks);
}

/* A count that no token can use up does not matter: all states far from the end share a mask. */
static void test_far_counts_share_a_mask(void **state) {
    static const int32_t ends[] = {END_TOKEN};
    struct rng rng = {5};
    struct vocabulary vocabulary;
    struct error error;
    (void)state;
    open_vocabulary(&vocabulary, &rng);
    struct grammar_masks *masks = grammar_masks_open(&(struct grammar_masks_options){
        vocabulary.at, TOKENS, ends, 1, TOKENS, 4, GRAMMAR_BYTES_MAX});
    json_t *schema = value_of("{\"type\":\"string\",\"maxLength\":1000}");
    struct grammar *grammar = compiled(GRAMMAR_SCHEMA, schema, &error);
    struct grammar_state text;
    uint64_t made = 0;
    grammar_state_init(&text, grammar);
    assert_int_equal(grammar_accept(&text, STR("\"")), GRAMMAR_ACCEPTED);
    for (int i = 0; i < 1000; i++) {
        if (i == 1000 - TEXT_BYTES_MAX - 1) made = grammar_mask_stats(masks).made;
        assert_non_null(grammar_mask(masks, &text));
        assert_int_equal(grammar_accept(&text, STR("x")), GRAMMAR_ACCEPTED);
    }
    assert_int_equal(made, 2); /* one of short tokens, one of all */
    assert_true(grammar_mask_stats(masks).made < 100);
    const uint32_t *mask = grammar_mask(masks, &text);
    assert_non_null(mask);
    check_mask(&vocabulary, &text, mask);
    grammar_state_release(&text);
    grammar_drop(grammar);
    json_decref(schema);
    grammar_masks_close(masks);
}

/* A mask that takes too much work ends with a spent state, within the work of one step; neither the
 * automaton nor other grammars are harmed. */
static void test_a_mask_has_a_bound_of_work(void **state) {
    static const int32_t ends[] = {END_TOKEN};
    struct rng rng = {9};
    struct vocabulary vocabulary;
    struct error error;
    (void)state;
    open_vocabulary(&vocabulary, &rng);
    struct grammar_masks *masks = grammar_masks_open(&(struct grammar_masks_options){
        vocabulary.at, TOKENS, ends, 1, TOKENS, 4, GRAMMAR_BYTES_MAX});
    struct grammar *grammar =
        compiled_text(GRAMMAR_REGEX, "([ab ]*a[ab ]{200}x)|([ab ]*b[ab ]{210}y)", &error);
    assert_non_null(grammar);
    struct grammar_state text;
    grammar_state_init(&text, grammar);
    for (int i = 0; i < 200; i++)
        assert_int_equal(grammar_accept(&text, rng_below(&rng, 2) ? STR("a") : STR("b")),
                         GRAMMAR_ACCEPTED);
    uint32_t count = (uint32_t)grammar->exprs.count;
    assert_null(grammar_mask(masks, &text));
    assert_true(text.is_spent);
    assert_true(grammar->exprs.count > count); /* what was done is not lost */
    assert_int_equal(grammar_accept(&text, STR("a")), GRAMMAR_ACCEPTED);
    assert_false(text.is_spent);
    assert_int_equal(grammar_mask_stats(masks).work_max, GRAMMAR_STEP_FUEL);
    struct grammar *other = compiled_text(GRAMMAR_REGEX, "[ab]{2}", &error);
    struct grammar_state small;
    grammar_state_init(&small, other);
    const uint32_t *mask = grammar_mask(masks, &small);
    assert_non_null(mask);
    assert_false(small.is_spent);
    check_mask(&vocabulary, &small, mask);
    grammar_state_release(&small);
    grammar_drop(other);
    grammar_state_release(&text);
    grammar_drop(grammar);
    grammar_masks_close(masks);
}

/* Without a token for the next byte there is no mask. */
static void test_no_token(void **state) {
    static const struct str tokens[] = {{"", 0}, {"a", 1}};
    static const int32_t ends[] = {END_TOKEN};
    struct error error;
    json_t *source = json_string("ab");
    struct grammar *grammar = compiled(GRAMMAR_REGEX, source, &error);
    struct grammar_masks *masks = grammar_masks_open(
        &(struct grammar_masks_options){tokens, 2, ends, 1, 2, 4, GRAMMAR_BYTES_MAX});
    struct grammar_state text;
    (void)state;
    grammar_state_init(&text, grammar);
    const uint32_t *mask = grammar_mask(masks, &text);
    assert_non_null(mask);
    assert_int_equal(*mask, 2);
    assert_int_equal(grammar_accept(&text, STR("a")), GRAMMAR_ACCEPTED);
    assert_null(grammar_mask(masks, &text));
    assert_int_equal(grammar_accept(&text, STR("c")), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(&text, STR("b")), GRAMMAR_ACCEPTED);
    assert_true(grammar_can_end(&text));
    mask = grammar_mask(masks, &text);
    assert_non_null(mask);
    assert_int_equal(*mask, 1);
    grammar_state_release(&text);
    grammar_masks_close(masks);
    grammar_drop(grammar);
    json_decref(source);
}

/* Equal sources are compiled once, failures are remembered, and old ones make room. */
static void test_set(void **state) {
    struct grammar_set *set = grammar_set_open(GRAMMAR_BYTES_MAX);
    struct grammar *first, *second;
    struct error error;
    json_t *source = json_string("a*"), *bad = json_string("(");
    (void)state;
    assert_int_equal(grammar_set_take(set, GRAMMAR_REGEX, source, &first, &error), OK);
    assert_int_equal(grammar_set_take(set, GRAMMAR_REGEX, source, &second, &error), OK);
    assert_ptr_equal(first, second);
    grammar_drop(second);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(grammar_set_take(set, GRAMMAR_REGEX, bad, &second, &error), ERR_INVALID);
        assert_non_null(strstr(error.text, "group"));
    }
    for (int i = 0; i < 100; i++) {
        char text[16];
        snprintf(text, sizeof text, "a{%d}", i);
        json_t *other = json_string(text);
        assert_int_equal(grammar_set_take(set, GRAMMAR_REGEX, other, &second, &error), OK);
        grammar_drop(second);
        json_decref(other);
    }
    assert_true(takes(first, STR("aaa"))); /* still held here */
    grammar_drop(first);
    json_decref(source);
    json_decref(bad);
    grammar_set_close(set);
}

/* One automaton of each of these has thousands of states; together they have room for a few of
 * them. */
static void test_many_automata_stay_below_their_joint_limit(void **state) {
    enum { GRAMMARS = 12, STEPS = 60 };
    struct rng rng = {11};
    struct vocabulary vocabulary;
    const int32_t ends[] = {END_TOKEN};
    struct grammar *grammars[GRAMMARS];
    struct grammar_state states[GRAMMARS];
    struct error error;
    (void)state;
    open_vocabulary(&vocabulary, &rng);
    for (int i = 0; i < GRAMMARS; i++) {
        char text[64];
        snprintf(text, sizeof text, "(a|b)*a(a|b){%d}(c|d){4,}", 10 + i % 3);
        json_t *source = json_string(text);
        assert_int_equal(grammar_open(&grammars[i], GRAMMAR_REGEX, source, &error), OK);
        grammar_state_init(&states[i], grammars[i]);
        json_decref(source);
    }
    size_t sealed = grammar_sealed_bytes(), most = sealed + ((size_t)128 << 10), grown = 0;
    struct grammar_masks *masks = grammar_masks_open(
        &(struct grammar_masks_options){vocabulary.at, TOKENS, ends, 1, TOKENS, 4, most});
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < GRAMMARS; i++) {
            const uint32_t *mask = grammar_mask(masks, &states[i]);
            size_t bytes = grammar_bytes_in_use();
            assert_non_null(mask);
            assert_true(bytes <= most);
            if (bytes > grown) grown = bytes;
            check_mask(&vocabulary, &states[i], mask);
            const char *byte = rng_below(&rng, 2) ? "a" : "b";
            assert_int_equal(grammar_accept(&states[i], (struct str){byte, 1}), GRAMMAR_ACCEPTED);
        }
    }
    assert_true(grown > sealed);
    uint32_t epochs = 0;
    for (int i = 0; i < GRAMMARS; i++) {
        epochs += grammars[i]->epoch;
        grammar_state_release(&states[i]);
        grammar_drop(grammars[i]);
    }
    assert_true(epochs > 0);
    grammar_masks_close(masks);
}

/* A regular expression, the text so far, and what every text goes on with. */
static const struct {
    const char *regex, *text, *forced;
} ways[] = {
    {"\\{\"name\": [0-9]+, \"kind\": (big|small)\\}", "", "{\"name\": "},
    {"\\{\"name\": [0-9]+, \"kind\": (big|small)\\}", "{\"na", "me\": "},
    {"\\{\"name\": [0-9]+, \"kind\": (big|small)\\}", "{\"name\": 1", ""},
    {"\\{\"name\": [0-9]+, \"kind\": (big|small)\\}", "{\"name\": 1,", " \"kind\": "},
    {"\\{\"name\": [0-9]+, \"kind\": (big|small)\\}", "{\"name\": 1, \"kind\": b", "ig}"},
    {"abc?", "", "ab"}, /* it may end there */
    {"(abcd|abce)", "", "abc"},
    {"é(x|y)", "", "é"},
    {"[^a]b", "", ""},
    {"a{2000}", "", NULL}, /* as many as are asked for */
};

static void test_forced_bytes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct error error;
        struct grammar *grammar = compiled_text(GRAMMAR_REGEX, ways[i].regex, &error);
        struct grammar_state text;
        struct buf forced;
        buf_init(&forced, BUF_UNLIMITED);
        grammar_state_init(&text, grammar);
        assert_int_equal(grammar_accept(&text, str_from(ways[i].text)), GRAMMAR_ACCEPTED);
        grammar_forced(&text, 1000, &forced);
        if (ways[i].forced)
            assert_true(str_is(buf_str(&forced), ways[i].forced));
        else
            assert_int_equal(forced.bytes, 1000);
        assert_int_equal(text.text.bytes, strlen(ways[i].text)); /* a look only */
        buf_release(&forced);
        grammar_state_release(&text);
        grammar_drop(grammar);
    }
}

/* Whether a token of the list may come across the end of `forced`, in a text of the expression. */
static bool crosses(const char *regex, const char *forced, const char *token) {
    struct str tokens[] = {{"", 0}, str_from(token)};
    static const int32_t ends[] = {END_TOKEN};
    struct error error;
    struct grammar *grammar = compiled_text(GRAMMAR_REGEX, regex, &error);
    struct grammar_masks *masks = grammar_masks_open(
        &(struct grammar_masks_options){tokens, 2, ends, 1, 2, 4, GRAMMAR_BYTES_MAX});
    struct grammar_state text;
    grammar_state_init(&text, grammar);
    bool is_crossed = grammar_token_crosses(masks, &text, str_from(forced), 2);
    grammar_state_release(&text);
    grammar_masks_close(masks);
    grammar_drop(grammar);
    return is_crossed;
}

static void test_tokens_across_the_end_of_forced_bytes(void **state) {
    (void)state;
    assert_true(crosses("abc(d|e)", "abc", "bcd"));
    assert_true(crosses("abc(d|e)", "abc", "ce"));
    assert_false(crosses("abc(d|e)", "abc", "cf"));   /* no text goes on so */
    assert_false(crosses("abc(d|e)", "abc", "bc"));   /* it ends there */
    assert_false(crosses("abc(d|e)", "abc", "d"));    /* it begins behind */
    assert_false(crosses("abc(d|e)", "abc", "abcd")); /* it begins before the last two */
}

static json_t *source_of(int number) {
    char text[64];
    snprintf(text, sizeof text, "[a-z]{%d}[0-9]{%d}x", number + 2, number + 3);
    return json_string(text);
}

static void test_a_set_drops_what_no_answer_holds_and_then_makes_no_more(void **state) {
    struct grammar *held[40], *one;
    struct error error;
    int count = 0;
    (void)state;
    size_t before = grammar_sealed_bytes();
    struct grammar_set *set = grammar_set_open(2 * (before + 40000));
    for (int i = 0; i < 100; i++) {
        json_t *source = source_of(i);
        assert_int_equal(grammar_set_take(set, GRAMMAR_REGEX, source, &one, &error), OK);
        grammar_drop(one);
        json_decref(source);
        assert_true(grammar_sealed_bytes() - before < 60000);
    }
    enum err err = OK;
    for (; count < 40 && err == OK; count++) {
        json_t *source = source_of(1000 + count);
        err = grammar_set_take(set, GRAMMAR_REGEX, source, &held[count], &error);
        json_decref(source);
    }
    assert_int_equal(err, ERR_UNAVAILABLE);
    assert_true(--count > 0);
    while (count > 0) grammar_drop(held[--count]);
    json_t *source = source_of(2000);
    assert_int_equal(grammar_set_take(set, GRAMMAR_REGEX, source, &one, &error), OK);
    grammar_drop(one);
    json_decref(source);
    grammar_set_close(set);
    assert_int_equal(grammar_sealed_bytes(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_far_counts_share_a_mask),
        cmocka_unit_test(test_a_mask_has_a_bound_of_work),
        cmocka_unit_test(test_no_token),
        cmocka_unit_test(test_forced_bytes),
        cmocka_unit_test(test_tokens_across_the_end_of_forced_bytes),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_many_automata_stay_below_their_joint_limit),
        cmocka_unit_test(test_a_set_drops_what_no_answer_holds_and_then_makes_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
