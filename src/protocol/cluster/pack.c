/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/pack.h"

#include "base/crc.h"
#include "cluster/fields.h"

#include <assert.h>
#include <string.h>

#define JOB_STREAM 1u
#define JOB_IS_LINE 2u

/* --- packs and records --- */

void pack_begin(struct buf *pack) {
    static const char head[PACK_HEAD_BYTES] = {PACK_VERSION};
    buf_clear(pack);
    buf_add(pack, head, sizeof head);
}

static void set_u64(char *at, uint64_t value) {
    for (size_t i = 0; i < 8; i++) at[i] = (char)(unsigned char)(value >> (8 * i) & 0xFF);
}

static void set_u32(char *at, uint32_t value) {
    for (size_t i = 0; i < 4; i++) at[i] = (char)(unsigned char)(value >> (8 * i) & 0xFF);
}

void pack_seal(struct buf *pack, uint64_t round, uint64_t seq) {
    assert(pack->bytes >= PACK_HEAD_BYTES);
    set_u64(pack->at + 8, round);
    set_u64(pack->at + 16, seq);
}

bool pack_open(struct pack_reader *ret_reader, struct pack_head *ret_head, struct str pack) {
    struct wire_cursor cursor = {.bytes = pack};
    *ret_reader = (struct pack_reader){.is_bad = true};
    if (pack.bytes < PACK_HEAD_BYTES || wire_get_u8(&cursor) != PACK_VERSION) return false;
    cursor.at = 8;
    ret_head->round = wire_get_u64(&cursor);
    ret_head->seq = wire_get_u64(&cursor);
    *ret_reader = (struct pack_reader){.rest = str_skip(pack, PACK_HEAD_BYTES)};
    return true;
}

static uint32_t sum_of(const char *record, size_t bytes) {
    return crc32c(crc32c(0, record, 4), record + 8, bytes - 8);
}

bool pack_next(struct pack_reader *reader, struct pack_record *ret_record) {
    if (reader->is_bad || reader->rest.bytes == 0) return false;
    struct wire_cursor cursor = {.bytes = reader->rest};
    uint32_t bytes = wire_get_u32(&cursor), sum = wire_get_u32(&cursor);
    size_t whole = (size_t)bytes + PACK_RECORD_BYTES;
    reader->is_bad = whole > reader->rest.bytes || sum != sum_of(reader->rest.at, whole);
    if (reader->is_bad) return false;
    ret_record->kind = wire_get_u8(&cursor);
    ret_record->worker = wire_get_u8(&cursor);
    (void)wire_get_u16(&cursor);
    ret_record->id = wire_get_u64(&cursor);
    ret_record->payload = (struct str){reader->rest.at + PACK_RECORD_BYTES, bytes};
    reader->rest = str_skip(reader->rest, whole);
    return true;
}

/* Begins a record; record_end closes the one that began at the returned place. */
static size_t record_begin(struct buf *pack, enum pack_kind kind, uint8_t worker, uint64_t id) {
    size_t at = pack->bytes;
    wire_put_u64(pack, 0);
    wire_put_u8(pack, (uint8_t)kind);
    wire_put_u8(pack, worker);
    wire_put_u16(pack, 0);
    wire_put_u64(pack, id);
    return at;
}

/* A record that the buffer had no room for is taken back as a whole. */
static void record_end(struct buf *pack, size_t at) {
    if (pack->overflowed) {
        buf_truncate(pack, at);
        return;
    }
    size_t bytes = pack->bytes - at;
    set_u32(pack->at + at, (uint32_t)(bytes - PACK_RECORD_BYTES));
    set_u32(pack->at + at + 4, sum_of(pack->at + at, bytes));
}

void pack_copy(struct buf *pack, const struct pack_record *record) {
    buf_add(pack, record->payload.at - PACK_RECORD_BYTES,
            record->payload.bytes + PACK_RECORD_BYTES);
}

/* --- kinds --- */

void pack_job(struct buf *pack, uint8_t worker, const struct worker_job *job) {
    size_t at = record_begin(pack, PACK_JOB, worker, job->id);
    wire_put_u8(pack, (uint8_t)job->endpoint);
    wire_put_u8(pack, (uint8_t)job->tier);
    wire_put_u8(pack, (uint8_t)((job->stream ? JOB_STREAM : 0) | (job->is_line ? JOB_IS_LINE : 0)));
    wire_put_u32(pack, (uint32_t)job->priority);
    wire_put_u64(pack, (uint64_t)job->deadline_unix_s);
    wire_put_u64(pack, (uint64_t)job->keep_ms);
    field_put_str(pack, job->model);
    field_put_str(pack, str_from(job->owner));
    field_put_str(pack, job->body);
    field_put_str(pack, job->line);
    record_end(pack, at);
}

/* A name of a line that stands at the end, where older releases have none. False if it is bad. */
static bool get_line(struct wire_cursor *cursor, struct str *ret_line) {
    *ret_line = (struct str){0};
    if (cursor->at < cursor->bytes.bytes) *ret_line = field_get_str(cursor);
    return !cursor->bad && ret_line->bytes < WORKER_LINE_BYTES;
}

bool pack_read_job(const struct pack_record *record, struct worker_job *ret_job) {
    struct wire_cursor cursor = {.bytes = record->payload};
    struct worker_job job = {.id = record->id};
    uint8_t endpoint = wire_get_u8(&cursor), tier = wire_get_u8(&cursor);
    uint8_t flags = wire_get_u8(&cursor);
    job.priority = (int32_t)wire_get_u32(&cursor);
    job.deadline_unix_s = (int64_t)wire_get_u64(&cursor);
    job.keep_ms = (int64_t)wire_get_u64(&cursor);
    job.model = field_get_str(&cursor);
    struct str owner = field_get_str(&cursor);
    job.body = field_get_str(&cursor);
    if (cursor.bad || endpoint >= ENDPOINT_ALL_COUNT || tier >= TIER_COUNT ||
        owner.bytes >= sizeof job.owner || job.model.bytes >= MODEL_NAME_BYTES ||
        !get_line(&cursor, &job.line))
        return false;
    job.endpoint = (enum endpoint)endpoint;
    job.tier = (enum tier)tier;
    job.stream = (flags & JOB_STREAM) != 0;
    job.is_line = (flags & JOB_IS_LINE) != 0;
    if (owner.bytes > 0) memcpy(job.owner, owner.at, owner.bytes);
    *ret_job = job;
    return true;
}

void pack_result(struct buf *pack, uint8_t worker, const struct worker_result *result,
                 struct str line) {
    const struct usage *usage = &result->usage;
    size_t at = record_begin(pack, PACK_RESULT, worker, result->id);
    wire_put_u8(pack, (uint8_t)result->outcome);
    wire_put_u8(pack, (uint8_t)result->shape);
    wire_put_u32(pack, (uint32_t)result->status);
    wire_put_u64(pack, (uint64_t)result->retry_after_ms);
    wire_put_u64(pack, usage->input_tokens);
    wire_put_u64(pack, usage->cached_tokens);
    wire_put_u64(pack, usage->output_tokens);
    wire_put_u64(pack, usage->reasoning_tokens);
    wire_put_u64(pack, (uint64_t)result->times.queue_ns);
    wire_put_u64(pack, (uint64_t)result->times.prefill_ns);
    wire_put_u64(pack, (uint64_t)result->times.decode_ns);
    field_put_str(pack, result->body);
    field_put_str(pack, line);
    record_end(pack, at);
}

bool pack_read_result(const struct pack_record *record, struct worker_result *ret_result,
                      struct str *ret_line) {
    struct wire_cursor cursor = {.bytes = record->payload};
    struct worker_result result = {.id = record->id};
    uint8_t outcome = wire_get_u8(&cursor), shape = wire_get_u8(&cursor);
    result.status = (int32_t)wire_get_u32(&cursor);
    result.retry_after_ms = (int64_t)wire_get_u64(&cursor);
    result.usage.input_tokens = wire_get_u64(&cursor);
    result.usage.cached_tokens = wire_get_u64(&cursor);
    result.usage.output_tokens = wire_get_u64(&cursor);
    result.usage.reasoning_tokens = wire_get_u64(&cursor);
    result.times.queue_ns = (int64_t)wire_get_u64(&cursor);
    result.times.prefill_ns = (int64_t)wire_get_u64(&cursor);
    result.times.decode_ns = (int64_t)wire_get_u64(&cursor);
    result.body = field_get_str(&cursor);
    if (cursor.bad || outcome > OUTCOME_RETURNED || shape >= SHAPE_END_COUNT ||
        !get_line(&cursor, ret_line))
        return false;
    result.outcome = (enum outcome)outcome;
    result.shape = (enum shape_end)shape;
    *ret_result = result;
    return true;
}

void pack_text(struct buf *pack, enum pack_kind kind, uint8_t worker, uint64_t id,
               struct str text) {
    size_t at = record_begin(pack, kind, worker, id);
    field_put_str(pack, text);
    record_end(pack, at);
}

bool pack_read_text(const struct pack_record *record, struct str *ret_text) {
    struct wire_cursor cursor = {.bytes = record->payload};
    struct str text = field_get_str(&cursor);
    if (!cursor.bad) *ret_text = text;
    return !cursor.bad;
}

void pack_bare(struct buf *pack, enum pack_kind kind, uint8_t worker, uint64_t id) {
    record_end(pack, record_begin(pack, kind, worker, id));
}

void pack_want(struct buf *pack, uint8_t worker, enum tier tier, int64_t deadline_unix_s) {
    size_t at = record_begin(pack, PACK_WANT, worker, 0);
    wire_put_u8(pack, (uint8_t)tier);
    wire_put_u64(pack, (uint64_t)deadline_unix_s);
    record_end(pack, at);
}

bool pack_read_want(const struct pack_record *record, enum tier *ret_tier,
                    int64_t *ret_deadline_unix_s) {
    struct wire_cursor cursor = {.bytes = record->payload};
    uint8_t tier = wire_get_u8(&cursor);
    uint64_t deadline = wire_get_u64(&cursor);
    if (cursor.bad || tier >= TIER_COUNT) return false;
    *ret_tier = (enum tier)tier;
    *ret_deadline_unix_s = (int64_t)deadline;
    return true;
}

void pack_sync(struct buf *pack, uint64_t round, bool keeps_jobs, bool adopts) {
    size_t at = record_begin(pack, PACK_SYNC, 0, round);
    wire_put_u8(pack, keeps_jobs);
    wire_put_u8(pack, adopts);
    record_end(pack, at);
}

bool pack_read_sync(const struct pack_record *record, bool *ret_keeps_jobs, bool *ret_adopts) {
    struct wire_cursor cursor = {.bytes = record->payload};
    uint8_t keeps = wire_get_u8(&cursor), adopts = 0;
    if (cursor.at < cursor.bytes.bytes) adopts = wire_get_u8(&cursor);
    if (cursor.bad || keeps > 1 || adopts > 1) return false;
    *ret_keeps_jobs = keeps;
    *ret_adopts = adopts;
    return true;
}

void pack_held(struct buf *pack, const uint64_t *ids, size_t count, bool is_last) {
    size_t at = record_begin(pack, PACK_HELD, 0, 0);
    wire_put_u8(pack, is_last);
    wire_put_u32(pack, (uint32_t)count);
    for (size_t i = 0; i < count; i++) wire_put_u64(pack, ids[i]);
    record_end(pack, at);
}

bool pack_read_held(const struct pack_record *record, struct str *ret_ids, size_t *ret_count,
                    bool *ret_is_last) {
    struct wire_cursor cursor = {.bytes = record->payload};
    uint8_t is_last = wire_get_u8(&cursor);
    uint32_t count = wire_get_u32(&cursor);
    struct str ids = str_skip(record->payload, cursor.at);
    if (cursor.bad || is_last > 1 || count > ids.bytes / 8) return false;
    ret_ids->at = ids.at;
    ret_ids->bytes = (size_t)count * 8;
    *ret_count = count;
    *ret_is_last = is_last;
    return true;
}

uint64_t pack_held_id(struct str ids, size_t index) {
    struct wire_cursor cursor = {.bytes = ids, .at = index * 8};
    return wire_get_u64(&cursor);
}
