/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/input.h"
#include "reading.h"

#include <string.h>

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"

static void check(const char *input, const char *state, const char *system) {
    struct buf text;
    struct decision_input read;
    struct refusal refusal;
    buf_init(&text, 1 << 20);
    buf_printf(&text, "{\"input\":%s}", input);
    json_t *body = read_value(text.at);
    if (!decision_input_read(&read, body, &refusal)) fail_msg("%s", refusal.message);
    assert_string_equal(read.state.bytes ? read.state.at : "", state);
    assert_true(read.has_system == (system != NULL));
    if (system) assert_string_equal(read.system.at, system);
    decision_input_release(&read);
    json_decref(body);
    buf_release(&text);
}

static void a_string_is_the_state(void **state) {
    (void)state;
    check("\"R\xC3\xA9sum\xC3\xA9\"", "R\xC3\xA9sum\xC3\xA9", NULL);
    check("\"\"", "", NULL);
}

static void user_messages_are_joined_by_blank_lines(void **state) {
    (void)state;
    check("[" USER("a") "]", "a", NULL);
    check("[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
          "\"text\":\"a\"},{\"type\":\"input_json\",\"data\":[{\"k\":1}]}]}," USER("b") "]",
          "a\n[{\"k\":1}]\n\nb", NULL);
}

static void messages_of_developers_are_the_system_text(void **state) {
    (void)state;
    check("[{\"role\":\"developer\",\"content\":\"d\"}," USER(
              "a") ",{\"role\":\"system\",\"content\":[{\"type\":\"input_text\",\"text\":\"s\"}]}"
                   "," USER("b") "]",
          "a\n\nb", "d\n\ns");
}

static void any_other_mix_has_blocks(void **state) {
    (void)state;
    check("[{\"role\":\"system\",\"content\":\"s\"}," USER(
              "hi") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":"
                    "\"ok\"},"
                    "{\"type\":\"refusal\",\"refusal\":\"no\"}],\"phase\":\"x\"},"
                    "{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\",\"call_id\":"
                    "\"1\"},"
                    "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"4\"},"
                    "{\"type\":\"custom_tool_call\",\"name\":\"g\",\"input\":\"x "
                    "y\",\"call_id\":\"2\"},"
                    "{\"type\":\"custom_tool_call_output\",\"call_id\":\"2\",\"output\":["
                    "{\"type\":\"input_text\",\"text\":\"z\"}]}]",
          "user:\nhi\n\nassistant:\nok\nno\n\ncall f({})\n\nresult of 1:\n4\n\ncall g(x y)\n\n"
          "result of 2:\nz",
          "s");
}

static void a_refusal_names_field_value_and_path(void **state) {
    (void)state;
    static const struct {
        const char *input, *code, *param, *words;
    } rows[] = {
        {"null", "missing_required_parameter", "input", ""},
        {"7", "invalid_type", "input", "7"},
        {"[]", "array_below_min_length", "input", ""},
        {"[3]", "invalid_type", "input[0]", "3"},
        {"[{}]", "missing_required_parameter", "input[0].role", ""},
        {"[{\"role\":\"tool\",\"content\":\"\"}]", "invalid_value", "input[0].role", "'tool'"},
        {"[{\"role\":\"user\"}]", "missing_required_parameter", "input[0].content", ""},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"x\"}]}]",
         "unsupported_parameter", "input[0].content[0].type", "input_image"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_json\",\"data\":[1]}]}]",
         "invalid_type", "input[0].content[0].data", "array of objects"},
        {"[{\"role\":\"developer\",\"content\":[{\"type\":\"input_json\",\"data\":{}}]}]",
         "invalid_value", "input[0].content[0].type", "'input_text'"},
        {"[{\"type\":\"reasoning\"}]", "invalid_value", "input[0].type", "'reasoning'"},
        {"[{\"type\":4,\"role\":\"user\",\"content\":\"\"}]", "invalid_type", "input[0].type", "4"},
        {"[{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":{},\"call_id\":\"1\"}]",
         "invalid_type", "input[0].arguments", "an object"},
        {"[" USER("a") ",{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"\"}]",
         "invalid_value", "input[1].call_id", "'1'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf text;
        struct decision_input read;
        struct refusal refusal;
        buf_init(&text, 1 << 20);
        buf_printf(&text, "{\"input\":%s}", rows[i].input);
        json_t *body = read_value(text.at);
        if (decision_input_read(&read, body, &refusal)) fail_msg("taken: %s", rows[i].input);
        assert_int_equal(refusal.status, 400);
        assert_string_equal(refusal.code, rows[i].code);
        assert_string_equal(refusal.param, rows[i].param);
        if (!strstr(refusal.message, rows[i].words)) fail_msg("%s", refusal.message);
        json_decref(body);
        buf_release(&text);
    }
}

/* A part of JSON with so many numbers, each of so many digits. */
static bool takes_numbers(uint32_t count, uint32_t digits) {
    struct buf text;
    struct decision_input read;
    struct refusal refusal;
    buf_init(&text, 1 << 22);
    buf_add_text(&text, "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_json\","
                        "\"data\":{\"a\":[");
    for (uint32_t i = 0; i < count; i++)
        buf_printf(&text, "%s\"%0*u\"", i ? "," : "", (int)digits, i);
    buf_add_text(&text, "]}}]}]}");
    json_t *body = read_value(text.at);
    bool is_taken = decision_input_read(&read, body, &refusal);
    if (is_taken)
        decision_input_release(&read);
    else
        assert_string_equal(refusal.param, "input[0].content[0].data");
    json_decref(body);
    buf_release(&text);
    return is_taken;
}

static void a_part_of_json_has_bounds(void **state) {
    (void)state;
    assert_true(takes_numbers(9998, 4)); /* the object and the array are values too */
    assert_false(takes_numbers(9999, 4));
    assert_true(takes_numbers(9000, 26));
    assert_false(takes_numbers(9000, 27));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_string_is_the_state),
        cmocka_unit_test(user_messages_are_joined_by_blank_lines),
        cmocka_unit_test(messages_of_developers_are_the_system_text),
        cmocka_unit_test(any_other_mix_has_blocks),
        cmocka_unit_test(a_refusal_names_field_value_and_path),
        cmocka_unit_test(a_part_of_json_has_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
