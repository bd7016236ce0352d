/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spawn.h"

#include "base/clock.h"
#include "base/os.h"
#include "base/str.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENVIRONMENT_MAX 32
#define WAIT_STEP_MS 5

/* Variables that a program needs and that hold no secret. */
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
                                        "XDG_CACHE_HOME=",
                                        "OLLAMA_MODELS=",
                                        "HF_HOME=",
                                        "HF_HUB_CACHE=",
                                        "HF_ENDPOINT=",
                                        "HF_HUB_DOWNLOAD_TIMEOUT=",
                                        "CUDA_VISIBLE_DEVICES=",
                                        "CUDA_DEVICE_ORDER=",
                                        "CUDA_CACHE_PATH=",
                                        "CUDA_CACHE_DISABLE=",
                                        "CUDA_CACHE_MAXSIZE=",
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

/* Puts each descriptor at its number and closes all higher ones. */
static int place_fds(posix_spawn_file_actions_t *actions, const int *fds, size_t count) {
    int number = 0;
    for (size_t i = 0; i < count && number == 0; i++)
        number = fds[i] == SPAWN_NULL
                     ? posix_spawn_file_actions_addopen(actions, (int)i, "/dev/null", O_RDWR, 0)
                     : posix_spawn_file_actions_adddup2(actions, fds[i], (int)i);
    return number ? number : posix_spawn_file_actions_addclosefrom_np(actions, (int)count);
}

/* Gives signals the actions of a fresh process. */
static int start(pid_t *ret_pid, const struct spawn_options *options, const int *fds) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char *environment[ENVIRONMENT_MAX];
    sigemptyset(&none);
    sigfillset(&all);
    pick_environment(environment);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    int number = place_fds(&actions, fds, options->fd_count);
    if (number == 0) number = posix_spawnattr_setsigmask(&attributes, &none);
    if (number == 0) number = posix_spawnattr_setsigdefault(&attributes, &all);
    if (number == 0)
        number =
            posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    /* argv is not const in POSIX, but no exec writes to it. */
    if (number == 0)
        number = posix_spawn(ret_pid, options->program, &actions, &attributes,
                             (char *const *)(uintptr_t)options->arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return number;
}

enum err spawn_start(pid_t *ret_pid, const struct spawn_options *options, struct error *error) {
    int fds[SPAWN_FDS_MAX], lifted[SPAWN_FDS_MAX], number = 0;
    assert(options->fd_count >= 3 && options->fd_count <= SPAWN_FDS_MAX);
    /* A descriptor below the targets would be overwritten before its own turn. */
    for (size_t i = 0; i < options->fd_count; i++) {
        bool is_low = options->fds[i] != SPAWN_NULL && options->fds[i] < SPAWN_FDS_MAX;
        lifted[i] = is_low ? fcntl(options->fds[i], F_DUPFD_CLOEXEC, SPAWN_FDS_MAX) : -1;
        if (is_low && lifted[i] < 0) number = errno;
        fds[i] = is_low ? lifted[i] : options->fds[i];
    }
    if (number == 0) number = start(ret_pid, options, fds);
    for (size_t i = 0; i < options->fd_count; i++) os_close(lifted[i]);
    return number == 0 ? OK : err_from_errno(error, number, "cannot start %s", options->program);
}

static int describe_end(int status, char *ret_text, size_t text_bytes) {
    if (WIFEXITED(status))
        snprintf(ret_text, text_bytes, "exited with status %d", WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        snprintf(ret_text, text_bytes, "was killed by signal %d (%s)", WTERMSIG(status),
                 sigdescr_np(WTERMSIG(status)));
    else
        snprintf(ret_text, text_bytes, "ended");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool spawn_await(pid_t pid, int64_t patience_ms, int *ret_status, char *ret_text,
                 size_t text_bytes) {
    int status = 0, ignored;
    pid_t ended = 0;
    for (int64_t waited_ms = 0; ended == 0; waited_ms += WAIT_STEP_MS) {
        do ended = waitpid(pid, &status, WNOHANG);
        while (ended < 0 && errno == EINTR);
        if (ended != 0) break;
        if (waited_ms >= patience_ms) return false;
        clock_sleep_ms(WAIT_STEP_MS);
    }
    if (!ret_status) ret_status = &ignored;
    if (ended > 0) {
        *ret_status = describe_end(status, ret_text, text_bytes);
        return true;
    }
    /* SIGCHLD is ignored, so the kernel keeps no status. */
    *ret_status = -1;
    snprintf(ret_text, text_bytes, "is gone");
    return true;
}

bool spawn_end(pid_t pid, int64_t patience_ms, int64_t kill_ms, int *ret_status, char *ret_text,
               size_t text_bytes) {
    if (spawn_await(pid, patience_ms, ret_status, ret_text, text_bytes)) return true;
    kill(pid, SIGKILL);
    return spawn_await(pid, kill_ms, ret_status, ret_text, text_bytes);
}
