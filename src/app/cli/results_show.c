/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/results_show.h"

#include "cli/bucket.h"
#include "cli/result_check.h"
#include "cli/result_file.h"
#include "cli/results_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_to_file(const struct results_wish *wish) {
    return wish->output && strcmp(wish->output, "-") != 0;
}

static bool is_to_object(const struct results_wish *wish) {
    return wish->output && s3_is_place(wish->output);
}

enum table_kind results_show_table(const struct results_wish *wish) {
    enum table_kind kind = is_to_file(wish) ? table_kind_of(wish->output) : TABLE_NONE;
    if (wish->csv || wish->tsv) return wish->csv ? TABLE_CSV : TABLE_TSV;
    return kind == TABLE_JSONL ? TABLE_NONE : kind;
}

static struct table_file table_wish(const struct results_wish *wish) {
    enum table_kind kind = results_show_table(wish);
    return (struct table_file){.path = is_to_file(wish) ? wish->output : NULL,
                               .overwrite = wish->overwrite,
                               .schema = wish->schema,
                               .form = {.kind = kind,
                                        .csv = {table_separator(kind), wish->is_excel_safe},
                                        .has_tokens = wish->has_tokens}};
}

static struct result_wish file_wish(struct session *session, const struct results_wish *wish,
                                    const char *batch_id) {
    return (struct result_wish){.path = wish->output,
                                .server = session->place.base_url,
                                .batch_id = batch_id,
                                .overwrite = wish->overwrite};
}

/* The local file of an object, known by the batch and its server. */
static enum err name_object(const struct session *session, const struct results_wish *wish,
                            const char *batch_id, char ret_path[PATH_MAX], struct error *error) {
    struct buf rest;
    buf_init(&rest, BUF_UNLIMITED);
    buf_printf(&rest, "%s %s", session->place.base_url, batch_id);
    enum err err = bucket_name(wish->output, rest.at, wish->folder, ret_path, error);
    buf_release(&rest);
    return err;
}

static enum err check_object(struct session *session, const struct results_wish *wish,
                             const char *batch_id, struct error *error) {
    char path[PATH_MAX];
    enum err err = name_object(session, wish, batch_id, path, error);
    if (err != OK) return err;
    if (results_show_table(wish) != TABLE_NONE)
        return err_set(
            error, ERR_INVALID,
            "%.200s: a table of results goes to a file; in object storage they are lines",
            wish->output);
    /* A file of an earlier call belongs to an object that was checked, and may be there by now. */
    bool has_begun = access(path, F_OK) == 0;
    return bucket_check(session, wish->output, wish->overwrite || has_begun, error);
}

enum err results_show_check(struct session *session, const struct results_wish *wish,
                            const char *batch_id, bool *ret_is_finished, struct error *error) {
    struct table_file table = table_wish(wish);
    *ret_is_finished = false;
    if (is_to_object(wish)) return check_object(session, wish, batch_id, error);
    if (table.form.kind != TABLE_NONE) return table_file_check(&table, error);
    if (!is_to_file(wish)) return OK;
    struct result_wish file = file_wish(session, wish, batch_id);
    return result_file_check(&file, ret_is_finished, error);
}

/* --- standard output --- */

static enum err print_line(void *context, struct str line, enum results_kind kind,
                           struct error *error) {
    (void)kind;
    result_check_add(context, line);
    fwrite(line.at, 1, line.bytes, stdout);
    if (putc('\n', stdout) != EOF) return OK;
    return err_set(error, ERR_IO, "cannot write to standard output");
}

static enum err print_all(struct session *session, const struct batch_object *batch,
                          struct result_check *check, struct error *error) {
    const struct results_place start = {0};
    enum err err = batch_object_is_over(batch)
                       ? results_read(session->remote, batch, &start, print_line, check, error)
                       : results_read_live(session->remote, batch, print_line, check, error);
    if (err == OK && fflush(stdout) != 0)
        err = err_set(error, ERR_IO, "cannot write to standard output");
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
        session_say(session, "going on after the %" PRIu64 " bytes that are here already",
                    file->kept_bytes);
    if (err == OK)
        err = results_read(session->remote, batch, &place, result_file_take, file, error);
    return err;
}

static enum err write_file(struct session *session, const struct results_wish *wish,
                           const struct batch_object *batch, struct result_check *check,
                           bool *ret_is_whole, struct error *error) {
    struct result_file file;
    struct result_wish opened = file_wish(session, wish, batch->id);
    bool is_over = batch_object_is_over(batch);
    enum err err = result_file_open(&file, &opened, is_over, error);
    if (err != OK) return err;
    err = is_over ? read_ended(session, &file, batch, error)
                  : results_read_live(session->remote, batch, result_file_take, &file, error);
    /* Bytes that are not those of the server's sum are no beginning. */
    bool was_begun =
        err != OK && err != ERR_CORRUPT && is_over && (file.lines > 0 || file.kept_bytes > 0);
    if (err == OK) err = result_file_flush(&file, error);
    if (err == OK) err = result_check_add_file(check, file.fd, error);
    if (err == OK && is_over) *ret_is_whole = result_check_say(check, session, batch);
    /* A file without all results has no mark, so that a later call fetches it anew. */
    if (err == OK) err = result_file_finish(&file, is_over && *ret_is_whole, error);
    if (was_begun) session_say(session, "the same command goes on where this one ended");
    result_file_close(&file, was_begun);
    return err;
}

static enum err show_lines(struct session *session, const struct results_wish *wish,
                           const struct batch_object *batch, bool *ret_is_whole,
                           struct error *error) {
    struct result_check check;
    result_check_init(&check);
    enum err err = is_to_file(wish) ? write_file(session, wish, batch, &check, ret_is_whole, error)
                                    : print_all(session, batch, &check, error);
    bool is_over = batch_object_is_over(batch);
    if (err == OK && !is_over)
        session_say(session,
                    "%s is %s: these are the %" PRIu64 " results of %" PRIu64 " that exist now",
                    batch->id, batch->status, check.lines, batch->total);
    else if (err == OK && !is_to_file(wish))
        *ret_is_whole = result_check_say(&check, session, batch);
    else if (err == OK && *ret_is_whole)
        session_say(session, "%s has all results of %s: %" PRIu64 " completed, %" PRIu64 " failed",
                    wish->output, batch->id, batch->completed, batch->failed);
    result_check_release(&check);
    return err;
}

/* Brings the results to a local file, and sends that. A call after a break goes on with what it
 * finds of both. */
static enum err show_object(struct session *session, const struct results_wish *wish,
                            const struct batch_object *batch, bool *ret_is_whole,
                            struct error *error) {
    char path[PATH_MAX];
    bool is_finished = false;
    struct error ignored;
    struct results_wish local = *wish;
    enum err err = name_object(session, wish, batch->id, path, error);
    if (err != OK) return err;
    local.output = path;
    local.overwrite = false;
    struct result_wish file = file_wish(session, &local, batch->id);
    if (result_file_check(&file, &is_finished, &ignored) != OK) is_finished = false;
    local.overwrite = true; /* it is this batch's, from an earlier call */
    if (!is_finished) err = show_lines(session, &local, batch, ret_is_whole, error);
    if (err == OK) {
        err = bucket_send(session, wish->output, path, error);
        if (err != OK)
            session_say(session, "the results are in %s; quern results %s -o %s sends them", path,
                        batch->id, wish->output);
    }
    if (err == OK) err = s3_forget(path, error);
    if (err == OK) session_say(session, "sent to %s", wish->output);
    return err;
}

enum err results_show(struct session *session, const struct results_wish *wish,
                      const struct batch_object *batch, bool *ret_is_whole, struct error *error) {
    struct table_file table = table_wish(wish);
    *ret_is_whole = true;
    if (table.form.kind != TABLE_NONE && !is_to_object(wish))
        return results_table(session, &table, batch, ret_is_whole, error);
    if (batch->state == STATE_FAILED)
        return err_set(error, ERR_INVALID,
                       "%.100s has no results: its file was refused%s%s; see quern status %.100s",
                       batch->id, batch->error_count > 0 ? ": " : "", batch->errors[0].text,
                       batch->id);
    if (is_to_object(wish)) return show_object(session, wish, batch, ret_is_whole, error);
    return show_lines(session, wish, batch, ret_is_whole, error);
}
