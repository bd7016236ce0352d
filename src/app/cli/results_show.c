/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/results_show.h"

#include "cli/result_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_to_file(const struct results_wish *wish) {
    return wish->output && strcmp(wish->output, "-") != 0;
}

static struct result_wish file_wish(struct session *session, const struct results_wish *wish,
                                    const char *batch_id) {
    return (struct result_wish){.path = wish->output,
                                .server = session->place.base_url,
                                .batch_id = batch_id,
                                .overwrite = wish->overwrite};
}

enum err results_show_check(struct session *session, const struct results_wish *wish,
                            const char *batch_id, bool *ret_is_finished, struct error *error) {
    *ret_is_finished = false;
    if (!is_to_file(wish)) return OK;
    struct result_wish file = file_wish(session, wish, batch_id);
    return result_file_check(&file, ret_is_finished, error);
}

/* --- standard output --- */

struct printed {
    uint64_t lines;
};

static enum err print_line(void *context, struct str line, enum results_kind kind,
                           struct error *error) {
    struct printed *printed = context;
    (void)kind;
    printed->lines++;
    fwrite(line.at, 1, line.bytes, stdout);
    if (putc('\n', stdout) != EOF) return OK;
    return err_set(error, ERR_IO, "cannot write to standard output");
}

static enum err print_all(struct session *session, const struct batch_object *batch,
                          uint64_t *ret_lines, struct error *error) {
    const struct results_place start = {0};
    struct printed printed = {0};
    enum err err = batch_object_is_over(batch)
                       ? results_read(session->remote, batch, &start, print_line, &printed, error)
                       : results_read_live(session->remote, batch, print_line, &printed, error);
    if (err == OK && fflush(stdout) != 0)
        err = err_set(error, ERR_IO, "cannot write to standard output");
    *ret_lines = printed.lines;
    return err;
}

/* --- a file --- */

static enum err read_ended(struct session *session, struct result_file *file,
                           const struct batch_object *batch, struct error *error) {
    struct results_place place = {0};
    uint64_t output_bytes = 0;
    enum err err = OK;
    if (file->kept_bytes > 0 && *batch->output_file_id)
        err = results_file_bytes(session->remote, batch->output_file_id, &output_bytes, error);
    if (err == OK && *batch->output_file_id && output_bytes == 0)
        err = result_file_restart(file, error);
    if (err == OK && file->kept_bytes > 0)
        err = result_file_place(file, output_bytes, &place, error);
    if (err == OK && file->kept_bytes > 0)
        session_say(session, "going on behind the %" PRIu64 " bytes that are here already",
                    file->kept_bytes);
    if (err == OK)
        err = results_read(session->remote, batch, &place, result_file_take, file, error);
    return err;
}

static enum err write_file(struct session *session, const struct results_wish *wish,
                           const struct batch_object *batch, uint64_t *ret_lines,
                           struct error *error) {
    struct result_file file;
    struct result_wish opened = file_wish(session, wish, batch->id);
    bool is_over = batch_object_is_over(batch);
    enum err err = result_file_open(&file, &opened, is_over, error);
    if (err != OK) return err;
    err = is_over ? read_ended(session, &file, batch, error)
                  : results_read_live(session->remote, batch, result_file_take, &file, error);
    *ret_lines = file.lines;
    bool was_begun = err != OK && is_over && (file.lines > 0 || file.kept_bytes > 0);
    if (err == OK) err = result_file_finish(&file, is_over, error);
    if (was_begun) session_say(session, "the same command goes on where this one ended");
    result_file_close(&file, was_begun);
    return err;
}

enum err results_show(struct session *session, const struct results_wish *wish,
                      const struct batch_object *batch, struct error *error) {
    uint64_t lines = 0;
    if (batch->state == STATE_FAILED)
        return err_set(error, ERR_INVALID,
                       "%.100s has no results: its file was refused%s%s; see quern status %.100s",
                       batch->id, batch->error_count > 0 ? ": " : "", batch->errors[0].text,
                       batch->id);
    enum err err = is_to_file(wish) ? write_file(session, wish, batch, &lines, error)
                                    : print_all(session, batch, &lines, error);
    if (err != OK) return err;
    if (!batch_object_is_over(batch))
        session_say(session,
                    "%s is %s: these are the %" PRIu64 " results of %" PRIu64 " that exist now",
                    batch->id, batch->status, lines, batch->total);
    else if (is_to_file(wish))
        session_say(session, "%s has all results of %s: %" PRIu64 " completed, %" PRIu64 " failed",
                    wish->output, batch->id, batch->completed, batch->failed);
    return OK;
}
