/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "secrets/gcp_name.h"

static void check_good(const char *name) {
    char place[1024], read[GCP_NAME_BYTES];
    struct error error;
    snprintf(place, sizeof place, GCP_NAME_SCHEME "%s", name);
    assert_true(gcp_name_is(place));
    assert_int_equal(gcp_name_read(place, read, &error), OK);
    assert_string_equal(read, name);
}

static void check_bad(const char *name, const char *why) {
    char place[1024], read[GCP_NAME_BYTES];
    struct error error;
    snprintf(place, sizeof place, GCP_NAME_SCHEME "%s", name);
    assert_int_equal(gcp_name_read(place, read, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, why));
}

static void names_by_googles_rules_are_taken(void **state) {
    (void)state;
    check_good("projects/my-project-1/secrets/api_keys-2/versions/latest");
    check_good("projects/123456789012/secrets/A/versions/1");
    check_good("projects/abcdef/secrets/S/versions/prod-key_1");
}

static void a_name_of_the_longest_parts_fits(void **state) {
    (void)state;
    char secret[256], alias[64], name[512];
    memset(secret, 's', 255);
    memset(alias, 'v', 63);
    secret[255] = alias[63] = '\0';
    snprintf(name, sizeof name, "projects/abcdefghijklmnopqrstuvwxyz0123/secrets/%s/versions/%s",
             secret, alias);
    check_good(name);
    snprintf(name, sizeof name, "projects/abcdef/secrets/s%s/versions/1", secret);
    check_bad(name, "the secret's name");
    snprintf(name, sizeof name, "projects/abcdef/secrets/s/versions/v%s", alias);
    check_bad(name, "the version");
}

static void other_names_are_refused_with_their_rule(void **state) {
    (void)state;
    check_bad("", "the form is");
    check_bad("projects/abcdef/secrets/s", "the form is");
    check_bad("projects/abcdef/secrets/s/versions/", "the version");
    check_bad("projects/abcdef/locations/europe-west1/secrets/s/versions/1", "the form is");
    check_bad("project/abcdef/secrets/s/versions/1", "the form is");
    check_bad("projects/short/secrets/s/versions/1", "the project");
    check_bad("projects/Abcdef/secrets/s/versions/1", "the project");
    check_bad("projects/abcdef-/secrets/s/versions/1", "the project");
    check_bad("projects/1abcdef/secrets/s/versions/1", "the project");
    check_bad("projects/0123456/secrets/s/versions/1", "the project");
    check_bad("projects/12345678901234567890/secrets/s/versions/1", "the project");
    check_bad("projects/abcdef/secrets/s.txt/versions/1", "the secret's name");
    check_bad("projects/abcdef/secrets//versions/1", "the secret's name");
    check_bad("projects/abcdef/secrets/s%2F/versions/1", "the secret's name");
    check_bad("projects/abcdef/secrets/s/versions/0", "the version");
    check_bad("projects/abcdef/secrets/s/versions/-1", "the version");
    check_bad("projects/abcdef/secrets/s/versions/1/../../x", "the version");
    check_bad("projects/abcdef/secrets/s/versions/1?x=1", "the version");
    check_bad("projects/abcdef/secrets/s/versions/1\n", "the version");
}

static void a_path_of_a_file_is_no_name(void **state) {
    (void)state;
    assert_false(gcp_name_is("/etc/quern/api-keys"));
    assert_false(gcp_name_is("gcp-secret:/x"));
    assert_false(gcp_name_is(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_by_googles_rules_are_taken),
        cmocka_unit_test(a_name_of_the_longest_parts_fits),
        cmocka_unit_test(other_names_are_refused_with_their_rule),
        cmocka_unit_test(a_path_of_a_file_is_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
