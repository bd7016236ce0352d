/* SPDX-License-Identifier: Apache-2.0 */

/* A base is taken next to a server that goes on. It may have parts of several moments: whatever
 * changes while it is taken is told, and stands in the log from the base's first entry on, which
 * is applied over it. So it needs no lock but for the moment in which its first entry is fixed. */

#include "copy/copy_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
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
#define FILE_PATH_BYTES (PATH_MAX + 300)

struct base {
    struct copy *copy;
    struct entry_object at; /* `piece_bytes` counts its pieces */
    struct buf piece;
    uint64_t first;
    uint64_t serial; /* objects from it on are newer than the base */
    uint64_t bytes;
    /* The base before, once this one counts: */
    uint64_t old_first;
    struct entry_object old_at;
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
    return base->piece.bytes >= PIECE_BYTES ? put_piece(base, error) : OK;
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

/* Adds the segments of a run, of which only the last one may grow, and the order of its results.
 * lines.idx is made again from the input. */
static enum err base_batch(struct base *base, const char *path, const char *name,
                           struct error *error) {
    char file[FILE_PATH_BYTES];
    (void)name;
    enum err err = OK;
    snprintf(file, sizeof file, "%.200s/order.idx", path);
    err = base_file(base, file, "order.idx", error);
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

/* All that is committed is in the database's file: what is told from now on is in entry `first` or
 * a later one. The database's lock is held. */
static void at_rest(void *context) {
    struct base *base = context;
    struct copy *copy = base->copy;
    pthread_mutex_lock(&copy->lock);
    base->first = copy->next + (copy->is_sending ? 1 : 0);
    base->serial = atomic_load(&copy->serial);
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
    entry_add_base(&base->copy->gathered.records, base->first, &base->at);
    copy_note(base->copy, false);
}

static void remove_pieces(struct copy *copy, const struct entry_object *at, uint64_t count) {
    char name[ENTRY_NAME_BYTES];
    struct error error;
    for (uint64_t i = 1; i <= count && !copy->stop; i++) {
        entry_piece_name(at, i, name);
        if (bucket_remove(copy->bucket, name, &error) != OK)
            log_debug("event=copy_not_removed error=\"%s\"", error.text);
    }
}

/* Takes the rows out that neither the base nor the log after it names. */
static struct object_row *take_unseen(struct copy *copy, const struct base *base,
                                      size_t *ret_count) {
    size_t kept = 0, count = 0;
    pthread_mutex_lock(&copy->lock);
    struct object_row *gone = mem_new(copy->row_count + 1, sizeof *gone);
    map_release(&copy->row_of);
    map_init(&copy->row_of);
    for (size_t i = 0; i < copy->row_count; i++) {
        const struct object_row row = copy->rows[i];
        bool is_newer = row.at.leader == copy->leader && row.at.serial >= base->serial;
        if (!row.is_seen && !is_newer && row.told_in < base->first) {
            gone[count++] = row;
            continue;
        }
        map_put(&copy->row_of, str_from(row.path), kept);
        copy->rows[kept++] = row;
    }
    copy->row_count = kept;
    pthread_mutex_unlock(&copy->lock);
    *ret_count = count;
    return gone;
}

static void remove_unseen(struct copy *copy, const struct base *base) {
    size_t count;
    struct object_row *gone = take_unseen(copy, base, &count);
    for (size_t i = 0; i < count; i++) {
        const struct object_row *row = &gone[i];
        remove_pieces(copy, &row->at, (row->bytes + row->at.piece_bytes - 1) / row->at.piece_bytes);
    }
    free(gone);
}

static bool is_lead(const struct copy *copy, uint64_t number) {
    for (size_t i = 0; i < copy->lead_count; i++)
        if (copy->leads[i] == number) return true;
    return false;
}

/* Entries with which servers began to lead stay (chain.h). */
static void remove_log(struct copy *copy, uint64_t from, uint64_t to) {
    char name[ENTRY_NAME_BYTES];
    struct error error;
    for (uint64_t i = from; i < to && !copy->stop; i++) {
        if (is_lead(copy, i)) continue;
        chain_log_name(i, name);
        if (bucket_remove(copy->bucket, name, &error) != OK)
            log_debug("event=copy_not_removed error=\"%s\"", error.text);
    }
}

/* Waits for the entry with the base, and notes it. */
static enum err publish(struct base *base, struct error *error) {
    struct copy *copy = base->copy;
    pthread_mutex_lock(&copy->lock);
    uint64_t number = copy->next + (copy->is_sending ? 1 : 0), count = copy->base_count;
    base->old_first = copy->base_first;
    base->old_at = copy->base_at;
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
    copy->base_first = base->first;
    copy->base_at = base->at;
    copy->base_bytes = base->bytes;
    copy->log_bytes = 0;
    copy->status.bases++;
    pthread_mutex_unlock(&copy->lock);
    log_info("event=copy_base entry=%" PRIu64 " bytes=%" PRIu64, number, base->bytes);
    return OK;
}

/* Removes what the base makes needless. */
static void clear_old(const struct base *base) {
    remove_log(base->copy, base->old_first, base->first);
    remove_pieces(base->copy, &base->old_at, base->old_at.piece_bytes);
    remove_unseen(base->copy, base);
}

static enum err make_base(struct copy *copy, struct base *base, struct error *error) {
    *base = (struct base){.copy = copy};
    base->at =
        (struct entry_object){.leader = copy->leader, .serial = atomic_fetch_add(&copy->serial, 1)};
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
    if (err == OK) clear_old(&base);
    if (err != OK && !copy->stop)
        log_warn("event=copy_base_failed error=\"%s\"; it is tried again later", error.text);
    atomic_store(&copy->is_basing, false);
    return NULL;
}

static void *clearer_main(void *context) {
    struct base *base = context;
    clear_old(base);
    atomic_store(&base->copy->is_basing, false);
    free(base);
    return NULL;
}

enum err copy_make_base(struct copy *copy, bool clears_beside, struct error *error) {
    struct base *base = mem_new(1, sizeof *base);
    atomic_store(&copy->is_basing, true);
    enum err err = make_base(copy, base, error);
    pthread_mutex_lock(&copy->lock);
    copy->has_baser =
        err == OK && clears_beside && pthread_create(&copy->baser, NULL, clearer_main, base) == 0;
    bool has_begun = copy->has_baser;
    if (has_begun) pthread_setname_np(copy->baser, "copy-base");
    pthread_mutex_unlock(&copy->lock);
    if (has_begun) return OK;
    if (err == OK) clear_old(base);
    atomic_store(&copy->is_basing, false);
    free(base);
    return err;
}

void copy_base_when_due(struct copy *copy) {
    uint64_t due_bytes = copy->base_bytes > BASE_EVERY_BYTES ? copy->base_bytes : BASE_EVERY_BYTES;
    if (!copy->base || copy->is_closing || copy->log_bytes < due_bytes ||
        atomic_load(&copy->is_basing))
        return;
    if (copy->has_baser) pthread_join(copy->baser, NULL);
    copy->has_baser = false;
    copy->log_bytes = 0; /* a base that fails is tried again after as much */
    atomic_store(&copy->is_basing, true);
    if (pthread_create(&copy->baser, NULL, baser_main, copy) != 0) {
        atomic_store(&copy->is_basing, false);
        return;
    }
    pthread_setname_np(copy->baser, "copy-base");
    copy->has_baser = true;
}
