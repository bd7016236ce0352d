/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/os.h"
#include "s3/account.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CREDENTIALS "[default]\naws_access_key_id = AKDEFAULT\naws_secret_access_key=sdefault\n"

static char folder[] = "/tmp/quern-account-XXXXXX";
static char credentials[64], config[64];

static void write_file(const char *path, const char *text) {
    struct error error;
    assert_int_equal(os_write_file(path, 0600, text, strlen(text), &error), OK);
}

static int set_up(void **state) {
    static const char *const names[] = {
        "AWS_ACCESS_KEY_ID",  "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",   "AWS_REGION",
        "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",      "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    (void)!unlink(credentials);
    (void)!unlink(config);
    setenv("AWS_SHARED_CREDENTIALS_FILE", credentials, 1);
    setenv("AWS_CONFIG_FILE", config, 1);
    return 0;
}

static struct s3_account read_account(void) {
    struct s3_account account;
    struct error error;
    if (s3_account_read(&account, &error) != OK) fail_msg("%s", error.text);
    return account;
}

static void refuses(enum err err, const char *reason) {
    struct s3_account account;
    struct error error;
    assert_int_equal(s3_account_read(&account, &error), err);
    if (!strstr(error.text, reason)) fail_msg("%s", error.text);
    assert_string_equal(account.secret, "");
}

static void the_environment_goes_before_the_files(void **state) {
    (void)state;
    write_file(credentials, CREDENTIALS "aws_session_token = tdefault\n");
    write_file(config, "[default]\nregion = eu-west-1\nendpoint_url = http://c\n");
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "senv", 1);
    setenv("AWS_DEFAULT_REGION", "eu-north-1", 1);
    setenv("AWS_ENDPOINT_URL", "http://e", 1);
    struct s3_account account = read_account();
    assert_string_equal(account.key_id, "AKENV");
    assert_string_equal(account.secret, "senv");
    assert_string_equal(account.token, ""); /* the token belongs to the other key */
    assert_string_equal(account.region, "eu-north-1");
    assert_string_equal(account.endpoint, "http://e");
    setenv("AWS_REGION", "us-west-2", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://s3", 1);
    account = read_account();
    assert_string_equal(account.region, "us-west-2");
    assert_string_equal(account.endpoint, "http://s3");
}

static void a_profile_is_read_from_both_files(void **state) {
    (void)state;
    write_file(credentials, CREDENTIALS "# c\n; c\n\n[ work ]\r\naws_access_key_id=AKWORK\r\n"
                                        "aws_secret_access_key = a/b+c=\r\naws_session_token=tw\n");
    write_file(config, "[default]\nregion=eu-west-1\n[profile\twork]\ns3 =\n  region = nested\n"
                       "endpoint_url = http://c\n[work]\nregion = not-a-profile\n");
    struct s3_account account = read_account();
    assert_string_equal(account.key_id, "AKDEFAULT");
    assert_string_equal(account.region, "eu-west-1");
    assert_string_equal(account.endpoint, "");
    setenv("AWS_PROFILE", "work", 1);
    account = read_account();
    assert_string_equal(account.key_id, "AKWORK");
    assert_string_equal(account.secret, "a/b+c=");
    assert_string_equal(account.token, "tw");
    assert_string_equal(account.region, "us-east-1");
    assert_string_equal(account.endpoint, "http://c");
}

static void what_is_missing_or_wrong_is_named(void **state) {
    (void)state;
    refuses(ERR_DENIED, "AWS_ACCESS_KEY_ID");
    write_file(credentials, CREDENTIALS);
    setenv("AWS_PROFILE", "nope", 1);
    refuses(ERR_INVALID, "no profile 'nope'");
    unsetenv("AWS_PROFILE");
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1); /* half of a pair is none */
    refuses(ERR_DENIED, "no credentials");
    setenv("AWS_SECRET_ACCESS_KEY", "a\nb", 1);
    refuses(ERR_INVALID, "aws_secret_access_key");
    setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    char region[80];
    memset(region, 'r', sizeof region - 1);
    region[sizeof region - 1] = '\0';
    setenv("AWS_REGION", region, 1);
    refuses(ERR_INVALID, "region has more than 63 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_environment_goes_before_the_files, set_up),
        cmocka_unit_test_setup(a_profile_is_read_from_both_files, set_up),
        cmocka_unit_test_setup(what_is_missing_or_wrong_is_named, set_up),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(credentials, sizeof credentials, "%s/credentials", folder);
    snprintf(config, sizeof config, "%s/config", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)!unlink(credentials);
    (void)!unlink(config);
    return rmdir(folder) != 0 ? 1 : failed;
}
