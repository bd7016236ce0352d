/* SPDX-License-Identifier: Apache-2.0 */
#include "store/seglog.h"

#include "base/crc.h"
#include "base/mem.h"
#include "base/os.h"
#include "store/seglog_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void seglog_segment_path(const struct seglog *log, uint32_t index,
                         char ret_path[STORE_PATH_BYTES]) {
    int bytes = snprintf(ret_path, STORE_PATH_BYTES, "%s/seg-%06u.log", log->dir, index);
    assert(bytes > 0 && bytes < STORE_PATH_BYTES);
}

void seglog_report(struct seglog *log, const char *format, ...) {
    log->counts.corrupt++;
    atomic_fetch_add(&log->store->log_corrupt_records, 1);
    if (!log->report) return;
    char sentence[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    log->report(log->report_context, sentence);
}

static void add_to_order(struct seglog *log, uint32_t line) {
    log->order = vec_grow(log->order, log->order_count, &log->order_capacity, sizeof *log->order);
    log->order[log->order_count++] = line;
}

static void note_answer(struct seglog *log, uint32_t answer) {
    struct often *unused = NULL;
    for (size_t i = 0; i < SEGLOG_OFTEN; i++) {
        struct often *often = &log->often[i];
        if (often->count == 0) {
            unused = often;
        } else if (often->answer == answer) {
            often->count++;
            return;
        }
    }
    if (unused)
        *unused = (struct often){answer, 1};
    else
        for (size_t i = 0; i < SEGLOG_OFTEN; i++) log->often[i].count--;
}

static void note_marks(struct seglog *log, const struct seglog_found *found) {
    for (unsigned mark = 0; mark < SEGLOG_MARKS; mark++)
        if (found->marks & 1u << mark) log->counts.marks[mark]++;
    unsigned cut = 1u << SEGLOG_TRUNCATED | 1u << SEGLOG_EMPTY;
    if ((found->marks & cut) == cut) log->counts.cut_before_text++;
    if (found->answer) note_answer(log, found->answer);
}

bool seglog_note(struct seglog *log, const struct seglog_found *found, uint64_t position) {
    uint64_t none = 0;
    assert(found->line < log->line_count && found->sequence > log->last_sequence);
    log->last_sequence = found->sequence;
    if (!atomic_compare_exchange_strong(&log->positions[found->line], &none, position)) {
        log->counts.duplicates++;
        atomic_fetch_add(&log->store->duplicate_results, 1);
        return false;
    }
    add_to_order(log, (uint32_t)found->line);
    if (found->shape != SHAPE_NONE) log->counts.shapes[found->shape]++;
    switch (found->kind) {
    case SEGLOG_SUCCESS:
        log->counts.successes++;
        note_marks(log, found);
        usage_add(&log->counts.usage, &found->usage);
        break;
    case SEGLOG_ERROR: log->counts.errors++; break;
    case SEGLOG_CANCELLED:
    case SEGLOG_EXPIRED: log->counts.others++; break;
    }
    return true;
}

enum err seglog_open(struct seglog **ret_log, struct store *store,
                     const struct seglog_options *options, struct error *error) {
    if (options->line_count == 0 || options->line_count >= UINT32_MAX)
        return err_set(error, ERR_INVALID, "a log of %llu lines",
                       (unsigned long long)options->line_count);
    if (strlen(options->batch_id) >= SEGLOG_BATCH_ID_BYTES)
        return err_set(error, ERR_INVALID, "the batch id %s is too long", options->batch_id);
    struct seglog *log = mem_new(1, sizeof *log);
    log->store = store;
    log->fd = -1;
    log->next_sequence = 1;
    log->line_count = options->line_count;
    log->read_only = options->read_only || store->read_only;
    log->report = options->report;
    log->report_context = options->report_context;
    log->identity.batch_sequence = options->batch_sequence;
    memcpy(log->identity.batch_id, options->batch_id, strlen(options->batch_id));
    memcpy(log->identity.input_sha256, options->input_sha256, SHA256_BYTES);
    pthread_mutex_init(&log->lock, NULL);
    log->positions = mem_new(options->line_count, sizeof *log->positions);
    enum err err = store_batch_dir(store, options->batch_id, log->dir, sizeof log->dir, error);
    if (err == OK) err = seglog_scan(log, error);
    if (err != OK) {
        seglog_close(log);
        return err;
    }
    *ret_log = log;
    return OK;
}

void seglog_close(struct seglog *log) {
    if (!log) return;
    seglog_close_reads(log);
    os_close(log->fd);
    pthread_mutex_destroy(&log->lock);
    free(log->positions);
    free(log->order);
    free(log);
}

bool seglog_has(const struct seglog *log, uint64_t line) {
    return line < log->line_count && atomic_load(&log->positions[line]) != 0;
}

struct seglog_counts seglog_counts(struct seglog *log) {
    pthread_mutex_lock(&log->lock);
    struct seglog_counts counts = log->counts;
    for (size_t i = 0; i < SEGLOG_OFTEN; i++)
        if (log->often[i].count > counts.identical) counts.identical = log->often[i].count;
    pthread_mutex_unlock(&log->lock);
    return counts;
}

/* The descriptor for reading a segment, opened at its first use. */
static enum err read_fd(struct seglog *log, uint32_t index, int *ret_fd, struct error *error) {
    size_t at = index % SEGLOG_READS_MAX;
    if (log->reads[at].segment_index != index) {
        char path[STORE_PATH_BYTES];
        int fd;
        seglog_segment_path(log, index, path);
        enum err err = os_open(&fd, path, O_RDONLY, 0, error);
        if (err != OK) return err;
        if (log->reads[at].segment_index != 0) os_close(log->reads[at].fd);
        log->reads[at].segment_index = index;
        log->reads[at].fd = fd;
    }
    *ret_fd = log->reads[at].fd;
    return OK;
}

void seglog_close_reads(struct seglog *log) {
    for (size_t i = 0; i < SEGLOG_READS_MAX; i++) {
        if (log->reads[i].segment_index != 0) os_close(log->reads[i].fd);
        log->reads[i].segment_index = 0;
    }
}

static enum err damaged(struct seglog *log, uint64_t line, struct error *error) {
    seglog_report(log, "%s: the record of request %llu is damaged", log->identity.batch_id,
                  (unsigned long long)line);
    return err_set(error, ERR_CORRUPT, "%s: the record of request %llu is damaged",
                   log->identity.batch_id, (unsigned long long)line);
}

/* Size of the first read. Most records fit; a longer one takes a second read. */
#define FIRST_READ_BYTES ((size_t)4096)

/* Appends the whole record to *buf. */
static enum err read_record_bytes(int fd, uint64_t offset, struct buf *buf, struct error *error) {
    uint64_t file_bytes;
    enum err err = os_file_bytes(fd, &file_bytes, error);
    if (err != OK) return err;
    if (offset + SEGLOG_RECORD_BYTES > file_bytes)
        return err_set(error, ERR_CORRUPT, "the segment ends before the record");
    uint64_t left = file_bytes - offset;
    size_t first = left < FIRST_READ_BYTES ? (size_t)left : FIRST_READ_BYTES;
    char *at = buf_reserve(buf, first);
    if (!at) return err_set(error, ERR_LIMIT, "no room for a record");
    err = os_pread_all(fd, at, first, offset, error);
    if (err != OK) return err;
    struct record_header header;
    if (!record_header_read((const unsigned char *)at, &header) ||
        header.bytes > left - SEGLOG_RECORD_BYTES)
        return err_set(error, ERR_CORRUPT, "there is no record");
    size_t whole = SEGLOG_RECORD_BYTES + (size_t)header.bytes;
    buf_commit(buf, first < whole ? first : whole);
    if (whole <= first) return OK;
    at = buf_reserve(buf, whole - first);
    if (!at) return err_set(error, ERR_LIMIT, "no room for a record of %zu bytes", whole);
    err = os_pread_all(fd, at, whole - first, offset + first, error);
    if (err == OK) buf_commit(buf, whole - first);
    return err;
}

/* Appends the text of the record at `offset` of an open segment. ERR_CORRUPT when no valid record
 * of the line stands there. */
static enum err read_at(struct seglog *log, int fd, uint64_t offset, uint64_t line, struct buf *buf,
                        struct seglog_found *ret_found, struct error *error) {
    size_t from = buf->bytes;
    enum err err = read_record_bytes(fd, offset, buf, error);
    struct record_header header = {0};
    if (err == OK) {
        char *record = buf->at + from;
        bool good = record_header_read((const unsigned char *)record, &header) &&
                    header.line == line && header.batch_sequence == log->identity.batch_sequence &&
                    crc32c(0, record + 8, buf->bytes - from - 8) == header.crc;
        if (!good) err = ERR_CORRUPT;
    }
    if (err != OK) {
        buf_truncate(buf, from);
        return err;
    }
    size_t text = header.bytes - (header.has_usage ? SEGLOG_USAGE_BYTES : 0);
    *ret_found = (struct seglog_found){.line = line,
                                       .sequence = header.sequence,
                                       .kind = header.kind,
                                       .marks = header.marks,
                                       .answer = header.answer,
                                       .shape = header.shape};
    if (header.has_usage)
        ret_found->usage = record_usage_read(
            (const unsigned char *)buf->at + from + SEGLOG_RECORD_BYTES + text, header.is_reused);
    memmove(buf->at + from, buf->at + from + SEGLOG_RECORD_BYTES, text);
    buf_truncate(buf, from + text);
    return OK;
}

enum err seglog_read_record(struct seglog *log, uint64_t line, struct buf *buf,
                            struct seglog_found *ret_found, struct error *error) {
    assert(line < log->line_count);
    uint64_t position = atomic_load(&log->positions[line]);
    if (position == 0)
        return err_set(error, ERR_NOT_FOUND, "request %llu has no record",
                       (unsigned long long)line);
    int fd;
    enum err err = read_fd(log, (uint32_t)(position >> 32), &fd, error);
    if (err == ERR_NOT_FOUND) return damaged(log, line, error);
    if (err == OK) err = read_at(log, fd, (uint32_t)position, line, buf, ret_found, error);
    return err == ERR_CORRUPT ? damaged(log, line, error) : err;
}

uint64_t seglog_last_sequence(struct seglog *log) {
    pthread_mutex_lock(&log->lock);
    uint64_t sequence = log->last_sequence;
    pthread_mutex_unlock(&log->lock);
    return sequence;
}

void seglog_forget(struct seglog *log, uint64_t line) {
    assert(line < log->line_count);
    pthread_mutex_lock(&log->lock);
    atomic_store(&log->positions[line], 0);
    /* A slow search is fine: it happens only when bytes have rotted. */
    for (size_t i = 0; i < log->order_count; i++)
        if (log->order[i] == line) log->order[i] = UINT32_MAX;
    pthread_mutex_unlock(&log->lock);
}

void seglog_tell_mirror(const struct seglog *log, uint32_t index, uint64_t at, const void *bytes,
                        size_t count) {
    char path[STORE_PATH_BYTES];
    if (!log->store->mirror) return;
    seglog_segment_path(log, index, path);
    store_mirror_written(log->store, path, at, (struct str){bytes, count});
}
