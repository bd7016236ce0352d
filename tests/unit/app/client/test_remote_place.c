/* SPDX-License-Identifier: Apache-2.0 */
#include "client/remote_place.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static enum err read_place(const char *url, struct remote_place *ret_place, struct error *error) {
    const struct remote_choice choice = {.base_url = url};
    *ret_place = (struct remote_place){0};
    return remote_place_read(&choice, ret_place, error);
}

static int clear_environment(void **state) {
    (void)state;
    unsetenv("OPENAI_BASE_URL");
    unsetenv("OPENAI_API_KEY");
    unsetenv("OPENAI_API_KEY_FILE");
    unsetenv("CREDENTIALS_DIRECTORY");
    return 0;
}

static void a_url_is_made_whole(void **state) {
    (void)state;
    static const struct {
        const char *text, *url;
    } cases[] = {
        {NULL, "http://127.0.0.1:8080/v1"},
        {"http://h:1", "http://h:1/v1"},
        {"http://h:1/", "http://h:1/v1"},
        {"https://h/v1/", "https://h/v1"},
        {"https://h/openai/v1", "https://h/openai/v1"},
        {" http://[::1]:8/v1\n", "http://[::1]:8/v1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct remote_place place;
        struct error error = {0};
        assert_int_equal(read_place(cases[i].text, &place, &error), OK);
        assert_string_equal(place.base_url, cases[i].url);
        assert_null(place.key.text);
        remote_place_release(&place);
    }
}

static void other_texts_are_refused_without_being_shown(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "h:80",
                                        "ftp://h/",
                                        "file:///etc/passwd",
                                        "http://",
                                        "http://u:secretword@h/v1",
                                        "http://h/v1?k=secretword"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct remote_place place;
        struct error error = {0};
        assert_int_equal(read_place(texts[i], &place, &error), ERR_INVALID);
        assert_non_null(strstr(error.text, "--base-url"));
        assert_null(strstr(error.text, "secretword"));
        remote_place_release(&place);
    }
}

static void the_environment_names_server_and_key(void **state) {
    (void)state;
    struct remote_place place;
    struct error error = {0};
    setenv("OPENAI_BASE_URL", "https://api.example.com/v1", 1);
    setenv("OPENAI_API_KEY", "sk-1", 1);
    assert_int_equal(read_place(NULL, &place, &error), OK);
    assert_string_equal(place.base_url, "https://api.example.com/v1");
    assert_string_equal(place.key.text, "sk-1");
    remote_place_release(&place);
    assert_int_equal(read_place("http://other", &place, &error), OK);
    assert_string_equal(place.base_url, "http://other/v1");
    remote_place_release(&place);
}

static void a_key_is_one_word(void **state) {
    (void)state;
    struct remote_place place;
    struct error error = {0};
    setenv("OPENAI_API_KEY", " sk-2 \r\n", 1);
    assert_int_equal(read_place(NULL, &place, &error), OK);
    assert_string_equal(place.key.text, "sk-2");
    remote_place_release(&place);
    setenv("OPENAI_API_KEY", "sk-3\r\nX-Evil: 1", 1);
    assert_int_equal(read_place(NULL, &place, &error), ERR_INVALID);
    assert_null(strstr(error.text, "sk-3"));
    remote_place_release(&place);
    setenv("OPENAI_API_KEY", " \n", 1);
    assert_int_equal(read_place(NULL, &place, &error), OK);
    assert_null(place.key.text);
    remote_place_release(&place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_url_is_made_whole, clear_environment),
        cmocka_unit_test_setup(other_texts_are_refused_without_being_shown, clear_environment),
        cmocka_unit_test_setup(the_environment_names_server_and_key, clear_environment),
        cmocka_unit_test_setup(a_key_is_one_word, clear_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
