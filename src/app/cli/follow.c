/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/follow.h"

#include "base/printable.h"
#include "cli/batch_watch.h"

#include <stdio.h>

#define AT(field) offsetof(struct follow_choice, field)
const struct option follow_option_rows[] = {
    {"watch", OPTION_SWITCH, AT(watches), .help = "wait for the end of the batch, with progress"},
    {"seconds", OPTION_INTEGER, AT(seconds), "N",
     .help = "time between two looks of --watch (default 2 s)", .min = 1, .max = 3600},
    {"output-file", OPTION_TEXT, AT(results.output), "OUT",
     .help = "wait for the end, and write the results to OUT, or a table of them (.csv, .tsv, "
             ".parquet), or to an s3://BUCKET/KEY",
     .letter = 'o'},
    {"tmp-dir", OPTION_TEXT, AT(results.folder), "DIR",
     .help = "folder of the local file of an s3://BUCKET/KEY (default: .)"},
    {"overwrite", OPTION_SWITCH, AT(results.overwrite), .help = "replace OUT if it exists"},
    {0},
};
#undef AT

void follow_set_defaults(struct follow_choice *choice) {
    choice->seconds = 2;
}

static void say(void *context, const char *sentence) {
    session_say(context, "%s", sentence);
}

static void show_sending(void *context, uint64_t bytes, uint64_t bytes_total) {
    struct session *session = context;
    char line[96];
    snprintf(line, sizeof line, "sending: %.1f of %.1f MB", (double)bytes / 1e6,
             (double)bytes_total / 1e6);
    terminal_draw(&session->terminal, line);
}

static void clear_sending(void *context) {
    struct session *session = context;
    terminal_clear(&session->terminal);
}

struct submission follow_submission(struct session *session) {
    return (struct submission){.remote = session->remote,
                               .base_url = session->place.base_url,
                               .context = session,
                               .say = say,
                               .sending = show_sending,
                               .sent = clear_sending};
}

static enum err watch(struct session *session, struct command_call *call,
                      const struct follow_choice *choice, bool json, const char *id,
                      struct error *error) {
    struct batch_object batch;
    bool is_whole = true;
    const struct batch_watch watch = {
        .id = id, .seconds = choice->seconds, .json = json, .stop = call->stop};
    remote_set_patience_at_least(session->remote, SESSION_WATCH_S * 1000);
    enum err err = batch_watch(session, &watch, &batch, error);
    terminal_end(&session->terminal);
    if (err != OK) return err;
    if (!choice->results.output || batch.state == STATE_FAILED)
        batch_show_end(session, &batch);
    else
        err = results_show(session, &choice->results, &batch, &is_whole, error);
    call->status = batch_show_status(&batch);
    if (!is_whole && call->status == EXIT_GOOD) call->status = EXIT_FAILED;
    return err;
}

enum err follow_batch(struct session *session, struct command_call *call,
                      const struct follow_choice *choice, bool json, json_t *object,
                      struct error *error) {
    struct batch_object batch;
    enum err err = session_read_batch(object, &batch, error);
    if (err != OK) return err;
    if (json)
        session_print_json(object);
    else
        printf("%s\n", printable(batch.id).text);
    fflush(stdout);
    json_decref(object);
    if (choice->watches || choice->results.output)
        return watch(session, call, choice, json, batch.id, error);
    session_say(session, "%s is %s; quern watch %s", batch.id, batch.status, batch.id);
    return OK;
}
