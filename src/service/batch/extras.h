/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* extras: the members of a create call that OpenAI's API does not have, kept with the batch as one
 * JSON text:
 *
 *   "retry": {"attempts": 1…20, "statuses": [408, 409, 425, 429, 500…599]}
 *   "on_quality": "report" or "pause"
 *   "quality_limits": {"in_thought": 0…1, "truncated": …, "empty": …, "identical": …,
 *                      "invalid_json": …, "min_lines": 1…1000000}
 *
 * Thread: any; pure.
 * Memory: plain structs. */

#include "base/buf.h"
#include "json/envelope.h"

#define EXTRAS_STATUSES_MAX 16

/* Among several shares above their limits the first one raises the alarm: it says most. */
enum quality_share {
    QUALITY_IN_THOUGHT, /* cut off before a word of the answer, as in a thought without end */
    QUALITY_TRUNCATED,
    QUALITY_EMPTY,
    QUALITY_IDENTICAL,
    QUALITY_INVALID_JSON,
};
#define QUALITY_SHARES 5
extern const char *const quality_share_names[QUALITY_SHARES];

/* Zero is a batch without extras, except for the limits and lines_min. */
struct batch_extras {
    uint32_t attempts; /* most tries of a line; 0: as the server is set */
    uint16_t statuses[EXTRAS_STATUSES_MAX];
    size_t status_count; /* statuses to try again, besides those that a worker calls retryable */
    bool pauses;
    double limits[QUALITY_SHARES]; /* a larger share of the answers raises an alarm */
    uint64_t lines_min;            /* answers before an alarm is possible */
};

/* Checks these members of a create body. *ret_text is the JSON text to keep, owned by the caller,
 * or NULL if the body has none of them. False and *ret_refusal if one is wrong. */
bool batch_extras_read(const json_t *body, char **ret_text, struct refusal *ret_refusal);
/* Reads a kept text; NULL and broken texts give the defaults. */
void batch_extras_parse(const char *text, struct batch_extras *ret_extras);
bool batch_extras_tries_again(const struct batch_extras *extras, int32_t status);
/* Appends the members without braces, each with a comma in front; absent ones are null. */
void batch_extras_write(struct buf *buf, const char *text);
