/* SPDX-License-Identifier: Apache-2.0 */
/* Drawn chats are equal for equal arguments, and a body goes out in the form that is asked for. */
#include "bench/workload.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *text_of(const struct workload *workload, size_t line) {
    const json_t *messages = json_member(workload->lines[line].body, "messages");
    return json_string_value(json_member(json_array_get(messages, 0), "content"));
}

static size_t words_of(const char *text) {
    size_t count = 1;
    for (; *text; text++) count += *text == ' ';
    return count;
}

static void drawn_chats_have_their_words_and_a_common_beginning(void **state) {
    (void)state;
    const struct workload_draw draw = {
        .count = 3, .input_words = 40, .output_tokens = 8, .prefix_words = 30, .seed = 5};
    struct workload one = {.lines = NULL}, two = {.lines = NULL};
    workload_draw(&one, &draw);
    workload_draw(&two, &draw);
    assert_int_equal(one.count, 3);
    assert_string_equal(one.name, "40:8");
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(words_of(text_of(&one, i)), 40);
        assert_string_equal(text_of(&one, i), text_of(&two, i));
        assert_int_equal(json_integer_value(json_member(one.lines[i].body, "max_tokens")), 8);
    }
    assert_string_not_equal(text_of(&one, 0), text_of(&one, 1));
    size_t common = 0, words = 0;
    while (text_of(&one, 0)[common] == text_of(&one, 1)[common])
        words += text_of(&one, 0)[common++] == ' ';
    assert_true(words >= 30);
    workload_release(&one);
    workload_release(&two);
}

static void a_body_goes_out_in_the_form_that_is_asked_for(void **state) {
    (void)state;
    struct workload_line line = {.custom_id = NULL, .is_streamed = true};
    struct error error;
    struct buf out;
    buf_init(&out, 1 << 16);
    enum err err = json_read(&line.body,
                             STR("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":"
                                 "\"x\"}],\"stream\":false}"),
                             &error);
    assert_int_equal(err, OK);
    workload_write_body(&out, &line,
                        &(struct workload_form){.model = "n", .is_streamed = true, .mark = "[1] "});
    assert_string_equal(out.at, "{\"model\":\"n\",\"messages\":[{\"role\":\"user\",\"content\":"
                                "\"[1] x\"}],\"stream\":true,\"stream_options\":{"
                                "\"include_usage\":true}}");
    workload_write_body(&out, &line, &(struct workload_form){.is_streamed = false});
    assert_string_equal(out.at,
                        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    json_decref(line.body);
    buf_release(&out);
}

/* A mark stands before the first text, wherever an endpoint has it. */
static void a_mark_begins_the_prompt_of_each_endpoint(void **state) {
    (void)state;
    static const char *const bodies[][2] = {
        {"{\"messages\":[{\"content\":[{\"type\":\"image_url\"},{\"type\":\"text\",\"text\":\"x\"}]"
         "}]}",
         "{\"messages\":[{\"content\":[{\"type\":\"image_url\"},{\"type\":\"text\",\"text\":\"[1] "
         "x\"}]}]}"},
        {"{\"prompt\":\"x\"}", "{\"prompt\":\"[1] x\"}"},
        {"{\"prompt\":[\"x\",\"y\"]}", "{\"prompt\":[\"[1] x\",\"y\"]}"},
        {"{\"input\":\"x\"}", "{\"input\":\"[1] x\"}"},
        {"{\"input\":[1,2]}", "{\"input\":[1,2]}"},
        {"{\"messages\":[]}", "{\"messages\":[]}"},
        {"{}", "{}"},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct workload_line line = {.custom_id = NULL};
        struct error error;
        struct buf out;
        buf_init(&out, 1 << 16);
        assert_int_equal(json_read(&line.body, str_from(bodies[i][0]), &error), OK);
        workload_write_body(&out, &line, &(struct workload_form){.mark = "[1] "});
        assert_string_equal(out.at, bodies[i][1]);
        workload_write_body(&out, &line, &(struct workload_form){.mark = NULL});
        assert_string_equal(out.at, bodies[i][0]);
        json_decref(line.body);
        buf_release(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_chats_have_their_words_and_a_common_beginning),
        cmocka_unit_test(a_mark_begins_the_prompt_of_each_endpoint),
        cmocka_unit_test(a_body_goes_out_in_the_form_that_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
