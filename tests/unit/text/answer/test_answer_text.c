/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/answer_text.h"
#include "answer/answer_tree.h"
#include "json/json.h"
#include "json/span.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const kinds[] = {[ANSWER_IS_NOTHING] = "nothing",
                                    [ANSWER_IS_CONTENT] = "content",
                                    [ANSWER_IS_CALL] = "call",
                                    [ANSWER_IS_REFUSAL] = "refusal",
                                    [ANSWER_IS_TEXT] = "text"};

static json_t *open_cases(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/unit/text/answer/cases.json", getenv("QUERN_SOURCE"));
    json_t *cases = json_load_file(path, 0, NULL);
    assert_true(json_array_size(cases) > 40);
    return cases;
}

static void check(const json_t *item, const char *by, enum answer_member kind, struct str text) {
    if (!str_equals(json_member_str(item, "text"), text) ||
        !str_is(json_member_str(item, "kind"), kinds[kind]))
        fail_msg("%s, by %s: %s '%.*s'", json_string_value(json_object_get(item, "id")), by,
                 kinds[kind], STR_ARGS(text));
}

/* The same answer out of the text of the body, plain and spread, and out of its tree. */
static void each_case_has_one_answer_by_every_reader(void **state) {
    (void)state;
    json_t *cases = open_cases(), *item;
    struct buf text;
    size_t index;
    buf_init(&text, BUF_UNLIMITED);
    json_array_foreach(cases, index, item) {
        const json_t *body = json_object_get(item, "body");
        static const size_t forms[] = {JSON_COMPACT, JSON_INDENT(2),
                                       JSON_COMPACT | JSON_ENSURE_ASCII};
        for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
            char *written = json_dumps(body, forms[form]);
            struct answer_text found;
            buf_clear(&text);
            answer_text_of_body(&found, str_from(written), NULL);
            answer_text_add(&text, &found);
            if (form != 1 || found.raw.bytes == 0 || *found.raw.at != '{')
                check(item, "text", found.kind, buf_str(&text));
            buf_clear(&text);
            if (found.thought.at) json_span_decode(&text, found.thought);
            assert_true(str_equals(buf_str(&text), json_member_str(item, "thought")));
            free(written);
        }
        struct answer_tree tree;
        buf_clear(&text);
        answer_tree_find(&tree, body);
        answer_tree_add_text(&text, &tree);
        check(item, "tree", tree.kind, buf_str(&text));
        assert_true((tree.kind == ANSWER_IS_NOTHING) == (tree.place == NULL) || tree.calls);
    }
    buf_release(&text);
    json_decref(cases);
}

static void read_choice(struct answer_text *found, const char *choices) {
    assert_true(answer_text_first(found, str_from(choices), NULL));
}

static void the_parts_of_a_choice_are_raw(void **state) {
    (void)state;
    struct answer_text found;
    read_choice(&found,
                "[{\"\\u0069ndex\":0,\"me\\u0073sage\":{\"content\":\"a\",\"tool_calls\":[{}]},"
                "\"finish_reason\":\"stop\",\"logprobs\":{\"content\":[]}}]");
    assert_true(str_is(found.raw, "\"a\""));
    assert_true(str_is(found.calls, "[{}]"));
    assert_true(str_is(found.finish_reason, "\"stop\""));
    assert_true(str_is(found.logprobs, "{\"content\":[]}"));
    assert_int_equal(found.count, 2);
    read_choice(&found,
                "[{\"message\":{\"content\":\"\"},\"finish_reason\":null,\"logprobs\":null}]");
    assert_null(found.finish_reason.at);
    assert_null(found.logprobs.at);
    assert_int_equal(found.count, 0);
}

static void the_piece_of_a_stream_says_its_delta(void **state) {
    (void)state;
    struct answer_text found;
    read_choice(&found, "[{\"index\":0,\"delta\":{\"refusal\":\"I \"}}]");
    assert_int_equal(found.kind, ANSWER_IS_REFUSAL);
    read_choice(&found, "[{\"index\":0,\"delta\":{\"reasoning\":\"hm\"},\"message\":null}]");
    assert_int_equal(found.kind, ANSWER_IS_NOTHING);
    assert_true(str_is(found.thought, "\"hm\""));
}

static void choices_are_counted_where_it_is_asked(void **state) {
    (void)state;
    struct answer_text found;
    uint64_t count;
    assert_true(answer_text_first(&found, STR("[{\"text\":\"a\"},{\"text\":\"b\"},7]"), &count));
    assert_int_equal(count, 3);
    assert_true(str_is(found.raw, "\"a\""));
    assert_false(answer_text_first(&found, STR("{\"0\":{\"text\":\"a\"}}"), &count));
    assert_int_equal(count, 0);
    assert_int_equal(found.kind, ANSWER_IS_NOTHING);
}

/* Bytes of a record are not checked before they are read. */
static void a_cut_text_is_read_as_far_as_it_goes(void **state) {
    (void)state;
    static const char whole[] = "[{\"index\":1,\"message\":{\"content\":[\"a\"],\"tool_calls\":[{"
                                "\"function\":{\"arguments\":"
                                "\"{}\"}}],\"refusal\":\"no\"}},{\"index\":0,\"text\":\"b\"}]";
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    for (size_t bytes = 0; bytes < sizeof whole; bytes++) {
        char *cut = malloc(bytes + 1);
        struct answer_text found;
        memcpy(cut, whole, bytes);
        buf_clear(&text);
        bool has_choice = answer_text_first(&found, (struct str){bytes ? cut : NULL, bytes}, NULL);
        answer_text_add(&text, &found);
        if (!has_choice) assert_int_equal(text.bytes, 0);
        free(cut);
    }
    assert_string_equal(text.at, "b");
    buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_case_has_one_answer_by_every_reader),
        cmocka_unit_test(the_parts_of_a_choice_are_raw),
        cmocka_unit_test(the_piece_of_a_stream_says_its_delta),
        cmocka_unit_test(choices_are_counted_where_it_is_asked),
        cmocka_unit_test(a_cut_text_is_read_as_far_as_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
