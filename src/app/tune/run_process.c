/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/run_process.h"

#include "base/os.h"
#include "base/spawn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 50
#define TERM_PATIENCE_MS 10000 /* for the engine to end */
#define KILL_PATIENCE_MS 10000
#define ERRORS_BYTES_MAX ((size_t)1 << 20)

/* The run's error sentence, else how its process ended. */
static void find_sentence(const char *path, const char *end, char ret_text[RUN_PROCESS_WHY_BYTES]) {
    char *text;
    size_t bytes;
    struct error ignored;
    snprintf(ret_text, RUN_PROCESS_WHY_BYTES, "the run %s", end);
    if (os_read_file(path, ERRORS_BYTES_MAX, &text, &bytes, &ignored) != OK) return;
    const char *mark = "quern run: ", *at = strstr(text, mark);
    if (at)
        snprintf(ret_text, RUN_PROCESS_WHY_BYTES, "%.*s", (int)strcspn(at + strlen(mark), "\n"),
                 at + strlen(mark));
    free(text);
}

/* Starts the process with its output and errors in two files. */
static enum err start(pid_t *ret_pid, const struct run_process *process, struct error *error) {
    int said = -1, errors = -1;
    /* New files: a run whose command was killed may still write to those of this name. */
    enum err err = os_create(&said, process->said, 0600, error);
    if (err == OK) err = os_create(&errors, process->errors, 0600, error);
    const struct spawn_options options = {.program = "/proc/self/exe",
                                          .arguments = process->arguments,
                                          .fds = {SPAWN_NULL, said, errors},
                                          .fd_count = 3};
    if (err == OK) err = spawn_start(ret_pid, &options, error);
    os_close(said);
    os_close(errors);
    return err;
}

/* Waits for the process; false if it was stopped. */
static bool await(pid_t pid, const volatile bool *stop, int *ret_status, char *ret_end,
                  size_t end_bytes) {
    bool goes_on = true;
    while (goes_on && !spawn_await(pid, LOOK_MS, ret_status, ret_end, end_bytes)) goes_on = !*stop;
    if (goes_on) return true;
    kill(pid, SIGTERM);
    (void)spawn_end(pid, TERM_PATIENCE_MS, KILL_PATIENCE_MS, ret_status, ret_end, end_bytes);
    return false;
}

enum err run_process(const struct run_process *process, struct error *error) {
    char end[96] = "", sentence[RUN_PROCESS_WHY_BYTES];
    pid_t pid;
    int status = -1;
    enum err err = start(&pid, process, error);
    if (err != OK) return err;
    if (!await(pid, process->stop, &status, end, sizeof end))
        return err_set(error, ERR_CANCELLED, "stopped");
    if (status == 0 || status == 1) return OK; /* 1: some requests failed */
    find_sentence(process->errors, end, sentence);
    return err_set(error, ERR_INVALID, "%s", sentence);
}
