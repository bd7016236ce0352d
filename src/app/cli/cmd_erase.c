/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "base/printable.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/manifest_options.h"
#include "cli/proof_options.h"
#include "dossier/erasure.h"
#include "proof/signing_key.h"

#include <inttypes.h>
#include <stdio.h>

struct erase_command {
    struct proof_choice proof;
    struct option_list custom_ids, others;
    const char *ids_file, *reason;
    struct line_ids ids;
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
    {0},
};

static void set_defaults(void *context) {
    struct erase_command *chosen = context;
    chosen->reason = "";
    line_ids_init(&chosen->ids);
}

static enum err check(struct command_call *call, struct error *error) {
    struct erase_command *chosen = call->chosen;
    enum err err = proof_options_check(&chosen->proof, call->operands[0], error);
    if (err == OK && chosen->others.count > ERASURE_OTHERS_MAX)
        err = err_set(error, ERR_INVALID, "--judgements: at most %d", ERASURE_OTHERS_MAX);
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

static void show(const struct run_proof *proof, const struct erasure *is) {
    printf("%" PRIu64 " %s erased, %" PRIu64 " %s in all files; the record is in %s\n",
           is->requests, plural(is->requests, "request was", "requests were"), is->lines,
           plural(is->lines, "line", "lines"), printable(proof->salts_path).text);
    puts("Backups and copies of these files keep what they had: remove them, or erase there too.");
}

static enum err erase(struct command_call *call, struct run_proof *proof, struct error *error) {
    struct erase_command *chosen = call->chosen;
    struct ssh_key key;
    struct erasure is;
    enum err err = read_key(chosen, &key, error);
    if (err != OK) return err;
    const struct erasure_options options = {.ids = &chosen->ids,
                                            .reason = chosen->reason,
                                            .others = chosen->others.values,
                                            .other_count = chosen->others.count,
                                            .key = &key,
                                            .trusted = &chosen->proof.options,
                                            .stop = call->stop};
    err = erasure_run(proof, &options, &is, error);
    ssh_key_wipe(&key);
    if (err == OK) show(proof, &is);
    return err;
}

/* With the run locked: ends what was cut short, and reads the run again. */
static enum err go_on(struct command_call *call, struct run_proof *proof, struct error *error) {
    struct erase_command *chosen = call->chosen;
    bool was_one;
    enum err err = erasure_end(proof, &was_one, error);
    if (err != OK) return err;
    if (was_one) puts("an erasure that was cut short has been ended");
    if (was_one && chosen->ids.count == 0) return OK;
    if (chosen->ids.count == 0)
        return err_set(error, ERR_INVALID,
                       "nothing to erase: --custom-id ID or --ids FILE names whose lines");
    run_proof_release(proof);
    err = run_proof_read(proof, &chosen->proof.options, error);
    if (err == OK) err = erase(call, proof, error);
    /* The same command once more: what it asks for is done. */
    return err == ERR_NOT_FOUND && was_one && !line_ids_found_one(&chosen->ids) ? OK : err;
}

static enum err run(struct command_call *call, struct error *error) {
    struct erase_command *chosen = call->chosen;
    struct run_proof proof;
    int lock = -1;
    enum err err = OK;
    if (chosen->ids_file) err = line_ids_add_file(&chosen->ids, chosen->ids_file, error);
    if (err == OK) err = run_proof_read(&proof, &chosen->proof.options, error);
    if (err != OK) return err;
    err = erasure_lock(&proof, &lock, error);
    if (err == OK) {
        err = go_on(call, &proof, error);
        os_close(lock);
    }
    run_proof_release(&proof);
    return err;
}

static void release(void *context) {
    line_ids_release(&((struct erase_command *)context)->ids);
}

static const struct option_table tables[] = {{rows, 0}, {proof_option_rows, AT(proof)}};

const struct command cmd_erase = {
    .name = "erase",
    .summary = "erase one person's lines of a run; its manifest still proves all others",
    .usage = "erase OUT|MANIFEST --custom-id ID [--ids FILE] [--reason TEXT] [options]",
    .help = "Empties the lines of these custom_ids in the input and output of a run, and in files\n"
            "of judgements, and leaves a signed record of it. `quern verify` then says how many\n"
            "lines were erased and when, and finds every other change. All files change or none;\n"
            "after a kill the same command ends what was begun. Copies elsewhere stay.\n",
    .tables = tables,
    .table_count = 2,
    .chosen_bytes = sizeof(struct erase_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
