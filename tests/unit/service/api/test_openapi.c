/* SPDX-License-Identifier: Apache-2.0 */
/* src/service/api/openapi.json against what it repeats from the code: routes, scopes, limits,
 * choices. */
#include "api/api_internal.h"
#include "api/openapi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static json_t *document;

static int open_document(void **state) {
    (void)state;
    struct buf text;
    struct error error;
    buf_init(&text, 4 << 20);
    openapi_write(&text, true);
    if (json_read(&document, buf_str(&text), &error) != OK) fail_msg("%s", error.text);
    buf_release(&text);
    return 0;
}

static int close_document(void **state) {
    (void)state;
    json_decref(document);
    return 0;
}

/* The value at the keys after `value`; NULL ends them. */
static json_t *get(json_t *value, ...) {
    va_list keys;
    va_start(keys, value);
    for (const char *key; (key = va_arg(keys, const char *));) value = json_object_get(value, key);
    va_end(keys);
    return value;
}

static json_t *schema_of(const char *name) {
    json_t *schema = get(document, "components", "schemas", name, NULL);
    if (!schema) fail_msg("no schema %s", name);
    return schema;
}

/* "/v1/models/{model...}" as the document writes it; static. */
static const char *path_of(const char *pattern) {
    static char path[128];
    const char *dots = strstr(pattern, "...");
    int bytes = dots ? (int)(dots - pattern) : (int)strlen(pattern);
    snprintf(path, sizeof path, "%.*s%s", bytes, pattern, dots ? dots + 3 : "");
    return path;
}

static json_t *operation_of(const struct http_route *route) {
    char method[16];
    size_t bytes = strlen(route->method);
    for (size_t i = 0; i <= bytes; i++) method[i] = (char)(route->method[i] | (i < bytes ? 32 : 0));
    return get(document, "paths", path_of(route->pattern), method, NULL);
}

/* A route that always refuses is there for its sentence only. */
static bool is_refused(const struct http_route *route) {
    return route->handler == inference_unsupported || route->handler == responses_kept;
}

static void every_route_is_an_operation_of_the_document(void **state) {
    (void)state;
    for (size_t i = 0; i < api_route_count; i++) {
        if (is_refused(&api_routes[i])) {
            assert_null(operation_of(&api_routes[i]));
            continue;
        }
        const char *operation = api_routes[i].operation;
        json_t *is = operation_of(&api_routes[i]);
        if (!is) fail_msg("openapi.json has no %s", operation);
        assert_string_equal(json_string_value(get(is, "operationId", NULL)), operation);
        if (json_string_length(get(is, "summary", NULL)) == 0) fail_msg("%s: summary", operation);
        if (!get(is, "responses", "200", NULL)) fail_msg("%s: no answer", operation);
    }
}

static void every_operation_of_the_document_is_a_route(void **state) {
    (void)state;
    const char *path, *method;
    json_t *methods, *operation;
    size_t count = 0;
    json_object_foreach(get(document, "paths", NULL), path, methods) {
        json_object_foreach(methods, method, operation) {
            bool is_route = false;
            for (size_t i = 0; i < api_route_count; i++)
                is_route = is_route || operation_of(&api_routes[i]) == operation;
            if (!is_route) fail_msg("no route %s %s", method, path);
            count++;
        }
    }
    for (size_t i = 0; i < api_route_count; i++) count += is_refused(&api_routes[i]);
    assert_int_equal(count, api_route_count);
}

static void only_open_routes_need_no_key(void **state) {
    (void)state;
    for (size_t i = 0; i < api_route_count; i++) {
        json_t *is = operation_of(&api_routes[i]);
        if (is_refused(&api_routes[i])) continue;
        bool is_open = api_routes[i].scope == KEY_SCOPE_OPEN;
        if ((json_array_size(get(is, "security", NULL)) == 0) != is_open ||
            (get(is, "responses", "401", NULL) == NULL) != is_open)
            fail_msg("%s: %s", api_routes[i].operation,
                     is_open ? "its route is open, so it has neither security nor 401"
                             : "its route needs a key, so it has \"security\": "
                               "[{\"bearerAuth\": []}] and 401");
    }
}

static void without_keys_no_operation_asks_for_one(void **state) {
    (void)state;
    struct buf with, without;
    buf_init(&with, 4 << 20);
    buf_init(&without, 4 << 20);
    openapi_write(&with, true);
    openapi_write(&without, false);
    assert_true(str_find(buf_str(&with), STR("\"bearerAuth\":[]"), 0) != SIZE_MAX);
    assert_true(str_find(buf_str(&without), STR("\"bearerAuth\":[]"), 0) == SIZE_MAX);
    json_t *document_without;
    struct error error;
    assert_int_equal(json_read(&document_without, buf_str(&without), &error), OK);
    json_decref(document_without);
    buf_release(&with);
    buf_release(&without);
}

/* The members without which each of these requests is refused. */
static void required_members_are_declared(void **state) {
    (void)state;
    static const char *const wanted[][2] = {{"CreateChatCompletion", "messages"},
                                            {"CreateCompletion", "prompt"},
                                            {"CreateEmbedding", "input"}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        json_t *required = json_object_get(schema_of(wanted[i][0]), "required");
        assert_int_equal(json_array_size(required), 2);
        assert_string_equal(json_string_value(json_array_get(required, 0)), "model");
        assert_string_equal(json_string_value(json_array_get(required, 1)), wanted[i][1]);
    }
}

static void only_uploads_take_a_form(void **state) {
    (void)state;
    for (size_t i = 0; i < api_route_count; i++) {
        json_t *content = get(operation_of(&api_routes[i]), "requestBody", "content", NULL);
        const struct http_upload *upload = api_routes[i].upload;
        bool is_form = upload && !upload->is_plain;
        const char *type = is_form ? "multipart/form-data" : "application/json";
        if (content ? !get(content, type, NULL) : api_routes[i].upload != NULL)
            fail_msg("%s: not a body of %s", api_routes[i].operation, type);
    }
}

/* The parameters in the path of a pattern are the first ones of its operation. */
static void parameters_of_paths_are_declared(void **state) {
    (void)state;
    for (size_t i = 0; i < api_route_count; i++) {
        json_t *parameters = get(operation_of(&api_routes[i]), "parameters", NULL);
        size_t count = 0;
        if (is_refused(&api_routes[i])) continue;
        for (const char *at = api_routes[i].pattern; (at = strchr(at, '{')); at++) {
            json_t *parameter = json_array_get(parameters, count++);
            struct str name = {at + 1, strcspn(at + 1, ".}")};
            if (!str_equals(json_member_str(parameter, "name"), name) ||
                !str_is(json_member_str(parameter, "in"), "path"))
                fail_msg("%s: %.*s", api_routes[i].operation, STR_ARGS(name));
        }
        for (; count < json_array_size(parameters); count++)
            assert_null(json_object_get(json_array_get(parameters, count), "in"));
    }
}

static void check_references(const json_t *value) {
    const char *key;
    json_t *item;
    size_t index;
    json_array_foreach(value, index, item) check_references(item);
    if (!json_is_object(value)) return;
    json_object_foreach((json_t *)(uintptr_t)value, key, item) {
        check_references(item);
        char kind[32], name[64];
        if (strcmp(key, "$ref") == 0 &&
            (sscanf(json_string_value(item), "#/components/%31[^/]/%63s", kind, name) != 2 ||
             !get(document, "components", kind, name, NULL)))
            fail_msg("nothing at %s", json_string_value(item));
        if (strcmp(key, "operationId") == 0) {
            bool is_route = false;
            for (size_t i = 0; i < api_route_count; i++)
                is_route |= strcmp(api_routes[i].operation, json_string_value(item)) == 0;
            if (!is_route) fail_msg("no operation %s", json_string_value(item));
        }
    }
}

static void references_and_links_lead_somewhere(void **state) {
    (void)state;
    check_references(document);
}

static int64_t number_at(json_t *schema, const char *key) {
    json_t *value = json_object_get(schema, key);
    if (!json_is_integer(value)) fail_msg("no %s", key);
    return json_integer_value(value);
}

static void limits_are_those_that_are_checked(void **state) {
    (void)state;
    const struct {
        const char *parameter;
        int64_t most, otherwise;
    } limits[] = {{"FilesLimit", API_FILES_LIST_MAX, API_FILES_LIST_MAX},
                  {"BatchesLimit", API_BATCHES_LIST_MAX, API_BATCHES_LIST_DEFAULT},
                  {"ResultsLimit", API_RESULTS_LIST_MAX, API_RESULTS_LIST_MAX}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        json_t *schema =
            get(document, "components", "parameters", limits[i].parameter, "schema", NULL);
        assert_int_equal(number_at(schema, "minimum"), 1);
        assert_int_equal(number_at(schema, "maximum"), limits[i].most);
        assert_int_equal(number_at(schema, "default"), limits[i].otherwise);
    }
    json_t *properties = get(schema_of("CreateFile"), "properties", NULL);
    json_t *seconds = get(properties, "expires_after[seconds]", NULL);
    assert_int_equal(number_at(seconds, "minimum"), API_EXPIRY_S_MIN);
    assert_int_equal(number_at(seconds, "maximum"), API_EXPIRY_S_MAX);
    json_t *purposes = get(properties, "purpose", "enum", NULL);
    size_t count = 0;
    for (; api_file_purposes[count]; count++)
        assert_true(str_is(json_str(json_array_get(purposes, count)), api_file_purposes[count]));
    assert_int_equal(json_array_size(purposes), count);
    json_t *key = get(document, "components", "parameters", "IdempotencyKey", "schema", NULL);
    assert_int_equal(number_at(key, "maxLength"),
                     sizeof((struct batch_parameters *)NULL)->idempotency_key - 1);
}

static void marks_are_filled_in(void **state) {
    (void)state;
    assert_string_equal(json_string_value(get(document, "info", "version", NULL)), QUERN_VERSION);
    const char *const bodies[] = {"CreateUpload", "CompleteUpload", "PreflightBatch", "CreateKey",
                                  "CreateBatch"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        assert_true(json_object_size(get(schema_of(bodies[i]), "properties", NULL)) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_an_operation_of_the_document),
        cmocka_unit_test(every_operation_of_the_document_is_a_route),
        cmocka_unit_test(only_open_routes_need_no_key),
        cmocka_unit_test(without_keys_no_operation_asks_for_one),
        cmocka_unit_test(required_members_are_declared),
        cmocka_unit_test(only_uploads_take_a_form),
        cmocka_unit_test(parameters_of_paths_are_declared),
        cmocka_unit_test(references_and_links_lead_somewhere),
        cmocka_unit_test(limits_are_those_that_are_checked),
        cmocka_unit_test(marks_are_filled_in),
    };
    return cmocka_run_group_tests(tests, open_document, close_document);
}
