/* SPDX-License-Identifier: Apache-2.0 */

/* Reading a log back when it is opened, as seglog_format.h says. */

#include "base/mem.h"
#include "base/os.h"
#include "store/seglog_internal.h"
#include "store/segment_reader.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS_MAX 1000000u
#define SECTOR_BYTES 512u /* the least that a disk writes as a whole */

/* The segment that is being read. */
struct scan {
    struct seglog *log;
    uint32_t index;
    uint64_t records; /* records accepted in this segment */
    struct segment_reader reader;
};

static void accept(struct scan *scan, uint64_t at, const struct record_header *header) {
    struct seglog *log = scan->log;
    struct seglog_found found = {.line = header->line,
                                 .sequence = header->sequence,
                                 .kind = header->kind,
                                 .marks = header->marks,
                                 .answer = header->answer,
                                 .shape = header->shape};
    if (header->has_usage) {
        const unsigned char *bytes = segment_peek(
            &scan->reader, at + SEGLOG_RECORD_BYTES + header->bytes - SEGLOG_USAGE_BYTES,
            SEGLOG_USAGE_BYTES);
        if (bytes) found.usage = record_usage_read(bytes, header->is_reused);
    }
    seglog_note(log, &found, (uint64_t)scan->index << 32 | at);
    log->next_sequence = scan->reader.next_sequence = header->sequence + 1;
    scan->records++;
}

/* Whether a sector of these bytes was never written: zeros where their first record begins, up to
 * the sector's end, or a whole sector of them. A group of records whose sync was cut off by the
 * power may have lost its front and kept its end. It was in no count. */
static bool is_torn(struct scan *scan, uint64_t from, uint64_t to) {
    for (uint64_t at = from; at < to;) {
        uint64_t end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
        size_t count = (size_t)((end < to ? end : to) - at);
        const unsigned char *part = segment_peek(&scan->reader, at, count);
        if (!part) return false;
        size_t zeros = 0;
        while (zeros < count && part[zeros] == 0) zeros++;
        if (zeros == count && (at == from || count == SECTOR_BYTES)) return true;
        at += count;
    }
    return false;
}

/* Reads the records; returns where they end. */
static uint64_t read_records(struct scan *scan) {
    uint64_t at = SEGLOG_HEADER_BYTES;
    while (at < scan->reader.bytes) {
        struct record_header header;
        if (segment_record_at(&scan->reader, at, &header)) {
            accept(scan, at, &header);
            at += SEGLOG_RECORD_BYTES + (uint64_t)header.bytes;
            continue;
        }
        uint64_t next = segment_find_record(&scan->reader, at + 1);
        if (next == UINT64_MAX || scan->reader.failure.code != OK) break;
        if (!is_torn(scan, at, next))
            seglog_report(scan->log,
                          "%s segment %u: %llu bytes at %llu are damaged; their lines run "
                          "again",
                          scan->log->identity.batch_id, scan->index,
                          (unsigned long long)(next - at), (unsigned long long)at);
        at = next;
    }
    return at < scan->reader.bytes ? at : scan->reader.bytes;
}

static bool is_zero(struct scan *scan, uint64_t at) {
    uint64_t end = scan->reader.data_bytes;
    while (at < end) {
        size_t count = end - at < SEGMENT_WINDOW_BYTES ? (size_t)(end - at) : SEGMENT_WINDOW_BYTES;
        const unsigned char *part = segment_peek(&scan->reader, at, count);
        if (!part) return false;
        for (size_t i = 0; i < count; i++)
            if (part[i]) return false;
        at += count;
    }
    return true;
}

/* Makes `end` the place of the next record of the last segment, and cuts off a torn tail. */
static enum err cut_tail(struct scan *scan, uint64_t end, struct error *error) {
    struct seglog *log = scan->log;
    bool torn = !is_zero(scan, end);
    if (scan->reader.failure.code != OK) return OK;
    if (torn && !log->read_only) {
        enum err err = os_ftruncate(scan->reader.fd, end, error);
        if (err == OK) err = store_sync_result(log->store, os_fsync(scan->reader.fd, error), error);
        if (err != OK) return err;
        scan->reader.bytes = end;
    } else if (scan->records > 0 && !log->read_only) {
        /* The killed process may have written records without a sync. */
        enum err err = store_sync_result(log->store, os_fdatasync(scan->reader.fd, error), error);
        if (err != OK) return err;
    }
    log->end = end;
    log->allocated = scan->reader.bytes;
    return OK;
}

enum identity { OURS, FOREIGN, UNREADABLE };

static enum identity identify(struct scan *scan) {
    struct segment_header header;
    const struct segment_header *own = &scan->log->identity;
    const unsigned char *bytes = segment_peek(&scan->reader, 0, SEGLOG_HEADER_BYTES);
    if (!bytes || !segment_header_read(bytes, &header)) return UNREADABLE;
    bool same = header.batch_sequence == own->batch_sequence && header.index == scan->index &&
                memcmp(header.batch_id, own->batch_id, sizeof own->batch_id) == 0 &&
                memcmp(header.input_sha256, own->input_sha256, SHA256_BYTES) == 0;
    return same ? OURS : FOREIGN;
}

/* Reads one open segment. *ret_usable: the next record may go into it. *ret_empty: the process died
 * while it created the segment. */
static enum err read_segment(struct scan *scan, bool is_last, bool *ret_usable, bool *ret_empty,
                             struct error *error) {
    struct seglog *log = scan->log;
    enum identity identity = identify(scan);
    *ret_usable = *ret_empty = false;
    if (identity == FOREIGN) {
        seglog_report(log, "%s segment %u belongs to another batch or input and is left alone",
                      log->identity.batch_id, scan->index);
        return OK;
    }
    uint64_t end = read_records(scan);
    if (scan->reader.failure.code == OK && identity == OURS && is_last) {
        *ret_usable = true;
        enum err err = cut_tail(scan, end, error);
        if (err != OK) return err;
    } else if (scan->reader.failure.code == OK && identity == UNREADABLE) {
        *ret_empty = is_last && scan->records == 0;
        if (!*ret_empty)
            seglog_report(log, "%s segment %u: its header is damaged", log->identity.batch_id,
                          scan->index);
    } else if (scan->reader.failure.code == OK && end < scan->reader.bytes) {
        seglog_report(log,
                      "%s segment %u: the %llu bytes from %llu on are damaged; their lines "
                      "run again",
                      log->identity.batch_id, scan->index,
                      (unsigned long long)(scan->reader.bytes - end), (unsigned long long)end);
    }
    if (scan->reader.failure.code == OK) return OK;
    *error = scan->reader.failure;
    return err_prefix(error, "%s segment %u", log->identity.batch_id, scan->index);
}

static enum err scan_segment(struct seglog *log, uint32_t index, bool is_last,
                             unsigned char *window, struct error *error) {
    struct scan scan = {.log = log,
                        .index = index,
                        .reader = {.window = window,
                                   .batch_sequence = log->identity.batch_sequence,
                                   .line_count = log->line_count,
                                   .next_sequence = log->next_sequence}};
    char path[STORE_PATH_BYTES];
    seglog_segment_path(log, index, path);
    enum err err =
        os_open(&scan.reader.fd, path, log->read_only ? O_RDONLY : O_RDWR | O_NOFOLLOW, 0, error);
    if (err != OK) return err;
    bool usable = false, empty = false;
    err = os_file_bytes(scan.reader.fd, &scan.reader.bytes, error);
    scan.reader.data_bytes = err == OK ? os_data_end(scan.reader.fd, scan.reader.bytes) : 0;
    scan.reader.search_budget = segment_search_budget(scan.reader.bytes);
    if (err == OK) err = read_segment(&scan, is_last, &usable, &empty, error);
    if (err == OK) log->segment_index = index;
    os_close(scan.reader.fd);
    if (err == OK) log->has_tail = usable && !log->read_only;
    if (err == OK && empty && !log->read_only) {
        log->segment_index = index - 1;
        err = os_unlink(path, error);
    }
    return err;
}

static int compare_indexes(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The indexes of the log's segments, ascending; the caller frees them. */
static enum err list_segments(struct seglog *log, uint32_t **ret_indexes, size_t *ret_count,
                              struct error *error) {
    DIR *dir = os_opendir(log->dir);
    if (!dir && errno != ENOENT) return err_from_errno(error, errno, "cannot read %s", log->dir);
    uint32_t *indexes = NULL;
    size_t count = 0, capacity = 0;
    for (struct dirent *at; dir && (at = readdir(dir));) {
        unsigned index;
        int used = 0;
        if (sscanf(at->d_name, "seg-%6u.log%n", &index, &used) != 1 || used == 0 ||
            at->d_name[used] != '\0' || index == 0 || index >= SEGMENTS_MAX)
            continue;
        char path[STORE_PATH_BYTES];
        seglog_segment_path(log, index, path);
        if (strcmp(strrchr(path, '/') + 1, at->d_name) != 0) continue;
        indexes = vec_grow(indexes, count, &capacity, sizeof *indexes);
        indexes[count++] = index;
    }
    if (dir) closedir(dir);
    if (count > 0) qsort(indexes, count, sizeof *indexes, compare_indexes);
    *ret_indexes = indexes;
    *ret_count = count;
    return OK;
}

enum err seglog_scan(struct seglog *log, struct error *error) {
    uint32_t *indexes;
    size_t count;
    enum err err = list_segments(log, &indexes, &count, error);
    if (err != OK) return err;
    /* One that was killed may have made a segment and not synced its name. */
    if (count > 0 && !log->read_only)
        err = store_sync_result(log->store, os_fsync_dir(log->dir, error), error);
    unsigned char *window = mem_alloc(SEGMENT_WINDOW_BYTES);
    for (size_t i = 0; i < count && err == OK; i++) {
        if (indexes[i] != (i ? indexes[i - 1] : 0) + 1)
            seglog_report(log, "%s: segments before %u are missing; their lines run again",
                          log->identity.batch_id, indexes[i]);
        err = scan_segment(log, indexes[i], i + 1 == count, window, error);
    }
    log->counts.recovered = log->counts.successes + log->counts.errors + log->counts.others;
    free(window);
    free(indexes);
    return err;
}
