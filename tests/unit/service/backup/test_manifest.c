/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add(struct backup_manifest *manifest, const char *path, uint64_t generation,
                unsigned char sum) {
    struct backup_object *object = backup_manifest_add(manifest, path);
    object->generation = generation;
    object->bytes = 1000 + sum;
    object->stamp = (uint64_t)sum << 56 | 7;
    memset(object->sha256, sum, sizeof object->sha256);
}

/* Three files of a state directory, not in their order. */
static struct backup_manifest sample(void) {
    struct backup_manifest manifest = {.generation = 12,
                                       .version = "0.1.0",
                                       .schema = 6,
                                       .begun_unix_s = 1795405200,
                                       .ended_unix_s = 1795405201,
                                       .is_moved = true,
                                       .batches = 5,
                                       .unfinished = 2};
    add(&manifest, "meta.db", 12, 3);
    add(&manifest, "files/yz/file-abcdefyz", 4, 2);
    add(&manifest, "batches/batch_0123/seg-000001.log", 9, 255);
    backup_manifest_sort(&manifest);
    return manifest;
}

static struct buf text_of(const struct backup_manifest *manifest) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    backup_manifest_write(manifest, &text);
    return text;
}

static void a_manifest_reads_back_as_it_was_written(void **state) {
    (void)state;
    struct backup_manifest manifest = sample(), found;
    struct buf text = text_of(&manifest);
    struct error error;
    assert_int_equal(backup_manifest_read(buf_str(&text), &found, &error), OK);
    assert_int_equal(found.generation, 12);
    assert_string_equal(found.version, "0.1.0");
    assert_int_equal(found.schema, 6);
    assert_int_equal(found.begun_unix_s, 1795405200);
    assert_int_equal(found.ended_unix_s, 1795405201);
    assert_true(found.is_moved);
    assert_int_equal(found.batches, 5);
    assert_int_equal(found.unfinished, 2);
    assert_int_equal(found.count, 3);
    assert_memory_equal(found.objects, manifest.objects, 3 * sizeof *found.objects);
    assert_int_equal(backup_manifest_bytes(&found), 3000 + 3 + 2 + 255);
    assert_int_equal(backup_manifest_find(&found, "meta.db")->generation, 12);
    assert_null(backup_manifest_find(&found, "keys.jsonl"));
    backup_manifest_release(&found);
    backup_manifest_release(&manifest);
    buf_release(&text);
}

static void a_manifest_that_is_cut_off_or_changed_anywhere_is_refused(void **state) {
    (void)state;
    struct backup_manifest manifest = sample(), found;
    struct buf text = text_of(&manifest);
    struct error error;
    for (size_t bytes = 0; bytes < text.bytes; bytes++) {
        struct str part = {text.at, bytes};
        assert_int_not_equal(backup_manifest_read(part, &found, &error), OK);
        assert_true(*error.text != '\0');
    }
    for (size_t at = 0; at < text.bytes; at++) {
        text.at[at] ^= 1;
        assert_int_not_equal(backup_manifest_read(buf_str(&text), &found, &error), OK);
        text.at[at] ^= 1;
    }
    buf_add_byte(&text, '\n');
    assert_int_equal(backup_manifest_read(buf_str(&text), &found, &error), ERR_CORRUPT);
    backup_manifest_release(&manifest);
    buf_release(&text);
}

/* Reads the manifest's text with one piece replaced and the sum of the last line made right. */
static enum err read_with(const char *piece, const char *other) {
    struct backup_manifest manifest = sample(), found;
    struct buf text = text_of(&manifest), changed;
    struct sha256 hash;
    struct error error;
    unsigned char sum[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    size_t at = str_find(buf_str(&text), str_from(piece), 0);
    assert_int_not_equal(at, SIZE_MAX);
    buf_init(&changed, BUF_UNLIMITED);
    buf_add(&changed, text.at, at);
    buf_add_text(&changed, other);
    buf_add_str(&changed, str_skip(buf_str(&text), at + strlen(piece)));
    size_t end = str_find(buf_str(&changed), STR("\nend "), 0) + 1;
    sha256_init(&hash);
    sha256_add(&hash, changed.at, end);
    sha256_end(&hash, sum);
    sha256_hex(sum, hex);
    buf_truncate(&changed, changed.bytes - 65);
    buf_add_text(&changed, hex);
    buf_add_byte(&changed, '\n');
    enum err err = backup_manifest_read(buf_str(&changed), &found, &error);
    if (err == OK) backup_manifest_release(&found);
    backup_manifest_release(&manifest);
    buf_release(&text);
    buf_release(&changed);
    return err;
}

static void a_manifest_with_a_right_sum_is_held_to_its_form(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"generation 12", "generation 0"},
        {"generation 12", "generation 11"},
        {"generation 12", "generation +12"},
        {"generation 12", "generation 012"},
        {"schema 6", "schema  6"},
        {"schema 6", "schema 99999999999999999999"},
        {"moved 1", "moved 2"},
        {"version 0.1.0", "version "},
        {"version 0.1.0", "version 0 1"},
        {" meta.db", " ../meta.db"},
        {" meta.db", " batches/batch_0123/seg-000001.log"},
        {" meta.db", " aaaa.db"},
        {"end 3", "end 4"},
        {"object 9", "object 0"},
        {"object 9", "objekt 9"},
        {" 1255 ", " 1255  "},
    };
    assert_int_equal(read_with("moved 1", "moved 0"), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(read_with(cases[i][0], cases[i][1]), ERR_CORRUPT);
    assert_int_equal(read_with("quern-backup 1", "quern-backup 2"), ERR_CONFLICT);
}

static void only_paths_of_a_state_directory_are_paths(void **state) {
    (void)state;
    static const char *const good[] = {
        "meta.db",
        "keys.jsonl",
        "keys.made",
        "computed_by.jsonl",
        "files/yz/file-abcdefyz",
        "parts/part_0123",
        "batches/batch_0123/lines.idx",
        "batches/batch_0123/order.idx",
        "batches/batch_0123/order.0123456789abcdef.idx",
        "batches/batch_0123/seg-000017.log",
    };
    static const char *const bad[] = {
        "",
        "LOCK",
        "moved",
        "meta.db-wal",
        "/etc/passwd",
        "x/computed_by.jsonl",
        "files/yz/file-abcdefxx",
        "files/yz/../yz",
        "files/../yz",
        "files/y",
        "parts/",
        "parts/short",
        "parts/part_0123/x",
        "batches/batch_0123/order.0123456789abcdeg.idx",
        "batches/batch_0123/order.0123456789abcdef.idy",
        "batches/batch_0123",
        "batches/batch_0123/",
        "batches//lines.idx",
        "batches/../meta.db",
        "batches/batch_0123/seg-1.log",
        "batches/batch_0123/seg-00001x.log",
        "batches/batch_0123/seg-000001.log.2",
        "batches/batch_0123/x/lines.idx",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(backup_path_is_sane(str_from(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(backup_path_is_sane(str_from(bad[i])));
}

static void of_two_objects_with_one_path_the_last_stays(void **state) {
    (void)state;
    struct backup_manifest manifest = {.generation = 3};
    add(&manifest, "meta.db", 1, 1);
    add(&manifest, "keys.made", 1, 2);
    add(&manifest, "meta.db", 2, 3);
    add(&manifest, "meta.db", 3, 4);
    backup_manifest_sort(&manifest);
    assert_int_equal(manifest.count, 2);
    assert_string_equal(manifest.objects[0].path, "keys.made");
    assert_int_equal(backup_manifest_find(&manifest, "meta.db")->generation, 3);
    backup_manifest_release(&manifest);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_reads_back_as_it_was_written),
        cmocka_unit_test(a_manifest_that_is_cut_off_or_changed_anywhere_is_refused),
        cmocka_unit_test(a_manifest_with_a_right_sum_is_held_to_its_form),
        cmocka_unit_test(only_paths_of_a_state_directory_are_paths),
        cmocka_unit_test(of_two_objects_with_one_path_the_last_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
