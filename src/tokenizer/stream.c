/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/stream.h"

#include "base/utf8.h"

#include <string.h>

#define JOINED_BYTES 256

void token_stream_feed(struct token_stream *stream, struct str bytes, struct buf *text) {
    while (bytes.bytes > 0) {
        char joined[JOINED_BYTES];
        memcpy(joined, stream->held, stream->held_bytes);
        size_t taken = sizeof joined - stream->held_bytes;
        if (taken > bytes.bytes) taken = bytes.bytes;
        memcpy(joined + stream->held_bytes, bytes.at, taken);
        struct str whole = {joined, stream->held_bytes + taken};
        size_t tail = utf8_incomplete_tail(whole);
        whole.bytes -= tail;
        utf8_add_repaired(text, whole);
        memcpy(stream->held, joined + whole.bytes, tail);
        stream->held_bytes = (uint8_t)tail;
        bytes = str_skip(bytes, taken);
    }
}

void token_stream_flush(struct token_stream *stream, struct buf *text) {
    utf8_add_repaired(text, (struct str){stream->held, stream->held_bytes});
    stream->held_bytes = 0;
}
