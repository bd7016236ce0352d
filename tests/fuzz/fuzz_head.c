/* SPDX-License-Identifier: Apache-2.0 */

/* The readers of HTTP framing over hostile bytes. The first byte of the input is the size of the
 * pieces in which the rest arrives. A header block that arrives in pieces must end, or be refused,
 * as the whole one is, and so must a chunked body. */

#include "http/head.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* An exact-size copy, so that a read past the bytes is seen. */
static enum head_state read_copy(struct head *ret_head, struct str bytes, size_t checked) {
    char *copy = malloc(bytes.bytes);
    if (!copy) abort();
    memcpy(copy, bytes.at, bytes.bytes);
    enum head_state state = head_read(ret_head, (struct str){copy, bytes.bytes}, checked);
    free(copy);
    return state;
}

static enum head_state read_in_pieces(struct head *ret_head, struct str input, size_t piece) {
    enum head_state state = HEAD_INCOMPLETE;
    for (size_t have = 0; state == HEAD_INCOMPLETE && have < input.bytes;) {
        size_t checked = have;
        have = input.bytes - have < piece ? input.bytes : have + piece;
        state = read_copy(ret_head, (struct str){input.at, have}, checked);
    }
    return state;
}

/* Returns the end of a chunked body; *ret_used counts its bytes. */
static enum head_state scan(struct str body, size_t piece, size_t *ret_used) {
    struct chunk_scan scan = {0};
    enum head_state state = HEAD_INCOMPLETE;
    char *copy = malloc(body.bytes + 1);
    if (!copy) abort();
    memcpy(copy, body.at, body.bytes);
    *ret_used = 0;
    while (state == HEAD_INCOMPLETE && *ret_used < body.bytes) {
        size_t left = body.bytes - *ret_used, count = left < piece ? left : piece, used = 0;
        state = chunk_scan_feed(&scan, copy + *ret_used, count, &used);
        assert(used <= count && (used == count || state != HEAD_INCOMPLETE));
        *ret_used += used;
    }
    free(copy);
    return state;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 2) return 0;
    size_t piece = (size_t)data[0] + 1, whole_used, pieces_used;
    struct str input = {(const char *)data + 1, bytes - 1};
    struct head whole, pieces;
    enum head_state state = read_copy(&whole, input, 0);
    assert(read_in_pieces(&pieces, input, piece) == state);
    if (state == HEAD_REFUSED) assert(whole.refusal_status >= 400 && whole.refusal);
    if (state != HEAD_COMPLETE) return 0;
    assert(whole.bytes <= input.bytes && whole.bytes == pieces.bytes);
    assert(whole.body == pieces.body && whole.body_bytes == pieces.body_bytes);
    struct str body = str_skip(input, whole.bytes);
    if (whole.body != HEAD_BODY_CHUNKED) return 0;
    enum head_state end = scan(body, body.bytes + 1, &whole_used);
    assert(scan(body, piece, &pieces_used) == end);
    if (end == HEAD_COMPLETE) assert(whole_used == pieces_used);
    return 0;
}
