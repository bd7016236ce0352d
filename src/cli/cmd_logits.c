/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/options.h"
#include "cli/records.h"
#include "engine/model_sandbox.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "server/catalog.h"
#include "json/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS_MAX 1024
#define TOP_DEFAULT 8
#define KV_BYTES ((uint64_t)2 << 30)

struct logits {
    const char *model_name, *kernels, *load_format;
    bool reference, batch;
    int64_t threads;
    struct model *model;
    uint32_t vocab;
};

/* One query: what the request says, with room for what the model answers. */
struct query {
    int32_t *ids;
    uint32_t asked[POSITIONS_MAX]; /* (asked_count) in the order of the query */
    size_t asked_count;
    uint32_t positions[POSITIONS_MAX]; /* the same ascending, each once, as the model takes them */
    struct logits_request request;
    size_t top;
    float *logits; /* (position_count, vocab) */
};

static enum err read_ids(struct query *query, const json_t *ids, struct error *error) {
    size_t count = json_array_size(ids);
    if (count == 0 || count > UINT32_MAX)
        return err_set(error, ERR_INVALID, "ids: not an array of token ids");
    query->ids = calloc(count, sizeof *query->ids);
    if (!query->ids) abort();
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return err_set(error, ERR_INVALID, "ids[%zu]: not a token id", i);
        query->ids[i] = (int32_t)json_integer_value(id);
    }
    query->request.ids = query->ids;
    query->request.count = (uint32_t)count;
    return OK;
}

static int compare_positions(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* A negative position counts from the end, as Python does. */
static enum err read_positions(struct query *query, const json_t *positions, struct error *error) {
    size_t count = positions ? json_array_size(positions) : 1;
    if (count == 0 || count > POSITIONS_MAX)
        return err_set(error, ERR_INVALID, "positions: not an array of 1 to %d positions",
                       POSITIONS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *position = json_array_get(positions, i);
        int64_t at = positions ? json_integer_value(position) : -1;
        if (at < 0) at += query->request.count;
        if ((positions && !json_is_integer(position)) || at < 0 || at >= query->request.count)
            return err_set(error, ERR_INVALID, "positions[%zu]: not a position of %u ids", i,
                           query->request.count);
        query->asked[i] = (uint32_t)at;
    }
    query->asked_count = count;
    memcpy(query->positions, query->asked, count * sizeof *query->positions);
    qsort(query->positions, count, sizeof *query->positions, compare_positions);
    size_t different = 1;
    for (size_t i = 1; i < count; i++)
        if (query->positions[i] != query->positions[different - 1])
            query->positions[different++] = query->positions[i];
    query->request.positions = query->positions;
    query->request.position_count = (uint32_t)different;
    return OK;
}

static void write_position(const struct query *query, size_t index, uint32_t vocab,
                           struct scored *top, struct buf *answer) {
    const uint32_t *found =
        bsearch(&query->asked[index], query->positions, query->request.position_count,
                sizeof *found, compare_positions);
    assert(found);
    const float *logits = query->logits + (size_t)(found - query->positions) * vocab;
    size_t count = kernels_choose("ref")->top_k(logits, vocab, query->top, top);
    buf_printf(answer, "%s{\"position\":%u,\"top\":[", index ? "," : "", query->asked[index]);
    /* Nine significant digits tell every float32 from its neighbours. */
    for (size_t i = 0; i < count; i++)
        buf_printf(answer, "%s[%u,%.9g]", i ? "," : "", top[i].index, (double)top[i].value);
    buf_add_text(answer, "]}");
}

static enum err answer_query(struct logits *logits, struct query *query, const json_t *record,
                             struct buf *answer, struct error *error) {
    const json_t *top = json_member(record, "top");
    int64_t wanted = top ? json_integer_value(top) : TOP_DEFAULT;
    if (!json_is_object(record))
        return err_set(error, ERR_INVALID, "the query is not a JSON object");
    if (wanted < 1 || wanted > logits->vocab)
        return err_set(error, ERR_INVALID, "top: not a number from 1 to %u", logits->vocab);
    query->top = (size_t)wanted;
    enum err err = read_ids(query, json_member(record, "ids"), error);
    if (err == OK) err = read_positions(query, json_member(record, "positions"), error);
    if (err != OK) return err;
    query->logits =
        calloc((size_t)query->request.position_count * logits->vocab, sizeof *query->logits);
    struct scored *best = calloc(query->top, sizeof *best);
    if (!query->logits || !best) abort();
    err = model_logits(logits->model, &query->request, query->logits, error);
    if (err == OK) {
        buf_add_text(answer, "{\"positions\":[");
        for (size_t i = 0; i < query->asked_count; i++)
            write_position(query, i, logits->vocab, best, answer);
        buf_add_text(answer, logits->batch ? "]}" : "]}\n");
    }
    free(best);
    return err;
}

static enum err answer_record(void *context, struct str record, struct buf *answer,
                              struct error *error) {
    json_t *value;
    struct query query = {0};
    enum err err = json_read(&value, record, error);
    if (err != OK) return err;
    err = answer_query(context, &query, value, answer, error);
    free(query.ids);
    free(query.logits);
    json_decref(value);
    return err;
}

static enum err open_model(struct logits *logits, struct error *error) {
    struct model_choice choice;
    enum err err = catalog_choose(logits->model_name, &choice, error);
    if (err != OK) return err;
    bool is_dummy;
    err = engine_options_is_dummy(logits->load_format, &is_dummy, error);
    if (err != OK) return err;
    model_sandbox_enter_for(choice.path);
    const struct model_options options = {.kernels = logits->kernels,
                                          .reference = logits->reference,
                                          .threads = (uint32_t)logits->threads,
                                          .kv_bytes = KV_BYTES,
                                          .sequences_max = 1,
                                          .dummy_weights = is_dummy};
    err = model_open(&logits->model, choice.path, &options, error);
    if (err != OK) return err;
    struct model_description description;
    model_describe(logits->model, &description);
    logits->vocab = description.vocab;
    return OK;
}

static int run(int argc, char **argv) {
    struct logits logits = {0};
    const struct option options[] = {
        {.name = "model",
         .kind = OPTION_TEXT,
         .target = &logits.model_name,
         .value = "M",
         .help = "a model, FILE.gguf or a folder"},
        {.name = "reference",
         .kind = OPTION_SWITCH,
         .target = &logits.reference,
         .help = "plain C in float32: the definition"},
        {.name = "kernels",
         .kind = OPTION_TEXT,
         .target = &logits.kernels,
         .value = "NAME",
         .help = "ref, avx2, avx512 or avx512-bf16 instead of the best"},
        {.name = "threads",
         .kind = OPTION_INTEGER,
         .target = &logits.threads,
         .value = "N",
         .help = "one for each core",
         .min = 0,
         .max = 1024},
        {.name = "load-format",
         .kind = OPTION_TEXT,
         .target = &logits.load_format,
         .value = "FORMAT",
         .help = "auto, or dummy: made-up weights"},
        {.name = "batch",
         .kind = OPTION_SWITCH,
         .target = &logits.batch,
         .help = "one JSON value a line"},
    };
    const struct options_help help = {"logits --model M [options] < query.json",
                                      "Reads {\"ids\":[…],\"positions\":[-1],\"top\":8} and prints "
                                      "the largest logits at these positions.\n"};
    struct error error = {0};
    bool done;
    enum err err = options_read(options, sizeof options / sizeof *options, &help, argc, argv, NULL,
                                0, &done, &error);
    if (err == OK && !done && !logits.model_name)
        err = err_set(&error, ERR_INVALID, "--model is missing");
    if (err != OK) {
        fprintf(stderr, "quern logits: %s\n", error.text);
        return EXIT_WRONG_INPUT;
    }
    if (done) return EXIT_GOOD;
    if (open_model(&logits, &error) != OK) {
        fprintf(stderr, "quern logits: %s\n", error.text);
        return EXIT_MACHINE;
    }
    int status = records_answer(logits.batch, answer_record, &logits);
    model_close(logits.model);
    return status;
}

const struct command cmd_logits = {"logits", "token ids to logits, for checking an engine", false,
                                   run};
