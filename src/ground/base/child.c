/* SPDX-License-Identifier: Apache-2.0 */
#include "base/child.h"

#include "base/buf.h"
#include "base/os.h"
#include "base/spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define READ_BYTES 65536
#define LOOK_MS 50
#define TERM_PATIENCE_MS 5000  /* between SIGTERM and SIGKILL, for an orderly end */
#define KILL_PATIENCE_MS 10000 /* time between SIGKILL and its end */

struct child {
    pid_t pid;
    int out_fd, err_fd; /* its standard output and error; -1 at their ends */
    struct buf said;
};

static enum err start(struct child *child, const struct child_options *options,
                      struct error *error) {
    int out[2] = {-1, -1}, err_pipe[2] = {-1, -1};
    enum err err = OK;
    assert(options->fd_count <= CHILD_FDS_MAX);
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err_pipe, O_CLOEXEC) != 0)
        err = err_from_errno(error, errno, "cannot make a pipe for quern %s", options->command);
    struct spawn_options spawn = {.program = "/proc/self/exe",
                                  .arguments = options->arguments,
                                  .fds = {SPAWN_NULL, out[1], err_pipe[1]},
                                  .fd_count = 3 + options->fd_count};
    for (size_t i = 0; i < options->fd_count; i++) spawn.fds[3 + i] = options->fds[i];
    if (err == OK) err = spawn_start(&child->pid, &spawn, error);
    os_close(out[1]);
    os_close(err_pipe[1]);
    child->out_fd = out[0];
    child->err_fd = err_pipe[0];
    return err;
}

/* Reads the present bytes of the pipe once; closes it at its end. */
static struct str read_some(int *fd, char bytes[READ_BYTES]) {
    ssize_t count = read(*fd, bytes, READ_BYTES);
    if (count > 0) return (struct str){bytes, (size_t)count};
    if (count < 0 && errno == EINTR) return (struct str){bytes, 0};
    os_close(*fd);
    *fd = -1;
    return (struct str){bytes, 0};
}

/* Keeps the newest bytes of standard error, whose last sentence is the child's error. */
static void keep_said(struct buf *said, struct str bytes) {
    if (said->bytes + bytes.bytes > CHILD_SAID_BYTES) buf_clear(said);
    buf_add_str(said, bytes);
}

/* Reads the child's output to its end; false if it is to be stopped. Its own children may keep
 * standard error open, so only the end of standard output counts. */
static bool listen_to(struct child *child, const struct child_options *options) {
    char bytes[READ_BYTES];
    while (child->out_fd >= 0) {
        if (options->stopped(options->context)) return false;
        struct pollfd fds[2] = {{.fd = child->out_fd, .events = POLLIN},
                                {.fd = child->err_fd, .events = POLLIN}};
        if (poll(fds, 2, LOOK_MS) <= 0) continue;
        if (fds[1].revents) keep_said(&child->said, read_some(&child->err_fd, bytes));
        if (!fds[0].revents) continue;
        struct str some = read_some(&child->out_fd, bytes);
        if (some.bytes > 0) options->output(options->context, some);
    }
    return true;
}

/* Reads the rest of standard error, from the end of the output to the end of the child. */
static void read_rest(struct child *child) {
    char bytes[READ_BYTES];
    struct pollfd fd = {.fd = child->err_fd, .events = POLLIN};
    while (fd.fd >= 0 && poll(&fd, 1, 0) > 0) {
        keep_said(&child->said, read_some(&child->err_fd, bytes));
        fd.fd = child->err_fd;
    }
}

static void find_sentence(const struct child *child, const char *command, const char *end,
                          char ret_text[CHILD_SENTENCE_BYTES]) {
    char text[64];
    struct str rest = buf_str(&child->said), sentence = {NULL, 0};
    snprintf(text, sizeof text, "quern %s: ", command);
    struct str mark = str_from(text);
    for (size_t at; (at = str_find(rest, mark, 0)) != SIZE_MAX; rest = sentence)
        sentence = str_skip(rest, at + mark.bytes);
    size_t line_end = sentence.at ? str_find_byte(sentence, '\n', 0) : SIZE_MAX;
    if (line_end != SIZE_MAX) sentence.bytes = line_end;
    if (sentence.bytes >= CHILD_SENTENCE_BYTES) sentence.bytes = CHILD_SENTENCE_BYTES - 1;
    if (sentence.bytes > 0)
        snprintf(ret_text, CHILD_SENTENCE_BYTES, "%.*s", STR_ARGS(sentence));
    else
        snprintf(ret_text, CHILD_SENTENCE_BYTES, "the %s %s", command, end);
}

/* Its pipes are closed, because a child that waits for room in one would never come to its end. */
static void stop(struct child *child) {
    kill(child->pid, SIGTERM);
    os_close(child->out_fd);
    os_close(child->err_fd);
    child->out_fd = child->err_fd = -1;
}

static enum err run(struct child *child, const struct child_options *options,
                    struct child_end *ret_end, struct error *error) {
    char end[96];
    bool has_ended = listen_to(child, options);
    if (!has_ended) stop(child);
    ret_end->status = -1;
    if (!spawn_end(child->pid, TERM_PATIENCE_MS, KILL_PATIENCE_MS, &ret_end->status, end,
                   sizeof end))
        snprintf(end, sizeof end, "was killed and does not end");
    if (!has_ended) return err_set(error, ERR_CANCELLED, "stopped");
    read_rest(child);
    find_sentence(child, options->command, end, ret_end->sentence);
    return OK;
}

enum err child_run(const struct child_options *options, struct child_end *ret_end,
                   struct error *error) {
    struct child child = {.out_fd = -1, .err_fd = -1};
    buf_init(&child.said, CHILD_SAID_BYTES);
    enum err err = start(&child, options, error);
    if (err == OK) err = run(&child, options, ret_end, error);
    os_close(child.out_fd);
    os_close(child.err_fd);
    buf_release(&child.said);
    return err;
}
