/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/str.h"
#include "cli/batch_show.h"
#include "cli/follow.h"
#include "client/remote_batches.h"
#include "client/retry_lines.h"

#include <inttypes.h>

struct retry_command {
    struct session_choice session;
    struct follow_choice follow;
    const char *input;
};

#define AT(field) offsetof(struct retry_command, field)
static const struct option rows[] = {
    {"input-file", OPTION_TEXT, AT(input), "IN",
     .help = "input of the batch, for servers that no longer have it", .letter = 'i'},
    {0},
};

static enum err check(struct command_call *call, struct error *error) {
    const struct retry_command *chosen = call->chosen;
    return session_check_id(&chosen->session, call->operands[0], error);
}

/* Makes the new batch from the two files of the old one. */
static enum err retry_by_files(struct session *session, const struct batch_object *batch,
                               const char *path, json_t **ret_batch, struct error *error) {
    struct requests_file input;
    const struct submit_wish wish = {.endpoint = batch->endpoint, .window = batch->window};
    enum err err = retry_lines_make(session->remote, batch, path, &input, error);
    if (err != OK) return err;
    session_say(session, "%" PRIu64 " failed %s into a new batch", input.lines,
                plural(input.lines, "line goes", "lines go"));
    const struct submission submission = follow_submission(session);
    err = submit_make(&submission, &wish, &input, ret_batch, error);
    requests_file_close(&input);
    return err;
}

static enum err retry(struct session *session, struct command_call *call, json_t **ret_batch,
                      struct error *error) {
    const struct retry_command *chosen = call->chosen;
    struct batch_object batch;
    json_t *object;
    char submission[64];
    id_hex(submission, sizeof submission, "submit-", 32);
    enum err err = remote_batches_get(session->remote, call->operands[0], &object, error);
    if (err == OK) err = session_read_batch(object, &batch, error);
    if (err != OK) return err;
    json_decref(object);
    if (!batch_object_is_over(&batch))
        return err_set(error, ERR_CONFLICT,
                       "%.80s is %s: its failed lines are known when it has "
                       "ended; quern watch %.80s",
                       batch.id, batch.status, batch.id);
    if (batch.is_quern && !chosen->input)
        return remote_batches_retry(session->remote, batch.id, submission, ret_batch, error);
    return retry_by_files(session, &batch, chosen->input, ret_batch, error);
}

static enum err run(struct command_call *call, struct error *error) {
    const struct retry_command *chosen = call->chosen;
    struct session session;
    json_t *batch;
    bool is_finished;
    enum err err = session_open(&session, "retry", &chosen->session, call->stop, error);
    if (err == OK)
        err = results_show_check(&session, &chosen->follow.results, "the new batch", &is_finished,
                                 error);
    if (err == OK) err = retry(&session, call, &batch, error);
    if (err == OK)
        err = follow_batch(&session, call, &chosen->follow, chosen->session.json, batch, error);
    session_close(&session);
    return err;
}

static void set_defaults(void *context) {
    struct retry_command *chosen = context;
    session_set_defaults(&chosen->session);
    follow_set_defaults(&chosen->follow);
}

static const struct option_table tables[] = {
    {rows, 0}, {follow_option_rows, AT(follow)}, SESSION_TABLES(AT(session))};

const struct command cmd_retry = {
    .name = "retry",
    .summary = "run the failed lines of a batch again",
    .usage = "retry ID [-i IN] [--watch] [-o OUT] [options]",
    .help =
        "Makes a new batch of the lines of an ended batch that failed or were not run, and prints\n"
        "its id. Servers other than quern get these lines as a new file: their text comes from "
        "IN,\n"
        "or from the input file that the server still has.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct retry_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
