/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_fields: the plain fields of a request, one row each: name, type, range and where it goes;
 * and the rows of what is not supported. For the readers of requests.
 *
 * Thread: any.  Memory: none kept. */

#include "engine/request.h"

#define REQUEST_CHAT (1u << ENDPOINT_CHAT)
#define REQUEST_TEXT (1u << ENDPOINT_COMPLETIONS)
#define REQUEST_BOTH (REQUEST_CHAT | REQUEST_TEXT)

#define REQUEST_NO_GRAMMAR "this build does not constrain output by a grammar"
#define REQUEST_NO_MAX ((double)(1ll << 53)) /* a bound every double carries exactly */

enum request_field_kind { FIELD_BOOL, FIELD_INTEGER, FIELD_NUMBER };

/* The bounds are part of the range, but for the lower one with `above_min`. */
struct request_field {
    const char *name;
    enum request_field_kind kind;
    unsigned endpoints;
    double min, max;
    bool above_min;
    size_t offset; /* in struct request, of a bool, int64_t or double */
};

/* The fields of any request that say who asks and how urgently: priority, user, service_tier. */
bool request_check_caller(const json_t *body, struct refusal *ret_refusal) MUST_CHECK;

/* Fills all plain fields of request->body, and refuses what is not supported. */
bool request_parse_fields(struct request *request, struct refusal *ret_refusal) MUST_CHECK;
/* One value by its row. */
bool request_parse_field(struct request *request, const struct request_field *field,
                         const json_t *value, struct refusal *ret_refusal) MUST_CHECK;
/* True and *ret_value for an integer, or a decimal without fraction. */
bool request_get_integer(const json_t *value, int64_t *ret_value) MUST_CHECK;
/* False: `got` is above, or else below, the range of the row. */
bool request_refuse_range(struct refusal *refusal, const struct request_field *field,
                          const json_t *got, bool is_above);
