/* SPDX-License-Identifier: Apache-2.0 */
#include "http/file_body.h"

#include "base/os.h"
#include "http/http.h"

#include <string.h>

/* True if these bytes of the body, the next ones, may be sent. */
static bool check(struct http_request *request, uint64_t position, const char *bytes,
                  size_t count) {
    char sum[DIGEST_HEX_BYTES];
    if (!*request->file_sum) return true;
    if (position == 0) digest_begin(&request->file_digest, DIGEST_SHA256);
    digest_add(&request->file_digest, bytes, count);
    if (position + count < request->file_range.bytes) return true;
    digest_end_hex(&request->file_digest, sum);
    return strcmp(sum, request->file_sum) == 0;
}

/* Called by libmicrohttpd for the bytes of the body from `position` on, each once and in order. */
static ssize_t read_file(void *context, uint64_t position, char *bytes, size_t bytes_max) {
    struct http_request *request = context;
    struct error error;
    uint64_t left = request->file_range.bytes - position;
    size_t count = left < bytes_max ? (size_t)left : bytes_max;
    if (count > HTTP_PIECE_BYTES) count = HTTP_PIECE_BYTES;
    if (count == 0) return MHD_CONTENT_READER_END_OF_STREAM;
    enum err err =
        os_pread_all(request->file_fd, bytes, count, request->file_range.offset + position, &error);
    if (err == OK && check(request, position, bytes, count)) return (ssize_t)count;
    if ((err == OK || err == ERR_CORRUPT) && request->file_damaged)
        request->file_damaged(request->file_context, request->file_sum);
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

static void released(void *context) {
    http_request_drop(context);
}

struct MHD_Response *file_body_response(struct http_request *request) {
    http_request_hold(request);
    return MHD_create_response_from_callback(request->file_range.bytes, HTTP_PIECE_BYTES, read_file,
                                             request, released);
}
