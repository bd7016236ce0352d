/* SPDX-License-Identifier: Apache-2.0 */
#include "redis/place.h"
#include "redis/reply.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Walks the tree, whose texts must lie in the buffer. */
static size_t look(const struct reply_reader *reader, const struct reply_value *values,
                   size_t count) {
    if (reply_behind(values) != values + count) abort();
    size_t sum = count;
    for (size_t i = 0; i < count; i++) {
        struct str text = values[i].text;
        if (text.at && (text.at < reader->bytes.at ||
                        text.at + text.bytes > reader->bytes.at + reader->bytes.bytes))
            abort();
        for (size_t at = 0; at < text.bytes; at++) sum += (unsigned char)text.at[at];
    }
    return sum;
}

/* All replies of the bytes, which come in pieces of `piece`. */
static size_t read_all(struct str bytes, size_t piece, enum err *ret_err) {
    struct reply_reader reader;
    struct error error;
    size_t sum = 0;
    *ret_err = OK;
    reply_reader_init(&reader, (size_t)1 << 20);
    for (size_t at = 0; at < bytes.bytes && *ret_err == OK; at += piece) {
        size_t left = bytes.bytes - at, now = left < piece ? left : piece;
        char *room = reply_room(&reader, now);
        if (!room) break;
        memcpy(room, bytes.at + at, now);
        buf_commit(&reader.bytes, now);
        bool found = true;
        while (found && *ret_err == OK) {
            const struct reply_value *values;
            size_t count;
            *ret_err = reply_next(&reader, &values, &count, &found, &error);
            if (*ret_err == OK && found) sum += look(&reader, values, count);
        }
    }
    reply_reader_release(&reader);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str bytes = {(const char *)data, size};
    enum err whole, cut;
    size_t one = read_all(bytes, size ? size : 1, &whole);
    size_t other = read_all(bytes, size > 0 ? 1 + data[0] % 7 : 1, &cut);
    if (one != other || whole != cut) abort();
    char url[256];
    struct redis_place place;
    struct error error;
    size_t length = size < sizeof url - 10 ? size : sizeof url - 10;
    memcpy(url, "redis://", 8);
    if (length > 0) memcpy(url + 8, data, length);
    url[8 + length] = '\0';
    (void)!redis_place_read(&place, url, &error);
    return 0;
}
