/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/entry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NONCE "0123456789abcdef0123456789abcdef"

static struct buf sample(void) {
    struct buf entry;
    char page[512];
    const struct entry_header header = {
        .number = 7, .leader = 3, .base = 5, .unix_ms = 1800000000000, .nonce = NONCE, .host = "a"};
    const struct entry_object object = {
        .leader = 3, .serial = 9, .piece_bytes = 100, .sha256 = {1, 2, 3}};
    buf_init(&entry, BUF_UNLIMITED);
    memset(page, 'p', sizeof page);
    entry_begin(&entry, &header);
    entry_add(&entry, ENTRY_WRITE, "batches/batch_01/seg-000001.log", 64, STR("record"));
    entry_add(&entry, ENTRY_REPLACE, "keys.jsonl", 0, STR(""));
    entry_add_object(&entry, "files/ab/file-ab", 250, &object);
    size_t at = entry_begin_pages(&entry, sizeof page);
    entry_add_page(&entry, 2, page, sizeof page);
    entry_end_pages(&entry, at, 3);
    entry_add_base(&entry, 4, &object);
    entry_end(&entry);
    return entry;
}

static void an_entry_reads_back_as_it_was_written(void **state) {
    (void)state;
    struct buf entry = sample();
    struct entry_header header;
    struct entry_record record;
    struct error error;
    uint32_t number;
    const char *page;
    size_t at = 0;
    assert_int_equal(entry_open(buf_str(&entry), &header, &error), OK);
    assert_int_equal(header.number, 7);
    assert_int_equal(header.leader, 3);
    assert_int_equal(header.base, 5);
    assert_string_equal(header.nonce, NONCE);
    assert_string_equal(header.host, "a");
    assert_true(entry_next(buf_str(&entry), &at, &record));
    assert_string_equal(record.path, "batches/batch_01/seg-000001.log");
    assert_int_equal(record.value, 64);
    assert_true(str_is(record.body, "record"));
    assert_true(entry_next(buf_str(&entry), &at, &record));
    assert_int_equal(record.kind, ENTRY_REPLACE);
    assert_true(entry_next(buf_str(&entry), &at, &record));
    assert_int_equal(record.value, 250);
    assert_int_equal(entry_object_of(&record).serial, 9);
    assert_int_equal(entry_object_of(&record).sha256[1], 2);
    assert_true(entry_next(buf_str(&entry), &at, &record));
    assert_int_equal(record.value, 3);
    assert_true(entry_page(&record, 0, &number, &page));
    assert_int_equal(number, 2);
    assert_int_equal(page[511], 'p');
    assert_false(entry_page(&record, 1, &number, &page));
    assert_true(entry_next(buf_str(&entry), &at, &record));
    assert_int_equal(record.kind, ENTRY_BASE);
    assert_int_equal(record.value, 4);
    assert_false(entry_next(buf_str(&entry), &at, &record));
    buf_release(&entry);
}

static void an_entry_that_is_cut_off_or_changed_anywhere_is_refused(void **state) {
    (void)state;
    struct buf entry = sample();
    struct entry_header header;
    struct error error;
    for (size_t bytes = 0; bytes < entry.bytes; bytes++)
        assert_int_equal(entry_open((struct str){entry.at, bytes}, &header, &error), ERR_CORRUPT);
    for (size_t at = 0; at < entry.bytes; at++) {
        entry.at[at] ^= 4;
        assert_int_equal(entry_open(buf_str(&entry), &header, &error), ERR_CORRUPT);
        entry.at[at] ^= 4;
    }
    buf_release(&entry);
}

static void only_paths_that_quern_makes_are_taken(void **state) {
    (void)state;
    static const char *const good[] = {
        "files/ab/file-ab", "parts/part_1",   "keys.jsonl",
        "keys.made",        "signing_key",    "computed_by.jsonl",
        "audit.jsonl",      "audit.15.jsonl", "batches/batch_1/seg-000001.log"};
    static const char *const bad[] = {
        "",          "/etc/passwd",  "../x",        "files/../x",   "files//x",
        "files/ab",  "files/ab/c/d", "meta.db",     "LOCK",         "restoring",
        "copied_as", "parts/.x",     "batches/b/.", "files/ab/x y", "parts/"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(entry_path_is_good(str_from(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(entry_path_is_good(str_from(bad[i])));
}

/* Whether an entry with a right sum and this one record is taken. */
static bool is_taken(enum entry_kind kind, const char *path, uint64_t value, struct str body) {
    const struct entry_header header = {.number = 1, .nonce = NONCE};
    struct entry_header found;
    struct buf entry;
    struct error error;
    buf_init(&entry, BUF_UNLIMITED);
    entry_begin(&entry, &header);
    entry_add(&entry, kind, path, value, body);
    entry_end(&entry);
    bool taken = entry_open(buf_str(&entry), &found, &error) == OK;
    buf_release(&entry);
    return taken;
}

static void a_record_that_does_not_fit_its_kind_is_refused_although_the_sum_is_right(void **state) {
    (void)state;
    static const char pages[8 + 8 + 512] = {0, 2, 0, 0, 0, 0, 0, 0, 1};
    static const char page_0[8 + 8 + 512] = {0, 2};
    assert_true(is_taken(ENTRY_PAGES, "", 1, (struct str){pages, sizeof pages}));
    assert_false(is_taken(ENTRY_PAGES, "", 1, (struct str){page_0, sizeof page_0}));
    assert_false(is_taken(ENTRY_PAGES, "", 1, (struct str){pages, sizeof pages - 1}));
    assert_false(is_taken(ENTRY_PAGES, "keys.jsonl", 1, (struct str){pages, sizeof pages}));
    assert_false(is_taken(ENTRY_PAGES, "", 1, STR("\3\0\0\0\0\0\0\0")));
    assert_false(is_taken(ENTRY_WRITE, "keys.jsonl", UINT64_MAX, STR("x")));
    assert_false(is_taken(ENTRY_WRITE, "meta.db", 0, STR("x")));
    assert_false(is_taken(ENTRY_REPLACE, "keys.jsonl", 1, STR("x")));
    assert_false(is_taken(ENTRY_OBJECT, "files/ab/c", 1, STR("x")));
    assert_false(is_taken(ENTRY_BASE, "", 1, STR("x")));
    assert_false(is_taken((enum entry_kind)9, "keys.jsonl", 0, STR("x")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_reads_back_as_it_was_written),
        cmocka_unit_test(an_entry_that_is_cut_off_or_changed_anywhere_is_refused),
        cmocka_unit_test(only_paths_that_quern_makes_are_taken),
        cmocka_unit_test(a_record_that_does_not_fit_its_kind_is_refused_although_the_sum_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
