/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt format 1, byte for byte. */
#include "decisions/wording.h"
#include "reading.h"

#include <string.h>

static struct buf written; /* the block of a question, of the test that runs */

/* The block of the first question of `text`, with labels of letters. */
static const char *block(const char *text) {
    struct label_text labels[WORDING_LETTERS];
    struct questions questions;
    struct refusal refusal;
    json_t *body = read_value(text);
    for (uint32_t i = 0; i < WORDING_LETTERS; i++) labels[i] = label_letter(i);
    if (!questions_read(&questions, body, &refusal)) fail_msg("%s", refusal.message);
    buf_release(&written);
    buf_init(&written, 1 << 20);
    wording_write_question(&written, &questions.at[0], labels);
    questions_release(&questions);
    json_decref(body);
    return written.at;
}

static int release(void **state) {
    (void)state;
    buf_release(&written);
    return 0;
}

static void a_predicate_is_false_or_true(void **state) {
    (void)state;
    assert_string_equal(
        block("{\"questions\":[{\"type\":\"predicate\",\"name\":\"remote\","
              "\"instructions\":\"Works remotely?\"}]}"),
        "Question: Works remotely?\nA: false\nB: true\nAnswer with the letter of one option only.");
}

static void values_of_a_choice_are_json(void **state) {
    (void)state;
    assert_string_equal(
        block("{\"questions\":[{\"type\":\"choice\",\"instructions\":\"Which team?\",\"choices\":["
              "{\"value\":\"ops\",\"description\":\"keeps servers alive\"},{\"value\":true},"
              "{\"value\":\"true\",\"description\":\"\"},"
              "{\"value\":\"say \\\"\\u00e9\\\"\\n\\u001f\\/\",\"description\":null}]}]}"),
        "Question: Which team?\nA: \"ops\" - keeps servers alive\nB: true\nC: \"true\"\n"
        "D: \"say \\\"\xC3\xA9\\\"\\n\\u001f/\"\nAnswer with the letter of one option only.");
}

static void levels_of_a_score_have_letters(void **state) {
    (void)state;
    assert_string_equal(
        block("{\"questions\":[{\"type\":\"score\",\"instructions\":\"How good a fit?\",\"levels\":"
              "[{\"label\":\"weak\"},{\"label\":\"fair\",\"description\":\"some of it\"},"
              "{\"label\":\"strong\"}]}]}"),
        "Question: How good a fit?\nA: weak\nB: fair - some of it\nC: strong\n"
        "Answer with the letter of one option only.");
}

static void instructions_of_parts_are_lines(void **state) {
    (void)state;
    assert_string_equal(
        block(
            "{\"questions\":[{\"type\":\"predicate\",\"instructions\":["
            "{\"type\":\"input_text\",\"text\":\"Is this so?\"},{\"type\":\"input_json\",\"data\":"
            "{\"z\":[0.1,2,2.0,1e300,null],\"a\":\"\xC3\xA9\"}}]}]}"),
        "Question: Is this so?\n{\"z\":[0.1,2,2.0,1e+300,null],\"a\":\"\xC3\xA9\"}\n"
        "A: false\nB: true\nAnswer with the letter of one option only.");
}

static void without_instructions_there_is_no_question_line(void **state) {
    (void)state;
    assert_string_equal(block("{\"questions\":[{\"type\":\"predicate\",\"instructions\":\"\"}]}"),
                        "A: false\nB: true\nAnswer with the letter of one option only.");
}

static void labels_are_letters_and_then_pairs(void **state) {
    (void)state;
    assert_string_equal(label_letter(0).at, "A");
    assert_string_equal(label_letter(25).at, "Z");
    assert_string_equal(label_pair(0).at, "AA");
    assert_string_equal(label_pair(27).at, "BB");
    assert_string_equal(label_pair(254).at, "JU");
    assert_string_equal(label_pair(675).at, "ZZ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_predicate_is_false_or_true, release),
        cmocka_unit_test_teardown(values_of_a_choice_are_json, release),
        cmocka_unit_test_teardown(levels_of_a_score_have_letters, release),
        cmocka_unit_test_teardown(instructions_of_parts_are_lines, release),
        cmocka_unit_test_teardown(without_instructions_there_is_no_question_line, release),
        cmocka_unit_test(labels_are_letters_and_then_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
