/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/object.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static const char *const object_keys[] = {"id",
                                          "object",
                                          "endpoint",
                                          "model",
                                          "errors",
                                          "input_file_id",
                                          "completion_window",
                                          "status",
                                          "output_file_id",
                                          "error_file_id",
                                          "created_at",
                                          "in_progress_at",
                                          "expires_at",
                                          "finalizing_at",
                                          "completed_at",
                                          "failed_at",
                                          "expired_at",
                                          "cancelling_at",
                                          "cancelled_at",
                                          "request_counts",
                                          "usage",
                                          "metadata",
                                          "service_tier",
                                          "priority",
                                          "waiting_for",
                                          "quern"};
static const char *const quern_keys[] = {"retry_of", "retry",   "on_quality", "quality_limits",
                                         "paused",   "quality", "costs",      "delete_at"};

static json_t *written(const struct store_batch *batch) {
    struct buf text;
    struct error error;
    json_t *object;
    buf_init(&text, 1 << 16);
    batch_write_json(&text, batch, NULL);
    assert_int_equal(json_read(&object, buf_str(&text), &error), OK);
    buf_release(&text);
    return object;
}

static void assert_keys(const json_t *object, const char *const *keys, size_t count) {
    const char *key;
    json_t *value;
    for (size_t i = 0; i < count; i++)
        if (!json_object_get(object, keys[i])) fail_msg("'%s' is missing", keys[i]);
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t at = 0;
        while (at < count && strcmp(keys[at], key) != 0) at++;
        if (at == count) fail_msg("'%s' is not in the list of this test", key);
    }
}

static const struct store_batch new_batch = {.id = "batch_1",
                                             .endpoint = "/v1/embeddings",
                                             .input_file_id = "file-1",
                                             .completion_window = "24h",
                                             .created_unix_s = 5,
                                             .expires_unix_s = 86405};

static void the_object_has_every_key_with_explicit_nulls(void **state) {
    (void)state;
    json_t *object = written(&new_batch);
    assert_keys(object, object_keys, COUNT_OF(object_keys));
    assert_keys(json_object_get(object, "quern"), quern_keys, COUNT_OF(quern_keys));
    assert_true(json_is_null(json_object_get(object, "output_file_id")));
    assert_true(json_is_null(json_object_get(object, "usage")));
    assert_true(json_is_null(json_object_get(object, "waiting_for")));
    assert_true(str_is(json_member_str(object, "status"), "validating"));
    assert_true(str_is(json_member_str(object, "service_tier"), "batch"));
    json_decref(object);
}

static void the_usage_has_the_details_of_cached_and_deduplicated_tokens(void **state) {
    (void)state;
    struct store_batch batch = new_batch;
    struct buf text;
    batch.has_usage = true;
    batch.usage = (struct usage){9, 2, 3, 1, 5, 2};
    buf_init(&text, 1 << 16);
    batch_write_json(&text, &batch, NULL);
    assert_non_null(strstr(text.at,
                           "\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{"
                           "\"cached_tokens\":2,\"deduplicated_tokens\":5},\"output_tokens\":3,"
                           "\"output_tokens_details\":{\"reasoning_tokens\":1,"
                           "\"deduplicated_tokens\":2},"
                           "\"total_tokens\":12}"));
    buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_object_has_every_key_with_explicit_nulls),
        cmocka_unit_test(the_usage_has_the_details_of_cached_and_deduplicated_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
