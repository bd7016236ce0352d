/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/printable.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/manifest_options.h"
#include "cli/proof_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct replay_command {
    struct proof_choice proof;
    int64_t lines;
    struct option_list models;
    bool json;
    json_t *shown; /* lines of --json */
};

#define AT(field) offsetof(struct replay_command, field)
static const struct option rows[] = {
    {"lines", OPTION_INTEGER, AT(lines), "N",
     .help = "lines to compute again, at equal distances (default 20)", .min = 1,
     .max = REPLAY_LINES_MAX},
    {"model", OPTION_LIST, AT(models), "NAME=PATH",
     .help = "where a model of the run lies now (default: where it was); repeatable",
     .letter = 'm'},
    {"json", OPTION_SWITCH, AT(json), .help = "print one JSON object"},
    {0},
};

static const char *const match_names[] = {"bit_equal", "same_meaning", "different"};
static const char *const match_words[] = {"bit-equal", "equal in meaning", "different"};

static void set_defaults(void *context) {
    ((struct replay_command *)context)->lines = 20;
}

static enum err check(struct command_call *call, struct error *error) {
    struct replay_command *chosen = call->chosen;
    if (chosen->models.count > REPLAY_MODELS_MAX)
        return err_set(error, ERR_INVALID, "--model: at most %d", REPLAY_MODELS_MAX);
    return proof_options_check(&chosen->proof, call->operands[0], error);
}

static void show_line(void *context, const struct replay_line *line) {
    struct replay_command *chosen = context;
    const char *why = line->is_sampled ? "sampled, without a seed" : "";
    if (chosen->json)
        json_array_append_new(chosen->shown,
                              json_pack("{s:s,s:s,s:b}", "custom_id", line->custom_id, "match",
                                        match_names[line->match], "is_sampled", line->is_sampled));
    else
        printf("%-16s  %s%s%s\n", match_words[line->match], printable(line->custom_id).text,
               line->match != ANSWER_BIT_EQUAL && *why ? "  " : "",
               line->match != ANSWER_BIT_EQUAL ? why : "");
}

static void show_json(const struct replay_command *chosen, const struct replay *is) {
    struct buf out;
    json_t *reasons = json_array();
    for (size_t i = 0; i < is->reason_count; i++)
        json_array_append_new(reasons, json_string(printable(is->reasons[i]).text));
    json_t *whole =
        json_pack("{s:I,s:I,s:I,s:I,s:I,s:o,s:O}", "lines", (json_int_t)is->lines, "bit_equal",
                  (json_int_t)is->equal, "same_meaning", (json_int_t)is->same_meaning, "different",
                  (json_int_t)is->different, "unexplained", (json_int_t)is->unexplained, "reasons",
                  reasons, "compared", chosen->shown);
    buf_init(&out, BUF_UNLIMITED);
    json_write(&out, whole);
    puts(out.at);
    buf_release(&out);
    json_decref(whole);
}

static void show_end(const struct replay_command *chosen, const struct replay *is) {
    if (chosen->json) {
        show_json(chosen, is);
        return;
    }
    printf("%" PRIu64 " %s computed again: %" PRIu64 " bit-equal, %" PRIu64
           " equal in meaning, %" PRIu64 " different\n",
           is->lines, plural(is->lines, "line", "lines"), is->equal, is->same_meaning,
           is->different);
    for (size_t i = 0; i < is->reason_count; i++)
        printf("why: %s\n", printable(is->reasons[i]).text);
    if (is->unexplained > 0)
        printf("why: not known; program, model, template and instruction set are the same\n");
}

static enum err replay_in(struct command_call *call, struct run_proof *proof, const char *folder,
                          struct error *error) {
    struct replay_command *chosen = call->chosen;
    struct replay is;
    struct replay_options options = {.lines = (uint64_t)chosen->lines,
                                     .setting = manifest_setting_kind,
                                     .model_count = chosen->models.count,
                                     .folder = folder,
                                     .stop = call->stop,
                                     .context = chosen,
                                     .line = show_line};
    for (size_t i = 0; i < chosen->models.count; i++) options.models[i] = chosen->models.values[i];
    chosen->shown = json_array();
    enum err err = replay_run(proof, &options, &is, error);
    if (err != OK) return err;
    show_end(chosen, &is);
    if (is.equal < is.lines) call->status = is.unexplained > 0 ? EXIT_DAMAGED : EXIT_FAILED;
    return OK;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct replay_command *chosen = call->chosen;
    const char *temporary = getenv("TMPDIR");
    char folder[PATH_MAX], name[24];
    struct run_proof proof;
    enum err err = run_proof_read(&proof, &chosen->proof.options, error);
    if (err != OK) return err;
    id_alnum(name, sizeof name, "", 16);
    snprintf(folder, sizeof folder, "%.3800s/quern-replay-%s",
             temporary && *temporary ? temporary : "/tmp", name);
    err = run_proof_check_signer(&proof, &chosen->proof.options, error);
    if (err == OK) err = replay_in(call, &proof, folder, error);
    run_proof_release(&proof);
    return err;
}

static void release(void *context) {
    json_decref(((struct replay_command *)context)->shown);
}

static const struct option_table tables[] = {{rows, 0}, {proof_option_rows, AT(proof)}};

const struct command cmd_replay = {
    .name = "replay",
    .summary = "compute some lines of a run again, and compare the answers",
    .usage = "replay OUT|MANIFEST [--lines N] [--model NAME=PATH] [options]",
    .help = "Computes lines of a run again with the models and settings of its manifest, and says\n"
            "of each whether the answer is bit-equal, equal in meaning, or different, and why:\n"
            "another model, build or instruction set, or sampling without a seed.\n",
    .tables = tables,
    .table_count = 2,
    .chosen_bytes = sizeof(struct replay_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
