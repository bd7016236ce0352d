/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/wire_messages.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The next `count` bytes; NULL if fewer are left. */
static const unsigned char *take(struct wire_cursor *cursor, size_t count) {
    if (cursor->bad || count > cursor->bytes.bytes - cursor->at) {
        cursor->bad = true;
        return NULL;
    }
    const char *at = cursor->bytes.at + cursor->at;
    cursor->at += count;
    return (const unsigned char *)at;
}

static uint64_t get_integer(struct wire_cursor *cursor, size_t bytes) {
    const unsigned char *at = take(cursor, bytes);
    if (!at) return 0;
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

uint8_t wire_get_u8(struct wire_cursor *cursor) {
    return (uint8_t)get_integer(cursor, 1);
}

uint16_t wire_get_u16(struct wire_cursor *cursor) {
    return (uint16_t)get_integer(cursor, 2);
}

uint32_t wire_get_u32(struct wire_cursor *cursor) {
    return (uint32_t)get_integer(cursor, 4);
}

uint64_t wire_get_u64(struct wire_cursor *cursor) {
    return get_integer(cursor, 8);
}

static double get_f64(struct wire_cursor *cursor) {
    uint64_t bits = wire_get_u64(cursor);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Bad unless 0 or 1. */
static bool get_bool(struct wire_cursor *cursor) {
    uint8_t value = wire_get_u8(cursor);
    if (value > 1) cursor->bad = true;
    return value == 1;
}

static struct str get_str(struct wire_cursor *cursor) {
    uint32_t bytes = wire_get_u32(cursor);
    const unsigned char *at = take(cursor, bytes);
    if (!at) return (struct str){NULL, 0};
    return (struct str){(const char *)at, bytes};
}

static void put_integer(struct buf *out, uint64_t value, size_t bytes) {
    char at[8];
    for (size_t i = 0; i < bytes; i++) at[i] = (char)(unsigned char)(value >> (8 * i) & 0xFF);
    buf_add(out, at, bytes);
}

void wire_put_u8(struct buf *out, uint8_t value) {
    put_integer(out, value, 1);
}

void wire_put_u16(struct buf *out, uint16_t value) {
    put_integer(out, value, 2);
}

void wire_put_u32(struct buf *out, uint32_t value) {
    put_integer(out, value, 4);
}

void wire_put_u64(struct buf *out, uint64_t value) {
    put_integer(out, value, 8);
}

static void put_f64(struct buf *out, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    wire_put_u64(out, bits);
}

static void put_str(struct buf *out, struct str text) {
    assert(text.bytes <= UINT32_MAX);
    wire_put_u32(out, (uint32_t)text.bytes);
    buf_add_str(out, text);
}

static void put_names(struct buf *out, const struct wire_names *names) {
    assert(names->count <= WIRE_NAMES_MAX);
    wire_put_u8(out, (uint8_t)names->count);
    for (size_t i = 0; i < names->count; i++) put_str(out, names->at[i]);
}

static void get_names(struct wire_cursor *cursor, struct wire_names *ret_names) {
    size_t count = wire_get_u8(cursor);
    if (count > WIRE_NAMES_MAX) {
        cursor->bad = true;
        return;
    }
    ret_names->count = count;
    for (size_t i = 0; i < count; i++) ret_names->at[i] = get_str(cursor);
}

static enum err end(const struct wire_cursor *cursor, const char *name, struct error *error) {
    if (cursor->bad)
        return err_set(error, ERR_CORRUPT, "wire: a %s of %zu bytes is malformed", name,
                       cursor->bytes.bytes);
    if (cursor->at != cursor->bytes.bytes)
        return err_set(error, ERR_CORRUPT, "wire: %zu bytes after the end of a %s",
                       cursor->bytes.bytes - cursor->at, name);
    return OK;
}

static enum err check_version(const struct wire_cursor *cursor, uint32_t version, const char *name,
                              struct error *error) {
    if (cursor->bad || version == WIRE_VERSION) return OK;
    return err_set(error, ERR_INVALID, "wire: a %s of version %u, this build speaks %d", name,
                   version, WIRE_VERSION);
}

static void put_device(struct buf *out, const struct wire_device *device) {
    put_str(out, device->name);
    put_str(out, device->plugin);
    put_str(out, device->dtype);
    put_str(out, device->kv_cache_dtype);
    put_str(out, device->state_dtype);
    put_str(out, device->quantization);
    put_f64(out, device->memory_share);
    wire_put_u64(out, device->memory_bytes);
    wire_put_u32(out, device->tensor_parallel_size);
}

static struct wire_device get_device(struct wire_cursor *cursor) {
    struct wire_device device = {.name = get_str(cursor)};
    device.plugin = get_str(cursor);
    device.dtype = get_str(cursor);
    device.kv_cache_dtype = get_str(cursor);
    device.state_dtype = get_str(cursor);
    device.quantization = get_str(cursor);
    device.memory_share = get_f64(cursor);
    device.memory_bytes = wire_get_u64(cursor);
    device.tensor_parallel_size = wire_get_u32(cursor);
    if (!(device.memory_share >= 0 && device.memory_share <= 1)) cursor->bad = true;
    return device;
}

void wire_put_hello(struct buf *out, const struct wire_hello *hello) {
    wire_put_u32(out, hello->version);
    put_str(out, hello->model_path);
    put_names(out, &hello->names);
    wire_put_u32(out, hello->threads);
    wire_put_u32(out, hello->prep_threads);
    wire_put_u32(out, hello->max_num_seqs);
    wire_put_u32(out, hello->max_num_batched_tokens);
    wire_put_u32(out, hello->num_speculative_tokens);
    put_str(out, hello->speculative_model);
    wire_put_u32(out, hello->max_model_len);
    wire_put_u64(out, hello->kv_bytes);
    wire_put_u64(out, hello->state_bytes);
    wire_put_u64(out, hello->weight_bytes);
    wire_put_u8(out, hello->prefix_caching);
    wire_put_u8(out, hello->reference);
    put_str(out, hello->kernels);
    put_str(out, hello->pooling);
    wire_put_u8(out, hello->trust_request_chat_template);
    put_str(out, hello->chat_template);
    put_str(out, hello->tool_call_parser);
    wire_put_u8(out, hello->dummy_weights);
    put_str(out, hello->packed_dir);
    wire_put_u64(out, hello->packed_bytes_max);
    put_device(out, &hello->device);
    wire_put_u8(out, hello->is_careful);
}

enum err wire_get_hello(struct str payload, struct wire_hello *ret_hello, struct error *error) {
    struct wire_cursor cursor = {.bytes = payload};
    struct wire_hello hello = {.version = wire_get_u32(&cursor)};
    enum err err = check_version(&cursor, hello.version, "hello", error);
    if (err != OK) return err;
    hello.model_path = get_str(&cursor);
    get_names(&cursor, &hello.names);
    hello.threads = wire_get_u32(&cursor);
    hello.prep_threads = wire_get_u32(&cursor);
    hello.max_num_seqs = wire_get_u32(&cursor);
    hello.max_num_batched_tokens = wire_get_u32(&cursor);
    hello.num_speculative_tokens = wire_get_u32(&cursor);
    hello.speculative_model = get_str(&cursor);
    hello.max_model_len = wire_get_u32(&cursor);
    hello.kv_bytes = wire_get_u64(&cursor);
    hello.state_bytes = wire_get_u64(&cursor);
    hello.weight_bytes = wire_get_u64(&cursor);
    hello.prefix_caching = get_bool(&cursor);
    hello.reference = get_bool(&cursor);
    hello.kernels = get_str(&cursor);
    hello.pooling = get_str(&cursor);
    hello.trust_request_chat_template = get_bool(&cursor);
    hello.chat_template = get_str(&cursor);
    hello.tool_call_parser = get_str(&cursor);
    hello.dummy_weights = get_bool(&cursor);
    hello.packed_dir = get_str(&cursor);
    hello.packed_bytes_max = wire_get_u64(&cursor);
    hello.device = get_device(&cursor);
    hello.is_careful = get_bool(&cursor);
    err = end(&cursor, "hello", error);
    if (err == OK) *ret_hello = hello;
    return err;
}

static void put_about(struct buf *out, const struct model_about *about) {
    put_str(out, about->architecture);
    put_str(out, about->title);
    put_str(out, about->format);
    put_str(out, about->quantization);
    put_str(out, about->template);
    wire_put_u64(out, about->parameters);
    wire_put_u64(out, about->file_bytes);
    wire_put_u64(out, about->memory_bytes);
    wire_put_u32(out, about->context_tokens);
    wire_put_u32(out, about->layers);
    wire_put_u32(out, about->width);
    wire_put_u8(out, about->knows_template);
    wire_put_u8(out, about->takes_tools);
    wire_put_u8(out, about->thinks);
}

static struct model_about get_about(struct wire_cursor *cursor) {
    struct model_about about = {.architecture = get_str(cursor)};
    about.title = get_str(cursor);
    about.format = get_str(cursor);
    about.quantization = get_str(cursor);
    about.template = get_str(cursor);
    about.parameters = wire_get_u64(cursor);
    about.file_bytes = wire_get_u64(cursor);
    about.memory_bytes = wire_get_u64(cursor);
    about.context_tokens = wire_get_u32(cursor);
    about.layers = wire_get_u32(cursor);
    about.width = wire_get_u32(cursor);
    about.knows_template = get_bool(cursor);
    about.takes_tools = get_bool(cursor);
    about.thinks = get_bool(cursor);
    return about;
}

void wire_put_ready(struct buf *out, const struct wire_ready *ready) {
    wire_put_u32(out, ready->version);
    put_names(out, &ready->names);
    wire_put_u64(out, (uint64_t)ready->created_unix_s);
    wire_put_u32(out, ready->context_tokens_max);
    wire_put_u32(out, ready->vocabulary_count);
    wire_put_u64(out, ready->kv_tokens);
    wire_put_u8(out, ready->generates);
    wire_put_u8(out, ready->embeds);
    wire_put_u8(out, ready->decides);
    put_str(out, ready->description);
    put_str(out, ready->device);
    wire_put_u64(out, ready->ledger.limit_bytes);
    for (size_t i = 0; i < CARD_PARTS; i++) wire_put_u64(out, ready->ledger.part_bytes[i]);
    put_about(out, &ready->about);
}

enum err wire_get_ready(struct str payload, struct wire_ready *ret_ready, struct error *error) {
    struct wire_cursor cursor = {.bytes = payload};
    struct wire_ready ready = {.version = wire_get_u32(&cursor)};
    enum err err = check_version(&cursor, ready.version, "ready", error);
    if (err != OK) return err;
    get_names(&cursor, &ready.names);
    ready.created_unix_s = (int64_t)wire_get_u64(&cursor);
    ready.context_tokens_max = wire_get_u32(&cursor);
    ready.vocabulary_count = wire_get_u32(&cursor);
    ready.kv_tokens = wire_get_u64(&cursor);
    ready.generates = get_bool(&cursor);
    ready.embeds = get_bool(&cursor);
    ready.decides = get_bool(&cursor);
    ready.description = get_str(&cursor);
    ready.device = get_str(&cursor);
    ready.ledger.limit_bytes = wire_get_u64(&cursor);
    for (size_t i = 0; i < CARD_PARTS; i++) ready.ledger.part_bytes[i] = wire_get_u64(&cursor);
    ready.about = get_about(&cursor);
    /* A model without a name, or without a use. */
    if (ready.names.count == 0 || (!ready.generates && !ready.embeds)) cursor.bad = true;
    err = end(&cursor, "ready", error);
    if (err == OK) *ret_ready = ready;
    return err;
}

void wire_put_job(struct buf *out, const struct wire_job *job) {
    wire_put_u8(out, (uint8_t)job->endpoint);
    wire_put_u8(out, (uint8_t)job->tier);
    wire_put_u8(out, job->stream);
    wire_put_u8(out, job->is_line);
    wire_put_u32(out, (uint32_t)job->priority);
    put_str(out, job->body);
    put_str(out, job->owner);
}

enum err wire_get_job(struct str payload, struct wire_job *ret_job, struct error *error) {
    struct wire_cursor cursor = {.bytes = payload};
    uint8_t endpoint = wire_get_u8(&cursor);
    uint8_t tier = wire_get_u8(&cursor);
    struct wire_job job = {.stream = get_bool(&cursor)};
    job.is_line = get_bool(&cursor);
    job.priority = (int32_t)wire_get_u32(&cursor);
    job.body = get_str(&cursor);
    job.owner = get_str(&cursor);
    if (endpoint >= ENDPOINT_ALL_COUNT || tier >= TIER_COUNT) cursor.bad = true;
    if (job.owner.bytes >= OWNER_BYTES) cursor.bad = true;
    job.endpoint = (enum endpoint)endpoint;
    job.tier = (enum tier)tier;
    enum err err = end(&cursor, "job", error);
    if (err == OK) *ret_job = job;
    return err;
}

void wire_put_result(struct buf *out, const struct wire_result *result) {
    wire_put_u32(out, (uint32_t)result->status);
    wire_put_u8(out, (uint8_t)result->outcome);
    wire_put_u32(out, (uint32_t)result->usage.input_tokens);
    wire_put_u32(out, (uint32_t)result->usage.cached_tokens);
    wire_put_u32(out, (uint32_t)result->usage.output_tokens);
    wire_put_u32(out, (uint32_t)result->usage.reasoning_tokens);
    wire_put_u8(out, (uint8_t)result->shape);
    wire_put_u64(out, (uint64_t)result->times.queue_ns);
    wire_put_u64(out, (uint64_t)result->times.prefill_ns);
    wire_put_u64(out, (uint64_t)result->times.decode_ns);
    put_str(out, result->body);
}

/* Bad unless it is 0 or more. */
static int64_t get_time(struct wire_cursor *cursor) {
    uint64_t ns = wire_get_u64(cursor);
    if (ns > INT64_MAX) cursor->bad = true;
    return cursor->bad ? 0 : (int64_t)ns;
}

enum err wire_get_result(struct str payload, struct wire_result *ret_result, struct error *error) {
    struct wire_cursor cursor = {.bytes = payload};
    struct wire_result result = {.status = (int32_t)wire_get_u32(&cursor)};
    uint8_t outcome = wire_get_u8(&cursor);
    if (outcome >= OUTCOME_RETURNED) cursor.bad = true;
    result.outcome = (enum outcome)outcome;
    result.usage.input_tokens = wire_get_u32(&cursor);
    result.usage.cached_tokens = wire_get_u32(&cursor);
    result.usage.output_tokens = wire_get_u32(&cursor);
    result.usage.reasoning_tokens = wire_get_u32(&cursor);
    uint8_t shape = wire_get_u8(&cursor);
    if (shape > SHAPE_TRUNCATED) cursor.bad = true;
    result.shape = (enum shape_end)shape;
    result.times.queue_ns = get_time(&cursor);
    result.times.prefill_ns = get_time(&cursor);
    result.times.decode_ns = get_time(&cursor);
    result.body = get_str(&cursor);
    /* An HTTP status, because the server writes it into a status line. */
    if (result.status < 200 || result.status > 599) cursor.bad = true;
    enum err err = end(&cursor, "result", error);
    if (err == OK) *ret_result = result;
    return err;
}

static void put_histogram(struct buf *out, const struct histogram *histogram,
                          const struct histogram_bounds *bounds) {
    for (size_t i = 0; i <= bounds->count; i++) wire_put_u64(out, histogram->counts[i]);
    put_f64(out, histogram->sum);
}

static void get_histogram(struct wire_cursor *cursor, const struct histogram_bounds *bounds,
                          struct histogram *ret_histogram) {
    for (size_t i = 0; i <= bounds->count; i++) ret_histogram->counts[i] = wire_get_u64(cursor);
    ret_histogram->sum = get_f64(cursor);
    if (!(ret_histogram->sum >= 0) || isinf(ret_histogram->sum)) cursor->bad = true;
}

static void put_timings(struct buf *out, const struct timings *timings) {
    for (int origin = 0; origin < TIMING_ORIGINS; origin++) {
        for (int i = 0; i < TIMING_COUNT; i++)
            put_histogram(out, &timings->of[origin][i], &timing_bounds[i]);
        for (int i = 0; i < TIMING_ENDS; i++) wire_put_u64(out, timings->ends[origin][i]);
    }
    put_histogram(out, &timings->step_tokens, &timing_step_bounds);
}

static void get_timings(struct wire_cursor *cursor, struct timings *ret_timings) {
    for (int origin = 0; origin < TIMING_ORIGINS; origin++) {
        for (int i = 0; i < TIMING_COUNT; i++)
            get_histogram(cursor, &timing_bounds[i], &ret_timings->of[origin][i]);
        for (int i = 0; i < TIMING_ENDS; i++) ret_timings->ends[origin][i] = wire_get_u64(cursor);
    }
    get_histogram(cursor, &timing_step_bounds, &ret_timings->step_tokens);
}

void wire_put_stats(struct buf *out, const struct wire_stats *stats) {
    wire_put_u64(out, stats->steps);
    wire_put_u64(out, stats->prompt_tokens);
    wire_put_u64(out, stats->prefix_queries);
    wire_put_u64(out, stats->cached_tokens);
    wire_put_u64(out, stats->completion_tokens);
    wire_put_u64(out, stats->preemptions);
    wire_put_u64(out, stats->nonfinite_rows);
    wire_put_u64(out, stats->drafts);
    wire_put_u64(out, stats->draft_tokens);
    wire_put_u64(out, stats->accepted_tokens);
    wire_put_u64(out, stats->state_saves);
    wire_put_u64(out, stats->state_hits);
    wire_put_u64(out, stats->state_evictions);
    wire_put_u32(out, stats->states_stored);
    wire_put_u32(out, stats->running);
    wire_put_u32(out, stats->waiting);
    put_f64(out, stats->kv_used);
    wire_put_u32(out, stats->step_age_ms);
    wire_put_u32(out, stats->step_ms_max);
    wire_put_u32(out, stats->token_age_ms);
    put_timings(out, &stats->timings);
}

enum err wire_get_stats(struct str payload, struct wire_stats *ret_stats, struct error *error) {
    struct wire_cursor cursor = {.bytes = payload};
    struct wire_stats stats = {.steps = wire_get_u64(&cursor)};
    stats.prompt_tokens = wire_get_u64(&cursor);
    stats.prefix_queries = wire_get_u64(&cursor);
    stats.cached_tokens = wire_get_u64(&cursor);
    stats.completion_tokens = wire_get_u64(&cursor);
    stats.preemptions = wire_get_u64(&cursor);
    stats.nonfinite_rows = wire_get_u64(&cursor);
    stats.drafts = wire_get_u64(&cursor);
    stats.draft_tokens = wire_get_u64(&cursor);
    stats.accepted_tokens = wire_get_u64(&cursor);
    stats.state_saves = wire_get_u64(&cursor);
    stats.state_hits = wire_get_u64(&cursor);
    stats.state_evictions = wire_get_u64(&cursor);
    stats.states_stored = wire_get_u32(&cursor);
    stats.running = wire_get_u32(&cursor);
    stats.waiting = wire_get_u32(&cursor);
    stats.kv_used = get_f64(&cursor);
    stats.step_age_ms = wire_get_u32(&cursor);
    stats.step_ms_max = wire_get_u32(&cursor);
    stats.token_age_ms = wire_get_u32(&cursor);
    get_timings(&cursor, &stats.timings);
    if (!(stats.kv_used >= 0 && stats.kv_used <= 1)) cursor.bad = true;
    enum err err = end(&cursor, "stats", error);
    if (err == OK) *ret_stats = stats;
    return err;
}
