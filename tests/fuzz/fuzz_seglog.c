/* SPDX-License-Identifier: Apache-2.0 */

/* One segment as it might lie on a disk: opening a log must take any bytes, its counts must agree
 * with what can be read, and opening it again must find the same.
 *
 * The first byte says how many of the checksums are put right first, so that more than the checksum
 * is reached. */

#include "base/crc.h"
#include "base/os.h"
#include "store/seglog_format.h"
#include "store/store_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES 64
#define BATCH "batch_fuzz"

/* Records that start where a record can start get their sum, the segment gets its header. */
static void repair(char *bytes, size_t size, unsigned repairs) {
    struct segment_header header = {.index = 1, .first_sequence = 1, .batch_sequence = 1};
    if (repairs == 0 || size < SEGLOG_HEADER_BYTES) return;
    memcpy(header.batch_id, BATCH, sizeof BATCH);
    segment_header_write((unsigned char *)bytes, &header);
    size_t at = SEGLOG_HEADER_BYTES;
    while (--repairs > 0 && size - at >= SEGLOG_RECORD_BYTES) {
        uint32_t count;
        memcpy(&count, bytes + at + 8, sizeof count);
        if (count > size - at - SEGLOG_RECORD_BYTES) return;
        uint32_t crc = crc32c(0, bytes + at + 8, SEGLOG_RECORD_BYTES - 8 + (size_t)count);
        memcpy(bytes + at + 4, &crc, sizeof crc);
        at += SEGLOG_RECORD_BYTES + count;
    }
}

/* Opens the log, reads every line it claims, returns how many. */
static uint64_t read_all(struct store *store, bool read_only) {
    struct seglog_options options = {
        .batch_id = BATCH, .batch_sequence = 1, .line_count = LINES, .read_only = read_only};
    struct seglog *log;
    struct error error;
    struct buf buf;
    uint64_t readable = 0;
    if (seglog_open(&log, store, &options, &error) != OK) abort();
    buf_init(&buf, SEGLOG_TEXT_BYTES_MAX);
    for (uint64_t line = 0; line < LINES; line++) {
        struct seglog_found found;
        enum err err = seglog_read_record(log, line, &buf, &found, &error);
        assert(err == (seglog_has(log, line) ? OK : ERR_NOT_FOUND));
        readable += err == OK;
    }
    struct seglog_counts counts = seglog_counts(log);
    assert(counts.recovered == readable);
    assert(counts.successes + counts.errors + counts.others == readable);
    buf_release(&buf);
    seglog_close(log);
    return readable;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char dir[64];
    char path[160];
    struct error error;
    if (!*dir) {
        snprintf(dir, sizeof dir, "/dev/shm/quern-fuzz-XXXXXX");
        if (!mkdtemp(dir)) abort();
    }
    if (size == 0) return 0;
    char *copy = malloc(size);
    if (!copy) abort();
    memcpy(copy, data + 1, size - 1);
    repair(copy, size - 1, data[0]);
    struct store store = {.segment_bytes = 1 << 16};
    snprintf(store.dir, sizeof store.dir, "%s", dir);
    snprintf(path, sizeof path, "%s/batches/" BATCH, dir);
    if (os_mkdirs(path, &error) != OK) abort();
    snprintf(path, sizeof path, "%s/batches/" BATCH "/seg-000001.log", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || os_write_all(fd, copy, size - 1, &error) != OK) abort();
    close(fd);
    uint64_t looked = read_all(&store, true);
    uint64_t opened = read_all(&store, false);
    assert(opened == looked);
    assert(read_all(&store, false) == opened);
    unlink(path);
    free(copy);
    return 0;
}
