/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/studio_child.h"

#include "base/child.h"
#include "base/os.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define REQUESTS_PATH "/proc/self/fd/3"
#define RESULTS_PATH "/proc/self/fd/4"
#define JUDGEMENTS_PATH "/proc/self/fd/5"
#define TOKEN_PATH "/proc/self/fd/6"
#define PATIENCE_S "60" /* longest silence of Label Studio before a job fails */
#define EVENT_BYTES_MAX ((size_t)1 << 20)

/* --- the token --- */

enum err studio_child_open(struct studio_child *ret_child, const struct studio_settings *settings,
                           const struct secret_variables *variables, struct error *error) {
    const struct secret_place place = {settings->token_file, "LABEL_STUDIO_API_KEY",
                                       "label-studio-api-key"};
    *ret_child = (struct studio_child){.url = settings->url};
    if (!settings->url)
        return settings->token_file ? err_set(error, ERR_INVALID,
                                              "--label-studio-token-file needs --label-studio-url")
                                    : OK;
    enum err err = secret_read(&ret_child->token, &place, variables, error);
    if (err != OK || ret_child->token.text) return err;
    return err_set(error, ERR_INVALID,
                   "--label-studio-url needs a token: give --label-studio-token-file");
}

void studio_child_close(struct studio_child *child) {
    secret_release(&child->token);
}

/* A file without a name that has the token, for the child alone. */
static enum err hand_over(const struct secret *token, int *ret_fd, struct error *error) {
    int fd = memfd_create("label-studio-token", MFD_CLOEXEC);
    if (fd < 0) return err_from_errno(error, errno, "cannot hand the token over");
    enum err err = fchmod(fd, 0600) == 0
                       ? os_write_all(fd, token->text, token->bytes, error)
                       : err_from_errno(error, errno, "cannot hand the token over");
    if (err == OK)
        *ret_fd = fd;
    else
        os_close(fd);
    return err;
}

/* --- events --- */

struct reading {
    const struct api_studio *studio;
    struct buf line; /* start of an event, until its LF has come */
};

static bool is_stopped(void *context) {
    const struct reading *reading = context;
    return reading->studio->stopped(reading->studio->context);
}

static void take_output(void *context, struct str bytes) {
    struct reading *reading = context;
    while (bytes.bytes > 0) {
        size_t end = str_find_byte(bytes, '\n', 0);
        size_t count = end == SIZE_MAX ? bytes.bytes : end;
        buf_add(&reading->line, bytes.at, count);
        if (end == SIZE_MAX) return;
        if (reading->line.overflowed) buf_truncate(&reading->line, 0);
        reading->studio->event(reading->studio->context, buf_str(&reading->line));
        buf_clear(&reading->line);
        bytes = str_skip(bytes, end + 1);
    }
}

/* --- the child --- */

static enum err run(const struct studio_child *self, const struct api_studio *studio, int token_fd,
                    struct error *error) {
    struct reading reading = {.studio = studio};
    struct child_end end;
    const char *const arguments[] = {"quern",
                                     "label-studio",
                                     studio->action,
                                     studio->batch_id,
                                     "--input-file",
                                     REQUESTS_PATH,
                                     "--results-file",
                                     RESULTS_PATH,
                                     "--judgements-file",
                                     JUDGEMENTS_PATH,
                                     "--label-studio-url",
                                     self->url,
                                     "--label-studio-token-file",
                                     TOKEN_PATH,
                                     "--state",
                                     studio->link,
                                     "--same-project",
                                     "--events",
                                     "--end-with-parent",
                                     "--retry-seconds",
                                     PATIENCE_S,
                                     NULL};
    const struct child_options options = {
        .command = "label-studio",
        .arguments = arguments,
        .fds = {studio->requests_fd, studio->results_fd, studio->judgements_fd, token_fd},
        .fd_count = 4,
        .context = &reading,
        .stopped = is_stopped,
        .output = take_output};
    buf_init(&reading.line, EVENT_BYTES_MAX);
    enum err err = child_run(&options, &end, error);
    buf_release(&reading.line);
    if (err != OK || end.status == 0) return err;
    return err_set(error, ERR_INVALID, "%s", end.sentence);
}

enum err studio_child_run(void *context, const struct api_studio *studio, struct error *error) {
    const struct studio_child *self = context;
    int token_fd = -1;
    enum err err = hand_over(&self->token, &token_fd, error);
    if (err != OK) return err;
    err = run(self, studio, token_fd, error);
    os_close(token_fd);
    return err;
}
