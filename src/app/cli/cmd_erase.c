/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/os.h"
#include "base/printable.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/erase_batches.h"
#include "cli/manifest_options.h"
#include "cli/proof_options.h"
#include "dossier/erasure.h"
#include "proof/signing_key.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct erase_command {
    struct proof_choice proof;
    struct session_choice session; /* the server, if they are batches */
    bool is_remote;
    struct option_list custom_ids, others;
    const char *ids_file, *reason, *requests;
    struct line_ids ids;
    struct run_proof *proofs; /* (run_count), one for each operand */
    size_t run_count;
};

#define AT(field) offsetof(struct erase_command, field)
static const struct option rows[] = {
    {"custom-id", OPTION_LIST, AT(custom_ids), "ID",
     .help = "erase the lines of this custom_id; repeatable"},
    {"ids", OPTION_TEXT, AT(ids_file), "FILE", .help = "file of custom_ids, one in a line",
     .only_flag = true},
    {"reason", OPTION_TEXT, AT(reason), "TEXT",
     .help = "why, for the record, which stays; do not name the person", .only_flag = true},
    {"judgements", OPTION_LIST, AT(others), "FILE",
     .help = "JSONL file of judgements of the run, whose lines go as well; repeatable"},
    {"requests", OPTION_TEXT, AT(requests), "FILE",
     .help = "requests of a run over a table, as `quern table` makes them again",
     .only_flag = true},
    {0},
};

static void set_defaults(void *context) {
    struct erase_command *chosen = context;
    chosen->reason = "";
    line_ids_init(&chosen->ids);
    session_set_defaults(&chosen->session);
}

static enum err check_remote(struct command_call *call, struct error *error) {
    const struct erase_command *chosen = call->chosen;
    const struct run_proof_options *options = &chosen->proof.options;
    if (chosen->others.count > 0 || chosen->requests || options->input || options->output ||
        chosen->proof.public_keys.count > 0 || chosen->proof.signing_key)
        return err_set(error, ERR_INVALID,
                       "--judgements, --requests, --input, --output and keys are of a run; the "
                       "server erases in all that it has of a batch");
    return erase_batches_check(call, &chosen->session, error);
}

static enum err check(struct command_call *call, struct error *error) {
    struct erase_command *chosen = call->chosen;
    chosen->is_remote = erase_batches_is_id(call->operands[0]);
    enum err err = chosen->is_remote
                       ? check_remote(call, error)
                       : proof_options_check(&chosen->proof, call->operands[0], error);
    if (err == OK && chosen->others.count > ERASURE_OTHERS_MAX)
        err = err_set(error, ERR_INVALID, "--judgements: at most %d", ERASURE_OTHERS_MAX);
    while (chosen->run_count < ERASURE_RUNS_MAX && call->operands[chosen->run_count])
        chosen->run_count++;
    const struct run_proof_options *options = &chosen->proof.options;
    if (err == OK && chosen->run_count > 1 &&
        (options->input || options->output || chosen->requests))
        err = err_set(error, ERR_INVALID,
                      "--input, --output and --requests name files of one run, not of several");
    for (size_t i = 0; i < chosen->custom_ids.count && err == OK; i++)
        err = line_ids_add(&chosen->ids, str_from(chosen->custom_ids.values[i]), "--custom-id",
                           error);
    return err;
}

/* Reads the key that signs the record. */
static enum err read_key(const struct erase_command *chosen, struct ssh_key *ret_key,
                         struct error *error) {
    const char *path =
        chosen->proof.signing_key ? chosen->proof.signing_key : chosen->proof.signing_key_usual;
    enum err err = *path ? signing_key_read(ret_key, path, error)
                         : err_set(error, ERR_NOT_FOUND, "no place for a key is known");
    if (err == ERR_NOT_FOUND)
        return err_set(error, ERR_INVALID,
                       "--signing-key %.300s: there is no key, and the record of an erasure has to "
                       "be signed",
                       path);
    return err;
}

static void show(const struct erase_command *chosen, const struct erasure *is) {
    printf("%" PRIu64 " %s erased, %" PRIu64 " %s in all files; %s\n", is->requests,
           plural(is->requests, "request was", "requests were"), is->lines,
           plural(is->lines, "line", "lines"),
           chosen->run_count > 1 ? "the records are in:" : "the record is in:");
    for (size_t i = 0; i < chosen->run_count; i++)
        printf("  %s\n", printable(chosen->proofs[i].salts_path).text);
    puts("Backups and copies of these files keep what they had: remove them, or erase there too.");
}

static enum err erase(struct command_call *call, struct error *error) {
    struct erase_command *chosen = call->chosen;
    struct ssh_key key;
    struct erasure is;
    enum err err = read_key(chosen, &key, error);
    if (err != OK) return err;
    const struct erasure_options options = {.ids = &chosen->ids,
                                            .reason = chosen->reason,
                                            .others = chosen->others.values,
                                            .other_count = chosen->others.count,
                                            .requests = chosen->requests,
                                            .key = &key,
                                            .trusted = &chosen->proof.options,
                                            .stop = call->stop};
    err = erasure_run(chosen->proofs, chosen->run_count, &options, &is, error);
    ssh_key_wipe(&key);
    if (err == OK) show(chosen, &is);
    return err;
}

static void release_runs(struct erase_command *chosen, size_t count) {
    for (size_t i = 0; i < count; i++) run_proof_release(&chosen->proofs[i]);
}

/* Whether a run was named before; if so, it is released. */
static enum err check_new(struct erase_command *chosen, size_t run, struct error *error) {
    for (size_t i = 0; i < run; i++) {
        if (strcmp(chosen->proofs[i].path, chosen->proofs[run].path) != 0) continue;
        enum err err = err_set(error, ERR_INVALID, "%s is named twice", chosen->proofs[run].path);
        run_proof_release(&chosen->proofs[run]);
        return err;
    }
    return OK;
}

static enum err read_runs(struct command_call *call, struct error *error) {
    struct erase_command *chosen = call->chosen;
    for (size_t i = 0; i < chosen->run_count; i++) {
        struct run_proof_options options = chosen->proof.options;
        options.run = call->operands[i];
        enum err err = run_proof_read(&chosen->proofs[i], &options, error);
        if (err == OK) err = check_new(chosen, i, error);
        if (err == OK) continue;
        release_runs(chosen, i);
        return err;
    }
    return OK;
}

/* With the runs locked: ends what was cut short. */
static enum err end_earlier(struct erase_command *chosen, bool *ret_was_one, struct error *error) {
    *ret_was_one = false;
    for (size_t i = 0; i < chosen->run_count; i++) {
        bool was_one;
        enum err err = erasure_end(&chosen->proofs[i], &was_one, error);
        if (err != OK) return err;
        *ret_was_one = *ret_was_one || was_one;
    }
    if (*ret_was_one) puts("an erasure that was cut short has been ended");
    return OK;
}

static enum err go_on(struct command_call *call, struct error *error) {
    struct erase_command *chosen = call->chosen;
    bool was_one;
    enum err err = end_earlier(chosen, &was_one, error);
    if (err != OK) return err;
    if (was_one && chosen->ids.count == 0) return OK;
    if (chosen->ids.count == 0)
        return err_set(error, ERR_INVALID,
                       "nothing to erase: --custom-id ID or --ids FILE names whose lines");
    if (was_one) {
        release_runs(chosen, chosen->run_count);
        err = read_runs(call, error);
        if (err != OK) memset(chosen->proofs, 0, chosen->run_count * sizeof *chosen->proofs);
    }
    if (err == OK) err = erase(call, error);
    /* The same command once more: what it asks for is done. */
    return err == ERR_NOT_FOUND && was_one && !line_ids_found_one(&chosen->ids) ? OK : err;
}

static enum err lock_and_go_on(struct command_call *call, struct error *error) {
    struct erase_command *chosen = call->chosen;
    int locks[ERASURE_RUNS_MAX];
    size_t locked = 0;
    enum err err = OK;
    while (locked < chosen->run_count && err == OK) {
        err = erasure_lock(&chosen->proofs[locked], &locks[locked], error);
        locked += err == OK;
    }
    if (err == OK) err = go_on(call, error);
    while (locked > 0) os_close(locks[--locked]);
    return err;
}

static enum err run(struct command_call *call, struct error *error) {
    struct erase_command *chosen = call->chosen;
    enum err err = OK;
    if (chosen->ids_file) err = line_ids_add_file(&chosen->ids, chosen->ids_file, error);
    if (err != OK) return err;
    if (chosen->is_remote)
        return erase_batches_run(call, &chosen->session, &chosen->ids, chosen->reason, error);
    chosen->proofs = mem_new(chosen->run_count, sizeof *chosen->proofs);
    err = read_runs(call, error);
    if (err == OK) {
        err = lock_and_go_on(call, error);
        release_runs(chosen, chosen->run_count);
    }
    free(chosen->proofs);
    return err;
}

static void release(void *context) {
    line_ids_release(&((struct erase_command *)context)->ids);
}

static const struct option_table tables[] = {
    {rows, 0}, {proof_option_rows, AT(proof)}, SESSION_TABLES(AT(session))};

const struct command cmd_erase = {
    .name = "erase",
    .summary = "erase one person's lines of a run or a batch; the manifest still proves all others",
    .usage = "erase OUT|MANIFEST|BATCH... --custom-id ID [--ids FILE] [--reason TEXT] [options]",
    .help =
        "Empties the lines of these custom_ids in the input and output of a run, and in files\n"
        "of judgements, and their rows in tables, and leaves a signed record of it. `quern\n"
        "verify` then says how many were erased and when, and finds every other change. Runs\n"
        "that share a file are named together. All files change or none; after a kill the\n"
        "same command ends what was begun. Copies elsewhere stay.\n"
        "\n"
        "BATCH is the id of a batch that has ended: its server erases the lines in all that it\n"
        "has of the batch, and gives its files new ids.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct erase_command),
    .operands_max = ERASURE_RUNS_MAX,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
