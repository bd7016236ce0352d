/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/shape_check.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "chat/tool_tags.h"
#include "grammar/grammar_internal.h"
#include "json/json.h"

#include <stdlib.h>

#define MEMORY_MAX ((size_t)64 << 20) /* the fields' tree; the engine bounds a whole body */
#define WORK_OF_ONE 1000u             /* opening and closing a grammar */
/* In the map: the shape can be held; the fields ask for none. */
#define GOOD UINT64_MAX
#define NO_SHAPE (UINT64_MAX - 1)

struct shape_check {
    struct map known;         /* hash of a text → GOOD, NO_SHAPE, or index of its refusal */
    struct refusal *refusals; /* (refusal_count) */
    size_t refusal_count, refusal_capacity;
    struct grammar_cost cost;
    uint64_t work_max;
    struct shape_check_stats stats;
};

struct shape_check *shape_check_open(uint64_t work_max) {
    struct shape_check *check = mem_new(1, sizeof *check);
    map_init(&check->known);
    check->work_max = work_max;
    return check;
}

void shape_check_close(struct shape_check *check) {
    if (!check) return;
    map_release(&check->known);
    free(check->refusals);
    free(check);
}

/* Compiles a shape, whose source it takes over; none is good. */
static bool compile_shape(struct shape_check *check, const struct asked_shape *shape,
                          struct refusal *refusal) {
    struct error error;
    if (!shape->source) return true;
    check->stats.distinct++;
    uint64_t before = check->cost.bytes;
    enum err err = grammar_try(shape->kind, shape->source, &check->cost, &error);
    json_decref(shape->source);
    uint64_t bytes = check->cost.bytes - before;
    if (bytes > check->stats.bytes_max) check->stats.bytes_max = bytes;
    return err == OK || asked_shape_refuse(shape, &error, refusal);
}

static bool read_fields(struct str fields, json_t **ret_body, struct refusal *refusal) {
    struct error error;
    size_t memory = MEMORY_MAX;
    return json_read_within(ret_body, fields, &memory, &error) == OK ||
           refuse(refusal, "invalid_value", NULL, "Invalid body: its schema and tools %s%s.",
                  error.code == ERR_INVALID ? "are " : "are too large: ", error.text);
}

static bool compile(struct shape_check *check, struct str fields, struct refusal *refusal) {
    struct asked_shape shape, calls = {.kind = GRAMMAR_TAGS};
    json_t *body;
    if (!read_fields(fields, &body, refusal)) return false;
    bool is_good = asked_shape_read(body, &shape, refusal) && compile_shape(check, &shape, refusal);
    if (is_good) calls.source = tool_tags_schemas(body, &calls.param);
    is_good = is_good && compile_shape(check, &calls, refusal);
    json_decref(body);
    return is_good;
}

static void forget(struct shape_check *check) {
    map_release(&check->known);
    map_init(&check->known);
    check->refusal_count = 0;
}

static bool read_only(struct str fields, struct refusal *refusal) {
    struct asked_shape shape = {.source = NULL};
    json_t *body;
    if (!read_fields(fields, &body, refusal)) return false;
    bool is_good = asked_shape_read(body, &shape, refusal);
    if (is_good) json_decref(shape.source);
    json_decref(body);
    return is_good;
}

/* Reads the fields, and compiles a shape, that are not known. */
static bool add(struct shape_check *check, struct str key, struct str fields, bool compiles,
                struct refusal *ret_refusal) {
    check->cost.work += WORK_OF_ONE + fields.bytes;
    int64_t start_ns = clock_monotonic_ns();
    uint64_t compiled = check->stats.distinct;
    bool is_good = compiles ? compile(check, fields, ret_refusal) : read_only(fields, ret_refusal);
    bool has_shape = !is_good || check->stats.distinct > compiled;
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    check->stats.seconds += seconds;
    if (seconds > check->stats.seconds_max) check->stats.seconds_max = seconds;
    if (!is_good) check->stats.refused++;
    if (check->known.count == SHAPE_CHECK_KNOWN_MAX) forget(check);
    if (has_shape) check->stats.asked++;
    map_put(&check->known, key, is_good ? (has_shape ? GOOD : NO_SHAPE) : check->refusal_count);
    if (is_good) return true;
    check->refusals = vec_grow(check->refusals, check->refusal_count, &check->refusal_capacity,
                               sizeof *check->refusals);
    check->refusals[check->refusal_count++] = *ret_refusal;
    return false;
}

static bool look(struct shape_check *check, struct str fields, bool compiles,
                 struct refusal *ret_refusal) {
    unsigned char sum[SHA256_BYTES];
    struct sha256 hash;
    uint64_t known;
    sha256_init(&hash);
    sha256_add(&hash, compiles ? "c" : "r", 1);
    sha256_add(&hash, fields.at, fields.bytes);
    sha256_end(&hash, sum);
    struct str key = {(const char *)sum, sizeof sum};
    if (map_get(&check->known, key, &known)) {
        check->stats.asked += known != NO_SHAPE;
        if (known < NO_SHAPE) *ret_refusal = check->refusals[known];
        return known >= NO_SHAPE;
    }
    if (check->cost.work < check->work_max) return add(check, key, fields, compiles, ret_refusal);
    check->stats.asked++;
    check->stats.unseen++;
    return true;
}

bool shape_check_take(struct shape_check *check, struct str fields, struct refusal *ret_refusal) {
    return look(check, fields, true, ret_refusal);
}

bool shape_check_read(struct shape_check *check, struct str fields, struct refusal *ret_refusal) {
    return look(check, fields, false, ret_refusal);
}

struct shape_check_stats shape_check_stats(const struct shape_check *check) {
    struct shape_check_stats stats = check->stats;
    stats.bytes = check->cost.bytes;
    return stats;
}
