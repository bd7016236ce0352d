/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* openapi: the OpenAPI 3.1 document of the API, for /openapi.json and `quern openapi`.
 *
 * The document is openapi.json next to this file, built into the binary. Its marks are filled in
 * when it is written: the version, and the bodies whose ranges a table of fields checks. What the
 * file repeats from the code (routes, scopes, limits) is compared in
 * tests/unit/service/api/test_openapi.c.
 *
 * Thread: any.
 * Memory: none is kept. */

#include "base/buf.h"

struct http_request;

/* Appends the whole document. */
/* `asks_keys`: whether routes that are not open need one, as they do once a key exists. */
void openapi_write(struct buf *buf, bool asks_keys);
/* GET /openapi.json */
void openapi_get(void *context, struct http_request *request);
