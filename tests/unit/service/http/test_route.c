/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/http.h"
#include "http/route.h"

static const struct http_route routes[] = {
    {.method = "GET", .pattern = "/v1/files", .operation = "listFiles"},
    {.method = "POST", .pattern = "/v1/files", .operation = "createFile"},
    {.method = "GET", .pattern = "/v1/files/{id}", .operation = "retrieveFile"},
    {.method = "POST", .pattern = "/v1/files/all", .operation = "askForAll"},
    {.method = "GET", .pattern = "/v1/files/{id}/content", .operation = "downloadFile"},
    {.method = "GET", .pattern = "/v1/models", .operation = "listModels"},
    {.method = "GET", .pattern = "/v1/models/{id...}", .operation = "retrieveModel"},
};

static enum route_found find(const char *method, const char *path, struct arena *arena,
                             struct route_match *match) {
    return route_find(routes, sizeof routes / sizeof *routes, method, str_from(path), arena, match);
}

/* Checks one path: the operation found and its first parameter. */
static void check(const char *path, const char *operation, const char *param) {
    struct arena arena;
    struct route_match match;
    arena_init(&arena, 65536);
    assert_int_equal(find("GET", path, &arena, &match), ROUTE_FOUND);
    assert_string_equal(match.route->operation, operation);
    assert_true(str_is(match.params[0], param));
    arena_release(&arena);
}

static void rows_are_found_by_method_and_path(void **state) {
    (void)state;
    check("/v1/files", "listFiles", "");
    check("/v1/files/file-1", "retrieveFile", "file-1");
    check("/v1/files/file-1/content", "downloadFile", "file-1");
}

static void one_trailing_slash_makes_no_difference(void **state) {
    (void)state;
    check("/v1/files/", "listFiles", "");
    check("/v1/files/file-1/", "retrieveFile", "file-1");
    check("/v1/models/a/b/", "retrieveModel", "a/b");
}

static void an_id_may_hold_an_encoded_slash(void **state) {
    (void)state;
    check("/v1/models/meta-llama%2FLlama-3%20x", "retrieveModel", "meta-llama/Llama-3 x");
    check("/v1/models/meta-llama/Llama-3%20x", "retrieveModel", "meta-llama/Llama-3 x");
    check("/v1/files/a%2Fcontent", "retrieveFile", "a/content");
    check("/v1/files/a%2fb/content", "downloadFile", "a/b");
    check("/v1/models/a+b", "retrieveModel", "a+b");
}

static void what_no_row_names_does_not_exist(void **state) {
    (void)state;
    static const char *const paths[] = {
        "/",
        "/v1",
        "/v1/nope",
        "/v1/files//content",
        "/v1/files/a/b",
        "/V1/files",
        "/v1//files",
        "/v1/files/a/content/x",
        "/v1/models//",
        "/v1/filesx",
        "/v1/../v1/files",
        "/v1%2Ffiles",
    };
    struct arena arena;
    struct route_match match;
    arena_init(&arena, 65536);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_int_equal(find("GET", paths[i], &arena, &match), ROUTE_NO_PATH);
    arena_release(&arena);
}

static void another_method_is_told_which_are_allowed(void **state) {
    (void)state;
    struct arena arena;
    struct route_match match;
    arena_init(&arena, 65536);
    assert_int_equal(find("PUT", "/v1/files", &arena, &match), ROUTE_NO_METHOD);
    assert_string_equal(match.allow, "GET, POST");
    assert_int_equal(find("HEAD", "/v1/files", &arena, &match), ROUTE_FOUND);
    assert_string_equal(match.route->operation, "listFiles");
    arena_release(&arena);
}

static void a_path_that_a_pattern_spells_out_is_no_parameter(void **state) {
    (void)state;
    struct arena arena;
    struct route_match match;
    arena_init(&arena, 65536);
    assert_int_equal(find("GET", "/v1/files/all", &arena, &match), ROUTE_NO_METHOD);
    assert_string_equal(match.allow, "POST");
    assert_int_equal(find("POST", "/v1/files/all", &arena, &match), ROUTE_FOUND);
    assert_string_equal(match.route->operation, "askForAll");
    check("/v1/files/all-of-them", "retrieveFile", "all-of-them");
    check("/v1/files/all/content", "downloadFile", "all");
    arena_release(&arena);
}

static void broken_encoding_is_malformed(void **state) {
    (void)state;
    static const char *const paths[] = {
        "/v1/files/%",   "/v1/files/%4",  "/v1/files/%zz", "/v1/files/%00",
        "/v1/files/%0a", "/v1/files/%ff", "/v1/files/%7f",
    };
    struct arena arena;
    struct route_match match;
    arena_init(&arena, 65536);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_int_equal(find("GET", paths[i], &arena, &match), ROUTE_MALFORMED);
    arena_release(&arena);
}

static void queries_are_split_and_decoded(void **state) {
    (void)state;
    struct arena arena;
    struct route_pair pairs[ROUTE_QUERY_MAX];
    arena_init(&arena, 65536);
    assert_int_equal(route_query(STR("a=1&b=x%20y+z&=no&c&d=%zz&e=a=b&%zz=1"), &arena, pairs), 5);
    assert_true(str_is(pairs[0].name, "a") && str_is(pairs[0].value, "1"));
    assert_true(str_is(pairs[1].value, "x y z"));
    assert_true(str_is(pairs[2].name, "c") && pairs[2].value.bytes == 0);
    /* A broken value is for its reader to refuse. */
    assert_true(str_is(pairs[3].name, "d") && str_is(pairs[3].value, "%zz"));
    assert_true(str_is(pairs[4].name, "e") && str_is(pairs[4].value, "a=b"));
    assert_int_equal(route_query(STR(""), &arena, pairs), 0);
    char many[1000];
    size_t used = 0;
    while (used + 4 < sizeof many) many[used++] = 'a', many[used++] = '=', many[used++] = '&';
    /* None is left out in silence: more than there is room for are refused. */
    assert_int_equal(route_query((struct str){many, 3 * ROUTE_QUERY_MAX}, &arena, pairs),
                     ROUTE_QUERY_MAX);
    assert_int_equal(route_query((struct str){many, used}, &arena, pairs), ROUTE_QUERY_MAX + 1);
    arena_release(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found_by_method_and_path),
        cmocka_unit_test(one_trailing_slash_makes_no_difference),
        cmocka_unit_test(an_id_may_hold_an_encoded_slash),
        cmocka_unit_test(what_no_row_names_does_not_exist),
        cmocka_unit_test(another_method_is_told_which_are_allowed),
        cmocka_unit_test(a_path_that_a_pattern_spells_out_is_no_parameter),
        cmocka_unit_test(broken_encoding_is_malformed),
        cmocka_unit_test(queries_are_split_and_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
