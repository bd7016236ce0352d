/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of a Message Batch over hostile bytes. The first byte is the size of the pieces in
 * which the rest is fed. The body that is fed whole gives the same requests and the same refusal,
 * and a body that is taken is one JSON object. */
#include "dialects/message_requests.h"
#include "json/json.h"
#include "json/span.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool take(void *context, const struct message_request *request,
                 struct refusal *ret_refusal) {
    struct str value;
    size_t id_bytes = strlen(request->custom_id);
    (void)ret_refusal;
    assert(id_bytes >= 1 && id_bytes <= MESSAGE_CUSTOM_ID_BYTES_MAX);
    assert(json_span_read(request->params, &value) && json_span_is_object(value) &&
           value.bytes == request->params.bytes && json_span_is_utf8(value));
    buf_printf(context, "[%llu|%s|", (unsigned long long)request->index, request->custom_id);
    buf_add_str(context, request->params);
    buf_add_byte(context, ']');
    return true;
}

static bool read_in_pieces(struct str body, size_t piece_bytes, struct buf *log) {
    struct message_requests reader;
    struct refusal refusal = {0};
    bool is_good = true;
    message_requests_init(&reader, take, log);
    while (is_good && body.bytes > 0) {
        size_t count = body.bytes < piece_bytes ? body.bytes : piece_bytes;
        /* An exact-size copy, so that a read past the piece is seen. */
        char *piece = malloc(count);
        if (!piece) abort();
        memcpy(piece, body.at, count);
        is_good = message_requests_feed(&reader, (struct str){piece, count}, &refusal);
        free(piece);
        body = str_skip(body, count);
    }
    if (is_good) is_good = message_requests_end(&reader, &refusal);
    if (!is_good) buf_printf(log, "refused: %s: %s", refusal.param, refusal.message);
    message_requests_release(&reader);
    return is_good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 1) return 0;
    struct str body = {(const char *)data + 1, bytes - 1}, value;
    struct buf whole, pieces;
    buf_init(&whole, BUF_UNLIMITED);
    buf_init(&pieces, BUF_UNLIMITED);
    bool is_whole = read_in_pieces(body, body.bytes + 1, &whole);
    bool is_good = read_in_pieces(body, (size_t)data[0] + 1, &pieces);
    assert(is_whole == is_good && str_equals(buf_str(&whole), buf_str(&pieces)));
    assert(!is_good || (json_span_read(body, &value) && json_span_is_object(value)));
    buf_release(&whole);
    buf_release(&pieces);
    return 0;
}
