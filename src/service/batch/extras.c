/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/extras.h"

#include "base/mem.h"
#include "base/no_memory.h"
#include "base/utf8.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS_MAX 20
#define LINES_MIN_DEFAULT 50
#define LINES_MIN_MAX 1000000

const char *const quality_share_names[QUALITY_SHARES] = {"in_thought", "truncated", "empty",
                                                         "identical", "invalid_json"};
static const double default_limits[QUALITY_SHARES] = {0.2, 0.2, 0.2, 0.5, 0.2};
static const char *const members[] = {"retry", "on_quality", "quality_limits"};
#define MEMBER_COUNT (sizeof members / sizeof *members)

static bool is_retried_status(int64_t status) {
    return status == 408 || status == 409 || status == 425 || status == 429 ||
           (status >= 500 && status <= 599);
}

/* Every key of the object must be one of `names`. */
static bool check_keys(const json_t *object, const char *param, const char *const *names,
                       size_t count, struct refusal *refusal) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        bool known = false;
        for (size_t i = 0; i < count; i++) known = known || strcmp(key, names[i]) == 0;
        if (!known)
            return refuse(refusal, "unknown_parameter", param, "Unknown parameter: '%s.%.60s'.",
                          param, key);
    }
    return true;
}

static bool read_statuses(struct batch_extras *extras, const json_t *list,
                          struct refusal *refusal) {
    size_t index;
    json_t *value;
    if (!json_is_array(list))
        return refuse(refusal, "invalid_type", "retry.statuses",
                      "Invalid type for 'retry.statuses': expected an array of integers.");
    if (json_array_size(list) > EXTRAS_STATUSES_MAX)
        return refuse(refusal, "array_above_max_length", "retry.statuses",
                      "Invalid 'retry.statuses': it has %zu elements; at most %d are allowed.",
                      json_array_size(list), EXTRAS_STATUSES_MAX);
    json_array_foreach(list, index, value) {
        if (!json_is_integer(value) || !is_retried_status(json_integer_value(value)))
            return refuse(refusal, "invalid_value", "retry.statuses",
                          "Invalid 'retry.statuses': element %zu is not 408, 409, 425, 429 or one "
                          "of 500 to 599.",
                          index);
        extras->statuses[extras->status_count++] = (uint16_t)json_integer_value(value);
    }
    return true;
}

static bool read_retry(struct batch_extras *extras, const json_t *body, struct refusal *refusal) {
    static const char *const names[] = {"attempts", "statuses"};
    const json_t *retry = json_member(body, "retry");
    if (!retry) return true;
    if (!json_is_object(retry))
        return refuse(refusal, "invalid_type", "retry",
                      "Invalid type for 'retry': expected an object with 'attempts' and "
                      "'statuses'.");
    if (!check_keys(retry, "retry", names, 2, refusal)) return false;
    const json_t *attempts = json_member(retry, "attempts");
    const json_t *statuses = json_member(retry, "statuses");
    if (attempts) {
        int64_t value = json_integer_value(attempts);
        if (!json_is_integer(attempts) || value < 1 || value > ATTEMPTS_MAX)
            return refuse(refusal, "invalid_value", "retry.attempts",
                          "Invalid 'retry.attempts': expected an integer from 1 to %d.",
                          ATTEMPTS_MAX);
        extras->attempts = (uint32_t)value;
    }
    return !statuses || read_statuses(extras, statuses, refusal);
}

static bool read_limits(struct batch_extras *extras, const json_t *body, struct refusal *refusal) {
    const char *names[QUALITY_SHARES + 1];
    const json_t *limits = json_member(body, "quality_limits");
    if (!limits) return true;
    if (!json_is_object(limits))
        return refuse(refusal, "invalid_type", "quality_limits",
                      "Invalid type for 'quality_limits': expected an object.");
    memcpy(names, quality_share_names, sizeof quality_share_names);
    names[QUALITY_SHARES] = "min_lines";
    if (!check_keys(limits, "quality_limits", names, QUALITY_SHARES + 1, refusal)) return false;
    for (size_t i = 0; i < QUALITY_SHARES; i++) {
        const json_t *share = json_member(limits, names[i]);
        if (!share) continue;
        double value = json_number_value(share);
        if (!json_is_number(share) || value < 0 || value > 1)
            return refuse(refusal, "invalid_value", "quality_limits",
                          "Invalid 'quality_limits.%s': expected a share from 0 to 1.", names[i]);
        extras->limits[i] = value;
    }
    const json_t *lines = json_member(limits, "min_lines");
    if (!lines) return true;
    int64_t value = json_integer_value(lines);
    if (!json_is_integer(lines) || value < 1 || value > LINES_MIN_MAX)
        return refuse(refusal, "invalid_value", "quality_limits",
                      "Invalid 'quality_limits.min_lines': expected an integer from 1 to %d.",
                      LINES_MIN_MAX);
    extras->lines_min = (uint64_t)value;
    return true;
}

static bool read_action(struct batch_extras *extras, const json_t *body, struct refusal *refusal) {
    const json_t *action = json_member(body, "on_quality");
    if (!action) return true;
    extras->pauses = str_is(json_str(action), "pause");
    if (extras->pauses || str_is(json_str(action), "report")) return true;
    return refuse(refusal, "invalid_value", "on_quality",
                  "Invalid value for 'on_quality': supported values are: 'report' and 'pause'.");
}

static bool read_all(struct batch_extras *extras, const json_t *body, struct refusal *refusal) {
    *extras = (struct batch_extras){.lines_min = LINES_MIN_DEFAULT};
    memcpy(extras->limits, default_limits, sizeof default_limits);
    return read_retry(extras, body, refusal) && read_action(extras, body, refusal) &&
           read_limits(extras, body, refusal);
}

bool batch_extras_read(const json_t *body, char **ret_text, struct refusal *ret_refusal) {
    struct batch_extras extras;
    if (!read_all(&extras, body, ret_refusal)) return false;
    json_t *kept = json_object();
    if (!kept) no_memory();
    for (size_t i = 0; i < MEMBER_COUNT; i++) {
        json_t *value = json_member(body, members[i]);
        if (value) json_object_set(kept, members[i], value);
    }
    *ret_text = NULL;
    if (json_object_size(kept) > 0) {
        struct buf text;
        buf_init(&text, BUF_UNLIMITED);
        json_write(&text, kept);
        *ret_text = mem_text(text.at);
        buf_release(&text);
    }
    json_decref(kept);
    return true;
}

void batch_extras_parse(const char *text, struct batch_extras *ret_extras) {
    struct refusal ignored;
    struct error error;
    json_t *body = NULL;
    if (text && json_read(&body, str_from(text), &error) != OK) body = NULL;
    if (!read_all(ret_extras, body, &ignored) && read_all(ret_extras, NULL, &ignored))
        ret_extras->pauses = false;
    json_decref(body);
}

bool batch_extras_tries_again(const struct batch_extras *extras, int32_t status) {
    for (size_t i = 0; i < extras->status_count; i++)
        if (extras->statuses[i] == status) return true;
    return false;
}

void batch_extras_write(struct buf *buf, const char *text) {
    struct error error;
    json_t *kept = NULL;
    if (text && json_read(&kept, str_from(text), &error) != OK) kept = NULL;
    for (size_t i = 0; i < MEMBER_COUNT; i++) {
        const json_t *value = json_member(kept, members[i]);
        buf_printf(buf, ",\"%s\":", members[i]);
        if (value)
            json_write(buf, value);
        else
            buf_add_text(buf, "null");
    }
    json_decref(kept);
}
