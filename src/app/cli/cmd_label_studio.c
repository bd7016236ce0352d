/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/session.h"
#include "cli/stop.h"
#include "cli/studio_source.h"
#include "label_studio/exchange.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct label_studio_command {
    struct session_choice session;
    const char *url, *token_file, *state, *title, *requests, *judgements, *output, *preference;
    const char *id_field;
    struct option_list results;
    int64_t project, settle_s;
    bool overwrite, is_unique, has_events, ends_with_parent;
};

#define AT(field) offsetof(struct label_studio_command, field)
static const struct option rows[] = {
    {"label-studio-url", OPTION_TEXT, AT(url), "URL",
     .help = "Label Studio to talk to (default: LABEL_STUDIO_URL)"},
    {"label-studio-token-file", OPTION_TEXT, AT(token_file), "F",
     .help = "file of its token, legacy or personal (default: LABEL_STUDIO_API_KEY_FILE, else "
             "LABEL_STUDIO_API_KEY)"},
    {"state", OPTION_TEXT, AT(state), "FILE",
     .help = "file that ties the batch to its project (default: label-studio-ID.jsonl)"},
    {"project", OPTION_INTEGER, AT(project), "N",
     .help = "number of an existing project (default: a new one)", .min = 1, .max = 1e15},
    {"title", OPTION_TEXT, AT(title), "TEXT", .help = "title of a new project (default: quern ID)"},
    {"input-file", OPTION_TEXT, AT(requests), "IN",
     .help = "file of the requests, in place of a server's", .letter = 'i'},
    {"results-file", OPTION_LIST, AT(results), "F",
     .help = "file of their results; may be repeated"},
    {"judgements-file", OPTION_TEXT, AT(judgements), "F",
     .help = "file of quern's judgements of them, one JSON per line, to show conflicts"},
    {"output-file", OPTION_TEXT, AT(output), "OUT",
     .help = "file of all judgements that were pulled, one JSON per line", .letter = 'o'},
    {"id-field", OPTION_TEXT, AT(id_field), "NAME",
     .help = "with import: member of the tasks' data that has the custom_id (default: meta's, else "
             "custom_id)"},
    {"overwrite", OPTION_SWITCH, AT(overwrite), .help = "replace OUT if it exists"},
    {"prefer", OPTION_TEXT, AT(preference), "WHO",
     .help = "in a conflict: both (keep and show), quern (hold the annotation back), label-studio "
             "(keep without a word) (default both)",
     .words = "both|quern|label-studio"},
    {"settle-seconds", OPTION_INTEGER, AT(settle_s), "N",
     .help = "time after which tasks whose import had no answer are sent again (default 30 s)",
     .max = 86400},
    {"same-project", OPTION_SWITCH, AT(is_unique),
     .help = "no other batch has this ID: find the project of an earlier push by it, and make a "
             "new project if that one is gone"},
    {"events", OPTION_SWITCH, AT(has_events),
     .help = "print each event on standard output, one JSON per line, for programs"},
    {"end-with-parent", OPTION_SWITCH, AT(ends_with_parent),
     .help = "end when the process that started the command ends"},
    {0},
};

static enum exchange_work read_work(const char *word) {
    if (!word) return 0;
    if (strcmp(word, "push") == 0) return EXCHANGE_PUSH;
    if (strcmp(word, "pull") == 0) return EXCHANGE_PULL;
    return strcmp(word, "sync") == 0 ? EXCHANGE_SYNC : 0;
}

static enum err read_preference(const struct label_studio_command *chosen,
                                enum studio_pull_preference *ret_preference, struct error *error) {
    static const char *const words[] = {"both", "quern", "label-studio"};
    *ret_preference = STUDIO_PULL_BOTH;
    if (!chosen->preference) return OK;
    for (int i = 0; i < 3; i++)
        if (strcmp(chosen->preference, words[i]) == 0) {
            *ret_preference = (enum studio_pull_preference)i;
            return OK;
        }
    return err_set(error, ERR_INVALID, "--prefer is both, quern or label-studio");
}

static bool is_import(const struct command_call *call) {
    return call->operands[0] && strcmp(call->operands[0], "import") == 0;
}

static enum err check_import(const struct command_call *call, struct error *error) {
    const struct label_studio_command *chosen = call->chosen;
    int64_t project = 0;
    bool exists;
    char url[REMOTE_URL_BYTES];
    if (!str_to_i64(str_from(call->operands[1]), &project) || project < 1)
        return err_set(error, ERR_INVALID, "import: say the number of a project");
    if (!chosen->output) return err_set(error, ERR_INVALID, "import: --output-file OUT is missing");
    enum err err = session_check(&chosen->session, error);
    if (err == OK) err = whole_file_check(chosen->output, &exists, error);
    return err == OK ? studio_source_url(chosen->url, url, error) : err;
}

static enum err check(struct command_call *call, struct error *error) {
    const struct label_studio_command *chosen = call->chosen;
    enum studio_pull_preference preference;
    bool exists;
    char url[REMOTE_URL_BYTES];
    if (is_import(call)) return check_import(call, error);
    if (chosen->id_field) return err_set(error, ERR_INVALID, "--id-field goes with import");
    if (read_work(call->operands[0]) == 0)
        return err_set(error, ERR_INVALID,
                       "say push, pull or sync, and the ID of a batch; or import, and the number "
                       "of a project");
    if ((chosen->requests != NULL) != (chosen->results.count > 0))
        return err_set(error, ERR_INVALID, "--input-file and --results-file belong together");
    if (chosen->judgements && !chosen->requests)
        return err_set(error, ERR_INVALID, "--judgements-file goes with --input-file");
    enum err err = session_check_id(&chosen->session, call->operands[1], error);
    if (err == OK) err = read_preference(chosen, &preference, error);
    if (err == OK && chosen->output) err = whole_file_check(chosen->output, &exists, error);
    return err == OK ? studio_source_url(chosen->url, url, error) : err;
}

static void print_report(const struct exchange_report *report) {
    const struct studio_push_report *pushed = &report->pushed;
    const struct studio_pull_report *pulled = &report->pulled;
    json_t *object = json_object();
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {{"pushed", pushed->pushed},         {"known_tasks", pushed->known},
                   {"unanswered", pushed->unanswered}, {"unused_results", pushed->unused},
                   {"found", pushed->found},           {"removed", pushed->removed},
                   {"pulled", pulled->pulled},         {"known_judgements", pulled->known},
                   {"conflicts", pulled->conflicts},   {"held", pulled->held},
                   {"sent", report->sent.sent}};
    json_object_set_new(object, "project", json_integer(report->project));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_object_set_new(object, figures[i].name, json_integer((json_int_t)figures[i].value));
    session_print_json(object);
    json_decref(object);
}

static void say(void *context, const char *sentence) {
    session_say(context, "%s", sentence);
}

static enum err exchange(struct session *session, const struct command_call *call, const char *url,
                         const char *token, struct error *error) {
    const struct label_studio_command *chosen = call->chosen;
    struct exchange_report report;
    struct exchange_wish wish = {.batch = call->operands[1],
                                 .work = read_work(call->operands[0]),
                                 .remote = session->remote,
                                 .url = url,
                                 .token = token,
                                 .certificates = chosen->session.remote.ca_file,
                                 .patience_ms = chosen->session.retry_seconds * 1000,
                                 .stop = call->stop,
                                 .state = chosen->state,
                                 .requests = chosen->requests,
                                 .results = chosen->results.values,
                                 .result_count = chosen->results.count,
                                 .judgements = chosen->judgements,
                                 .output = chosen->output,
                                 .overwrite = chosen->overwrite,
                                 .title = chosen->title,
                                 .project = chosen->project,
                                 .is_unique = chosen->is_unique,
                                 .settle_ms = chosen->settle_s * 1000,
                                 .has_events = chosen->has_events,
                                 .context = session,
                                 .say = say};
    enum err err = read_preference(chosen, &wish.preference, error);
    if (err == OK) err = exchange_run(&wish, &report, error);
    if (err == OK && (chosen->session.json || chosen->has_events)) print_report(&report);
    return err;
}

static void print_history(const struct history_report *report) {
    json_t *object = json_object();
    json_object_set_new(object, "tasks", json_integer((json_int_t)report->tasks));
    json_object_set_new(object, "annotations", json_integer((json_int_t)report->annotations));
    json_object_set_new(object, "skipped", json_integer((json_int_t)report->skipped));
    json_object_set_new(object, "left_out", json_integer((json_int_t)report->left_out));
    json_object_set_new(object, "without_custom_id", json_integer((json_int_t)report->unnamed));
    session_print_json(object);
    json_decref(object);
}

/* The annotations of a project that quern did not make, as judgements in a file. */
static enum err import(struct session *session, const struct command_call *call, const char *url,
                       const char *token, struct error *error) {
    const struct label_studio_command *chosen = call->chosen;
    struct history_wish wish = {.id_field = chosen->id_field};
    struct history_report report;
    struct buf out;
    const struct studio_options options = {.url = url,
                                           .token = token,
                                           .certificates = chosen->session.remote.ca_file,
                                           .patience_ms = chosen->session.retry_seconds * 1000,
                                           .stop = call->stop,
                                           .context = session,
                                           .say = say};
    (void)str_to_i64(str_from(call->operands[1]), &wish.project); /* checked */
    buf_init(&out, (size_t)4 << 30);
    enum err err = studio_source_read(&options, &wish, &out, &report, error);
    if (err == OK) err = whole_file_write(chosen->output, buf_str(&out), chosen->overwrite, error);
    buf_release(&out);
    if (err != OK) return err;
    session_say(session,
                "project %s: %" PRIu64 " %s of %" PRIu64 " %s; %" PRIu64
                " values of regions left out, %" PRIu64 " tasks without a custom_id",
                call->operands[1], report.annotations,
                plural(report.annotations, "annotation", "annotations"), report.tasks,
                plural(report.tasks, "task", "tasks"), report.left_out, report.unnamed);
    if (chosen->session.json) print_history(&report);
    return OK;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct label_studio_command *chosen = call->chosen;
    struct session session;
    struct secret token = {0};
    char url[REMOTE_URL_BYTES];
    if (chosen->ends_with_parent) stop_with_parent();
    enum err err = session_open(&session, "label-studio", &chosen->session, call->stop, error);
    if (err == OK) err = studio_source_url(chosen->url, url, error);
    if (err == OK) err = studio_source_token(chosen->token_file, &token, error);
    if (err == OK)
        err = is_import(call) ? import(&session, call, url, token.text, error)
                              : exchange(&session, call, url, token.text, error);
    secret_release(&token);
    session_close(&session);
    return err;
}

static void set_defaults(void *context) {
    struct label_studio_command *chosen = context;
    session_set_defaults(&chosen->session);
    chosen->settle_s = STUDIO_PUSH_SETTLE_MS / 1000;
}

static const struct option_table tables[] = {{rows, 0}, SESSION_TABLES(AT(session))};

const struct command cmd_label_studio = {
    .name = "label-studio",
    .summary = "bring answers to Label Studio, and annotations back",
    .usage = "label-studio push|pull|sync ID [options], label-studio import PROJECT -o OUT",
    .help =
        "push makes each answer of a batch a task of a Label Studio project, with the answer as\n"
        "its prediction. pull makes each annotation a judgement of the batch. sync does both, and\n"
        "sends the judgements made on quern as annotations.\n"
        "import writes the annotations of any project as judgements, for quern evaluate.\n"
        "After a break the same command goes on; no task and no judgement is made twice.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct label_studio_command),
    .operands_max = 2,
    .words = "push|pull|sync|import",
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
