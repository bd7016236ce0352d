/* SPDX-License-Identifier: Apache-2.0 */

/* A base is taken next to a server that goes on. It may have parts of several moments: whatever
 * changes while it is taken is told, and stands in the log from the base's first entry on, which
 * is applied over it. So it needs no lock but for the moment in which its first entry is fixed. */

#include "copy/copy_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "store/batches.h"
#include "store/segment_reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES ((size_t)1 << 20)
#define BASE_EVERY_BYTES ((uint64_t)64 << 20) /* least growth of the log between two bases */
/* Entries behind a base, whatever its size: at 30 ms per request a restore reads them in 19 s. */
#define ENTRIES_MAX 4096u
/* Where the storage is slower, fewer. A base of up to 64 MiB may have so many in any case. */
#define ENTRIES_LEAST 1024u
#define READ_NS_MAX UINT64_C(20000000000)
#define READ_AT_A_TIME 8u /* ahead.c has 16 under way; measured they save as much as 8 */
#define FILE_PATH_BYTES (PATH_MAX + 300)

struct base {
    struct copy *copy;
    struct entry_object at; /* `piece_bytes` counts its pieces */
    struct buf piece;
    struct swept than; /* what is needless once it counts */
    uint64_t bytes;
};

/* --- pieces --- */

static void begin_piece(struct base *base) {
    struct entry_header header;
    pthread_mutex_lock(&base->copy->lock);
    copy_head(base->copy, base->at.piece_bytes + 1, &header);
    pthread_mutex_unlock(&base->copy->lock);
    buf_clear(&base->piece);
    entry_begin(&base->piece, &header);
}

static enum err put_piece(struct base *base, struct error *error) {
    char name[ENTRY_NAME_BYTES];
    entry_end(&base->piece);
    entry_piece_name(&base->at, ++base->at.piece_bytes, name);
    base->bytes += base->piece.bytes;
    enum err err = copy_put_piece(base->copy, name, buf_str(&base->piece), 0, error);
    begin_piece(base);
    return err;
}

/* Stores the piece if it is full. */
static enum err put_full(struct base *base, struct error *error) {
    return base->piece.bytes >= base->copy->piece_bytes ? put_piece(base, error) : OK;
}

/* --- the database --- */

/* Adds the pages that were read, the first of which is number `number`. */
static void add_pages(struct base *base, const struct buf *read, uint32_t page_bytes,
                      uint32_t number, uint64_t page_count) {
    size_t at = entry_begin_pages(&base->piece, page_bytes);
    for (size_t from = 0; from + page_bytes <= read->bytes; from += page_bytes)
        entry_add_page(&base->piece, number++, read->at + from, page_bytes);
    entry_end_pages(&base->piece, at, page_count);
}

static enum err add_database(struct base *base, struct error *error) {
    struct buf read;
    uint32_t page_bytes = 0;
    uint64_t at = 0, page_count;
    enum err err = OK;
    buf_init(&read, READ_BYTES);
    do {
        buf_clear(&read);
        err = store_database_read(base->copy->store, at, READ_BYTES, &read, error);
        if (err == OK && at == 0 && read.bytes >= 512) {
            const unsigned char *head = (const unsigned char *)read.at;
            page_bytes = (uint32_t)head[16] << 8 | head[17];
            if (page_bytes == 1) page_bytes = 65536;
        }
        if (err != OK || read.bytes == 0 || page_bytes == 0) break;
        page_count = (at + read.bytes) / page_bytes;
        add_pages(base, &read, page_bytes, (uint32_t)(at / page_bytes) + 1, page_count);
        at += read.bytes;
        err = put_full(base, error);
    } while (err == OK && read.bytes == READ_BYTES);
    buf_release(&read);
    return err;
}

/* --- files --- */

/* Adds the first `bytes` bytes of a file, piece by piece. */
static enum err add_bytes(struct base *base, const char *path, int fd, uint64_t bytes,
                          struct error *error) {
    char *text = mem_alloc(READ_BYTES);
    enum err err = OK;
    uint64_t at = 0;
    do {
        size_t count = bytes - at < READ_BYTES ? (size_t)(bytes - at) : READ_BYTES;
        err = os_pread_all(fd, text, count, at, error);
        if (err == OK)
            entry_add(&base->piece, at == 0 ? ENTRY_REPLACE : ENTRY_WRITE, path, at,
                      (struct str){text, count});
        if (err == OK) err = put_full(base, error);
        at += count;
    } while (err == OK && at < bytes);
    free(text);
    return err;
}

/* Adds a file that never changes. */
static enum err add_file(struct base *base, const char *path, int fd, struct error *error) {
    struct entry_object object;
    uint64_t bytes;
    enum err err = os_file_bytes(fd, &bytes, error);
    if (err == OK && bytes <= INLINE_BYTES) return add_bytes(base, path, fd, bytes, error);
    if (err == OK) err = copy_object(base->copy, path, fd, bytes, 0, 0, &object, error);
    if (err != OK) return err;
    entry_add_object(&base->piece, path, bytes, &object);
    return put_full(base, error);
}

/* Adds the segment that may be growing. */
static enum err add_tail(struct base *base, const char *path, int fd, struct error *error) {
    uint64_t bytes = 0;
    enum err err = segment_measure(fd, &bytes, error);
    return err == OK && bytes > 0 ? add_bytes(base, path, fd, bytes, error) : err;
}

typedef enum err (*add_fn)(struct base *base, const char *path, int fd, struct error *error);

/* Calls `add` with the file, unless it is gone. */
static enum err open_and(struct base *base, const char *path, add_fn add, struct error *error) {
    char file[FILE_PATH_BYTES];
    int fd;
    snprintf(file, sizeof file, "%s/%.255s", base->copy->state_dir, path);
    enum err err = os_open(&fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, error);
    if (err != OK) return err == ERR_NOT_FOUND ? OK : err;
    err = add(base, path, fd, error);
    os_close(fd);
    return err;
}

typedef enum err (*name_fn)(struct base *base, const char *path, const char *name,
                            struct error *error);

/* Calls `each` for the entries of a folder, with their paths in the state directory. */
static enum err each_name(struct base *base, const char *folder, name_fn each,
                          struct error *error) {
    char path[FILE_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", base->copy->state_dir, folder);
    DIR *dir = os_opendir(path);
    if (!dir) return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot read %s", path);
    enum err err = OK;
    for (struct dirent *entry; err == OK && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || strlen(folder) + strlen(entry->d_name) > 200) continue;
        snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", entry->d_name);
        err = each(base, path, entry->d_name, error);
    }
    closedir(dir);
    return err;
}

static enum err base_file(struct base *base, const char *path, const char *name,
                          struct error *error) {
    (void)name;
    return entry_path_is_good(str_from(path)) ? open_and(base, path, add_file, error) : OK;
}

static enum err base_files_folder(struct base *base, const char *path, const char *name,
                                  struct error *error) {
    (void)name;
    return each_name(base, path, base_file, error);
}

static bool has_segment(const struct base *base, const char *path, unsigned index) {
    char file[FILE_PATH_BYTES];
    int bytes =
        snprintf(file, sizeof file, "%s/%.200s/seg-%06u.log", base->copy->state_dir, path, index);
    return bytes < (int)sizeof file && access(file, F_OK) == 0;
}

static enum err base_order(struct base *base, const char *path, const char *name,
                           struct error *error) {
    return store_order_is_name(str_from(name)) ? base_file(base, path, name, error) : OK;
}

/* Adds the segments of a run, of which only the last one may grow, and the order of its results.
 * lines.idx is made again from the input. */
static enum err base_batch(struct base *base, const char *path, const char *name,
                           struct error *error) {
    char file[FILE_PATH_BYTES];
    (void)name;
    enum err err = each_name(base, path, base_order, error);
    for (unsigned i = 1; err == OK && has_segment(base, path, i); i++) {
        snprintf(file, sizeof file, "%.200s/seg-%06u.log", path, i);
        err = open_and(base, file, has_segment(base, path, i + 1) ? add_file : add_tail, error);
    }
    return err;
}

static enum err base_small(struct base *base, const char *path, const char *name,
                           struct error *error) {
    (void)name;
    return copy_is_small(path) ? open_and(base, path, add_file, error) : OK;
}

/* --- one base --- */

/* All that is committed is in the database's file: what is told from now on is in the base's first
 * entry or a later one. The database's lock is held. */
static void at_rest(void *context) {
    struct base *base = context;
    struct copy *copy = base->copy;
    pthread_mutex_lock(&copy->lock);
    base->than.first = copy->next + (copy->is_sending ? 1 : 0);
    base->than.serial = copy->serial;
    base->than.under_way = copy->serial;
    for (size_t i = 0; i < copy->under_way_count; i++)
        if (copy->under_way[i] < base->than.under_way) base->than.under_way = copy->under_way[i];
    for (size_t i = 0; i < copy->row_count; i++) copy->rows[i].is_seen = false;
    pthread_mutex_unlock(&copy->lock);
}

static enum err fill(struct base *base, struct error *error) {
    enum err err = add_database(base, error);
    if (err == OK) err = each_name(base, "files", base_files_folder, error);
    if (err == OK) err = each_name(base, "parts", base_file, error);
    if (err == OK) err = each_name(base, "batches", base_batch, error);
    if (err == OK) err = each_name(base, "", base_small, error);
    return err == OK ? put_piece(base, error) : err;
}

/* Writes the entry that makes it the base, behind all that was told before. The lock is held. */
static void tell_base(struct base *base) {
    entry_add_base(&base->copy->gathered.records, base->than.first, &base->at);
    copy_note(base->copy, false);
}

/* Waits for the entry with the base, and notes it. */
static enum err publish(struct base *base, struct error *error) {
    struct copy *copy = base->copy;
    pthread_mutex_lock(&copy->lock);
    uint64_t number = copy->next + (copy->is_sending ? 1 : 0), count = copy->base_count;
    tell_base(base);
    pthread_mutex_unlock(&copy->lock);
    while (!copy_wait(copy, false, clock_monotonic_ns() + INT64_C(1000000000)))
        if (copy_is_ending(copy)) return err_set(error, ERR_CANCELLED, "stopped");
    enum err err;
    while ((err = chain_note_base(copy->bucket, &count, number, error)) != OK)
        if (!chain_may_pass(err) || copy_is_ending(copy) || !chain_pause(&copy->stop)) return err;
    pthread_mutex_lock(&copy->lock);
    copy->base = number;
    copy->base_count = count;
    copy->base_at = base->at;
    copy->base_bytes = base->bytes;
    copy->log = (struct log_growth){.entry_ns = copy->log.entry_ns};
    copy->status.bases++;
    pthread_mutex_unlock(&copy->lock);
    log_info("event=copy_base entry=%" PRIu64 " bytes=%" PRIu64, number, base->bytes);
    return OK;
}

static enum err make_base(struct copy *copy, struct base *base, struct error *error) {
    *base = (struct base){.copy = copy};
    pthread_mutex_lock(&copy->lock);
    base->at = (struct entry_object){.leader = copy->leader, .serial = copy->serial++};
    pthread_mutex_unlock(&copy->lock);
    enum err err = store_database_settle(copy->store, at_rest, base, error);
    if (err != OK) return err;
    buf_init(&base->piece, BUF_UNLIMITED);
    begin_piece(base);
    err = fill(base, error);
    if (err == OK) err = publish(base, error);
    buf_release(&base->piece);
    return err;
}

static void *baser_main(void *context) {
    struct copy *copy = context;
    struct error error;
    struct base base;
    enum err err = make_base(copy, &base, &error);
    if (err == OK) copy_sweep(copy, &base.than);
    if (err != OK && !copy->stop)
        log_warn("event=copy_base_failed error=\"%s\"; it is tried again later", error.text);
    atomic_store(&copy->is_basing, false);
    return NULL;
}

static void *sweeper_main(void *context) {
    struct base *base = context;
    copy_sweep(base->copy, &base->than);
    atomic_store(&base->copy->is_basing, false);
    free(base);
    return NULL;
}

enum err copy_make_base(struct copy *copy, struct error *error) {
    struct base *base = mem_new(1, sizeof *base);
    atomic_store(&copy->is_basing, true);
    enum err err = make_base(copy, base, error);
    pthread_mutex_lock(&copy->lock);
    copy->has_baser = err == OK && pthread_create(&copy->baser, NULL, sweeper_main, base) == 0;
    bool has_begun = copy->has_baser;
    if (has_begun) pthread_setname_np(copy->baser, "copy-base");
    pthread_mutex_unlock(&copy->lock);
    if (has_begun) return OK;
    atomic_store(&copy->is_basing, false);
    free(base);
    return err;
}

bool copy_base_is_due(uint64_t base_bytes, const struct log_growth *log) {
    uint64_t due_bytes = base_bytes > BASE_EVERY_BYTES ? base_bytes : BASE_EVERY_BYTES;
    uint64_t read_ns = log->entries * (uint64_t)log->entry_ns / READ_AT_A_TIME;
    if (log->bytes >= due_bytes || log->entries >= ENTRIES_MAX) return true;
    return log->entries >= ENTRIES_LEAST && read_ns >= READ_NS_MAX;
}

void copy_base_when_due(struct copy *copy) {
    if (!copy->base || copy->is_closing || !copy_base_is_due(copy->base_bytes, &copy->log) ||
        atomic_load(&copy->is_basing))
        return;
    if (copy->has_baser) pthread_join(copy->baser, NULL);
    copy->has_baser = false;
    /* A base that fails is tried again after as much. */
    copy->log = (struct log_growth){.entry_ns = copy->log.entry_ns};
    atomic_store(&copy->is_basing, true);
    if (pthread_create(&copy->baser, NULL, baser_main, copy) != 0) {
        atomic_store(&copy->is_basing, false);
        return;
    }
    pthread_setname_np(copy->baser, "copy-base");
    copy->has_baser = true;
}
