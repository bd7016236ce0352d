/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/command.h"
#include "cli/model_query.h"

#include <stdlib.h>

#define TEXTS_MAX 65536

struct embed_command {
    struct model_query query;
    const char *pooling;
};

static const struct option rows[] = {
    {"pooling", OPTION_TEXT, offsetof(struct embed_command, pooling), "NAME",
     .help = "pooling: mean, cls or last (default: the model's)", .words = "mean|cls|last"},
    {0},
};

/* The texts of one query. */
struct query {
    struct embed_sequence *sequences; /* (count) */
    int32_t **ids;                    /* (count) borrowed by the sequences */
    uint32_t count;
};

static enum err read_text(const json_t *ids, uint32_t index, struct embed_sequence *ret_sequence,
                          int32_t **ret_ids, struct error *error) {
    size_t count = json_array_size(ids);
    if (count == 0 || count > UINT32_MAX)
        return err_set(error, ERR_INVALID, "ids[%u]: not an array of token ids", index);
    int32_t *values = mem_new(count, sizeof *values);
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

/* A number of tokens for each text; all 0 if there is no such member. */
static enum err read_places(const json_t *record, const char *key, size_t index, size_t count,
                            uint32_t *ret_place, struct error *error) {
    const json_t *list = json_member(record, key), *place = json_array_get(list, index);
    if (!list) return OK;
    if (json_array_size(list) != count)
        return err_set(error, ERR_INVALID, "%s: not an array of %zu numbers", key, count);
    if (json_integer_value(place) < 0 || json_integer_value(place) > UINT32_MAX)
        return err_set(error, ERR_INVALID, "%s[%zu]: not a number of tokens", key, index);
    *ret_place = (uint32_t)json_integer_value(place);
    return OK;
}

static enum err read_query(struct query *query, const json_t *record, struct error *error) {
    const json_t *texts = json_member(record, "ids");
    size_t count = json_array_size(texts);
    if (count == 0 || count > TEXTS_MAX)
        return err_set(error, ERR_INVALID, "ids: not an array of 1 to %d arrays", TEXTS_MAX);
    query->sequences = mem_new(count, sizeof *query->sequences);
    query->ids = mem_new(count, sizeof *query->ids);
    query->count = (uint32_t)count;
    enum err err = OK;
    for (uint32_t i = 0; i < count && err == OK; i++) {
        struct embed_sequence *text = &query->sequences[i];
        err = read_places(record, "pool_first", i, count, &text->pool_first, error);
        if (err == OK)
            err = read_places(record, "second_first", i, count, &text->second_first, error);
        if (err == OK) err = read_text(json_array_get(texts, i), i, text, &query->ids[i], error);
    }
    return err;
}

static enum err write_vectors(struct model_query *embed, const struct query *query,
                              struct buf *answer, struct error *error) {
    const uint32_t width = embed->is.embedding_width;
    float *vectors = mem_new((size_t)query->count * width, sizeof *vectors);
    enum err err = model_embed(embed->model, query->sequences, query->count, vectors, error);
    const float *at = vectors;
    if (err == OK) buf_add_text(answer, "{\"embeddings\":[");
    for (uint32_t i = 0; err == OK && i < query->count; i++) {
        /* Nine significant digits tell every float32 from its neighbours. */
        for (uint32_t j = 0; j < width; j++, at++)
            buf_printf(answer, "%s%.9g", j ? "," : i ? ",[" : "[", (double)*at);
        buf_add_byte(answer, ']');
    }
    if (err == OK) buf_add_text(answer, "]}");
    free(vectors);
    return err;
}

static enum err answer_query(struct model_query *embed, const json_t *object, struct buf *answer,
                             struct error *error) {
    struct query query = {0};
    enum err err = read_query(&query, object, error);
    if (err == OK) err = write_vectors(embed, &query, answer, error);
    for (uint32_t i = 0; i < query.count; i++) free(query.ids[i]);
    free(query.ids);
    free(query.sequences);
    return err;
}

static enum err check(struct command_call *call, struct error *error) {
    struct embed_command *chosen = call->chosen;
    struct model_query *query = &chosen->query;
    query->answer = answer_query;
    if (chosen->pooling && !pooling_of_name(str_from(chosen->pooling), &query->options.pooling))
        return err_set(error, ERR_INVALID, "--pooling is not mean, cls or last");
    return model_query_check(query, error);
}

static enum err run(struct command_call *call, struct error *error) {
    struct embed_command *chosen = call->chosen;
    return model_query_run(&chosen->query, error);
}

static const struct option_table tables[] = {
    {model_query_rows, offsetof(struct embed_command, query)}, {rows, 0}};

const struct command cmd_embed = {
    .name = "embed",
    .summary = "turn token ids into vectors, for checking an engine",
    .usage = "embed --model M [options] < query.json",
    .help = "Reads {\"ids\":[[…],…],\"pool_first\":[0,…],\"second_first\":[0,…]} and prints the\n"
            "vectors of the texts, each of length 1, or of a cross-encoder the numbers of its "
            "labels.\n",
    .tables = tables,
    .table_count = 2,
    .chosen_bytes = sizeof(struct embed_command),
    .check = check,
    .run = run,
};
