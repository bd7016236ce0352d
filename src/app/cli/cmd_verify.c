/* SPDX-License-Identifier: Apache-2.0 */
#include "base/printable.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/proof_options.h"
#include "replay/run_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

struct verify_command {
    struct proof_choice proof;
    bool skips_models, json;
    json_t *files; /* for --json */
};

#define AT(field) offsetof(struct verify_command, field)
static const struct option rows[] = {
    {"skip-models", OPTION_SWITCH, AT(skips_models),
     .help = "do not read the model's files, which may take a minute"},
    {"json", OPTION_SWITCH, AT(json), .help = "print one JSON object"},
    {0},
};

static enum err check(struct command_call *call, struct error *error) {
    struct verify_command *chosen = call->chosen;
    return proof_options_check(&chosen->proof, call->operands[0], error);
}

static void show_file(void *context, const struct run_file *file) {
    struct verify_command *chosen = context;
    if (chosen->json)
        json_array_append_new(chosen->files,
                              json_pack("{s:s,s:s,s:s,s:s}", "what", file->what, "path",
                                        printable(file->path).text, "state",
                                        run_file_states[file->state], "why", file->why));
    else if (file->state == RUN_FILE_GOOD)
        printf("%-8s good     %s\n", file->what, printable(file->path).text);
    else
        printf("%-8s %-8s %s: %s\n", file->what, run_file_states[file->state],
               printable(file->path).text, file->why);
}

#define DAY_BYTES 16
static void write_day(const json_t *unix_s, char ret_day[DAY_BYTES]) {
    time_t when = (time_t)json_integer_value(unix_s);
    struct tm parts;
    if (!gmtime_r(&when, &parts) || strftime(ret_day, DAY_BYTES, "%Y-%m-%d", &parts) == 0)
        snprintf(ret_day, DAY_BYTES, "?");
}

/* What was erased, and that nothing else has changed. */
static void show_erasures(const struct run_proof *proof, bool is_good) {
    char day[DAY_BYTES];
    const json_t *erasure, *erasures = proof->has_salts ? proof->salts.erasures : NULL;
    size_t i;
    json_array_foreach(erasures, i, erasure) {
        uint64_t count = (uint64_t)json_integer_value(json_object_get(erasure, "requests"));
        const char *reason = run_proof_text(erasure, "reason");
        write_day(json_object_get(erasure, "erased_at"), day);
        printf("erased   %" PRIu64 " %s on %s%s%s\n", count,
               plural(count, "request with its result", "requests with their results"), day,
               *reason ? ": " : "", printable(reason).text);
    }
    write_day(json_object_get(proof->manifest.content, "created_at"), day);
    if (is_good && json_array_size(erasures) > 0)
        printf("all other lines are those of the manifest of %s\n", day);
}

static void show_end(const struct verify_command *chosen, const struct run_proof *proof,
                     const char *signer_fault, size_t wrong) {
    char public[SSH_PUBLIC_TEXT_BYTES] = "";
    if (proof->manifest.is_signed) ssh_public_write(proof->manifest.public, public);
    if (chosen->json) {
        struct buf out;
        json_t *whole = json_pack(
            "{s:s,s:s,s:b,s:s,s:O,s:O?}", "manifest", printable(proof->path).text, "signer", public,
            "is_good", !*signer_fault && wrong == 0, "signature_fault", signer_fault, "files",
            chosen->files, "erasures", proof->has_salts ? proof->salts.erasures : NULL);
        buf_init(&out, BUF_UNLIMITED);
        json_write(&out, whole);
        puts(out.at);
        buf_release(&out);
        json_decref(whole);
        return;
    }
    if (*signer_fault)
        printf("manifest %s\n", signer_fault);
    else
        printf("signed by %s\n", public);
    show_erasures(proof, !*signer_fault && wrong == 0);
}

static enum err run(struct command_call *call, struct error *error) {
    struct verify_command *chosen = call->chosen;
    struct run_proof proof;
    struct error fault = {.code = OK};
    size_t wrong = 0;
    enum err err = run_proof_read(&proof, &chosen->proof.options, error);
    if (err == ERR_CORRUPT) {
        fprintf(stderr, "quern verify: %s\n", error->text);
        call->status = EXIT_DAMAGED;
        return OK;
    }
    if (err != OK) return err;
    chosen->files = json_array();
    const struct run_check_options options = {.skips_models = chosen->skips_models,
                                              .stop = call->stop,
                                              .context = chosen,
                                              .file = show_file};
    err = run_check(&proof, &options, &wrong, error);
    if (err == OK) {
        bool is_signed = run_proof_check_signer(&proof, &chosen->proof.options, &fault) == OK;
        show_end(chosen, &proof, is_signed ? "" : fault.text, wrong);
        if (!is_signed || wrong > 0) call->status = EXIT_DAMAGED;
    }
    run_proof_release(&proof);
    return err;
}

static void release(void *context) {
    json_decref(((struct verify_command *)context)->files);
}

static const struct option_table tables[] = {{rows, 0}, {proof_option_rows, AT(proof)}};

const struct command cmd_verify = {
    .name = "verify",
    .summary = "check the files of a run against its signed manifest",
    .usage = "verify OUT|MANIFEST [--input IN] [--output OUT] [--public-key KEY]",
    .help = "Reads the input, output and models of a run and says which of them are not the bytes\n"
            "that its manifest names. Exits with 10 if one is not, or if the manifest is damaged,\n"
            "not signed, or signed by a key that is not trusted.\n",
    .tables = tables,
    .table_count = 2,
    .chosen_bytes = sizeof(struct verify_command),
    .operands_max = 1,
    .stops = true,
    .check = check,
    .run = run,
    .release = release,
};
