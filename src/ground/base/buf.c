/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include "base/no_memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *buf, size_t bytes_max) {
    *buf = (struct buf){.bytes_max = bytes_max};
}

void buf_release(struct buf *buf) {
    free(buf->at);
    *buf = (struct buf){.bytes_max = buf->bytes_max};
}

void buf_clear(struct buf *buf) {
    buf->bytes = 0;
    buf->overflowed = false;
    if (buf->at) buf->at[0] = '\0';
}

char *buf_reserve(struct buf *buf, size_t count) {
    if (count > buf->bytes_max - buf->bytes) return NULL;
    size_t needed = buf->bytes + count + 1;
    if (needed > buf->capacity) {
        size_t capacity = buf->capacity * 2;
        if (capacity < 64) capacity = 64;
        if (capacity < needed) capacity = needed;
        char *grown = realloc(buf->at, capacity);
        if (!grown) no_memory();
        buf->at = grown;
        buf->capacity = capacity;
    }
    return buf->at + buf->bytes;
}

void buf_commit(struct buf *buf, size_t count) {
    assert(buf->at && buf->bytes + count < buf->capacity);
    buf->bytes += count;
    buf->at[buf->bytes] = '\0';
}

void buf_add(struct buf *buf, const void *bytes, size_t count) {
    char *room = buf_reserve(buf, count);
    if (!room) {
        buf->overflowed = true;
        return;
    }
    if (count > 0) memcpy(room, bytes, count);
    buf_commit(buf, count);
}

void buf_add_str(struct buf *buf, struct str text) {
    buf_add(buf, text.at, text.bytes);
}

void buf_add_text(struct buf *buf, const char *text) {
    buf_add(buf, text, strlen(text));
}

void buf_add_byte(struct buf *buf, char byte) {
    buf_add(buf, &byte, 1);
}

void buf_printf(struct buf *buf, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int count = vsnprintf(NULL, 0, format, args);
    va_end(args);
    assert(count >= 0);
    char *room = buf_reserve(buf, (size_t)count);
    if (room) {
        vsnprintf(room, (size_t)count + 1, format, again);
        buf_commit(buf, (size_t)count);
    } else {
        buf->overflowed = true;
    }
    va_end(again);
}

void buf_consume(struct buf *buf, size_t count) {
    assert(count <= buf->bytes);
    if (count == 0) return;
    memmove(buf->at, buf->at + count, buf->bytes - count + 1);
    buf->bytes -= count;
}

void buf_truncate(struct buf *buf, size_t bytes) {
    assert(bytes <= buf->bytes);
    buf->bytes = bytes;
    if (buf->at) buf->at[bytes] = '\0';
}

struct str buf_str(const struct buf *buf) {
    return (struct str){buf->at, buf->bytes};
}
