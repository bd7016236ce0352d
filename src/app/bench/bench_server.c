/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench_server.h"

#include "base/os.h"
#include "base/spawn.h"
#include "hub/catalog.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STOP_MS 30000
#define KILL_MS 5000
#define FOLDERS_OPEN 16

/* Reads the child's first line, "listening on http://127.0.0.1:PORT". */
static enum err read_address(struct bench_server *server, int fd, struct error *error) {
    static const char start[] = "listening on ";
    char line[sizeof server->base_url];
    size_t bytes = 0, count = 1;
    enum err err = OK;
    while (err == OK && count > 0 && bytes < sizeof line - 1 && !memchr(line, '\n', bytes)) {
        err = os_read(fd, line + bytes, sizeof line - 1 - bytes, &count, error);
        bytes += err == OK ? count : 0;
    }
    if (err != OK) return err;
    line[bytes] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, start, sizeof start - 1) != 0)
        return err_set(error, ERR_INVALID, "the server of the benchmark did not start");
    snprintf(server->base_url, sizeof server->base_url, "%.50s/v1", line + sizeof start - 1);
    return OK;
}

static enum err start(struct bench_server *server, const char *model_argument,
                      struct error *error) {
    int pipe_fds[2];
    const char *const arguments[] = {"quern",
                                     "serve",
                                     "--port",
                                     "0",
                                     "--state-dir",
                                     server->state,
                                     "--result-cache-bytes",
                                     "0",
                                     "--model",
                                     model_argument,
                                     "--no-access-log",
                                     NULL};
    if (pipe(pipe_fds) != 0) return err_set(error, ERR_IO, "there is no pipe for the server");
    struct spawn_options options = {.program = "/proc/self/exe",
                                    .arguments = arguments,
                                    .fds = {SPAWN_NULL, pipe_fds[1], STDERR_FILENO},
                                    .fd_count = 3};
    enum err err = spawn_start(&server->pid, &options, error);
    os_close(pipe_fds[1]);
    if (err == OK) err = read_address(server, pipe_fds[0], error);
    os_close(pipe_fds[0]);
    return err;
}

enum err bench_server_start(struct bench_server *server, const char *model, struct error *error) {
    struct model_choice choice;
    char argument[MODEL_NAME_BYTES + sizeof choice.path + 2];
    const char *folder = getenv("TMPDIR");
    *server = (struct bench_server){.pid = 0};
    enum err err = catalog_choose(model, &choice, error);
    if (err != OK) return err;
    if (choice.is_echo)
        snprintf(argument, sizeof argument, "%s", model);
    else
        snprintf(argument, sizeof argument, "%s=%s", choice.names[0], choice.path);
    int bytes = snprintf(server->state, sizeof server->state, "%s/quern-bench-XXXXXX",
                         folder && *folder ? folder : "/tmp");
    if (bytes >= (int)sizeof server->state || !mkdtemp(server->state)) {
        server->state[0] = '\0';
        return err_set(error, ERR_IO, "there is no room for a state directory in TMPDIR");
    }
    return start(server, argument, error);
}

static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *where) {
    (void)is;
    (void)kind;
    (void)where;
    return remove(path);
}

void bench_server_stop(struct bench_server *server) {
    char text[128];
    if (server->pid > 0) {
        (void)kill(server->pid, SIGTERM);
        (void)spawn_end(server->pid, STOP_MS, KILL_MS, NULL, text, sizeof text);
    }
    if (*server->state) (void)nftw(server->state, remove_one, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS);
    *server = (struct bench_server){.pid = 0};
}
