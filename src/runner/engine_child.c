/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/engine_child.h"

#include "base/clock.h"
#include "base/os.h"
#include "runner/engine_dump.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENVIRONMENT_MAX 32
#define WAIT_STEP_MS 5

/* Names a process needs, not names that hold secrets. */
static bool is_passed(const char *variable) {
    static const char *const names[] = {"PATH=",
                                        "HOME=",
                                        "LANG=",
                                        "LC_ALL=",
                                        "LC_CTYPE=",
                                        "TZ=",
                                        "TMPDIR=",
                                        "ASAN_OPTIONS=",
                                        "UBSAN_OPTIONS=",
                                        "TSAN_OPTIONS=",
                                        "LSAN_OPTIONS=",
                                        "LD_LIBRARY_PATH=",
                                        NULL};
    for (size_t i = 0; names[i]; i++)
        if (str_starts_with(str_from(variable), str_from(names[i]))) return true;
    return false;
}

static void pick_environment(char *picked[ENVIRONMENT_MAX]) {
    size_t count = 0;
    for (size_t i = 0; environ && environ[i] && count + 1 < ENVIRONMENT_MAX; i++)
        if (is_passed(environ[i])) picked[count++] = environ[i];
    picked[count] = NULL;
}

/* Signals as a fresh process has them; descriptors 0 and 1 on /dev/null, 3 the socket, 4 the file
 * for stacks. */
static int spawn(pid_t *ret_pid, const char *program, char *const *argv, int fd, int dump_fd) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    char *environment[ENVIRONMENT_MAX];
    pick_environment(environment);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    int number = posix_spawn_file_actions_adddup2(&actions, fd, ENGINE_CHILD_FD);
    if (number == 0)
        number = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
    if (number == 0)
        number = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    if (number == 0 && dump_fd >= 0)
        number = posix_spawn_file_actions_adddup2(&actions, dump_fd, ENGINE_CHILD_DUMP_FD);
    if (number == 0)
        number = posix_spawn_file_actions_addclosefrom_np(
            &actions, dump_fd >= 0 ? ENGINE_CHILD_DUMP_FD + 1 : ENGINE_CHILD_FD + 1);
    if (number == 0) number = posix_spawnattr_setsigmask(&attributes, &none);
    if (number == 0) number = posix_spawnattr_setsigdefault(&attributes, &all);
    if (number == 0)
        number =
            posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (number == 0)
        number = posix_spawn(ret_pid, program, &actions, &attributes, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return number;
}

enum err engine_child_start(struct engine_child *ret_child, const char *program,
                            const char *const *arguments, struct error *error) {
    /* argv is not const in POSIX, but no exec writes to it. */
    char *argv[ENGINE_CHILD_ARGUMENTS_MAX + 6];
    char name[] = "quern", option[] = "--fd", number_text[8];
    char dump_option[] = "--dump-fd", dump_text[8];
    size_t count = 0;
    argv[count++] = name;
    while (arguments[count - 1] && count <= ENGINE_CHILD_ARGUMENTS_MAX) {
        argv[count] = (char *)(uintptr_t)arguments[count - 1];
        count++;
    }
    snprintf(number_text, sizeof number_text, "%d", ENGINE_CHILD_FD);
    argv[count++] = option;
    argv[count++] = number_text;
    int dump_fd = engine_dump_make();
    if (dump_fd >= 0) {
        snprintf(dump_text, sizeof dump_text, "%d", ENGINE_CHILD_DUMP_FD);
        argv[count++] = dump_option;
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
    int failed = spawn(&pid, program, argv, pair[1], dump_fd);
    os_close(pair[1]);
    if (failed != 0) {
        os_close(pair[0]);
        os_close(dump_fd);
        return err_from_errno(error, failed, "cannot start the engine %s", program);
    }
    *ret_child = (struct engine_child){pid, pair[0], dump_fd};
    return OK;
}

static void describe_end(int status, char *ret_text, size_t text_bytes) {
    if (WIFEXITED(status))
        snprintf(ret_text, text_bytes, "exited with status %d", WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        snprintf(ret_text, text_bytes, "was killed by signal %d (%s)", WTERMSIG(status),
                 sigdescr_np(WTERMSIG(status)));
    else
        snprintf(ret_text, text_bytes, "ended");
}

void engine_child_end(struct engine_child *child, int64_t patience_ms, char *ret_text,
                      size_t text_bytes) {
    os_close(child->fd);
    child->fd = -1;
    int status = 0;
    pid_t ended = 0;
    for (int64_t waited_ms = 0; ended == 0; waited_ms += WAIT_STEP_MS) {
        ended = waitpid(child->pid, &status, WNOHANG);
        if (ended != 0) break;
        if (waited_ms >= patience_ms) {
            kill(child->pid, SIGKILL);
            do ended = waitpid(child->pid, &status, 0);
            while (ended < 0 && errno == EINTR);
            break;
        }
        clock_sleep_ms(WAIT_STEP_MS);
    }
    if (ended > 0)
        describe_end(status, ret_text, text_bytes);
    else
        snprintf(ret_text, text_bytes, "is gone"); /* SIGCHLD is ignored: nothing to wait for */
    child->pid = 0;
}
