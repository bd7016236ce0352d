/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/options.h"
#include "cli/records.h"
#include "engine/model_sandbox.h"
#include "model/model.h"
#include "server/catalog.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 65536

struct embed {
    const char *model_name, *kernels, *pooling;
    bool reference, batch;
    int64_t threads;
    struct model *model;
    uint32_t width;
};

/* The texts of one query. */
struct query {
    struct embed_sequence *sequences; /* (count) */
    int32_t **ids;                    /* (count) what the sequences point to */
    uint32_t count;
};

static enum err read_text(const json_t *ids, uint32_t index, struct embed_sequence *ret_sequence,
                          int32_t **ret_ids, struct error *error) {
    size_t count = json_array_size(ids);
    if (count == 0 || count > UINT32_MAX)
        return err_set(error, ERR_INVALID, "ids[%u]: not an array of token ids", index);
    int32_t *values = calloc(count, sizeof *values);
    if (!values) abort();
    ret_sequence->ids = *ret_ids = values;
    ret_sequence->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return err_set(error, ERR_INVALID, "ids[%u][%zu]: not a token id", index, i);
        values[i] = (int32_t)json_integer_value(id);
    }
    return OK;
}

static enum err read_query(struct query *query, const json_t *record, struct error *error) {
    const json_t *texts = json_member(record, "ids");
    const json_t *firsts = json_member(record, "pool_first");
    size_t count = json_array_size(texts);
    if (count == 0 || count > TEXTS_MAX)
        return err_set(error, ERR_INVALID, "ids: not an array of 1 to %d arrays", TEXTS_MAX);
    if (firsts && json_array_size(firsts) != count)
        return err_set(error, ERR_INVALID, "pool_first: not an array of %zu numbers", count);
    query->sequences = calloc(count, sizeof *query->sequences);
    query->ids = calloc(count, sizeof *query->ids);
    if (!query->sequences || !query->ids) abort();
    query->count = (uint32_t)count;
    enum err err = OK;
    for (uint32_t i = 0; i < count && err == OK; i++) {
        const json_t *first = firsts ? json_array_get(firsts, i) : NULL;
        if (first && (json_integer_value(first) < 0 || json_integer_value(first) > UINT32_MAX))
            return err_set(error, ERR_INVALID, "pool_first[%u]: not a number of tokens", i);
        query->sequences[i].pool_first = first ? (uint32_t)json_integer_value(first) : 0;
        err = read_text(json_array_get(texts, i), i, &query->sequences[i], &query->ids[i], error);
    }
    return err;
}

static enum err answer_query(struct embed *embed, const struct query *query, struct buf *answer,
                             struct error *error) {
    float *vectors = calloc((size_t)query->count * embed->width, sizeof *vectors);
    if (!vectors) abort();
    enum err err = model_embed(embed->model, query->sequences, query->count, vectors, error);
    const float *at = vectors;
    if (err == OK) buf_add_text(answer, "{\"embeddings\":[");
    for (uint32_t i = 0; err == OK && i < query->count; i++) {
        /* Nine significant digits tell every float32 from its neighbours. */
        for (uint32_t j = 0; j < embed->width; j++, at++)
            buf_printf(answer, "%s%.9g", j ? "," : i ? ",[" : "[", (double)*at);
        buf_add_byte(answer, ']');
    }
    if (err == OK) buf_add_text(answer, embed->batch ? "]}" : "]}\n");
    free(vectors);
    return err;
}

static enum err answer_record(void *context, struct str record, struct buf *answer,
                              struct error *error) {
    json_t *value;
    struct query query = {0};
    enum err err = json_read(&value, record, error);
    if (err != OK) return err;
    if (json_is_object(value))
        err = read_query(&query, value, error);
    else
        err = err_set(error, ERR_INVALID, "the query is not a JSON object");
    if (err == OK) err = answer_query(context, &query, answer, error);
    for (uint32_t i = 0; i < query.count; i++) free(query.ids[i]);
    free(query.ids);
    free(query.sequences);
    json_decref(value);
    return err;
}

static enum err open_model(struct embed *embed, struct error *error) {
    struct model_choice choice;
    enum err err = catalog_choose(embed->model_name, &choice, error);
    if (err != OK) return err;
    struct model_options options = {.kernels = embed->kernels,
                                    .reference = embed->reference,
                                    .threads = (uint32_t)embed->threads,
                                    .sequences_max = 1};
    if (embed->pooling && !pooling_of_name(str_from(embed->pooling), &options.pooling))
        return err_set(error, ERR_INVALID, "--pooling is not mean, cls or last");
    model_sandbox_enter_for(choice.path);
    err = model_open(&embed->model, choice.path, &options, error);
    if (err != OK) return err;
    struct model_description description;
    model_describe(embed->model, &description);
    embed->width = description.embedding_width;
    return OK;
}

static int run(int argc, char **argv) {
    struct embed embed = {0};
    const struct option options[] = {
        {.name = "model",
         .kind = OPTION_TEXT,
         .target = &embed.model_name,
         .value = "M",
         .help = "a model or FILE.gguf"},
        {.name = "pooling",
         .kind = OPTION_TEXT,
         .target = &embed.pooling,
         .value = "NAME",
         .help = "mean, cls or last, instead of what the model says"},
        {.name = "reference",
         .kind = OPTION_SWITCH,
         .target = &embed.reference,
         .help = "plain C in float32: the definition"},
        {.name = "kernels",
         .kind = OPTION_TEXT,
         .target = &embed.kernels,
         .value = "NAME",
         .help = "ref, avx2, avx512 or avx512-bf16 instead of the best"},
        {.name = "threads",
         .kind = OPTION_INTEGER,
         .target = &embed.threads,
         .value = "N",
         .help = "one for each core",
         .min = 0,
         .max = 1024},
        {.name = "batch",
         .kind = OPTION_SWITCH,
         .target = &embed.batch,
         .help = "one JSON value a line"},
    };
    const struct options_help help = {"embed --model M [options] < query.json",
                                      "Reads {\"ids\":[[…],…],\"pool_first\":[0,…]} and prints the "
                                      "texts' vectors, each of length 1.\n"};
    struct error error = {0};
    bool done;
    enum err err = options_read(options, sizeof options / sizeof *options, &help, argc, argv, NULL,
                                0, &done, &error);
    if (err == OK && !done && !embed.model_name)
        err = err_set(&error, ERR_INVALID, "--model is missing");
    if (err != OK) {
        fprintf(stderr, "quern embed: %s\n", error.text);
        return EXIT_WRONG_INPUT;
    }
    if (done) return EXIT_GOOD;
    if (open_model(&embed, &error) != OK) {
        fprintf(stderr, "quern embed: %s\n", error.text);
        return EXIT_MACHINE;
    }
    int status = records_answer(embed.batch, answer_record, &embed);
    model_close(embed.model);
    return status;
}

const struct command cmd_embed = {"embed", "token ids to vectors, for checking an engine", false,
                                  run};
