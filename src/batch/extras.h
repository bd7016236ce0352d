/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* extras: what a create call may ask for beyond the contract, kept with the batch as one JSON text:
 *
 *   "retry": {"attempts": 1…20, "statuses": [408, 409, 425, 429, 500…599]}
 *   "on_quality": "report" or "pause"
 *   "quality_limits": {"truncated": 0…1, "empty": …, "identical": …, "invalid_json": …,
 *                      "min_lines": 1…1000000}
 *
 * Thread: any; pure.  Memory: plain structs. */

#include "batch/batch.h"

#define EXTRAS_STATUSES_MAX 16

enum quality_share { QUALITY_TRUNCATED, QUALITY_EMPTY, QUALITY_IDENTICAL, QUALITY_INVALID_JSON };
#define QUALITY_SHARES 4
extern const char *const quality_share_names[QUALITY_SHARES];

/* Zero is what a batch without extras has, but for the limits. */
struct batch_extras {
    uint32_t attempts; /* tries of a line in all; 0: the server's */
    uint16_t statuses[EXTRAS_STATUSES_MAX];
    size_t status_count; /* statuses that are tried again beside those of the workers */
    bool pauses;
    double limits[QUALITY_SHARES]; /* shares of the answers above which there is an alarm */
    uint64_t lines_min;            /* answers before there can be one */
};

/* Checks the members of a create body; *ret_text is the JSON text to keep, owned by the caller, or
 * NULL when there is none of them. False and *ret_refusal when one is wrong. */
bool batch_extras_read(const json_t *body, char **ret_text, struct refusal *ret_refusal);
/* Reads a kept text; NULL gives the defaults, and so does anything that is not one. */
void batch_extras_parse(const char *text, struct batch_extras *ret_extras);
bool batch_extras_tries_again(const struct batch_extras *extras, int32_t status);
/* Appends the members of a kept text, without braces, each with a comma in front; nulls for those
 * that are not there. */
void batch_extras_write(struct buf *buf, const char *text);
