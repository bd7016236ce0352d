/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_body.h"

#include "base/mem.h"
#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>
#include <string.h>

#define LONG_BYTES 4096 /* shorter arrays of ids are values of the tree */
#define ID_DIGITS_MAX 9 /* numbers of more digits are left to the tree, which refuses them */
#define TEXT_COPIES 2   /* the text stands in the job, and in the buffer of the socket */
#define SCRATCH_BYTES_LEAST ((size_t)4 << 20) /* for 116,000 bytes without a break */

void id_lists_release(struct id_lists *lists) {
    ids_release(&lists->ids);
    free(lists->ends);
    *lists = (struct id_lists){.count = 0};
}

const int32_t *id_lists_get(const struct id_lists *lists, size_t index, size_t *ret_count) {
    size_t from = index > 0 ? lists->ends[index - 1] : 0;
    *ret_count = lists->ends[index] - from;
    return lists->ids.at + from;
}

size_t request_body_scratch(size_t memory_left) {
    return memory_left > SCRATCH_BYTES_LEAST ? memory_left : SCRATCH_BYTES_LEAST;
}

/* --- token ids --- */

/* Reads "17"; false for any other value, and for ids that the vocabulary does not have. */
static bool read_id(struct str value, uint32_t vocabulary_count, int32_t *ret_id) {
    uint32_t id = 0;
    if (value.bytes > ID_DIGITS_MAX) return false;
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.at[i] < '0' || value.at[i] > '9') return false;
        id = id * 10 + (uint32_t)(value.at[i] - '0');
    }
    *ret_id = (int32_t)id;
    return id < vocabulary_count;
}

/* Reads one non-empty array of ids. */
static bool read_list(struct id_lists *lists, size_t *capacity, struct str array,
                      uint32_t vocabulary_count) {
    struct json_span_iter iter;
    struct str value;
    size_t from = lists->ids.count;
    int32_t id;
    if (array.bytes == 0 || *array.at != '[' || !json_span_enter(&iter, array)) return false;
    while (json_span_element(&iter, &value)) {
        if (!read_id(value, vocabulary_count, &id)) return false;
        ids_add(&lists->ids, id);
    }
    if (iter.is_bad || lists->ids.count == from) return false;
    lists->ends = vec_grow(lists->ends, lists->count, capacity, sizeof *lists->ends);
    lists->ends[lists->count++] = lists->ids.count;
    return true;
}

/* Reads an array of ids, or of arrays of ids. False if it is neither or has a fault. */
static bool read_lists(struct id_lists *lists, struct str array, uint32_t vocabulary_count) {
    struct json_span_iter iter;
    struct str value;
    size_t capacity = 0;
    if (array.bytes < LONG_BYTES || *array.at != '[') return false;
    if (read_list(lists, &capacity, array, vocabulary_count)) return true;
    if (lists->ids.count > 0 || !json_span_enter(&iter, array)) return false;
    while (json_span_element(&iter, &value))
        if (!read_list(lists, &capacity, value, vocabulary_count)) return false;
    lists->is_list = true;
    return !iter.is_bad && lists->count > 0;
}

/* --- the tree --- */

bool request_body_refuse(struct refusal *refusal, enum err err, const char *param,
                         const struct error *error) {
    if (err == ERR_UNAVAILABLE)
        return refuse_status(refusal, 503, NULL, NULL, "The engine has %s.", error->text);
    return refuse(refusal, "request_too_complex", param, "%s%s%s is too complex: %s.",
                  param ? "Invalid '" : "The request body", param ? param : "",
                  param ? "': it" : "", error->text);
}

static bool read_tree(struct request_body *body, struct str text, struct refusal *refusal) {
    struct error error;
    enum err err = json_read_once(&body->values, text, &body->memory_left, &error);
    if (err == ERR_UNAVAILABLE || err == ERR_LIMIT)
        return request_body_refuse(refusal, err, NULL, &error);
    if (err != OK) return refuse(refusal, NULL, NULL, "The request body is %s.", error.text);
    return json_is_object(body->values) ||
           refuse(refusal, NULL, NULL, "The request body must be a JSON object.");
}

/* Reads the text with 0 in place of the array. */
static bool read_without(struct request_body *body, struct str text, struct str array,
                         struct refusal *refusal) {
    struct buf rest;
    buf_init(&rest, BUF_UNLIMITED);
    buf_add(&rest, text.at, (size_t)(array.at - text.at));
    buf_add_byte(&rest, '0');
    buf_add_str(&rest, str_skip(text, (size_t)(array.at - text.at) + array.bytes));
    bool is_good = read_tree(body, buf_str(&rest), refusal);
    buf_release(&rest);
    return is_good;
}

size_t request_body_cost_max(size_t text_bytes) {
    bool is_long = text_bytes > BODY_COST_LEAST / BODY_COST_FACTOR;
    return is_long ? BODY_COST_FACTOR * text_bytes : BODY_COST_LEAST;
}

bool request_body_read(struct request_body *ret_body, struct str text, const char *ids_name,
                       uint32_t vocabulary_count, struct refusal *ret_refusal) {
    struct request_body body = {.memory_left =
                                    request_body_cost_max(text.bytes) - TEXT_COPIES * text.bytes};
    struct str object = {NULL, 0}, array = {NULL, 0};
    if (ids_name && text.bytes >= LONG_BYTES && json_span_is_utf8(text) &&
        json_span_read(text, &object))
        array = json_span_get(object, ids_name);
    bool is_good = true;
    if (read_lists(&body.ids, array, vocabulary_count)) {
        is_good = read_without(&body, text, array, ret_refusal);
    } else {
        id_lists_release(&body.ids);
        is_good = read_tree(&body, text, ret_refusal);
    }
    if (is_good) {
        *ret_body = body;
        return true;
    }
    json_decref(body.values);
    id_lists_release(&body.ids);
    return false;
}
