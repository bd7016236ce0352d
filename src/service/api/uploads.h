/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* uploads: the handlers of /v1/uploads, and the tables of their bodies.
 *
 * Thread: http's worker threads.
 * Memory: none. */

#include "api/fields.h"

#define API_UPLOAD_BYTES_MAX ((int64_t)8 << 30)
#define API_PART_BYTES_MAX ((uint64_t)64 << 20)

extern const struct fields uploads_create_fields;
extern const struct fields uploads_complete_fields;
extern const struct http_upload uploads_part_upload;

void uploads_create(void *context, struct http_request *request);
void uploads_get(void *context, struct http_request *request);
void uploads_part(void *context, struct http_request *request);
void uploads_complete(void *context, struct http_request *request);
void uploads_cancel(void *context, struct http_request *request);
