/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/extras.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool read_text(const char *text, char **ret_kept, struct refusal *refusal) {
    struct error error;
    json_t *body;
    assert_int_equal(json_read(&body, str_from(text), &error), OK);
    bool good = batch_extras_read(body, ret_kept, refusal);
    json_decref(body);
    return good;
}

static void what_is_kept_reads_back_as_it_was_given(void **state) {
    (void)state;
    struct refusal refusal;
    struct batch_extras extras;
    struct buf buf;
    char *kept;
    assert_true(read_text("{\"x\":1,\"retry\":{\"attempts\":7,\"statuses\":[429,503]},"
                          "\"on_quality\":\"pause\",\"quality_limits\":{\"empty\":0.5,"
                          "\"min_lines\":3}}",
                          &kept, &refusal));
    batch_extras_parse(kept, &extras);
    assert_int_equal(extras.attempts, 7);
    assert_true(batch_extras_tries_again(&extras, 429));
    assert_true(batch_extras_tries_again(&extras, 503));
    assert_false(batch_extras_tries_again(&extras, 500));
    assert_true(extras.pauses);
    assert_int_equal(extras.lines_min, 3);
    assert_true(extras.limits[QUALITY_EMPTY] == 0.5);
    assert_true(extras.limits[QUALITY_TRUNCATED] == 0.2);
    buf_init(&buf, 4096);
    batch_extras_write(&buf, kept);
    assert_string_equal(buf.at, ",\"retry\":{\"attempts\":7,\"statuses\":[429,503]},\"on_quality\":"
                                "\"pause\",\"quality_limits\":{\"empty\":0.5,\"min_lines\":3}");
    buf_release(&buf);
    free(kept);
}

static void without_members_there_is_nothing_to_keep_and_the_defaults_hold(void **state) {
    (void)state;
    struct refusal refusal;
    struct batch_extras extras;
    struct buf buf;
    char *kept = NULL;
    assert_true(read_text("{\"retry\":null}", &kept, &refusal));
    assert_null(kept);
    const char *const texts[] = {NULL, "", "nonsense", "{\"retry\":{\"attempts\":-1}}"};
    for (size_t i = 0; i < 4; i++) {
        batch_extras_parse(texts[i], &extras);
        assert_int_equal(extras.attempts, 0);
        assert_int_equal(extras.status_count, 0);
        assert_false(extras.pauses);
        assert_int_equal(extras.lines_min, 50);
    }
    buf_init(&buf, 4096);
    batch_extras_write(&buf, NULL);
    assert_string_equal(buf.at, ",\"retry\":null,\"on_quality\":null,\"quality_limits\":null");
    buf_release(&buf);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *param, *message;
    } cases[] = {
        {"{\"retry\":[]}", "retry", "expected an object"},
        {"{\"retry\":{\"attempts\":0}}", "retry.attempts", "from 1 to 20"},
        {"{\"retry\":{\"attempts\":1.5}}", "retry.attempts", "from 1 to 20"},
        {"{\"retry\":{\"statuses\":429}}", "retry.statuses", "an array"},
        {"{\"retry\":{\"statuses\":[429,404]}}", "retry.statuses", "element 1"},
        {"{\"retry\":{\"statuses\":[500,500,500,500,500,500,500,500,500,500,500,500,500,500,500,"
         "500,"
         "500]}}",
         "retry.statuses", "17 elements"},
        {"{\"retry\":{\"often\":1}}", "retry", "'retry.often'"},
        {"{\"on_quality\":true}", "on_quality", "'report' and 'pause'"},
        {"{\"quality_limits\":{\"empty\":1.01}}", "quality_limits", "from 0 to 1"},
        {"{\"quality_limits\":{\"empty\":\"1\"}}", "quality_limits", "quality_limits.empty"},
        {"{\"quality_limits\":{\"min_lines\":0}}", "quality_limits", "min_lines"},
        {"{\"quality_limits\":{\"lines\":1}}", "quality_limits", "'quality_limits.lines'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct refusal refusal;
        char *kept = NULL;
        if (read_text(cases[i].text, &kept, &refusal)) fail_msg("%s was taken", cases[i].text);
        assert_string_equal(refusal.param, cases[i].param);
        if (!strstr(refusal.message, cases[i].message))
            fail_msg("'%s' does not say '%s'", refusal.message, cases[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_reads_back_as_it_was_given),
        cmocka_unit_test(without_members_there_is_nothing_to_keep_and_the_defaults_hold),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
