/* SPDX-License-Identifier: Apache-2.0 */
#include "../../tree.h"
#include "base/os.h"
#include "dossier/erasure_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LIST "/out.manifest.json.erasing"
#define NOTE "/next.manifest.json.erasing"

struct folder {
    char path[64];
};

static void open_folder(struct folder *folder) {
    snprintf(folder->path, sizeof folder->path, "/tmp/quern-test-list-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    tree_write(folder->path, "/a", "old a\n");
    tree_write(folder->path, "/b", "old b\n");
    tree_write(folder->path, "/a.erasing", "new a\n");
    tree_write(folder->path, "/b.erasing", "new b\n");
}

static const char *at(const struct folder *folder, const char *name) {
    static char paths[8][256];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, 256, "%s%s", folder->path, name);
    return path;
}

static void check_text(const struct folder *folder, const char *name, const char *text) {
    char *got;
    size_t bytes;
    struct error error;
    assert_int_equal(os_read_file(at(folder, name), 1000, &got, &bytes, &error), OK);
    assert_string_equal(got, text);
    free(got);
}

static void make_list(const struct folder *folder, struct erasure_list *ret_list) {
    struct error error;
    *ret_list = (struct erasure_list){.count = 0};
    assert_int_equal(erasure_list_add(ret_list, at(folder, "/a"), &error), OK);
    assert_int_equal(erasure_list_add(ret_list, at(folder, "/b"), &error), OK);
    assert_int_equal(erasure_list_find(ret_list, at(folder, "/b")), 1);
    assert_true(erasure_list_find(ret_list, at(folder, "/c")) == SIZE_MAX);
    erasure_list_add_run(ret_list, at(folder, NOTE));
}

static void a_commit_gives_all_files_their_names_and_leaves_no_list(void **context) {
    (void)context;
    struct folder folder;
    struct erasure_list list;
    struct error error;
    open_folder(&folder);
    make_list(&folder, &list);
    assert_int_equal(erasure_list_commit(&list, at(&folder, LIST), &error), OK);
    check_text(&folder, "/a", "new a\n");
    check_text(&folder, "/b", "new b\n");
    static const char *const gone[] = {LIST, NOTE, "/a.erasing", "/b.erasing"};
    for (size_t i = 0; i < 4; i++) assert_int_not_equal(access(at(&folder, gone[i]), F_OK), 0);
    erasure_list_release(&list);
    tree_remove(folder.path);
}

/* A list whose first file has its name already, as a kill leaves it, ended by the note. */
static void a_note_ends_the_list_that_it_names(void **context) {
    (void)context;
    struct folder folder;
    struct erasure_list list;
    struct error error;
    bool was_one;
    open_folder(&folder);
    make_list(&folder, &list);
    assert_int_equal(rename(at(&folder, "/b"), at(&folder, "/b.kept")), 0);
    assert_int_equal(erasure_list_commit(&list, at(&folder, LIST), &error), ERR_CONFLICT);
    check_text(&folder, "/a", "new a\n");
    assert_int_equal(rename(at(&folder, "/b.kept"), at(&folder, "/b")), 0);
    assert_int_equal(erasure_list_end(at(&folder, NOTE), &was_one, &error), OK);
    assert_true(was_one);
    check_text(&folder, "/b", "new b\n");
    assert_int_not_equal(access(at(&folder, LIST), F_OK), 0);
    assert_int_not_equal(access(at(&folder, NOTE), F_OK), 0);
    erasure_list_release(&list);
    tree_remove(folder.path);
}

static void a_note_without_its_list_is_removed_and_changes_nothing(void **context) {
    (void)context;
    struct folder folder;
    struct error error;
    bool was_one = true;
    char text[256];
    open_folder(&folder);
    snprintf(text, sizeof text, "{\"object\": \"quern.erasing\", \"list\": \"%s%s\"}", folder.path,
             LIST);
    tree_write(folder.path, NOTE, text);
    assert_int_equal(erasure_list_end(at(&folder, NOTE), &was_one, &error), OK);
    assert_false(was_one);
    assert_int_not_equal(access(at(&folder, NOTE), F_OK), 0);
    check_text(&folder, "/a", "old a\n");
    /* A note of a note is none. */
    tree_write(folder.path, NOTE, text);
    tree_write(folder.path, LIST, text);
    assert_int_equal(erasure_list_end(at(&folder, NOTE), &was_one, &error), ERR_CORRUPT);
    tree_remove(folder.path);
}

static void texts_that_are_no_list_are_refused(void **context) {
    (void)context;
#define FACTS "{\"bytes\": 1, \"changed_ns\": 2, \"inode\": 3}"
    static const char good[] = "{\"object\": \"quern.erasing\", \"files\": [{\"path\": \"/a\", "
                               "\"was\": " FACTS ", \"made\": " FACTS "}], \"runs\": [\"/b\"]}";
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"object\": \"quern.erasing\"}",
        "{\"object\": \"quern.erasing\", \"list\": \"a\"}",
        "{\"object\": \"quern.erasing\", \"files\": [], \"runs\": []}",
        "{\"object\": \"quern.erasing\", \"files\": [{\"path\": \"a\", \"was\": " FACTS
        ", \"made\": " FACTS "}], \"runs\": []}",
        "{\"object\": \"quern.erasing\", \"files\": [{\"path\": \"/a\", \"was\": " FACTS
        "}], \"runs\": []}",
        "{\"object\": \"quern.erasing\", \"files\": [{\"path\": \"/a\", \"was\": " FACTS
        ", \"made\": " FACTS "}]}",
        "{\"object\": \"quern.erasing\", \"files\": [{\"path\": \"/a\", \"was\": " FACTS
        ", \"made\": " FACTS "}], \"runs\": [1]}"};
#undef FACTS
    struct erasure_list list;
    struct error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(erasure_list_read(&list, str_from(bad[i]), &error), ERR_CORRUPT);
    assert_int_equal(erasure_list_read(&list, str_from(good), &error), OK);
    assert_int_equal(list.files[0].made.inode, 3);
    erasure_list_release(&list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_gives_all_files_their_names_and_leaves_no_list),
        cmocka_unit_test(a_note_ends_the_list_that_it_names),
        cmocka_unit_test(a_note_without_its_list_is_removed_and_changes_nothing),
        cmocka_unit_test(texts_that_are_no_list_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
