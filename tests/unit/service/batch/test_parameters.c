/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/parameters.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOOD                                                                                       \
    "\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/chat/completions\","                          \
    "\"completion_window\":\"24h\""

static bool read_text(const char *text, const struct batch_rules *rules,
                      struct batch_parameters *parameters, struct refusal *refusal) {
    struct error error;
    json_t *body;
    assert_int_equal(json_read(&body, str_from(text), &error), OK);
    bool good = batch_parameters_read(parameters, body, rules, refusal);
    json_decref(body);
    return good;
}

static void assert_refused(const char *text, const char *code, const char *param,
                           const char *message) {
    struct batch_rules rules = batch_rules_default();
    struct batch_parameters parameters;
    struct refusal refusal;
    if (read_text(text, &rules, &parameters, &refusal)) fail_msg("%s was taken", text);
    assert_string_equal(refusal.code, code);
    assert_string_equal(refusal.param, param);
    if (!strstr(refusal.message, message))
        fail_msg("'%s' does not say '%s'", refusal.message, message);
}

static void every_wrong_parameter_is_named_with_its_value(void **state) {
    (void)state;
    static const struct {
        const char *text, *code, *param, *message;
    } cases[] = {
        {"{}", "missing_required_parameter", "input_file_id", "'input_file_id'"},
        {"{\"input_file_id\":null}", "missing_required_parameter", "input_file_id", "Missing"},
        {"{\"input_file_id\":7}", "invalid_type", "input_file_id", "an integer"},
        {"{\"input_file_id\":\"f\"}", "missing_required_parameter", "endpoint", "'endpoint'"},
        {"{\"input_file_id\":\"f\",\"endpoint\":\"/v1/invalid/endpoint\"}", "invalid_value",
         "endpoint", "'/v1/invalid/endpoint'. Supported values are: '/v1/chat/completions'"},
        {"{\"input_file_id\":\"f\",\"endpoint\":\"/v1/embeddings\"}", "missing_required_parameter",
         "completion_window", "'completion_window'"},
        {"{\"input_file_id\":\"f\",\"endpoint\":\"/v1/embeddings\",\"completion_window\":\"1h\"}",
         "invalid_value", "completion_window", "'completion_window': '1h'"},
        {"{\"input_file_id\":\"f\",\"endpoint\":\"/v1/embeddings\",\"completion_window\":\"\"}",
         "invalid_value", "completion_window", "completion_window"},
        {"{" GOOD ",\"metadata\":[]}", "invalid_type", "metadata", "an array"},
        {"{" GOOD ",\"metadata\":{\"tags\":[\"a\"]}}", "invalid_type", "metadata.tags", "an array"},
        {"{" GOOD ",\"output_expires_after\":{\"anchor\":\"created_at\",\"seconds\":10}}",
         "integer_below_min_value", "output_expires_after.seconds", "10 is outside"},
        {"{" GOOD ",\"output_expires_after\":{\"anchor\":\"created_at\",\"seconds\":2592001}}",
         "integer_above_max_value", "output_expires_after.seconds", "2592001"},
        {"{" GOOD ",\"output_expires_after\":{\"anchor\":\"now\",\"seconds\":3600}}",
         "invalid_value", "output_expires_after.anchor", "'now'"},
        {"{" GOOD ",\"priority\":1.5}", "invalid_type", "priority", "a decimal"},
        {"{" GOOD ",\"webhook_url\":\"http://x\"}", "invalid_value", "webhook_url", "http://x"},
        {"{" GOOD ",\"service_tier\":\"gold\"}", "invalid_value", "service_tier", "'gold'"},
        {"[]", "invalid_type", "", "an array"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(cases[i].text, cases[i].code, cases[i].param, cases[i].message);
}

/* {…,"metadata":{<pairs pairs with keys of key characters and values of value characters>}} */
static char *with_metadata(int pairs, int key, int value) {
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add_text(&text, "{" GOOD ",\"metadata\":{");
    for (int i = 0; i < pairs; i++) {
        buf_printf(&text, "%s\"%02d", i ? "," : "", i);
        for (int j = 2; j < key; j++) buf_add_text(&text, "\xC3\xA9");
        buf_add_text(&text, "\":\"");
        for (int j = 0; j < value; j++) buf_add_text(&text, "\xE4\xBD\xA0");
        buf_add_byte(&text, '"');
    }
    buf_add_text(&text, "}}");
    return text.at;
}

static void metadata_limits_count_characters_not_bytes(void **state) {
    (void)state;
    struct batch_rules rules = batch_rules_default();
    struct batch_parameters parameters;
    struct refusal refusal;
    static const int too_much[3][3] = {{17, 2, 1}, {1, 65, 1}, {1, 2, 513}};
    char *text = with_metadata(16, 64, 512);
    assert_true(read_text(text, &rules, &parameters, &refusal));
    batch_parameters_release(&parameters);
    free(text);
    for (int i = 0; i < 3; i++) {
        text = with_metadata(too_much[i][0], too_much[i][1], too_much[i][2]);
        assert_false(read_text(text, &rules, &parameters, &refusal));
        assert_non_null(strstr(refusal.message, "metadata"));
        assert_int_equal(strncmp(refusal.param, "metadata", 8), 0);
        free(text);
    }
}

static void good_parameters_come_through_with_metadata_in_order(void **state) {
    (void)state;
    struct batch_rules rules = batch_rules_default();
    struct batch_parameters p;
    struct refusal refusal;
    assert_true(
        read_text("{" GOOD ",\"metadata\":{\"z\":\"1\",\"a\":\"\xC3\xA9\"},\"priority\":-5,"
                  "\"webhook_url\":\"https://x/y\",\"unknown\":[1],\"idempotency_key\":\"k\","
                  "\"output_expires_after\":{\"anchor\":\"created_at\",\"seconds\":3600}}",
                  &rules, &p, &refusal));
    assert_string_equal(p.input_file_id, "file-1");
    assert_int_equal(p.endpoint, ENDPOINT_CHAT);
    assert_int_equal(p.window_s, 86400);
    assert_string_equal(p.metadata, "{\"z\":\"1\",\"a\":\"\\u00E9\"}");
    assert_int_equal(p.priority, -5);
    assert_string_equal(p.webhook_url, "https://x/y");
    assert_string_equal(p.idempotency_key, "k");
    assert_int_equal(p.output_expires_after_s, 3600);
    batch_parameters_release(&p);
    assert_true(read_text("{" GOOD ",\"metadata\":null}", &rules, &p, &refusal));
    assert_null(p.metadata);
    batch_parameters_release(&p);
}

static void other_windows_need_the_operators_consent(void **state) {
    (void)state;
    struct batch_rules rules = batch_rules_default();
    struct batch_parameters p;
    struct refusal refusal;
    static const struct {
        const char *window;
        int64_t seconds; /* 0: refused */
    } cases[] = {{"24h", 86400}, {"1m", 60},  {"7d", 604800}, {"30d", 2592000},
                 {"31d", 0},     {"0h", 0},   {"h", 0},       {"1s", 0},
                 {"01h", 0},     {"1.5h", 0}, {"-1h", 0},     {"99999999999h", 0}};
    rules.extended_windows = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(
            text, sizeof text,
            "{\"input_file_id\":\"f\",\"endpoint\":\"/v1/score\",\"completion_window\":\"%s\"}",
            cases[i].window);
        bool good = read_text(text, &rules, &p, &refusal);
        assert_int_equal(good, cases[i].seconds != 0);
        if (good) assert_int_equal(p.window_s, cases[i].seconds);
    }
}

static void equal_parameters_have_equal_sums_and_the_key_is_not_one(void **state) {
    (void)state;
    struct batch_rules rules = batch_rules_default();
    struct batch_parameters a, b, c;
    struct refusal refusal;
    assert_true(
        read_text("{" GOOD ",\"priority\":1,\"idempotency_key\":\"x\"}", &rules, &a, &refusal));
    assert_true(read_text("{\"priority\":1," GOOD "}", &rules, &b, &refusal));
    assert_true(read_text("{\"priority\":2," GOOD "}", &rules, &c, &refusal));
    assert_memory_equal(a.sha256, b.sha256, SHA256_BYTES);
    assert_memory_not_equal(a.sha256, c.sha256, SHA256_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wrong_parameter_is_named_with_its_value),
        cmocka_unit_test(metadata_limits_count_characters_not_bytes),
        cmocka_unit_test(good_parameters_come_through_with_metadata_in_order),
        cmocka_unit_test(other_windows_need_the_operators_consent),
        cmocka_unit_test(equal_parameters_have_equal_sums_and_the_key_is_not_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
