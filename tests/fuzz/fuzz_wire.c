/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/wire_messages.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every decoder on an exact-size copy; an accepted message must encode to the same bytes. */
static void decode_all(struct str from) {
    char *copy = malloc(from.bytes ? from.bytes : 1);
    if (!copy) abort();
    if (from.bytes > 0) memcpy(copy, from.at, from.bytes);
    struct str payload = {copy, from.bytes};
    struct buf again;
    buf_init(&again, WIRE_PAYLOAD_BYTES_MAX);
    struct error error;
    struct wire_hello hello;
    if (wire_get_hello(payload, &hello, &error) == OK) {
        wire_put_hello(&again, &hello);
        if (!str_equals(buf_str(&again), payload)) abort();
        buf_clear(&again);
    }
    struct wire_ready ready;
    if (wire_get_ready(payload, &ready, &error) == OK) {
        wire_put_ready(&again, &ready);
        if (!str_equals(buf_str(&again), payload)) abort();
        buf_clear(&again);
    }
    struct wire_job job;
    if (wire_get_job(payload, &job, &error) == OK) {
        wire_put_job(&again, &job);
        if (!str_equals(buf_str(&again), payload)) abort();
        buf_clear(&again);
    }
    struct wire_result result;
    if (wire_get_result(payload, &result, &error) == OK) {
        wire_put_result(&again, &result);
        if (!str_equals(buf_str(&again), payload)) abort();
        buf_clear(&again);
    }
    struct wire_stats stats;
    if (wire_get_stats(payload, &stats, &error) == OK) {
        wire_put_stats(&again, &stats);
        if (!str_equals(buf_str(&again), payload)) abort();
    }
    buf_release(&again);
    free(copy);
}

/* The bytes as a stream, in two pieces; and as a payload of every message, bare and in a frame of
 * its own, since a CRC is hard to guess. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wire_reader reader;
    wire_reader_init(&reader);
    size_t cut = size > 0 ? data[0] % (size + 1) : 0;
    struct buf stream;
    buf_init(&stream, 2 * WIRE_ROOM_BYTES);
    if (size > 0 && data[0] & 1)
        wire_write(&stream, WIRE_RESULT, size, 0, (struct str){(const char *)data, size % 4096});
    buf_add(&stream, data, size);
    for (size_t piece = 0; piece < 2; piece++) {
        struct str part = piece == 0
                              ? (struct str){stream.at, cut < stream.bytes ? cut : stream.bytes}
                              : str_skip(buf_str(&stream), cut);
        size_t room_bytes;
        char *room = wire_reader_room(&reader, &room_bytes);
        if (part.bytes > room_bytes) part.bytes = room_bytes;
        if (part.bytes > 0) memcpy(room, part.at, part.bytes);
        wire_reader_filled(&reader, part.bytes);
        struct wire_frame frame;
        bool found = true;
        struct error error;
        while (found && wire_reader_next(&reader, &frame, &found, &error) == OK)
            if (found) decode_all(frame.payload);
    }
    decode_all((struct str){(const char *)data, size});
    buf_release(&stream);
    wire_reader_release(&reader);
    return 0;
}
