/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_fields: the plain fields of a request, one row of json/fields per field, and the table of
 * fields that this build does not support. Internal to the readers of requests.
 *
 * Thread: any.
 * Memory: none is kept. */

#include "engine/request.h"
#include "json/fields.h"

#define REQUEST_CHAT (1u << ENDPOINT_CHAT)
#define REQUEST_TEXT (1u << ENDPOINT_COMPLETIONS)
#define REQUEST_BOTH (REQUEST_CHAT | REQUEST_TEXT)

#define REQUEST_NO_MAX ((double)(1ll << 53)) /* a bound every double carries exactly */

/* Checks the fields that every request may have about its caller: priority, user, service_tier. */
bool request_check_caller(const json_t *body, struct refusal *ret_refusal) MUST_CHECK;

/* Fills all plain fields from request->body, and refuses unsupported ones. */
bool request_parse_fields(struct request *request, struct refusal *ret_refusal) MUST_CHECK;
/* The table of the plain fields, for rows that are read on their own. Its integers may be decimals
 * without a fraction. */
extern const struct fields request_fields;
/* The `refuse` of every table of the engine. */
bool request_field_refuse(struct refusal *refusal, const struct field_fault *fault);
