/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/model_query.h"

#include "cli/stdin_records.h"
#include "engine/model_sandbox.h"
#include "hub/catalog.h"

#define AT(field) offsetof(struct model_query, field)
const struct option model_query_rows[] = {
    {"model", OPTION_TEXT, AT(model_name), "M",
     .help = "model to ask: a name, FILE.gguf or a folder"},
    {"reference", OPTION_SWITCH, AT(reference),
     .help = "compute in plain C, float32: the definition"},
    {"kernels", OPTION_TEXT, AT(kernels), "NAME",
     .help = "kernels: ref, avx2, avx512 or avx512-bf16 (default: the best of this CPU)"},
    {"threads", OPTION_INTEGER, AT(threads), "N",
     .help = "computing threads (default 0: one per core)", .max = 1024},
    {"batch", OPTION_SWITCH, AT(batch), .help = "read and print one JSON value per line"},
    {0},
};

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

enum err model_query_check(const struct model_query *query, struct error *error) {
    return query->model_name ? OK : err_set(error, ERR_INVALID, "--model is missing");
}

static enum err open_model(struct model_query *query, struct error *error) {
    struct model_choice choice;
    enum err err = catalog_choose(query->model_name, &choice, error);
    if (err != OK) return err;
    query->options.kernels = query->kernels;
    query->options.reference = query->reference;
    query->options.threads = (uint32_t)query->threads;
    query->options.sequences_max = 1;
    model_sandbox_enter_for(choice.path);
    err = model_open(&query->model, choice.path, &query->options, error);
    if (err == OK) model_describe(query->model, &query->is);
    return err;
}

enum err model_query_run(struct model_query *query, struct error *error) {
    enum err err = open_model(query, error);
    if (err != OK) return err;
    err = stdin_records_answer(query->batch, answer_record, query, error);
    model_close(query->model);
    return err;
}
