/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/request_key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct key {
    unsigned char at[SHA256_BYTES];
};

static bool key_at(enum endpoint endpoint, const char *body, const char *identity,
                   struct key *ret_key) {
    struct batch_line line = {.body = str_from(body), .endpoint = endpoint};
    return batch_request_key(&line, str_from(identity), ret_key->at);
}

static struct key key_of(const char *body) {
    struct key key;
    if (!key_at(ENDPOINT_CHAT, body, "id", &key)) fail_msg("no key: %s", body);
    return key;
}

static void assert_same(const char *a, const char *b) {
    struct key x = key_of(a), y = key_of(b);
    if (memcmp(&x, &y, sizeof x) != 0) fail_msg("differ: %s and %s", a, b);
}

static void spelling_that_means_nothing_does_not_matter(void **state) {
    (void)state;
    const char *plain = "{\"model\":\"m\",\"temperature\":0,\"messages\":[{\"content\":\"a b\"}]}";
    assert_same(plain, "{\"temperature\":0,\"messages\":[{\"content\":\"a b\"}],\"model\":\"m\"}");
    assert_same(
        plain,
        "{ \"model\" : \"m\",\t\"temperature\":0,\n\"messages\":[ {\"content\": \"a b\"} ]}");
    assert_same(plain, "{\"model\":\"m\",\"temperature\":0,\"messages\":[{\"content\":\"a b\"}],"
                       "\"user\":\"x\",\"metadata\":{\"k\":\"v\"},\"stop\":null}");
    assert_same(plain, "{\"model\":\"z\",\"temperature\":0,\"messages\":[{\"content\":\"a b\"}],"
                       "\"model\":\"m\"}");
}

static void near_duplicates_have_keys_of_their_own(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"temperature\":0,\"messages\":[{\"content\":\"ab\"}]}",
        "{\"temperature\":0,\"messages\":[{\"content\":\"a b\"}]}",
        "{\"temperature\":0,\"messages\":[{\"content\":\"a  b\"}]}",
        "{\"temperature\":0,\"messages\":[{\"content\":\" ab\"}]}",
        "{\"temperature\":0,\"messages\":[{\"content\":\"ab \"}]}",
        "{\"temperature\":0,\"messages\":[{\"content\":\"ab\\n\"}]}",
        "{\"temperature\":0,\"messages\":[{\"content\":\"aB\"}]}",
        "{\"temperature\":0,\"messages\":[{\"content\":\"a\\\" b\"}]}",
        "{\"temperature\":0,\"messages\":[{\"content\":\"a\"},{\"content\":\"b\"}]}",
        "{\"temperature\":0,\"messages\":[{\"content\":\"a\"}],\"b\":1}",
        "{\"temperature\":0,\"messages\":[[{\"content\":\"ab\"}]]}",
        "{\"temperature\":0,\"messages\":[1,2]}",
        "{\"temperature\":0,\"messages\":[12]}",
        "{\"temperature\":0,\"messages\":[\"1\",2]}",
        "{\"temperature\":0,\"max_tokens\":1,\"messages\":[12]}",
        "{\"temperature\":0,\"max_tokens\":11,\"messages\":[2]}",
        "{\"temperature\":0,\"seed\":1,\"messages\":[12]}",
        "{\"temperature\":1,\"seed\":1,\"messages\":[12]}",
        "{\"temperature\":1,\"seed\":2,\"messages\":[12]}",
        "{\"temperature\":1,\"seed\":12,\"messages\":[]}",
        "{\"temperature\":0,\"a\":\"b\",\"c\":\"\"}",
        "{\"temperature\":0,\"a\":\"\",\"bc\":\"\"}",
        "{\"temperature\":0,\"a\":{\"user\":\"x\"}}",
        "{\"temperature\":0,\"a\":{\"user\":\"y\"}}",
        "{\"temperature\":0,\"a\":{\"user\":null}}",
    };
    const size_t count = sizeof bodies / sizeof *bodies;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            struct key x = key_of(bodies[i]), y = key_of(bodies[j]);
            if (memcmp(&x, &y, sizeof x) == 0) fail_msg("merged: %s and %s", bodies[i], bodies[j]);
        }
}

static void another_endpoint_or_identity_is_another_request(void **state) {
    (void)state;
    const char *body = "{\"temperature\":0,\"prompt\":\"a\"}";
    struct key chat, completion, other;
    assert_true(key_at(ENDPOINT_CHAT, body, "id", &chat));
    assert_true(key_at(ENDPOINT_COMPLETIONS, body, "id", &completion));
    assert_true(key_at(ENDPOINT_CHAT, body, "id2", &other));
    assert_memory_not_equal(&chat, &completion, sizeof chat);
    assert_memory_not_equal(&chat, &other, sizeof chat);
}

static void what_is_sampled_has_no_key(void **state) {
    (void)state;
    static const char *const sampled[] = {
        "{\"messages\":[]}",
        "{\"temperature\":1,\"messages\":[]}",
        "{\"temperature\":0.001,\"messages\":[]}",
        "{\"temperature\":null,\"seed\":null}",
        "{\"temperature\":\"0\"}",
        "{\"temperature\":0,\"temperature\":1}",
        "{\"temp\\u0065rature\":1,\"temperature\":0}",
        "{\"seed\":\"7\"}",
        "{\"seed\":true}",
    };
    struct key key;
    for (size_t i = 0; i < sizeof sampled / sizeof *sampled; i++)
        if (key_at(ENDPOINT_CHAT, sampled[i], "id", &key)) fail_msg("has a key: %s", sampled[i]);
    assert_true(key_at(ENDPOINT_CHAT, "{\"temperature\":0.0}", "id", &key));
    assert_true(key_at(ENDPOINT_CHAT, "{\"seed\":-7}", "id", &key));
    assert_true(key_at(ENDPOINT_EMBEDDINGS, "{\"input\":\"a\"}", "id", &key));
}

/* Equal decisions are answered once, and decisions that differ in one byte are not. */
static void decisions_are_known_by_all_that_changes_their_answer(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"input\":\"a\",\"questions\":[{\"type\":\"predicate\",\"instructions\":\"x\"}]}",
        "{\"input\":\"a\",\"questions\":[{\"type\":\"predicate\",\"instructions\":\"y\"}]}",
        "{\"input\":\"a \",\"questions\":[{\"type\":\"predicate\",\"instructions\":\"x\"}]}",
        "{\"input\":\"a\",\"questions\":[{\"type\":\"predicate\",\"name\":\"n\","
        "\"instructions\":\"x\"}]}",
        "{\"input\":\"a\",\"temperature\":2,\"questions\":[{\"type\":\"predicate\","
        "\"instructions\":\"x\"}]}",
        "{\"input\":\"a\",\"temperatures\":{\"0\":2},\"questions\":[{\"type\":\"predicate\","
        "\"instructions\":\"x\"}]}",
    };
    enum { BODIES = sizeof bodies / sizeof *bodies };
    struct key keys[2 * BODIES], spelled;
    for (size_t i = 0; i < BODIES; i++) {
        assert_true(key_at(ENDPOINT_DECISIONS, bodies[i], "id", &keys[2 * i]));
        assert_true(key_at(ENDPOINT_SYSTEMONE, bodies[i], "id", &keys[2 * i + 1]));
    }
    for (size_t i = 0; i < 2 * (size_t)BODIES; i++)
        for (size_t k = 0; k < i; k++) assert_memory_not_equal(&keys[i], &keys[k], sizeof *keys);
    assert_true(key_at(ENDPOINT_DECISIONS,
                       "{ \"questions\": [{\"type\":\"predicate\", \"instructions\":\"x\"}],"
                       "\"temperature\":null,\"safety_identifier\":\"s\",\"input\":\"a\","
                       "\"prompt_cache_key\":\"k\",\"prompt_cache_options\":{\"ttl\":\"30m\"}}",
                       "id", &spelled));
    assert_memory_equal(&spelled, &keys[0], sizeof spelled);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spelling_that_means_nothing_does_not_matter),
        cmocka_unit_test(near_duplicates_have_keys_of_their_own),
        cmocka_unit_test(another_endpoint_or_identity_is_another_request),
        cmocka_unit_test(what_is_sampled_has_no_key),
        cmocka_unit_test(decisions_are_known_by_all_that_changes_their_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
