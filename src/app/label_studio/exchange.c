/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/exchange.h"

#include "base/str.h"
#include "base/whole_file.h"
#include "json/json.h"
#include "label_studio/events.h"
#include "label_studio/input.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#define OUTPUT_BYTES_MAX ((size_t)4 << 30)
/* Counts between two sentences. A judgement that is sent takes Label Studio ten times as long as
 * one that is read. */
#define PULLED_PER_SENTENCE 500
#define SENT_PER_SENTENCE 50

struct exchange {
    const struct exchange_wish *wish;
    struct studio *studio;
    struct link link;
    struct label_studio_input input;
    uint64_t told; /* the count of the latest sentence about judgements */
};

static void say(const struct exchange *exchange, const char *format, ...) PRINTF_LIKE(2, 3);
static void say(const struct exchange *exchange, const char *format, ...) {
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    exchange->wish->say(exchange->wish->context, text);
}

/* --- opening --- */

static void say_of_studio(void *context, const char *sentence) {
    const struct exchange *exchange = context;
    say(exchange, "Label Studio: %s", sentence);
    if (exchange->wish->has_events) label_studio_event_text("said", sentence);
}

static enum err open_exchange(struct exchange *exchange, struct error *error) {
    const struct exchange_wish *wish = exchange->wish;
    char state[PATH_MAX];
    snprintf(state, sizeof state, "label-studio-%s.jsonl", wish->batch);
    const struct studio_options options = {.url = wish->url,
                                           .token = wish->token,
                                           .certificates = wish->certificates,
                                           .patience_ms = wish->patience_ms,
                                           .stop = wish->stop,
                                           .context = exchange,
                                           .say = say_of_studio};
    enum err err = studio_open(&exchange->studio, &options, error);
    if (err != OK) return err;
    err = link_open(&exchange->link, wish->state ? wish->state : state, wish->batch, wish->url,
                    error);
    if (wish->has_events && err == ERR_CORRUPT) label_studio_event_link("damaged");
    if (wish->has_events && err == ERR_CONFLICT) label_studio_event_link("busy");
    return err;
}

static void close_exchange(struct exchange *exchange) {
    label_studio_input_close(&exchange->input);
    link_close(&exchange->link);
    studio_close(exchange->studio);
}

/* --- push --- */

static void show_tasks(void *context, int64_t project, uint64_t tasks) {
    struct exchange *exchange = context;
    say(exchange, "%" PRIu64 " %s in project %" PRId64, tasks,
        plural(tasks, "task is", "tasks are"), project);
    if (exchange->wish->has_events) label_studio_event_tasks(project, tasks);
}

static enum err push(struct exchange *exchange, struct studio_push_report *ret_report,
                     struct error *error) {
    struct label_studio_input *input = &exchange->input;
    char title[50]; /* Label Studio takes 3 to 50 characters */
    snprintf(title, sizeof title, "quern %s", exchange->wish->batch);
    const struct studio_push_wish wish = {.title =
                                              exchange->wish->title ? exchange->wish->title : title,
                                          .project = exchange->wish->project,
                                          .is_unique = exchange->wish->is_unique,
                                          .settle_ms = exchange->wish->settle_ms,
                                          .context = exchange,
                                          .progress = show_tasks};
    enum err err =
        exchange->wish->requests
            ? label_studio_input_files(input, exchange->wish->requests, exchange->wish->results,
                                       exchange->wish->result_count, error)
            : label_studio_input_fetch(input, exchange->wish->remote, exchange->wish->batch, error);
    if (err == OK)
        err = studio_push_run(exchange->studio, &exchange->link, input->pairs, &wish, ret_report,
                              error);
    if (err == OK)
        say(exchange,
            "%s/projects/%" PRId64 ": %" PRIu64 " %s pushed, %" PRIu64 " already there, %" PRIu64
            " %s without an answer",
            exchange->wish->url, exchange->link.project, ret_report->pushed,
            plural(ret_report->pushed, "task", "tasks"), ret_report->known, ret_report->unanswered,
            plural(ret_report->unanswered, "request", "requests"));
    if (err == OK && ret_report->unused > 0)
        say(exchange,
            "%" PRIu64 " %s not used: no request has the custom_id, or a later result has it",
            ret_report->unused, plural(ret_report->unused, "result was", "results were"));
    if (err == OK && ret_report->removed > 0)
        say(exchange, "%" PRIu64 " second %s removed", ret_report->removed,
            plural(ret_report->removed, "task was", "tasks were"));
    return err;
}

/* --- pull --- */

static void show(void *context, const char *sentence) {
    struct exchange *exchange = context;
    say(exchange, "conflict: %s", sentence);
    if (exchange->wish->has_events) label_studio_event_text("conflict", sentence);
}

/* Says how far the work is; its end is said by another sentence. */
static void show_count(struct exchange *exchange, uint64_t count, uint64_t step, const char *what) {
    if (count < exchange->told + step) return;
    exchange->told = count;
    say(exchange, "%" PRIu64 " judgements %s", count, what);
}

static void show_pulled(void *context, uint64_t pulled) {
    struct exchange *exchange = context;
    show_count(exchange, pulled, PULLED_PER_SENTENCE, "pulled");
    if (exchange->wish->has_events) label_studio_event_count("pulled", pulled);
}

static void write_judgement(void *context, const json_t *judgement) {
    json_write(context, judgement);
    buf_add_byte(context, '\n');
}

static enum err write_output(struct exchange *exchange, struct error *error) {
    struct buf text;
    buf_init(&text, OUTPUT_BYTES_MAX);
    enum err err = link_each_judgement(&exchange->link, write_judgement, &text, error);
    if (err == OK && text.overflowed)
        err = err_set(error, ERR_LIMIT, "the judgements are too many");
    if (err == OK)
        err = whole_file_write(exchange->wish->output, buf_str(&text), exchange->wish->overwrite,
                               error);
    buf_release(&text);
    if (err != ERR_CONFLICT) return err;
    return err_set(error, err, "%s exists with another text; name another file, or --overwrite it",
                   exchange->wish->output);
}

static enum err pull(struct exchange *exchange, struct studio_pull_report *ret_report,
                     struct error *error) {
    const struct studio_pull_wish wish = {
        .batch = exchange->wish->batch,
        .preference = exchange->wish->preference,
        .remote = exchange->wish->requests ? NULL : exchange->wish->remote,
        .judgements_path = exchange->wish->judgements,
        .context = exchange,
        .show = show,
        .progress = show_pulled};
    enum err err = studio_pull_run(exchange->studio, &exchange->link, &wish, ret_report, error);
    if (err == OK && exchange->wish->output) err = write_output(exchange, error);
    if (err == OK)
        say(exchange,
            "judgements: %" PRIu64 " pulled, %" PRIu64 " known before, %" PRIu64
            " in conflict, %" PRIu64 " held back",
            ret_report->pulled, ret_report->known, ret_report->conflicts, ret_report->held);
    return err;
}

/* Prints all judgements of the link, those of earlier commands included: the reader may have been
 * killed before it kept them. Returns the error of the work, if it has one. */
static enum err print_judgements(const struct exchange *exchange, enum err err,
                                 struct error *error) {
    struct error own;
    enum err own_err =
        link_each_judgement(&exchange->link, label_studio_event_judgement, NULL, &own);
    if (err != OK || own_err == OK) return err;
    *error = own;
    return own_err;
}

/* --- judgements of quern --- */

static void show_sent(void *context, uint64_t sent) {
    struct exchange *exchange = context;
    show_count(exchange, sent, SENT_PER_SENTENCE, "sent");
    if (exchange->wish->has_events) label_studio_event_count("sent", sent);
}

static enum err send_judgements(struct exchange *exchange, struct studio_send_report *ret_report,
                                struct error *error) {
    const struct studio_send_wish wish = {
        .batch = exchange->wish->batch,
        .remote = exchange->wish->requests ? NULL : exchange->wish->remote,
        .judgements_path = exchange->wish->judgements,
        .context = exchange,
        .progress = show_sent};
    exchange->told = 0;
    enum err err = studio_send_run(exchange->studio, &exchange->link, exchange->input.pairs, &wish,
                                   ret_report, error);
    if (err == OK && ret_report->sent + ret_report->unsent > 0)
        say(exchange, "%" PRIu64 " %s of quern sent, %" PRIu64 " without a place there",
            ret_report->sent, plural(ret_report->sent, "judgement", "judgements"),
            ret_report->unsent);
    return err;
}

/* --- all of it --- */

enum err exchange_run(const struct exchange_wish *wish, struct exchange_report *ret_report,
                      struct error *error) {
    struct exchange exchange = {.wish = wish, .link = {.fd = -1}, .input = {.requests = -1}};
    struct exchange_report report = {0};
    enum err err = open_exchange(&exchange, error);
    bool is_open = err == OK;
    if (err == OK && (wish->work & EXCHANGE_PUSH)) err = push(&exchange, &report.pushed, error);
    if (err == OK && (wish->work & EXCHANGE_PULL)) err = pull(&exchange, &report.pulled, error);
    if (err == OK && wish->work == EXCHANGE_SYNC)
        err = send_judgements(&exchange, &report.sent, error);
    if (is_open && wish->has_events) err = print_judgements(&exchange, err, error);
    report.project = exchange.link.project;
    close_exchange(&exchange);
    *ret_report = report;
    return err;
}
