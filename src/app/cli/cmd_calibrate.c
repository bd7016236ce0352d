/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/os.h"
#include "base/os_pipe.h"
#include "base/printable.h"
#include "base/str.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/labelled_decisions.h"
#include "cli/run_show.h"

#include "decisions/json_text.h"
#include "json/json.h"
#include "server/offline.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* With fewer cases the temperature of a question is a guess. */
#define CASES_FEW 50

struct calibrate_command {
    struct engine_choice choice;
    struct offline_options offline;
    const char *answers, *output;
    char answers_usual[PATH_MAX];
    bool json, overwrite;
};

static const struct option rows[] = {
    {"model", OPTION_LIST, offsetof(struct calibrate_command, choice.models), "[ALIAS=]M",
     .help = "model to ask first: a name, FILE.gguf or a folder; without it, FILE of --answers has "
             "the answers of an earlier run",
     .letter = 'm'},
    {"answers", OPTION_TEXT, offsetof(struct calibrate_command, answers), "FILE",
     .help = "results of the labelled lines (default LABELLED with .answers after its name)"},
    {"output-file", OPTION_TEXT, offsetof(struct calibrate_command, output), "FILE",
     .help = "file for the temperatures, as members of a request's body", .letter = 'o'},
    {"overwrite", OPTION_SWITCH, offsetof(struct calibrate_command, overwrite),
     .help = "replace the file of temperatures if it exists with others", .only_flag = true},
    {"json", OPTION_SWITCH, offsetof(struct calibrate_command, json),
     .help = "print figures and temperatures as one JSON object"},
    {0},
};

/* One question with its figures. */
struct fitted {
    const struct labelled_question *question;
    double temperature;
    struct calibration_figures before, after;
};

static struct fitted fit(const struct labelled_question *question) {
    struct fitted fitted = {.question = question, .temperature = calibration_fit(&question->set)};
    fitted.before = calibration_measure(&question->set, 1);
    fitted.after = calibration_measure(&question->set, fitted.temperature);
    return fitted;
}

static void print_row(const struct fitted *is) {
    bool is_bound = is->temperature <= CALIBRATION_LEAST || is->temperature >= CALIBRATION_MOST;
    printf("%-24.24s %6zu %9.3f %9.3f %9.4f %7.4f %8.4f %7.4f%s%s\n",
           printable(is->question->name).text, is->question->set.count, is->before.accuracy,
           is->temperature, is->before.log_loss, is->after.log_loss, is->before.error,
           is->after.error, is_bound ? "  at the bound of temperatures" : "",
           is->question->set.count < CASES_FEW ? "  few cases" : "");
}

static void print_table(const struct labelled_decisions *labelled) {
    printf("%-24s %6s %9s %9s %17s %16s\n%-24s %6s %9s %9s %9s %7s %8s %7s\n", "", "", "", "",
           "log loss", "ECE", "question", "cases", "accuracy", "T", "before", "after", "before",
           "after");
    for (size_t i = 0; i < labelled->count; i++) {
        struct fitted fitted = fit(&labelled->at[i]);
        print_row(&fitted);
    }
    if (labelled->unanswered > 0)
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " lines %s no answer and %s left out\n",
                labelled->unanswered, labelled->lines, plural(labelled->unanswered, "has", "have"),
                plural(labelled->unanswered, "was", "were"));
}

/* Appends {"temperatures":{NAME:NUMBER,…}} without its last brace. */
static void write_temperatures(struct buf *out, const struct labelled_decisions *labelled) {
    buf_add_text(out, "{\"temperatures\":{");
    for (size_t i = 0; i < labelled->count; i++) {
        if (i > 0) buf_add_byte(out, ',');
        json_write_string(out, str_from(labelled->at[i].name));
        buf_add_byte(out, ':');
        json_text_write_number(out, calibration_fit(&labelled->at[i].set));
    }
    buf_add_byte(out, '}');
}

static void write_pair(struct buf *out, const char *name, double before, double after) {
    buf_printf(out, ",\"%s\":{\"before\":", name);
    json_text_write_number(out, before);
    buf_add_text(out, ",\"after\":");
    json_text_write_number(out, after);
    buf_add_byte(out, '}');
}

static void print_json(const struct labelled_decisions *labelled) {
    struct buf out;
    buf_init(&out, BUF_UNLIMITED);
    write_temperatures(&out, labelled);
    buf_printf(&out, ",\"lines\":%" PRIu64 ",\"unanswered\":%" PRIu64 ",\"questions\":[",
               labelled->lines, labelled->unanswered);
    for (size_t i = 0; i < labelled->count; i++) {
        struct fitted is = fit(&labelled->at[i]);
        buf_add_text(&out, i > 0 ? ",{\"name\":" : "{\"name\":");
        json_write_string(&out, str_from(is.question->name));
        buf_printf(&out, ",\"cases\":%zu,\"accuracy\":", is.question->set.count);
        json_text_write_number(&out, is.before.accuracy);
        buf_add_text(&out, ",\"temperature\":");
        json_text_write_number(&out, is.temperature);
        write_pair(&out, "log_loss", is.before.log_loss, is.after.log_loss);
        write_pair(&out, "ece", is.before.error, is.after.error);
        buf_add_byte(&out, '}');
    }
    buf_add_text(&out, "]}");
    puts(out.at);
    buf_release(&out);
}

static enum err keep_temperatures(const struct calibrate_command *chosen,
                                  const struct labelled_decisions *labelled, struct error *error) {
    struct buf out;
    buf_init(&out, BUF_UNLIMITED);
    write_temperatures(&out, labelled);
    buf_add_text(&out, "}\n");
    enum err err = whole_file_write(chosen->output, buf_str(&out), chosen->overwrite, error);
    buf_release(&out);
    if (err != ERR_CONFLICT) return err;
    return err_set(error, err, "%s exists with another text; name another file, or --overwrite it",
                   chosen->output);
}

/* Runs the lines, or what is left of them. */
static enum err ask(struct command_call *call, struct error *error) {
    struct calibrate_command *chosen = call->chosen;
    struct offline_options *offline = &chosen->offline;
    struct offline_summary summary = {0};
    struct run_show show = {0};
    enum err err = offline_check(offline, &summary, error);
    if (err != OK || summary.was_finished) return err;
    err = engine_options_find_models(&chosen->choice, &offline->node, call->stop, error);
    if (err != OK) return err;
    log_set_level(LOG_WARN);
    terminal_init(&show.terminal);
    offline->stop = call->stop;
    offline->context = &show;
    offline->progress = run_show_progress;
    offline->bad_line = run_show_bad_line;
    err = offline_run(offline, &summary, error);
    run_show_end(&show);
    return err;
}

static void set_defaults(void *context) {
    struct calibrate_command *chosen = context;
    engine_options_set_defaults(&chosen->choice);
}

static void release(void *context) {
    struct calibrate_command *chosen = context;
    engine_options_release(&chosen->choice, &chosen->offline.node);
}

static enum err check(struct command_call *call, struct error *error) {
    struct calibrate_command *chosen = call->chosen;
    const char *labelled = call->operands[0];
    if (!labelled) return err_set(error, ERR_INVALID, "LABELLED.jsonl is missing");
    if (!chosen->answers) {
        int bytes =
            snprintf(chosen->answers_usual, sizeof chosen->answers_usual, "%s.answers", labelled);
        if (bytes >= (int)sizeof chosen->answers_usual)
            return err_set(error, ERR_INVALID, "the name of LABELLED is too long");
        chosen->answers = chosen->answers_usual;
    }
    if (chosen->output) {
        bool exists;
        enum err err = whole_file_check(chosen->output, &exists, error);
        if (err != OK) return err;
    }
    chosen->offline.input.path = labelled;
    chosen->offline.output_path = chosen->answers;
    return chosen->choice.models.count > 0
               ? engine_options_check(&chosen->choice, &chosen->offline.node, error)
               : OK;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct calibrate_command *chosen = call->chosen;
    struct labelled_decisions labelled = {.at = NULL};
    int fd = -1;
    enum err err = os_open_plain(&fd, call->operands[0], error); /* before any line is run */
    os_close(fd);
    if (err == OK && chosen->choice.models.count > 0) err = ask(call, error);
    if (err == OK)
        err = labelled_decisions_read(&labelled, call->operands[0], chosen->answers, error);
    if (err == OK && labelled.count == 0)
        err =
            err_set(error, ERR_INVALID, "%s: no labelled question has an answer", chosen->answers);
    if (err == OK && chosen->output) err = keep_temperatures(chosen, &labelled, error);
    if (err == OK && chosen->json)
        print_json(&labelled);
    else if (err == OK)
        print_table(&labelled);
    labelled_decisions_release(&labelled);
    return err;
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_calibrate = {
    .name = "calibrate",
    .summary = "fit temperatures of decisions to answers that are known",
    .usage = "calibrate LABELLED.jsonl [--model M] [--answers FILE] [-o TEMPERATURES.json]",
    .help =
        "Reads lines of decisions with a member `expected`, the true answers by question, and the\n"
        "answers of a model to them. Prints for each question the temperature with the least log\n"
        "loss, and log loss and calibration error before and after.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct calibrate_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
