/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/engine/child.h"

#include "base/os.h"
#include "base/spawn.h"
#include "workers/engine/dump.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum err engine_child_start(struct engine_child *ret_child, const char *program,
                            const char *const *arguments, struct error *error) {
    const char *argv[ENGINE_CHILD_ARGUMENTS_MAX + 6];
    char number_text[8], dump_text[8];
    size_t count = 0;
    argv[count++] = "quern";
    while (arguments[count - 1] && count <= ENGINE_CHILD_ARGUMENTS_MAX) {
        argv[count] = arguments[count - 1];
        count++;
    }
    snprintf(number_text, sizeof number_text, "%d", ENGINE_CHILD_FD);
    argv[count++] = "--fd";
    argv[count++] = number_text;
    int dump_fd = engine_dump_make();
    if (dump_fd >= 0) {
        snprintf(dump_text, sizeof dump_text, "%d", ENGINE_CHILD_DUMP_FD);
        argv[count++] = "--dump-fd";
        argv[count++] = dump_text;
    }
    argv[count] = NULL;

    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        enum err err = err_from_errno(error, errno, "cannot make a socket for the engine");
        os_close(dump_fd);
        return err;
    }
    pid_t pid;
    const struct spawn_options options = {
        .program = program,
        .arguments = argv,
        .fds = {SPAWN_NULL, STDERR_FILENO, STDERR_FILENO, pair[1], dump_fd},
        .fd_count = dump_fd >= 0 ? ENGINE_CHILD_DUMP_FD + 1 : ENGINE_CHILD_FD + 1};
    _Static_assert(ENGINE_CHILD_FD == 3 && ENGINE_CHILD_DUMP_FD == 4, "as in `fds`");
    enum err err = spawn_start(&pid, &options, error);
    os_close(pair[1]);
    if (err != OK) {
        os_close(pair[0]);
        os_close(dump_fd);
        return err;
    }
    *ret_child = (struct engine_child){pid, pair[0], dump_fd};
    return OK;
}

bool engine_child_end(struct engine_child *child, int64_t patience_ms, int64_t kill_ms,
                      char *ret_text, size_t text_bytes) {
    os_close(child->fd);
    child->fd = -1;
    if (!spawn_end(child->pid, patience_ms, kill_ms, NULL, ret_text, text_bytes)) {
        snprintf(ret_text, text_bytes, "was killed and does not end");
        return false;
    }
    child->pid = 0;
    return true;
}

bool engine_child_has_ended(struct engine_child *child) {
    char end[96];
    if (child->pid != 0 && !spawn_await(child->pid, 0, NULL, end, sizeof end)) return false;
    child->pid = 0;
    return true;
}
