/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/beat.h"

#include "cluster/fields.h"

#include <assert.h>
#include <string.h>

#define HAS_GAP 1u

enum { IS_READY = 1, IS_PARKED = 2, IS_FAILED = 4, KNOWS_NAMES = 8 };
enum { GENERATES = 1, EMBEDS = 2, DECIDES = 4, HAS_IDENTITY = 8 };

static void put_model(struct buf *out, const struct beat_model *model) {
    field_put_str(out, model->name);
    wire_put_u64(out, (uint64_t)model->created_unix_s);
    wire_put_u32(out, model->context_tokens_max);
    wire_put_u8(out, (uint8_t)((model->generates ? GENERATES : 0) | (model->embeds ? EMBEDS : 0) |
                               (model->decides ? DECIDES : 0) |
                               (model->has_identity ? HAS_IDENTITY : 0)));
    buf_add(out, model->identity, sizeof model->identity);
}

static void put_worker(struct buf *out, const struct beat_worker *worker) {
    wire_put_u8(out, worker->shapes);
    wire_put_u8(out,
                (uint8_t)((worker->ready ? IS_READY : 0) | (worker->is_parked ? IS_PARKED : 0) |
                          (worker->is_failed ? IS_FAILED : 0) |
                          (worker->knows_names ? KNOWS_NAMES : 0)));
    wire_put_u32(out, worker->lines_max);
    wire_put_u32(out, worker->weight);
    wire_put_u32(out, worker->running);
    wire_put_u32(out, worker->waiting);
    wire_put_u64(out, worker->restarts);
    wire_put_u64(out, worker->steps);
    wire_put_u64(out, (uint64_t)worker->step_age_ms);
    wire_put_u64(out, worker->prompt_tokens);
    wire_put_u64(out, worker->cached_tokens);
    wire_put_u64(out, worker->completion_tokens);
    wire_put_u64(out, worker->memory_bytes);
    wire_put_u32(out, worker->kv_permille);
    field_put_str(out, worker->text);
    wire_put_u8(out, (uint8_t)worker->model_count);
    for (size_t i = 0; i < worker->model_count; i++) put_model(out, &worker->models[i]);
    wire_put_u8(out, (uint8_t)worker->model_count);
    for (size_t i = 0; i < worker->model_count; i++) {
        wire_put_u8(out, worker->models[i].has_weights);
        buf_add(out, worker->models[i].weights, sizeof worker->models[i].weights);
    }
}

void beat_write(struct buf *out, const struct beat *beat) {
    assert(beat->worker_count <= BEAT_WORKERS_MAX);
    struct buf one;
    buf_init(&one, BUF_UNLIMITED);
    wire_put_u8(out, BEAT_VERSION);
    wire_put_u8(out, beat->state);
    wire_put_u8(out, beat->has_gap ? HAS_GAP : 0);
    wire_put_u64(out, beat->round);
    wire_put_u64(out, beat->work_seq);
    wire_put_u64(out, beat->result_seq);
    wire_put_u64(out, beat->count);
    field_put_str(out, beat->name);
    field_put_str(out, beat->version);
    wire_put_u8(out, (uint8_t)beat->worker_count);
    for (size_t i = 0; i < beat->worker_count; i++) {
        buf_clear(&one);
        put_worker(&one, &beat->workers[i]);
        field_put_str(out, buf_str(&one));
    }
    buf_release(&one);
}

static bool read_model(struct wire_cursor *cursor, struct beat_model *model) {
    model->name = field_get_str(cursor);
    model->created_unix_s = (int64_t)wire_get_u64(cursor);
    model->context_tokens_max = wire_get_u32(cursor);
    uint8_t flags = wire_get_u8(cursor);
    model->generates = (flags & GENERATES) != 0;
    model->embeds = (flags & EMBEDS) != 0;
    model->decides = (flags & DECIDES) != 0;
    model->has_identity = (flags & HAS_IDENTITY) != 0;
    for (size_t i = 0; i < sizeof model->identity; i++) model->identity[i] = wire_get_u8(cursor);
    model->has_weights = false;
    return !cursor->bad && model->name.bytes > 0 && model->name.bytes < MODEL_NAME_BYTES &&
           !memchr(model->name.at, '\0', model->name.bytes);
}

/* Behind the models, unless an older node wrote the beat. */
static bool read_marks(struct wire_cursor *cursor, struct beat_worker *worker) {
    if (wire_get_u8(cursor) != worker->model_count) return false;
    for (size_t i = 0; i < worker->model_count; i++) {
        struct beat_model *model = &worker->models[i];
        model->has_weights = wire_get_u8(cursor) != 0;
        for (size_t at = 0; at < sizeof model->weights; at++)
            model->weights[at] = wire_get_u8(cursor);
    }
    return !cursor->bad;
}

static bool read_worker(struct str bytes, struct beat_worker *worker) {
    struct wire_cursor cursor = {.bytes = bytes};
    worker->shapes = wire_get_u8(&cursor);
    uint8_t flags = wire_get_u8(&cursor);
    worker->ready = (flags & IS_READY) != 0;
    worker->is_parked = (flags & IS_PARKED) != 0;
    worker->is_failed = (flags & IS_FAILED) != 0;
    worker->knows_names = (flags & KNOWS_NAMES) != 0;
    worker->lines_max = wire_get_u32(&cursor);
    worker->weight = wire_get_u32(&cursor);
    worker->running = wire_get_u32(&cursor);
    worker->waiting = wire_get_u32(&cursor);
    worker->restarts = wire_get_u64(&cursor);
    worker->steps = wire_get_u64(&cursor);
    worker->step_age_ms = (int64_t)wire_get_u64(&cursor);
    worker->prompt_tokens = wire_get_u64(&cursor);
    worker->cached_tokens = wire_get_u64(&cursor);
    worker->completion_tokens = wire_get_u64(&cursor);
    worker->memory_bytes = wire_get_u64(&cursor);
    worker->kv_permille = wire_get_u32(&cursor);
    worker->text = field_get_str(&cursor);
    worker->model_count = wire_get_u8(&cursor);
    if (cursor.bad || worker->shapes > SHAPES_REFUSED || worker->model_count > BEAT_MODELS_MAX ||
        worker->kv_permille > 1000)
        return false;
    for (size_t i = 0; i < worker->model_count; i++)
        if (!read_model(&cursor, &worker->models[i])) return false;
    return cursor.at == bytes.bytes || read_marks(&cursor, worker);
}

bool beat_read(struct str bytes, struct beat *ret_beat) {
    struct wire_cursor cursor = {.bytes = bytes};
    if (wire_get_u8(&cursor) != BEAT_VERSION) return false;
    ret_beat->state = wire_get_u8(&cursor);
    ret_beat->has_gap = (wire_get_u8(&cursor) & HAS_GAP) != 0;
    ret_beat->round = wire_get_u64(&cursor);
    ret_beat->work_seq = wire_get_u64(&cursor);
    ret_beat->result_seq = wire_get_u64(&cursor);
    ret_beat->count = wire_get_u64(&cursor);
    ret_beat->name = field_get_str(&cursor);
    ret_beat->version = field_get_str(&cursor);
    ret_beat->worker_count = wire_get_u8(&cursor);
    if (cursor.bad || ret_beat->state > BEAT_DRAINING || ret_beat->worker_count > BEAT_WORKERS_MAX)
        return false;
    for (size_t i = 0; i < ret_beat->worker_count; i++) {
        struct str one = field_get_str(&cursor);
        if (cursor.bad || !read_worker(one, &ret_beat->workers[i])) return false;
    }
    return true;
}
