/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "cli/command.h"
#include "cli/log_show.h"
#include "cli/proof_options.h"
#include "dossier/decision_log.h"

#include <stdio.h>
#include <string.h>

struct log_command {
    struct proof_choice proof;
    const char *custom_id, *judgements, *format;
};

#define AT(field) offsetof(struct log_command, field)
#define FORMATS "text|json|html"
static const struct option rows[] = {
    {"custom-id", OPTION_TEXT, AT(custom_id), "ID", .help = "the request to tell about",
     .only_flag = true},
    {"judgements", OPTION_TEXT, AT(judgements), "FILE",
     .help = "JSONL file of judgements, as the curation page exports them", .only_flag = true},
    {"format", OPTION_TEXT, AT(format), "FORMAT", .help = "text, json or html (default text)",
     .words = FORMATS},
    {0},
};

static void set_defaults(void *context) {
    ((struct log_command *)context)->format = "text";
}

static enum err check(struct command_call *call, struct error *error) {
    struct log_command *chosen = call->chosen;
    struct str rest = STR(FORMATS), word;
    bool is_known = false;
    if (!chosen->custom_id) return err_set(error, ERR_INVALID, "--custom-id ID is missing");
    while (option_next_word(&rest, &word)) is_known = is_known || str_is(word, chosen->format);
    if (!is_known)
        return err_set(error, ERR_INVALID, "--format %.80s: it is none of text, json and html",
                       chosen->format);
    return proof_options_check(&chosen->proof, call->operands[0], error);
}

static void show(const struct log_command *chosen, const json_t *log) {
    struct buf out;
    buf_init(&out, BUF_UNLIMITED);
    if (strcmp(chosen->format, "html") == 0) {
        log_show_html(&out, log);
    } else if (strcmp(chosen->format, "json") == 0) {
        json_write(&out, log);
        buf_add_byte(&out, '\n');
    } else {
        log_show_text(&out, log);
    }
    fwrite(out.at, 1, out.bytes, stdout);
    buf_release(&out);
}

static enum err run(struct command_call *call, struct error *error) {
    struct log_command *chosen = call->chosen;
    struct run_proof proof;
    struct error fault = {.code = OK};
    json_t *log = NULL;
    enum err err = run_proof_read(&proof, &chosen->proof.options, error);
    if (err != OK) return err;
    bool is_signed = run_proof_check_signer(&proof, &chosen->proof.options, &fault) == OK;
    const struct decision_log_options options = {.custom_id = chosen->custom_id,
                                                 .judgements = chosen->judgements,
                                                 .signer_fault = is_signed ? "" : fault.text,
                                                 .stop = call->stop};
    err = decision_log_make(&proof, &options, &log, error);
    if (err == OK) {
        show(chosen, log);
        if (!json_is_true(json_object_get(log, "is_proven"))) call->status = EXIT_DAMAGED;
    }
    json_decref(log);
    run_proof_release(&proof);
    return err;
}

static const struct option_table tables[] = {{rows, 0}, {proof_option_rows, AT(proof)}};

const struct command cmd_log = {
    .name = "log",
    .summary = "tell about one request of a run: asked, answered, by what, judged by whom",
    .usage = "log OUT|MANIFEST --custom-id ID [--judgements FILE] [--format FORMAT] [options]",
    .help =
        "Prints the decision log of one request in plain English: what was asked, which model\n"
        "with which files and settings answered, what was answered, who judged it, and whether\n"
        "the files are those of the run. Exits with 10 if they are not, or if the manifest is\n"
        "not signed by a trusted key.\n",
    .tables = tables,
    .table_count = 2,
    .chosen_bytes = sizeof(struct log_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
