/* SPDX-License-Identifier: Apache-2.0 */

/* Reading a log back when it is opened, as seglog_format.h says. */

#include "base/crc.h"
#include "base/mem.h"
#include "base/os.h"
#include "store/seglog_internal.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES ((size_t)256 << 10)
#define SEGMENTS_MAX 1000000u

/* The segment that is being read, through a window. */
struct scan {
    struct seglog *log;
    uint32_t index;
    int fd;
    uint64_t bytes; /* size of the file */
    unsigned char *window;
    uint64_t window_at;
    size_t window_bytes;
    uint64_t records;       /* records accepted in this segment */
    uint64_t search_budget; /* bytes that find_record may still sum behind damage */
    struct error failure;   /* set when a read failed */
};

/* `count` bytes at `at`; NULL behind the end of the file or after a failed read. */
static const unsigned char *peek(struct scan *scan, uint64_t at, size_t count) {
    assert(count <= WINDOW_BYTES);
    if (at > scan->bytes || count > scan->bytes - at) return NULL;
    if (at < scan->window_at || at + count > scan->window_at + scan->window_bytes) {
        uint64_t left = scan->bytes - at;
        scan->window_at = at;
        scan->window_bytes = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        if (os_pread_all(scan->fd, scan->window, scan->window_bytes, at, &scan->failure) != OK) {
            scan->window_bytes = 0;
            return NULL;
        }
    }
    return scan->window + (at - scan->window_at);
}

/* Sums a record's bytes from offset 8 on. */
static bool sum_record(struct scan *scan, uint64_t at, uint64_t bytes, uint32_t *ret_crc) {
    uint32_t crc = 0;
    for (uint64_t done = 8; done < bytes;) {
        size_t count = bytes - done < WINDOW_BYTES ? (size_t)(bytes - done) : WINDOW_BYTES;
        const unsigned char *part = peek(scan, at + done, count);
        if (!part) return false;
        crc = crc32c(crc, part, count);
        done += count;
    }
    *ret_crc = crc;
    return true;
}

/* True when a valid record stands at `at`. */
static bool read_record(struct scan *scan, uint64_t at, struct record_header *ret_header) {
    struct record_header header;
    uint32_t crc;
    const unsigned char *bytes = peek(scan, at, SEGLOG_RECORD_BYTES);
    if (!bytes || !record_header_read(bytes, &header)) return false;
    if (header.bytes > scan->bytes - at - SEGLOG_RECORD_BYTES) return false;
    if (header.batch_sequence != scan->log->identity.batch_sequence ||
        header.line >= scan->log->line_count || header.sequence < scan->log->next_sequence ||
        header.sequence == UINT64_MAX)
        return false;
    if (!sum_record(scan, at, SEGLOG_RECORD_BYTES + (uint64_t)header.bytes, &crc)) return false;
    if (crc != header.crc) return false;
    *ret_header = header;
    return true;
}

static void accept(struct scan *scan, uint64_t at, const struct record_header *header) {
    struct seglog *log = scan->log;
    struct seglog_found found = {.line = header->line,
                                 .sequence = header->sequence,
                                 .kind = header->kind,
                                 .marks = header->marks,
                                 .answer = header->answer,
                                 .shape = header->shape};
    if (header->has_usage) {
        const unsigned char *bytes =
            peek(scan, at + SEGLOG_RECORD_BYTES + header->bytes - SEGLOG_USAGE_BYTES,
                 SEGLOG_USAGE_BYTES);
        if (bytes) found.usage = record_usage_read(bytes, header->is_reused);
    }
    seglog_note(log, &found, (uint64_t)scan->index << 32 | at);
    log->next_sequence = header->sequence + 1;
    scan->records++;
}

/* The first offset from `at` on with a valid record, or UINT64_MAX. The budget bounds the time for
 * damage that looks like many long records. */
static uint64_t find_record(struct scan *scan, uint64_t at) {
    struct record_header header;
    while (at + SEGLOG_RECORD_BYTES <= scan->bytes && scan->search_budget > 0) {
        uint64_t left = scan->bytes - at;
        size_t count = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        const unsigned char *window = peek(scan, at, count);
        if (!window) break;
        const unsigned char *found = memmem(window, count, "QREC", 4);
        if (!found) {
            at += count - 3;
            continue;
        }
        at += (uint64_t)(found - window);
        const unsigned char *bytes = peek(scan, at, SEGLOG_RECORD_BYTES);
        uint64_t cost = SEGLOG_RECORD_BYTES;
        if (bytes && record_header_read(bytes, &header)) cost += header.bytes;
        if (read_record(scan, at, &header)) return at;
        scan->search_budget -= cost < scan->search_budget ? cost : scan->search_budget;
        at++;
    }
    return UINT64_MAX;
}

/* Reads the records; returns where they end. */
static uint64_t read_records(struct scan *scan) {
    uint64_t at = SEGLOG_HEADER_BYTES;
    while (at < scan->bytes) {
        struct record_header header;
        if (read_record(scan, at, &header)) {
            accept(scan, at, &header);
            at += SEGLOG_RECORD_BYTES + (uint64_t)header.bytes;
            continue;
        }
        uint64_t next = find_record(scan, at + 1);
        if (next == UINT64_MAX || scan->failure.code != OK) break;
        seglog_report(scan->log,
                      "%s segment %u: %llu bytes at %llu are damaged; their lines run "
                      "again",
                      scan->log->identity.batch_id, scan->index, (unsigned long long)(next - at),
                      (unsigned long long)at);
        at = next;
    }
    return at < scan->bytes ? at : scan->bytes;
}

static bool is_zero(struct scan *scan, uint64_t at) {
    while (at < scan->bytes) {
        size_t count = scan->bytes - at < WINDOW_BYTES ? (size_t)(scan->bytes - at) : WINDOW_BYTES;
        const unsigned char *part = peek(scan, at, count);
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
    if (scan->failure.code != OK) return OK;
    if (torn && !log->read_only) {
        enum err err = os_ftruncate(scan->fd, end, error);
        if (err == OK) err = store_sync_result(log->store, os_fsync(scan->fd, error), error);
        if (err != OK) return err;
        scan->bytes = end;
    } else if (scan->records > 0 && !log->read_only) {
        /* The killed process may have written records without a sync. */
        enum err err = store_sync_result(log->store, os_fdatasync(scan->fd, error), error);
        if (err != OK) return err;
    }
    log->end = end;
    log->allocated = scan->bytes;
    return OK;
}

enum identity { OURS, FOREIGN, UNREADABLE };

static enum identity identify(struct scan *scan) {
    struct segment_header header;
    const struct segment_header *own = &scan->log->identity;
    const unsigned char *bytes = peek(scan, 0, SEGLOG_HEADER_BYTES);
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
    if (scan->failure.code == OK && identity == OURS && is_last) {
        *ret_usable = true;
        enum err err = cut_tail(scan, end, error);
        if (err != OK) return err;
    } else if (scan->failure.code == OK && identity == UNREADABLE) {
        *ret_empty = is_last && scan->records == 0;
        if (!*ret_empty)
            seglog_report(log, "%s segment %u: its header is damaged", log->identity.batch_id,
                          scan->index);
    } else if (scan->failure.code == OK && end < scan->bytes) {
        seglog_report(log,
                      "%s segment %u: the %llu bytes from %llu on are damaged; their lines "
                      "run again",
                      log->identity.batch_id, scan->index, (unsigned long long)(scan->bytes - end),
                      (unsigned long long)end);
    }
    if (scan->failure.code == OK) return OK;
    *error = scan->failure;
    return err_prefix(error, "%s segment %u", log->identity.batch_id, scan->index);
}

static enum err scan_segment(struct seglog *log, uint32_t index, bool is_last,
                             unsigned char *window, struct error *error) {
    struct scan scan = {.log = log, .index = index, .window = window};
    char path[STORE_PATH_BYTES];
    seglog_segment_path(log, index, path);
    enum err err =
        os_open(&scan.fd, path, log->read_only ? O_RDONLY : O_RDWR | O_NOFOLLOW, 0, error);
    if (err != OK) return err;
    bool usable = false, empty = false;
    err = os_file_bytes(scan.fd, &scan.bytes, error);
    scan.search_budget = 4 * scan.bytes + (1 << 20);
    if (err == OK) err = read_segment(&scan, is_last, &usable, &empty, error);
    if (err == OK) log->segment_index = index;
    if (err == OK && usable && !log->read_only)
        log->fd = scan.fd;
    else
        os_close(scan.fd);
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
    unsigned char *window = mem_alloc(WINDOW_BYTES);
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
