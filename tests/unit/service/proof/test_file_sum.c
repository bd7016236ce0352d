/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of files, and which of them are taken from notes. */
#include "proof/file_sum.h"

#include "../../tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#define LARGE_BYTES ((size_t)2 << 20)

struct folder {
    char dir[64], path[128], notes[128];
};

static void write_file(const char *path, char fill, size_t bytes, time_t changed_s) {
    char *content = malloc(bytes);
    assert_non_null(content);
    memset(content, fill, bytes);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    free(content);
    const struct timespec times[] = {{changed_s, 0}, {changed_s, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void open_folder(struct folder *folder) {
    snprintf(folder->dir, sizeof folder->dir, "/tmp/quern-sums-XXXXXX");
    assert_non_null(mkdtemp(folder->dir));
    snprintf(folder->path, sizeof folder->path, "%s/model.gguf", folder->dir);
    snprintf(folder->notes, sizeof folder->notes, "%s/quern/sums", folder->dir);
    setenv("XDG_CACHE_HOME", folder->dir, 1);
}

static void sum(const char *path, char ret_hex[DIGEST_HEX_BYTES]) {
    struct error error;
    if (file_sum_noted(path, ret_hex, NULL, &error) != OK) fail_msg("%s", error.text);
}

static void the_sum_of_a_known_text_is_right(void **state) {
    (void)state;
    struct folder folder;
    char hex[DIGEST_HEX_BYTES];
    open_folder(&folder);
    write_file(folder.path, 'a', 3, 1000);
    sum(folder.path, hex);
    assert_string_equal(hex, "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0");
    assert_int_not_equal(access(folder.notes, F_OK), 0);
    tree_remove(folder.dir);
}

static void what_is_no_file_is_told_by_what_it_is(void **state) {
    (void)state;
    struct folder folder;
    struct file_facts facts;
    struct error error;
    open_folder(&folder);
    assert_int_equal(file_facts_find(folder.path, &facts, &error), ERR_NOT_FOUND);
    assert_string_equal(error.text, "there is no such file");
    assert_int_equal(mkfifo(folder.path, 0600), 0);
    assert_int_equal(file_facts_find(folder.path, &facts, &error), ERR_INVALID);
    assert_string_equal(error.text, "it is a FIFO, and no file");
    assert_int_equal(file_facts_find(folder.dir, &facts, &error), ERR_INVALID);
    assert_string_equal(error.text, "it is a folder, and no file");
    assert_int_equal(file_facts_find("/dev/null", &facts, &error), ERR_INVALID);
    assert_string_equal(error.text, "it is a device, and no file");
    assert_false(file_facts_read(folder.path, &facts));
    tree_remove(folder.dir);
}

/* Bytes that changed under the same size, time and inode show that the note is what answers. */
static void a_large_file_is_read_once_until_its_facts_change(void **state) {
    (void)state;
    struct folder folder;
    char first[DIGEST_HEX_BYTES], again[DIGEST_HEX_BYTES], whole[DIGEST_HEX_BYTES];
    struct error error;
    open_folder(&folder);
    write_file(folder.path, 'a', LARGE_BYTES, 1000);
    sum(folder.path, first);
    write_file(folder.path, 'b', LARGE_BYTES, 1000);
    sum(folder.path, again);
    assert_string_equal(again, first);
    assert_int_equal(file_sum(folder.path, whole, NULL, &error), OK);
    assert_string_not_equal(whole, first);
    write_file(folder.path, 'b', LARGE_BYTES, 1001);
    sum(folder.path, again);
    assert_string_equal(again, whole);
    tree_remove(folder.dir);
}

static void a_file_that_has_just_changed_and_a_damaged_note_are_read_anew(void **state) {
    (void)state;
    struct folder folder;
    char first[DIGEST_HEX_BYTES], again[DIGEST_HEX_BYTES];
    open_folder(&folder);
    write_file(folder.path, 'a', LARGE_BYTES, time(NULL));
    sum(folder.path, first);
    assert_int_not_equal(access(folder.notes, F_OK), 0);
    write_file(folder.path, 'a', LARGE_BYTES, 1000);
    sum(folder.path, first);
    assert_int_equal(access(folder.notes, F_OK), 0);
    FTS *walk = tree_walk(folder.notes);
    for (FTSENT *entry; (entry = fts_read(walk));)
        if (entry->fts_info == FTS_F) write_file(entry->fts_accpath, '0', 64, 1000);
    fts_close(walk);
    sum(folder.path, again);
    assert_string_equal(again, first);
    tree_remove(folder.dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_file_is_told_by_what_it_is),
        cmocka_unit_test(the_sum_of_a_known_text_is_right),
        cmocka_unit_test(a_large_file_is_read_once_until_its_facts_change),
        cmocka_unit_test(a_file_that_has_just_changed_and_a_damaged_note_are_read_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
