/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/model_query.h"
#include "kernels/kernels.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS_MAX 1024
#define TOP_DEFAULT 8
#define KV_BYTES ((uint64_t)2 << 30)

struct logits_command {
    struct model_query query;
    const char *load_format, *kv_cache_dtype;
};

static const struct option rows[] = {
    {"load-format", OPTION_TEXT, offsetof(struct logits_command, load_format), "FORMAT",
     .help = "weights: auto, or dummy to make them up (default auto)", .words = "auto|dummy"},
    {"kv-cache-dtype", OPTION_TEXT, offsetof(struct logits_command, kv_cache_dtype), "NAME",
     .help = "numbers of the KV cache: auto or int8_per_token_head (default auto)",
     .words = "auto|int8_per_token_head"},
    {0},
};

/* One query and the room for its answer. */
struct query {
    int32_t *ids;
    uint32_t asked[POSITIONS_MAX]; /* (asked_count) in the order of the query */
    size_t asked_count;
    uint32_t positions[POSITIONS_MAX]; /* `asked`, ascending and each once, for the model */
    struct logits_request request;
    size_t top;
    float *logits; /* (position_count, vocab) */
};

static enum err read_ids(struct query *query, const json_t *ids, struct error *error) {
    size_t count = json_array_size(ids);
    if (count == 0 || count > UINT32_MAX)
        return err_set(error, ERR_INVALID, "ids: not an array of token ids");
    query->ids = mem_new(count, sizeof *query->ids);
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

static enum err write_logits(struct model_query *logits, struct query *query, struct buf *answer,
                             struct error *error) {
    const uint32_t vocab = logits->is.vocab;
    query->logits = mem_new((size_t)query->request.position_count * vocab, sizeof *query->logits);
    struct scored *best = mem_new(query->top, sizeof *best);
    enum err err = model_logits(logits->model, &query->request, query->logits, error);
    if (err == OK) {
        buf_add_text(answer, "{\"positions\":[");
        for (size_t i = 0; i < query->asked_count; i++)
            write_position(query, i, vocab, best, answer);
        buf_add_text(answer, "]}");
    }
    free(best);
    return err;
}

static enum err answer_query(struct model_query *logits, const json_t *object, struct buf *answer,
                             struct error *error) {
    const json_t *top = json_member(object, "top");
    int64_t wanted = top ? json_integer_value(top) : TOP_DEFAULT;
    if (wanted < 1 || wanted > logits->is.vocab)
        return err_set(error, ERR_INVALID, "top: not a number from 1 to %u", logits->is.vocab);
    struct query query = {.top = (size_t)wanted};
    enum err err = read_ids(&query, json_member(object, "ids"), error);
    if (err == OK) err = read_positions(&query, json_member(object, "positions"), error);
    if (err == OK) err = write_logits(logits, &query, answer, error);
    free(query.ids);
    free(query.logits);
    return err;
}

static enum err check(struct command_call *call, struct error *error) {
    struct logits_command *chosen = call->chosen;
    struct model_query *query = &chosen->query;
    query->answer = answer_query;
    query->options.kv_bytes = KV_BYTES;
    struct gpu_settings settings;
    const struct gpu_texts texts = {.device = STR("cpu"),
                                    .kv_cache_dtype = str_from(chosen->kv_cache_dtype)};
    enum err err = gpu_settings_read(&settings, &texts, error);
    if (err != OK) return err;
    query->options.kv_is_int8 = settings.kv == GPU_KV_INT8;
    err = engine_options_is_dummy(chosen->load_format, &query->options.dummy_weights, error);
    return err == OK ? model_query_check(query, error) : err;
}

static enum err run(struct command_call *call, struct error *error) {
    struct logits_command *chosen = call->chosen;
    return model_query_run(&chosen->query, error);
}

static const struct option_table tables[] = {
    {model_query_rows, offsetof(struct logits_command, query)}, {rows, 0}};

const struct command cmd_logits = {
    .name = "logits",
    .summary = "turn token ids into logits, for checking an engine",
    .usage = "logits --model M [options] < query.json",
    .help =
        "Reads {\"ids\":[…],\"positions\":[-1],\"top\":8} and prints the largest logits at these\n"
        "positions.\n",
    .tables = tables,
    .table_count = 2,
    .chosen_bytes = sizeof(struct logits_command),
    .check = check,
    .run = run,
};
