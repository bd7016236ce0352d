/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/beat.h"
#include "cluster/pack.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every payload reader on one payload. What a reader took must be written as bytes that are read
 * as the same. */
static size_t read_as_all(const struct pack_record *record) {
    struct worker_job job;
    struct worker_result result;
    struct str text, ids, line;
    enum tier tier;
    int64_t deadline;
    size_t count, sum = 0;
    bool flag, other;
    if (pack_read_job(record, &job)) sum += job.body.bytes + strlen(job.owner) + job.line.bytes;
    if (pack_read_result(record, &result, &line)) {
        if (line.bytes >= WORKER_LINE_BYTES) abort();
        sum += result.body.bytes;
    }
    if (pack_read_text(record, &text)) sum += text.bytes;
    if (pack_read_want(record, &tier, &deadline)) sum++;
    if (pack_read_sync(record, &flag, &other)) sum++;
    if (pack_read_held(record, &ids, &count, &flag))
        for (size_t i = 0; i < count; i++) sum += pack_held_id(ids, i) & 1;
    return sum;
}

static void read_pack(struct str bytes) {
    struct pack_reader reader;
    struct pack_head head;
    struct pack_record record;
    if (!pack_open(&reader, &head, bytes)) return;
    size_t steps = 0;
    for (; pack_next(&reader, &record); steps++) (void)read_as_all(&record);
    if (steps > bytes.bytes / PACK_RECORD_BYTES) abort();
}

static void read_beat(struct str bytes, struct beat *beat) {
    struct buf again;
    memset(beat, 0, sizeof *beat);
    if (!beat_read(bytes, beat)) return;
    buf_init(&again, BUF_UNLIMITED);
    beat_write(&again, beat);
    struct beat *same = calloc(1, sizeof *same);
    if (!same || !beat_read(buf_str(&again), same)) abort();
    if (same->worker_count != beat->worker_count || same->round != beat->round) abort();
    free(same);
    buf_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct beat *beat;
    if (!beat) beat = calloc(1, sizeof *beat);
    char *copy = malloc(size ? size : 1);
    if (!beat || !copy) abort();
    if (size > 0) memcpy(copy, data, size);
    struct str bytes = {copy, size};
    read_pack(bytes);
    read_beat(bytes, beat);
    /* A sum is hard to guess: the bytes as a payload, and behind a good record. */
    const struct pack_record record = {.payload = bytes};
    (void)read_as_all(&record);
    struct buf pack;
    buf_init(&pack, BUF_UNLIMITED);
    pack_begin(&pack);
    pack_text(&pack, PACK_DOWN, 0, 0, bytes);
    buf_add_str(&pack, bytes);
    read_pack(buf_str(&pack));
    buf_release(&pack);
    free(copy);
    return 0;
}
