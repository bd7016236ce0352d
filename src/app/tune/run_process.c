/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/run_process.h"

#include "base/os.h"
#include "base/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 50
#define TERM_PATIENCE_MS 10000 /* for the engine to end */
#define KILL_PATIENCE_MS 10000
#define ERRORS_BYTES_MAX ((size_t)1 << 20)
#define WARNING_BYTES 512

/* The error with whose status the run ended (docs/man/quern.1, EXIT STATUS). */
static enum err err_of_status(int status) {
    switch (status) {
    case 1: return ERR_IO;
    case 4: return ERR_NOT_FOUND;
    case 5: return ERR_DENIED;
    case 6: return ERR_UNAVAILABLE;
    case 7: return ERR_CONFLICT;
    default: return ERR_INVALID;
    }
}

/* The run's error sentence, with the first line of the input that is wrong, if it named one; else
 * how its process ended: a full disk has no place for the sentence either. */
static void find_sentence(const char *path, const char *end, enum err err,
                          char ret_text[RUN_PROCESS_WHY_BYTES]) {
    char *text;
    size_t bytes;
    struct error ignored;
    snprintf(ret_text, RUN_PROCESS_WHY_BYTES, "the run %s%s", end,
             err == ERR_UNAVAILABLE ? ": the disk is full, or a server does not answer" : "");
    if (os_read_file(path, ERRORS_BYTES_MAX, &text, &bytes, &ignored) != OK) return;
    const char *mark = "quern run: ", *at = strstr(text, mark);
    bool has_line = strncmp(text, "line ", 5) == 0;
    if (at)
        snprintf(ret_text, RUN_PROCESS_WHY_BYTES, "%.*s%s%.*s",
                 (int)strcspn(at + strlen(mark), "\n"), at + strlen(mark), has_line ? ": " : "",
                 has_line ? (int)strcspn(text, "\n") : 0, text);
    free(text);
}

/* --- warnings --- */

/* What the run says while it runs. */
struct log_tail {
    const struct run_process *process;
    uint64_t at;              /* where its next line begins */
    char last[WARNING_BYTES]; /* the warning that was told last */
};

/* A warning, or an error that the run waits for, without its time: "upstream=m event=breaker_open
 * …"; NULL for another line. */
static const char *warning_of(const char *line) {
    static const char *const marks[] = {" run warn ", " run error "};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *at = strstr(line, marks[i]);
        if (at) return at + strlen(marks[i]);
    }
    return NULL;
}

/* Tells the warnings of the lines that are whole. */
static void tell_warnings(struct log_tail *tail) {
    char bytes[4096];
    struct error ignored;
    int fd;
    if (!tail->process->warned ||
        os_open(&fd, tail->process->errors, O_RDONLY | O_CLOEXEC, 0, &ignored) != OK)
        return;
    ssize_t count = pread(fd, bytes, sizeof bytes - 1, (off_t)tail->at);
    os_close(fd);
    bytes[count > 0 ? count : 0] = '\0';
    char *line = bytes;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        const char *warning = warning_of(line);
        if (!warning || strncmp(warning, tail->last, sizeof tail->last - 1) == 0) continue;
        snprintf(tail->last, sizeof tail->last, "%s", warning);
        tail->process->warned(tail->process->context, tail->last);
    }
    /* A line that is longer than the buffer is passed over. */
    bool is_full = count == (ssize_t)sizeof bytes - 1 && line == bytes;
    tail->at += is_full ? (uint64_t)count : (uint64_t)(line - bytes);
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

/* Waits for the process; false if it was stopped, which Ctrl-C also does to the process. */
static bool await(pid_t pid, const struct run_process *process, int *ret_status, char *ret_end,
                  size_t end_bytes) {
    struct log_tail tail = {.process = process};
    bool goes_on = true;
    while (goes_on && !spawn_await(pid, LOOK_MS, ret_status, ret_end, end_bytes)) {
        goes_on = !*process->stop;
        tell_warnings(&tail);
    }
    if (goes_on) return *ret_status == 0 || *ret_status == 1 || !*process->stop;
    kill(pid, SIGTERM);
    (void)spawn_end(pid, TERM_PATIENCE_MS, KILL_PATIENCE_MS, ret_status, ret_end, end_bytes);
    return false;
}

static bool is_empty(const char *path) {
    struct stat status;
    return stat(path, &status) != 0 || status.st_size == 0;
}

enum err run_process(const struct run_process *process, struct error *error) {
    char end[96] = "", sentence[RUN_PROCESS_WHY_BYTES];
    pid_t pid;
    int status = -1;
    enum err err = start(&pid, process, error);
    if (err != OK) return err;
    if (!await(pid, process, &status, end, sizeof end))
        return err_set(error, ERR_CANCELLED, "stopped");
    /* 1 without a summary: the machine failed; with one: some requests failed. */
    if (status == 0 || (status == 1 && !is_empty(process->said))) return OK;
    if (process->ret_is_refused) *process->ret_is_refused = status == 2;
    err = err_of_status(status);
    find_sentence(process->errors, end, err, sentence);
    return err_set(error, err, "%s", sentence);
}
