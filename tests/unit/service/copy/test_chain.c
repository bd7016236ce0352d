/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/chain.h"

#include "../../tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const volatile bool never = false;

struct place {
    char dir[64];
    struct bucket *bucket;
};

static struct place open_place(void) {
    struct place place = {.dir = "/tmp/quern-chain-XXXXXX"};
    struct error error;
    if (!mkdtemp(place.dir)) abort();
    assert_int_equal(bucket_open(&place.bucket, place.dir, &never, &error), OK);
    return place;
}

static void close_place(struct place *place) {
    bucket_close(place->bucket);
    tree_remove(place->dir);
}

/* Writes entry `number` as the process `nonce`. */
static enum err put(struct place *place, uint64_t number, char nonce, uint64_t base) {
    struct entry_header header = {.number = number, .leader = 1, .base = base};
    char name[ENTRY_NAME_BYTES];
    struct buf entry;
    struct error error;
    memset(header.nonce, nonce, ENTRY_NONCE_BYTES - 1);
    buf_init(&entry, BUF_UNLIMITED);
    entry_begin(&entry, &header);
    entry_end(&entry);
    chain_log_name(number, name);
    enum err err = bucket_write(place->bucket, name, buf_str(&entry), true, &error);
    buf_release(&entry);
    return err;
}

static void drop(struct place *place, uint64_t number) {
    char name[ENTRY_NAME_BYTES];
    struct error error;
    chain_log_name(number, name);
    assert_int_equal(bucket_remove(place->bucket, name, &error), OK);
}

static struct chain_end find(struct place *place) {
    struct chain_end end;
    struct error error;
    assert_int_equal(chain_find(place->bucket, &never, &end, &error), OK);
    return end;
}

static void of_two_writers_of_an_entry_one_is_told(void **state) {
    (void)state;
    struct place place = open_place();
    assert_int_equal(put(&place, 1, 'a', 0), OK);
    assert_int_equal(put(&place, 1, 'b', 0), ERR_CONFLICT);
    assert_int_equal(find(&place).header.nonce[0], 'a');
    close_place(&place);
}

static void the_last_entry_is_found_whatever_their_number(void **state) {
    (void)state;
    struct place place = open_place();
    assert_int_equal(find(&place).number, 0);
    for (uint64_t i = 1; i <= 70; i++) {
        assert_int_equal(put(&place, i, 'a', 0), OK);
        assert_int_equal(find(&place).number, i);
    }
    close_place(&place);
}

static void entries_before_the_newest_base_may_be_gone(void **state) {
    (void)state;
    struct place place = open_place();
    struct error error;
    uint64_t count = 0;
    for (uint64_t i = 1; i <= 40; i++) assert_int_equal(put(&place, i, 'a', 0), OK);
    assert_int_equal(chain_note_base(place.bucket, &count, 10, &error), OK);
    assert_int_equal(chain_note_base(place.bucket, &count, 30, &error), OK);
    assert_int_equal(count, 2);
    for (uint64_t i = 1; i < 30; i++) drop(&place, i);
    struct chain_end end = find(&place);
    assert_int_equal(end.number, 40);
    assert_int_equal(end.base, 30);
    assert_int_equal(end.base_count, 2);
    close_place(&place);
}

static void a_hint_that_comes_late_leads_nobody_astray(void **state) {
    (void)state;
    struct place place = open_place();
    struct error error;
    uint64_t count = 0, late = 0;
    for (uint64_t i = 1; i <= 40; i++) assert_int_equal(put(&place, i, 'a', 0), OK);
    assert_int_equal(chain_note_base(place.bucket, &count, 30, &error), OK);
    /* A server that was paused notes its own base, which is removed already. */
    assert_int_equal(chain_note_base(place.bucket, &late, 5, &error), OK);
    assert_int_equal(late, 2);
    for (uint64_t i = 1; i < 30; i++) drop(&place, i);
    struct chain_end end = find(&place);
    assert_int_equal(end.number, 40);
    assert_int_equal(end.base, 30);
    close_place(&place);
}

static void a_late_hint_of_an_entry_that_was_not_removed_hides_no_newer_end(void **state) {
    (void)state;
    struct place place = open_place();
    struct error error;
    uint64_t count = 0;
    for (uint64_t i = 1; i <= 40; i++) assert_int_equal(put(&place, i, 'a', 0), OK);
    assert_int_equal(chain_note_base(place.bucket, &count, 30, &error), OK);
    assert_int_equal(chain_note_base(place.bucket, &count, 5, &error), OK);
    for (uint64_t i = 1; i < 30; i++)
        if (i != 5) drop(&place, i); /* its removal was lost */
    struct chain_end end = find(&place);
    assert_int_equal(end.number, 40);
    assert_int_equal(end.base, 30);
    close_place(&place);
}

static void a_damaged_end_is_refused(void **state) {
    (void)state;
    struct place place = open_place();
    struct chain_end end;
    struct error error;
    char name[ENTRY_NAME_BYTES];
    assert_int_equal(put(&place, 1, 'a', 0), OK);
    chain_log_name(2, name);
    assert_int_equal(bucket_write(place.bucket, name, STR("no entry"), false, &error), OK);
    assert_int_equal(chain_find(place.bucket, &never, &end, &error), ERR_CORRUPT);
    assert_non_null(strstr(error.text, name));
    close_place(&place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_writers_of_an_entry_one_is_told),
        cmocka_unit_test(the_last_entry_is_found_whatever_their_number),
        cmocka_unit_test(entries_before_the_newest_base_may_be_gone),
        cmocka_unit_test(a_hint_that_comes_late_leads_nobody_astray),
        cmocka_unit_test(a_late_hint_of_an_entry_that_was_not_removed_hides_no_newer_end),
        cmocka_unit_test(a_damaged_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
