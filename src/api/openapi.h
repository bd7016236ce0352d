/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* openapi: the OpenAPI 3.1 document of the routes in api_routes, for /openapi.json and `quern
 * openapi`. Paths, methods and who may use them come from the routing table; parameters' ranges
 * come from the tables and constants that check them. openapi.c adds what a table of routes cannot
 * know: what an operation takes and answers.
 *
 * Thread: any.  Memory: none. */

#include "base/buf.h"

struct http_request;

/* Appends the whole document. */
void openapi_write(struct buf *buf);
/* True when openapi.c says what the operation takes and answers. */
bool openapi_describes(const char *operation);
/* GET /openapi.json */
void openapi_get(void *context, struct http_request *request);

/* openapi_schemas.c: appends "components". */
void openapi_write_components(struct buf *buf);
