/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fields: the bodies of this API that tables of json/fields read, and the sentences for what is
 * wrong in them.
 *
 * Thread: any.
 * Memory: texts are borrowed from the body. */

#include "http/http.h"
#include "json/fields.h"

/* The `refuse` of every table of api/. */
bool api_field_refuse(struct refusal *refusal, const struct field_fault *fault);
/* Fills *ret_struct by the table. False, and answered with 400, if a member is wrong. */
bool api_fields_read(struct http_request *request, const struct fields *fields, const json_t *body,
                     void *ret_struct) MUST_CHECK;
/* As api_fields_read, for objects of quern's own: a member that the table does not know is refused,
 * because a limit with a slip in its name would be no limit. */
bool api_fields_read_all(struct http_request *request, const struct fields *fields,
                         const json_t *body, void *ret_struct) MUST_CHECK;
