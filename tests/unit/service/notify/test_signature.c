/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "notify/signature.h"

#include <string.h>

#define SECRET "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

static struct webhook_keys keys_of(const char *text) {
    struct webhook_keys keys;
    struct error error;
    assert_int_equal(webhook_keys_read(&keys, str_from(text), &error), OK);
    return keys;
}

static void the_vector_of_the_contract_gives_its_signature(void **state) {
    (void)state;
    struct webhook_keys keys = keys_of(SECRET "\n");
    struct buf header;
    buf_init(&header, 1024);
    webhook_sign(&header, &keys, STR("evt_0001"), 1750000000,
                 STR("{\"id\":\"evt_0001\",\"object\":\"event\",\"created_at\":1750000000,"
                     "\"type\":\"batch.completed\",\"data\":{\"id\":\"batch_0001\"}}"));
    assert_string_equal(header.at, "v1,LilyHpwyW2Q5628HWpiG28heaXlTm7HxE8lv8thvFe0=");
    buf_release(&header);
}

static void a_second_secret_adds_a_second_signature_after_one_space(void **state) {
    (void)state;
    struct webhook_keys both = keys_of("# new\n" SECRET "\r\n\n  plain secret \n");
    struct webhook_keys old = keys_of("plain secret");
    struct buf header, alone;
    assert_int_equal(both.count, 2);
    buf_init(&header, 1024);
    buf_init(&alone, 1024);
    webhook_sign(&header, &both, STR("a"), 1, STR("b"));
    webhook_sign(&alone, &old, STR("a"), 1, STR("b"));
    const char *space = strchr(header.at, ' ');
    assert_non_null(space);
    assert_string_equal(space + 1, alone.at);
    buf_release(&header);
    buf_release(&alone);
}

static void base64_without_its_padding_is_the_same_key(void **state) {
    (void)state;
    struct webhook_keys with = keys_of("whsec_c2VjcmV0cw=="), without = keys_of("whsec_c2VjcmV0cw");
    assert_int_equal(with.at[0].count, strlen("secrets"));
    assert_memory_equal(with.at[0].bytes, "secrets", strlen("secrets"));
    assert_int_equal(without.at[0].count, strlen("secrets"));
}

static void a_bad_secret_is_refused_in_a_sentence_without_it(void **state) {
    (void)state;
    static const char *const bad[] = {"",       "\n\n",          "# only a remark",
                                      "whsec_", "whsec_canary!", "a\nb\ncanary"};
    struct webhook_keys keys;
    struct error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_not_equal(webhook_keys_read(&keys, str_from(bad[i]), &error), OK);
        assert_null(strstr(error.text, "canary"));
        assert_int_equal(keys.count, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vector_of_the_contract_gives_its_signature),
        cmocka_unit_test(a_second_secret_adds_a_second_signature_after_one_space),
        cmocka_unit_test(base64_without_its_padding_is_the_same_key),
        cmocka_unit_test(a_bad_secret_is_refused_in_a_sentence_without_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
