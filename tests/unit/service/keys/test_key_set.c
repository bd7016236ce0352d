/* SPDX-License-Identifier: Apache-2.0 */
#include "../../tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "keys/key_set.h"

#include <string.h>

struct folder {
    char dir[64];
    char path[128];
    struct key_set *keys;
    struct error error;
};

static void folder_open(struct folder *folder) {
    snprintf(folder->dir, sizeof folder->dir, "/tmp/quern-keys-XXXXXX");
    assert_non_null(mkdtemp(folder->dir));
    snprintf(folder->path, sizeof folder->path, "%s/" KEY_FILE_NAME, folder->dir);
    folder->keys = NULL;
}

static enum err open_keys(struct folder *folder) {
    key_set_close(folder->keys);
    folder->keys = NULL;
    return key_set_open(&folder->keys,
                        &(struct key_set_options){.path = folder->path, .look_ns = 1},
                        &folder->error);
}

static void folder_remove(struct folder *folder) {
    key_set_close(folder->keys);
    tree_remove(folder->dir);
}

static void add(struct folder *folder, struct key_row *row, char ret_text[KEY_TEXT_BYTES]) {
    if (!row->scopes) row->scopes = KEY_SCOPES_DEFAULT;
    assert_int_equal(key_file_add(folder->dir, row, clock_unix_s(), ret_text, &folder->error), OK);
}

static enum key_answer ask_with(struct key_set *keys, const char *authorization,
                                struct key_caller *ret_caller) {
    uint32_t retry_s = 0;
    return key_check(keys, str_from(authorization), 0, ret_caller, &retry_s);
}

static enum key_answer ask(struct key_set *keys, const char *key) {
    char header[256];
    struct key_caller caller;
    snprintf(header, sizeof header, "Bearer %s", key);
    return ask_with(keys, header, &caller);
}

static void digest_of(const char *key, unsigned char ret_digest[SHA256_BYTES]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, key, strlen(key));
    sha256_end(&hash, ret_digest);
}

static struct key_set *fixed(const char *first, const char *second) {
    unsigned char digests[2][SHA256_BYTES];
    struct key_set *keys;
    struct error error;
    digest_of(first, digests[0]);
    digest_of(second, digests[1]);
    struct key_set_options options = {.digests = (const unsigned char(*)[SHA256_BYTES])digests,
                                      .digest_count = 2};
    assert_int_equal(key_set_open(&keys, &options, &error), OK);
    return keys;
}

static void without_keys_everybody_may_do_everything(void **state) {
    (void)state;
    struct folder folder;
    struct key_caller caller;
    folder_open(&folder);
    assert_int_equal(open_keys(&folder), OK);
    assert_int_equal(ask_with(folder.keys, "", &caller), KEY_GOOD);
    assert_true(key_caller_has(&caller, KEY_SCOPE_ADMIN));
    assert_int_equal(ask_with(NULL, "Bearer whatever", &caller), KEY_GOOD);
    assert_true(key_caller_has(&caller, KEY_SCOPE_ADMIN));
    folder_remove(&folder);
}

static void each_fixed_key_opens_and_no_other_does(void **state) {
    (void)state;
    struct key_set *keys = fixed("first", "second");
    struct key_caller caller;
    assert_int_equal(ask_with(keys, "Bearer first", &caller), KEY_GOOD);
    assert_string_equal(caller.owner, "");
    assert_true(key_caller_has(&caller, KEY_SCOPE_METRICS));
    assert_false(key_caller_has(&caller, KEY_SCOPE_ADMIN));
    assert_int_equal(ask_with(keys, "bearer second", &caller), KEY_GOOD);
    assert_int_equal(ask_with(keys, "  Bearer   second  ", &caller), KEY_GOOD);
    static const char *const wrong[] = {
        "Bearer", "Bearer ",     "Bearer firs",  "Bearer first2",
        "first",  "Basic first", "Bearer FIRST", "Bearer first second",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(ask_with(keys, wrong[i], &caller), KEY_WRONG);
        assert_int_equal(caller.scopes, 0);
    }
    assert_int_equal(ask_with(keys, "", &caller), KEY_MISSING);
    assert_int_equal(ask_with(keys, "  ", &caller), KEY_MISSING);
    key_set_close(keys);
}

static void the_empty_key_opens_nothing(void **state) {
    (void)state;
    struct key_caller caller;
    struct key_set *keys = fixed("", "other");
    assert_int_equal(ask_with(keys, "Bearer  ", &caller), KEY_WRONG);
    key_set_close(keys);
}

static void a_made_key_has_its_shape_its_owner_and_its_scopes(void **state) {
    (void)state;
    struct folder folder;
    struct key_row row = {.owner = "alice", .batches_max = 3, .scopes = 1u << KEY_SCOPE_FILES};
    struct key_caller caller;
    char text[KEY_TEXT_BYTES], header[128];
    folder_open(&folder);
    add(&folder, &row, text);
    assert_int_equal(strlen(text), 3 + 8 + 1 + 43);
    assert_memory_equal(text, "sk-", 3);
    assert_memory_equal(text + 3, row.id, 8);
    assert_int_equal(text[11], '_');
    assert_int_equal(open_keys(&folder), OK);
    snprintf(header, sizeof header, "Bearer %s", text);
    assert_int_equal(ask_with(folder.keys, header, &caller), KEY_GOOD);
    assert_string_equal(caller.owner, "alice");
    assert_string_equal(caller.id, row.id);
    assert_int_equal(caller.batches_max, 3);
    assert_true(key_caller_has(&caller, KEY_SCOPE_FILES));
    assert_true(key_caller_has(&caller, KEY_SCOPE_ANY));
    assert_false(key_caller_has(&caller, KEY_SCOPE_BATCHES));
    text[50] ^= 1; /* right id, wrong secret */
    assert_int_equal(ask(folder.keys, text), KEY_WRONG);
    folder_remove(&folder);
}

static void the_file_has_no_key_in_it_and_nobody_else_can_read_it(void **state) {
    (void)state;
    struct folder folder;
    struct key_row row = {.name = "a \"name\" é"};
    struct key_file file;
    struct stat status;
    char text[KEY_TEXT_BYTES], content[4096] = "";
    folder_open(&folder);
    add(&folder, &row, text);
    FILE *stream = fopen(folder.path, "re");
    assert_non_null(stream);
    assert_true(fread(content, 1, sizeof content - 1, stream) > 0);
    fclose(stream);
    assert_null(strstr(content, text));
    assert_null(strstr(content, text + 12));
    assert_int_equal(stat(folder.path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(key_file_read(&file, folder.path, &folder.error), OK);
    assert_int_equal(file.count, 1);
    assert_string_equal(file.rows[0].name, row.name);
    key_file_release(&file);
    folder_remove(&folder);
}

static void a_revoked_key_and_an_expired_one_open_nothing(void **state) {
    (void)state;
    struct folder folder;
    struct key_row revoked = {.name = "one"}, expired = {.expires_unix_s = 1}, good = {0}, found;
    char texts[3][KEY_TEXT_BYTES];
    folder_open(&folder);
    add(&folder, &revoked, texts[0]);
    add(&folder, &expired, texts[1]);
    add(&folder, &good, texts[2]);
    assert_int_equal(key_file_revoke(folder.dir, STR("one"), 5, &found, &folder.error), OK);
    assert_string_equal(found.id, revoked.id);
    assert_int_equal(open_keys(&folder), OK);
    assert_int_equal(ask(folder.keys, texts[0]), KEY_WRONG);
    assert_int_equal(ask(folder.keys, texts[1]), KEY_WRONG);
    assert_int_equal(ask(folder.keys, texts[2]), KEY_GOOD);
    assert_int_equal(key_file_revoke(folder.dir, STR("nobody"), 5, &found, &folder.error),
                     ERR_NOT_FOUND);
    folder_remove(&folder);
}

static void once_there_was_a_key_the_door_stays_shut(void **state) {
    (void)state;
    struct folder folder;
    struct key_row row = {0}, found;
    char text[KEY_TEXT_BYTES];
    folder_open(&folder);
    add(&folder, &row, text);
    assert_int_equal(key_file_revoke(folder.dir, str_from(row.id), 5, &found, &folder.error), OK);
    assert_int_equal(open_keys(&folder), OK);
    assert_int_equal(ask(folder.keys, text), KEY_WRONG);
    assert_int_equal(unlink(folder.path), 0);
    assert_int_equal(ask(folder.keys, text), KEY_WRONG);
    folder_remove(&folder);
}

static void a_damaged_file_keeps_the_keys_it_had_and_lets_nobody_start(void **state) {
    (void)state;
    static const char *const bad[] = {"{", "[]", "{\"id\":\"abc\"}", "null", "{}\n{}"};
    struct folder folder;
    struct key_row row = {0};
    char text[KEY_TEXT_BYTES];
    folder_open(&folder);
    add(&folder, &row, text);
    assert_int_equal(open_keys(&folder), OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FILE *stream = fopen(folder.path, "we");
        fputs(bad[i], stream);
        fclose(stream);
        struct key_set *other;
        struct key_set_options options = {.path = folder.path};
        assert_int_equal(key_set_open(&other, &options, &folder.error), ERR_INVALID);
    }
    assert_int_equal(ask(folder.keys, text), KEY_GOOD);
    folder_remove(&folder);
}

static void a_file_others_can_read_is_refused(void **state) {
    (void)state;
    struct folder folder;
    struct key_row row = {0};
    char text[KEY_TEXT_BYTES];
    folder_open(&folder);
    add(&folder, &row, text);
    assert_int_equal(chmod(folder.path, 0640), 0);
    assert_int_equal(open_keys(&folder), ERR_INVALID);
    assert_non_null(strstr(folder.error.text, "chmod 600"));
    folder_remove(&folder);
}

static void a_key_may_ask_as_often_as_its_row_says(void **state) {
    (void)state;
    struct folder folder;
    struct key_row row = {.requests_per_minute = 2}, free_row = {0};
    struct key_caller caller;
    uint32_t retry_s = 0;
    char text[KEY_TEXT_BYTES], other[KEY_TEXT_BYTES], header[128];
    folder_open(&folder);
    add(&folder, &row, text);
    add(&folder, &free_row, other);
    assert_int_equal(open_keys(&folder), OK);
    assert_int_equal(ask(folder.keys, text), KEY_GOOD);
    assert_int_equal(ask(folder.keys, text), KEY_GOOD);
    snprintf(header, sizeof header, "Bearer %s", text);
    assert_int_equal(key_check(folder.keys, str_from(header), 0, &caller, &retry_s), KEY_LATER);
    assert_int_equal(key_check(folder.keys, str_from(header), KEY_LOOK, &caller, &retry_s),
                     KEY_GOOD);
    assert_in_range(retry_s, 1, 31);
    for (int i = 0; i < 100; i++) assert_int_equal(ask(folder.keys, other), KEY_GOOD);
    folder_remove(&folder);
}

static void scopes_and_owners_are_read_strictly(void **state) {
    (void)state;
    struct error error;
    uint32_t scopes = 0;
    assert_int_equal(key_scopes_read(STR("files, admin"), &scopes, &error), OK);
    assert_int_equal(scopes, 1u << KEY_SCOPE_FILES | 1u << KEY_SCOPE_ADMIN);
    assert_int_equal(key_scopes_read(STR("files,,"), &scopes, &error), ERR_INVALID);
    assert_int_equal(key_scopes_read(STR(""), &scopes, &error), ERR_INVALID);
    assert_int_equal(key_scopes_read(STR("any"), &scopes, &error), ERR_INVALID);
    assert_true(key_owner_is_sane(STR("team-a.b_c")));
    assert_false(key_owner_is_sane(STR("")));
    assert_false(key_owner_is_sane(STR("a b")));
    assert_false(key_owner_is_sane(STR("a\x1f")));
    struct key_caller forgotten = {.scopes = KEY_SCOPES_DEFAULT};
    assert_false(key_caller_has(&forgotten, (enum key_scope)0)); /* a row without a scope */
}

static void fixed_keys_are_replaced_and_the_door_stays_shut(void **state) {
    (void)state;
    unsigned char digests[1][SHA256_BYTES];
    struct key_set *keys = fixed("sk-one", "sk-two");
    digest_of("sk-three", digests[0]);
    key_set_fix(keys, (const unsigned char(*)[SHA256_BYTES])digests, 1);
    assert_int_equal(ask(keys, "sk-one"), KEY_WRONG);
    assert_int_equal(ask(keys, "sk-three"), KEY_GOOD);
    key_set_fix(keys, NULL, 0);
    assert_int_equal(ask(keys, "sk-three"), KEY_WRONG);
    assert_true(key_set_asks(keys));
    key_set_close(keys);
}

/* A caller that was let in is let go again when its key ends, whatever kind of key it is. */
static void a_caller_is_known_as_long_as_its_key(void **state) {
    (void)state;
    struct folder folder;
    struct key_row row = {.name = "a"};
    struct key_caller none, made, first;
    char text[KEY_TEXT_BYTES], header[KEY_TEXT_BYTES + 8];
    folder_open(&folder);
    assert_int_equal(open_keys(&folder), OK);
    assert_int_equal(ask_with(folder.keys, "", &none), KEY_GOOD);
    assert_true(key_set_still_knows(folder.keys, &none));
    assert_true(key_set_still_knows(NULL, &none));
    add(&folder, &row, text);
    assert_false(key_set_still_knows(folder.keys, &none)); /* a key is needed now */
    snprintf(header, sizeof header, "Bearer %s", text);
    assert_int_equal(ask_with(folder.keys, header, &made), KEY_GOOD);
    assert_true(key_set_still_knows(folder.keys, &made));
    assert_int_equal(
        key_file_revoke(folder.dir, str_from(row.id), clock_unix_s(), &row, &folder.error), OK);
    assert_false(key_set_still_knows(folder.keys, &made));
    folder_remove(&folder);
    struct key_set *keys = fixed("first", "second");
    assert_int_equal(ask_with(keys, "Bearer first", &first), KEY_GOOD);
    assert_true(key_set_still_knows(keys, &first));
    unsigned char digests[1][SHA256_BYTES];
    digest_of("second", digests[0]);
    key_set_fix(keys, (const unsigned char(*)[SHA256_BYTES])digests, 1);
    assert_false(key_set_still_knows(keys, &first));
    key_set_close(keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_keys_everybody_may_do_everything),
        cmocka_unit_test(each_fixed_key_opens_and_no_other_does),
        cmocka_unit_test(the_empty_key_opens_nothing),
        cmocka_unit_test(a_made_key_has_its_shape_its_owner_and_its_scopes),
        cmocka_unit_test(the_file_has_no_key_in_it_and_nobody_else_can_read_it),
        cmocka_unit_test(a_revoked_key_and_an_expired_one_open_nothing),
        cmocka_unit_test(once_there_was_a_key_the_door_stays_shut),
        cmocka_unit_test(a_damaged_file_keeps_the_keys_it_had_and_lets_nobody_start),
        cmocka_unit_test(a_file_others_can_read_is_refused),
        cmocka_unit_test(a_key_may_ask_as_often_as_its_row_says),
        cmocka_unit_test(scopes_and_owners_are_read_strictly),
        cmocka_unit_test(fixed_keys_are_replaced_and_the_door_stays_shut),
        cmocka_unit_test(a_caller_is_known_as_long_as_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
