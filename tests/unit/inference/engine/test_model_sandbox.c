/* SPDX-License-Identifier: Apache-2.0 */
#include "../../tree.h"
#include "engine/model_sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

/* A cache as the hub has it, with a folder of links in it that leads elsewhere as well. */
static char root[64];

static const char *in_root(const char *name) {
    static char paths[4][256];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void make_file(const char *name, mode_t mode) {
    int fd = open(in_root(name), O_WRONLY | O_CREAT, 0600);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
}

static int make_cache(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/quern-cache-XXXXXX");
    if (!mkdtemp(root)) return -1;
    static const char *const folders[] = {"repo", "repo/blobs", "repo/snapshots",
                                          "repo/snapshots/1", "repo/snapshots/1/1_Pooling"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) mkdir(in_root(folders[i]), 0700);
    make_file("repo/blobs/a", 0600);
    make_file("repo/blobs/b", 0600);
    make_file("repo/blobs/unnamed", 0644);
    make_file("big", 0600);
    make_file("key", 0640);
    make_file("shared", 0644);
    make_file("repo/snapshots/1/config.json", 0600);
    static const char *const links[][2] = {
        {"../../blobs/a", "repo/snapshots/1/tokenizer.json"},
        {"../../../blobs/b", "repo/snapshots/1/1_Pooling/config.json"},
        {"../../../big", "repo/snapshots/1/model.safetensors"},
        {"../../../key", "repo/snapshots/1/chat_template.jinja"},
        {"../../blobs/../../key", "repo/snapshots/1/tokenizer_config.json"},
        {"../../../shared", "repo/snapshots/1/generation_config.json"},
        {"../../..", "repo/snapshots/1/folder"},
    };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (symlink(links[i][0], in_root(links[i][1])) != 0) return -1;
    return 0;
}

static int remove_cache(void **state) {
    (void)state;
    tree_remove(root);
    return 0;
}

static bool can_open(const char *name) {
    int fd = open(in_root(name), O_RDONLY);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static bool sees_the_model_alone(void) {
    static const char *const seen[] = {"repo/snapshots/1",
                                       "repo/snapshots/1/config.json",
                                       "repo/snapshots/1/tokenizer.json",
                                       "repo/snapshots/1/1_Pooling/config.json",
                                       "repo/snapshots/1/model.safetensors",
                                       "repo/snapshots/1/generation_config.json"};
    static const char *const hidden[] = {"key",
                                         "repo/blobs/unnamed",
                                         "repo/blobs",
                                         ".",
                                         "repo/snapshots/1/chat_template.jinja",
                                         "repo/snapshots/1/tokenizer_config.json",
                                         "repo/snapshots/1/folder",
                                         "repo/snapshots/1/folder/key"};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        if (!can_open(seen[i])) return false;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (can_open(hidden[i])) return false;
    return true;
}

static void a_folder_of_the_hub_opens_and_leads_nowhere_else(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct sandbox_state is;
        model_sandbox_enter(&(struct model_sandbox){.model_path = in_root("repo/snapshots/1")},
                            &is);
        _exit(is.landlock_abi == 0 ? 77 : sees_the_model_alone() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_of_the_hub_opens_and_leads_nowhere_else),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_cache);
}
