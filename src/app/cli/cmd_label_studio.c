/* SPDX-License-Identifier: Apache-2.0 */
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/label_studio_events.h"
#include "cli/label_studio_input.h"
#include "cli/stop.h"
#include "json/json.h"
#include "label_studio/studio_pull.h"
#include "label_studio/studio_push.h"
#include "label_studio/studio_send.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_BYTES_MAX ((size_t)4 << 30)

struct chosen {
    struct session_choice session;
    const char *url, *token_file, *state, *title, *requests, *judgements, *output, *preference;
    struct option_list results;
    int64_t project, settle_s;
    bool overwrite, is_unique, has_events, ends_with_parent;
};

#define AT(field) offsetof(struct chosen, field)
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

enum work { WORK_PUSH = 1, WORK_PULL = 2, WORK_SYNC = WORK_PUSH | WORK_PULL };

static enum work read_work(const char *word) {
    if (!word) return 0;
    if (strcmp(word, "push") == 0) return WORK_PUSH;
    if (strcmp(word, "pull") == 0) return WORK_PULL;
    return strcmp(word, "sync") == 0 ? WORK_SYNC : 0;
}

static enum err read_preference(const struct chosen *chosen,
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

static enum err find_url(const struct chosen *chosen, char ret_url[REMOTE_URL_BYTES],
                         struct error *error) {
    const char *text = chosen->url ? chosen->url : getenv("LABEL_STUDIO_URL");
    const char *origin = chosen->url ? "--label-studio-url" : "LABEL_STUDIO_URL";
    if (!text || !*text)
        return err_set(error, ERR_INVALID, "--label-studio-url or LABEL_STUDIO_URL is missing");
    return remote_place_read_root(text, origin, ret_url, error);
}

static enum err check(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    enum studio_pull_preference preference;
    bool exists;
    char url[REMOTE_URL_BYTES];
    if (read_work(call->operands[0]) == 0)
        return err_set(error, ERR_INVALID, "say push, pull or sync, and the ID of a batch");
    if ((chosen->requests != NULL) != (chosen->results.count > 0))
        return err_set(error, ERR_INVALID, "--input-file and --results-file belong together");
    if (chosen->judgements && !chosen->requests)
        return err_set(error, ERR_INVALID, "--judgements-file goes with --input-file");
    enum err err = session_check_id(&chosen->session, call->operands[1], error);
    if (err == OK) err = read_preference(chosen, &preference, error);
    if (err == OK && chosen->output) err = whole_file_check(chosen->output, &exists, error);
    return err == OK ? find_url(chosen, url, error) : err;
}

/* --- opening --- */

struct work_place {
    struct session session;
    bool has_session, has_events;
    char url[REMOTE_URL_BYTES];
    struct secret token;
    struct studio *studio;
    struct link link;
    struct label_studio_input input;
};

/* The counts of the command. */
struct report {
    struct studio_push_report pushed;
    struct studio_pull_report pulled;
    struct studio_send_report sent;
};

static void say(void *context, const char *sentence) {
    struct work_place *place = context;
    session_say(&place->session, "Label Studio: %s", sentence);
    if (place->has_events) label_studio_event_text("said", sentence);
}

static enum err read_token(const struct chosen *chosen, struct secret *ret_token,
                           struct error *error) {
    const struct secret_variables none = {0};
    enum err err = secret_read(ret_token,
                               &(struct secret_place){.path = chosen->token_file,
                                                      .variable = "LABEL_STUDIO_API_KEY",
                                                      .credential = "label-studio-api-key"},
                               &none, error);
    if (err == OK) err = remote_place_trim_key(ret_token, error);
    if (err == OK && !ret_token->text)
        err = err_set(error, ERR_DENIED,
                      "no token: it goes into LABEL_STUDIO_API_KEY or --label-studio-token-file");
    return err;
}

static enum err open_place(struct work_place *place, const struct command_call *call,
                           struct error *error) {
    const struct chosen *chosen = call->chosen;
    const char *id = call->operands[1];
    char state[PATH_MAX];
    snprintf(state, sizeof state, "label-studio-%s.jsonl", id);
    enum err err =
        session_open(&place->session, "label-studio", &chosen->session, call->stop, error);
    place->has_session = true;
    place->has_events = chosen->has_events;
    if (err == OK) err = find_url(chosen, place->url, error);
    if (err == OK) err = read_token(chosen, &place->token, error);
    if (err != OK) return err;
    const struct studio_options options = {.url = place->url,
                                           .token = place->token.text,
                                           .certificates = chosen->session.remote.ca_file,
                                           .patience_ms = chosen->session.retry_seconds * 1000,
                                           .stop = call->stop,
                                           .context = place,
                                           .say = say};
    err = studio_open(&place->studio, &options, error);
    if (err != OK) return err;
    err = link_open(&place->link, chosen->state ? chosen->state : state, id, place->url, error);
    if (place->has_events && err == ERR_CORRUPT) label_studio_event_link("damaged");
    if (place->has_events && err == ERR_CONFLICT) label_studio_event_link("busy");
    return err;
}

static void close_place(struct work_place *place) {
    label_studio_input_close(&place->input);
    link_close(&place->link);
    studio_close(place->studio);
    secret_release(&place->token);
    if (place->has_session) session_close(&place->session);
}

/* --- push --- */

static void show_tasks(void *context, int64_t project, uint64_t tasks) {
    struct work_place *place = context;
    session_say(&place->session, "%" PRIu64 " tasks are in project %" PRId64, tasks, project);
    if (place->has_events) label_studio_event_tasks(project, tasks);
}

static enum err push(struct work_place *place, const struct command_call *call,
                     struct studio_push_report *ret_report, struct error *error) {
    const struct chosen *chosen = call->chosen;
    const char *id = call->operands[1];
    struct label_studio_input *input = &place->input;
    char title[50]; /* Label Studio takes 3 to 50 characters */
    snprintf(title, sizeof title, "quern %s", id);
    const struct studio_push_wish wish = {.title = chosen->title ? chosen->title : title,
                                          .project = chosen->project,
                                          .is_unique = chosen->is_unique,
                                          .settle_ms = chosen->settle_s * 1000,
                                          .context = place,
                                          .progress = show_tasks};
    enum err err = chosen->requests
                       ? label_studio_input_files(input, chosen->requests, &chosen->results, error)
                       : label_studio_input_fetch(input, &place->session, id, error);
    if (err == OK)
        err = studio_push_run(place->studio, &place->link, input->pairs, &wish, ret_report, error);
    if (err == OK)
        session_say(&place->session,
                    "project %" PRId64 " of %s: %" PRIu64 " tasks pushed, %" PRIu64
                    " were there, %" PRIu64 " requests without an answer",
                    place->link.project, place->url, ret_report->pushed, ret_report->known,
                    ret_report->unanswered);
    if (err == OK && ret_report->unused > 0)
        session_say(&place->session,
                    "%" PRIu64 " results are no tasks: no request has their custom_id, or a later "
                    "result has it",
                    ret_report->unused);
    if (err == OK && ret_report->removed > 0)
        session_say(&place->session, "%" PRIu64 " second tasks were removed", ret_report->removed);
    return err;
}

/* --- pull --- */

static void show(void *context, const char *sentence) {
    struct work_place *place = context;
    session_say(&place->session, "conflict: %s", sentence);
    if (place->has_events) label_studio_event_text("conflict", sentence);
}

static void show_pulled(void *context, uint64_t pulled) {
    const struct work_place *place = context;
    if (place->has_events) label_studio_event_count("pulled", pulled);
}

static void write_judgement(void *context, const json_t *judgement) {
    json_write(context, judgement);
    buf_add_byte(context, '\n');
}

static enum err write_output(struct work_place *place, const struct chosen *chosen,
                             struct error *error) {
    struct buf text;
    buf_init(&text, OUTPUT_BYTES_MAX);
    enum err err = link_each_judgement(&place->link, write_judgement, &text, error);
    if (err == OK && text.overflowed)
        err = err_set(error, ERR_LIMIT, "the judgements are too many");
    if (err == OK) err = whole_file_write(chosen->output, buf_str(&text), chosen->overwrite, error);
    buf_release(&text);
    if (err != ERR_CONFLICT) return err;
    return err_set(error, err, "%s exists with another text; name another file, or --overwrite it",
                   chosen->output);
}

static enum err pull(struct work_place *place, const struct command_call *call,
                     struct studio_pull_report *ret_report, struct error *error) {
    const struct chosen *chosen = call->chosen;
    struct studio_pull_wish wish = {.batch = call->operands[1],
                                    .remote = chosen->requests ? NULL : place->session.remote,
                                    .judgements_path = chosen->judgements,
                                    .context = place,
                                    .show = show,
                                    .progress = show_pulled};
    enum err err = read_preference(chosen, &wish.preference, error);
    if (err == OK) err = studio_pull_run(place->studio, &place->link, &wish, ret_report, error);
    if (err == OK && chosen->output) err = write_output(place, chosen, error);
    if (err == OK)
        session_say(&place->session,
                    "%" PRIu64 " judgements pulled, %" PRIu64 " known before, %" PRIu64
                    " conflicts, %" PRIu64 " held back",
                    ret_report->pulled, ret_report->known, ret_report->conflicts, ret_report->held);
    return err;
}

/* Prints all judgements of the link, those of earlier commands included: the reader may have been
 * killed before it kept them. Returns the error of the work, if it has one. */
static enum err print_judgements(const struct work_place *place, enum err err,
                                 struct error *error) {
    struct error own;
    enum err own_err = link_each_judgement(&place->link, label_studio_event_judgement, NULL, &own);
    if (err != OK || own_err == OK) return err;
    *error = own;
    return own_err;
}

/* --- judgements of quern --- */

static void show_sent(void *context, uint64_t sent) {
    const struct work_place *place = context;
    if (place->has_events) label_studio_event_count("sent", sent);
}

static enum err send_judgements(struct work_place *place, const struct command_call *call,
                                struct studio_send_report *ret_report, struct error *error) {
    const struct chosen *chosen = call->chosen;
    const struct studio_send_wish wish = {.batch = call->operands[1],
                                          .remote = chosen->requests ? NULL : place->session.remote,
                                          .judgements_path = chosen->judgements,
                                          .context = place,
                                          .progress = show_sent};
    enum err err =
        studio_send_run(place->studio, &place->link, place->input.pairs, &wish, ret_report, error);
    if (err == OK && ret_report->sent + ret_report->unsent > 0)
        session_say(&place->session,
                    "%" PRIu64 " judgements of quern sent, %" PRIu64 " have no place there",
                    ret_report->sent, ret_report->unsent);
    return err;
}

/* --- the command --- */

static void print_report(const struct work_place *place, const struct report *report) {
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
    json_object_set_new(object, "project", json_integer(place->link.project));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_object_set_new(object, figures[i].name, json_integer((json_int_t)figures[i].value));
    session_print_json(object);
    json_decref(object);
}

static enum err run(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    enum work work = read_work(call->operands[0]);
    struct work_place place = {.link = {.fd = -1}, .input = {.requests = -1}};
    struct report report = {0};
    if (chosen->ends_with_parent) stop_with_parent();
    enum err err = open_place(&place, call, error);
    bool is_open = err == OK;
    if (err == OK && (work & WORK_PUSH)) err = push(&place, call, &report.pushed, error);
    if (err == OK && (work & WORK_PULL)) err = pull(&place, call, &report.pulled, error);
    if (err == OK && work == WORK_SYNC) err = send_judgements(&place, call, &report.sent, error);
    if (is_open && chosen->has_events) err = print_judgements(&place, err, error);
    if (err == OK && (chosen->session.json || chosen->has_events)) print_report(&place, &report);
    close_place(&place);
    return err;
}

static void set_defaults(void *context) {
    struct chosen *chosen = context;
    session_set_defaults(&chosen->session);
    chosen->settle_s = STUDIO_PUSH_SETTLE_MS / 1000;
}

static const struct option_table tables[] = {{rows, 0}, SESSION_TABLES(AT(session))};

const struct command cmd_label_studio = {
    .name = "label-studio",
    .summary = "bring answers to Label Studio, and annotations back",
    .usage = "label-studio push|pull|sync ID [options]",
    .help =
        "push makes each answer of a batch a task of a Label Studio project, with the answer as\n"
        "its prediction. pull makes each annotation a judgement of the batch. sync does both, and\n"
        "sends the judgements made on quern as annotations.\n"
        "After a break the same command goes on; no task and no judgement is made twice.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct chosen),
    .operands_max = 2,
    .words = "push|pull|sync",
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
