/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bucket.h"
#include "cli/follow.h"
#include "cli/price_options.h"

#include <inttypes.h>

struct submit_command {
    struct session_choice session;
    struct follow_choice follow;
    struct submit_wish wish;
    struct option_list metadata;
    int64_t limit;
};

#define AT(field) offsetof(struct submit_command, field)
static const struct option rows[] = {
    {"limit", OPTION_INTEGER, AT(limit), "N", .help = "submit the first N requests only", .min = 1,
     .max = 1e15},
    {"endpoint", OPTION_TEXT, AT(wish.endpoint), "PATH",
     .help = "endpoint of the batch (default: the url of the first line)"},
    {"completion-window", OPTION_TEXT, AT(wish.window), "24h",
     .help = "time that the batch may take (default 24h)"},
    {"metadata", OPTION_LIST, AT(metadata), "NAME=VALUE",
     .help = "pair to keep with the batch; may be repeated"},
    {"idempotency-key", OPTION_TEXT, AT(wish.submission), "KEY",
     .help = "key of this submission: a batch of the same key is taken, not made again"},
    {"max-cost", OPTION_NUMBER, AT(wish.cost.cost_max), "P",
     .help = "submit nothing that a preflight of the server prices higher", .max = 1e12},
    {0},
};

static enum err check(struct command_call *call, struct error *error) {
    struct submit_command *chosen = call->chosen;
    chosen->wish.metadata = chosen->metadata.values;
    chosen->wish.metadata_count = chosen->metadata.count;
    if (!call->operands[0])
        return err_set(error, ERR_INVALID, "FILE is missing; - reads standard input");
    enum err err = session_check(&chosen->session, error);
    return err == OK ? submit_check(&chosen->wish, error) : err;
}

/* Opens the input; *ret_path is the local file of an object, else empty. */
static enum err open_input(struct session *session, struct command_call *call,
                           struct requests_file *ret_input, char ret_path[PATH_MAX],
                           struct error *error) {
    const struct submit_command *chosen = call->chosen;
    const char *name = call->operands[0];
    ret_path[0] = '\0';
    if (!s3_is_place(name))
        return requests_file_open(ret_input, name, name, (uint64_t)chosen->limit, error);
    enum err err = bucket_name(name, "", chosen->follow.results.folder, ret_path, error);
    if (err == OK) err = bucket_fetch(session, name, ret_path, error);
    if (err != OK) return err;
    err = requests_file_open(ret_input, ret_path, name, (uint64_t)chosen->limit, error);
    struct error ignored;
    if (err != OK && s3_forget(ret_path, &ignored) != OK)
        session_say(session, "%s stays behind", ret_path);
    return err;
}

static enum err submit(struct session *session, struct command_call *call, struct error *error) {
    const struct submit_command *chosen = call->chosen;
    const struct results_wish *results = &chosen->follow.results;
    struct requests_file input;
    char path[PATH_MAX];
    json_t *batch;
    bool is_finished;
    /* An output that may not be written is found before anything is sent. */
    enum err err = results_show_check(session, results, "this batch", &is_finished, error);
    if (err == OK) err = open_input(session, call, &input, path, error);
    if (err != OK) return err;
    const struct submission submission = follow_submission(session);
    err = submit_make(&submission, &chosen->wish, &input, &batch, error);
    requests_file_close(&input);
    bool is_kept = err == ERR_UNAVAILABLE || err == ERR_CANCELLED; /* the same command goes on */
    struct error ignored;
    if (*path && !is_kept && s3_forget(path, &ignored) != OK)
        session_say(session, "%s stays behind", path);
    if (err != OK) return err;
    return follow_batch(session, call, &chosen->follow, chosen->session.json, batch, error);
}

static enum err run(struct command_call *call, struct error *error) {
    const struct submit_command *chosen = call->chosen;
    struct session session;
    enum err err = session_open(&session, "submit", &chosen->session, call->stop, error);
    if (err == OK) err = submit(&session, call, error);
    session_close(&session);
    return err;
}

static void set_defaults(void *context) {
    struct submit_command *chosen = context;
    session_set_defaults(&chosen->session);
    follow_set_defaults(&chosen->follow);
    prices_init(&chosen->wish.cost.prices);
}

static const struct option_table tables[] = {{rows, 0},
                                             {follow_option_rows, AT(follow)},
                                             {price_option_rows, AT(wish.cost.prices)},
                                             SESSION_TABLES(AT(session))};

const struct command cmd_submit = {
    .name = "submit",
    .summary = "send a file of requests to a server as a batch",
    .usage = "submit FILE [--watch] [-o OUT] [options]",
    .help = "Sends FILE, which may be an s3://BUCKET/KEY, to an OpenAI-compatible server, makes it "
            "a batch and prints the id of that\n"
            "batch. A lost connection makes no second batch.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct submit_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
