/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* file_body: the bytes of a file on their way to a client, compared with their sum.
 *
 * The ETag of an answer is the SHA-256 that the file had when it was stored. When the whole file is
 * sent its bytes are summed on the way, and the last piece goes out only if the sum is that one: a
 * client of a damaged file sees a connection that breaks off, and not a file. A part of a file is
 * not compared.
 *
 * Thread: the connection's.
 * Memory: the request's; the response holds the request. */

#include "http/request.h"

/* The response to a request whose file_range was set by http_answer_file. NULL without memory. */
struct MHD_Response *file_body_response(struct http_request *request);
