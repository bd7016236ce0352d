/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/model_query.h"

#include "cli/command.h"
#include "cli/records.h"
#include "engine/model_sandbox.h"
#include "hub/catalog.h"

#include <stdio.h>

static enum err answer_record(void *context, struct str record, struct buf *answer,
                              struct error *error) {
    struct model_query *query = context;
    json_t *value;
    enum err err = json_read(&value, record, error);
    if (err != OK) return err;
    if (json_is_object(value))
        err = query->answer(query, value, answer, error);
    else
        err = err_set(error, ERR_INVALID, "the query is not a JSON object");
    if (err == OK && !query->batch) buf_add_byte(answer, '\n');
    json_decref(value);
    return err;
}

static enum err read_options(struct model_query *query, int argc, char **argv, bool *ret_done,
                             struct error *error) {
    const struct option options[] = {
        {.name = "model",
         .kind = OPTION_TEXT,
         .target = &query->model_name,
         .value = "M",
         .help = "a model, FILE.gguf or a folder"},
        query->own,
        {.name = "reference",
         .kind = OPTION_SWITCH,
         .target = &query->reference,
         .help = "plain C in float32: the definition"},
        {.name = "kernels",
         .kind = OPTION_TEXT,
         .target = &query->kernels,
         .value = "NAME",
         .help = "ref, avx2, avx512 or avx512-bf16 instead of the best"},
        {.name = "threads",
         .kind = OPTION_INTEGER,
         .target = &query->threads,
         .value = "N",
         .help = "one for each core",
         .min = 0,
         .max = 1024},
        {.name = "batch",
         .kind = OPTION_SWITCH,
         .target = &query->batch,
         .help = "one JSON value a line"},
    };
    enum err err = options_read(options, sizeof options / sizeof *options, &query->help, argc, argv,
                                NULL, 0, ret_done, error);
    if (err == OK && !*ret_done && !query->model_name)
        err = err_set(error, ERR_INVALID, "--model is missing");
    return err;
}

static enum err open_model(struct model_query *query, struct model_options *options,
                           struct error *error) {
    struct model_choice choice;
    enum err err = catalog_choose(query->model_name, &choice, error);
    if (err != OK) return err;
    options->kernels = query->kernels;
    options->reference = query->reference;
    options->threads = (uint32_t)query->threads;
    options->sequences_max = 1;
    model_sandbox_enter_for(choice.path);
    err = model_open(&query->model, choice.path, options, error);
    if (err == OK) model_describe(query->model, &query->is);
    return err;
}

static int fail(const struct model_query *query, const struct error *error, int status) {
    fprintf(stderr, "quern %s: %s\n", query->name, error->text);
    return status;
}

int model_query_run(struct model_query *query, int argc, char **argv) {
    struct error error = {0};
    struct model_options options = {0};
    bool done;
    enum err err = read_options(query, argc, argv, &done, &error);
    if (err == OK && done) return EXIT_GOOD;
    if (err == OK) err = query->prepare(query, &options, &error);
    if (err != OK) return fail(query, &error, EXIT_WRONG_INPUT);
    if (open_model(query, &options, &error) != OK) return fail(query, &error, EXIT_MACHINE);
    int status = records_answer(query->batch, answer_record, query);
    model_close(query->model);
    return status;
}
