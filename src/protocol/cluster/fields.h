/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fields: texts in the payloads of packs and beats: u32 bytes, then the bytes. Numbers are those of
 * protocol/wire_messages.h.
 *
 * Thread: any; pure.
 * Memory: what is read is borrowed. */

#include "protocol/wire_messages.h"

static inline void field_put_str(struct buf *out, struct str text) {
    wire_put_u32(out, (uint32_t)text.bytes);
    buf_add_str(out, text);
}

static inline struct str field_get_str(struct wire_cursor *cursor) {
    uint32_t bytes = wire_get_u32(cursor);
    if (cursor->bad || bytes > cursor->bytes.bytes - cursor->at) {
        cursor->bad = true;
        return (struct str){0};
    }
    struct str text = {cursor->bytes.at + cursor->at, bytes};
    cursor->at += bytes;
    return text;
}
