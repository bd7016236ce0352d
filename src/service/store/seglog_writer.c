/* SPDX-License-Identifier: Apache-2.0 */
#include "store/seglog_writer.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/service.h"
#include "base/sync.h"
#include "store/seglog_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GROUP_BYTES ((size_t)256 << 10)        /* a group of this size is written at once */
#define GROUP_BYTES_MAX ((size_t)1 << 20)      /* a group of this size takes no further record */
#define GROUPS_KEPT_MAX 2                      /* empty groups kept with their memory */
#define GROUP_WAIT_NS 10000000                 /* 10 ms: the longest that a smaller group waits */
#define BACKLOG_BYTES_MAX ((uint64_t)64 << 20) /* seglog_put waits above this */
#define KEPT_BYTES ((size_t)2 << 20)           /* a group with more memory is freed, not kept */
#define HELD_BYTES_MAX ((size_t)16 << 20)      /* synced bytes that wait for their copy */
#define COPY_LOOK_NS 1000000000 /* 1 s between two beats while a copy is waited for */
#define COPY_LAST_NS 5000000000 /* the longest wait for a copy at the stop */
#define WAIT_NS 100000000       /* 100 ms between looks at a full disk, or tries to open */
#define LOGS_OPEN_MAX 32        /* logs that are written to before they are synced and closed */

struct pending {
    struct seglog *log;
    size_t at; /* offset in the group's bytes */
    size_t bytes;
    struct seglog_found found;
    uint64_t cookie;
    uint64_t position;
};

struct group {
    struct group *next;
    struct buf bytes;
    struct pending *items;
    size_t count;
    size_t capacity;
};

struct seglog_writer {
    struct store *store;
    seglog_done_fn done;
    void *context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;  /* signalled for a queued record and at the stop */
    pthread_cond_t space; /* signalled when the backlog shrinks */
    struct group *first;  /* oldest group; records are added to the last */
    struct group *last;
    struct group *kept;
    size_t kept_count;
    struct group *held; /* the thread's: groups that are synced and not copied yet (mirror.h) */
    size_t held_bytes;
    uint64_t backlog_bytes; /* bytes queued and being written */
    int64_t first_put_ns;   /* monotonic time of the first record of the first group */
    bool stopping;
    bool is_exhausted;         /* the thread's: want of descriptors was logged, and lasts */
    struct seglog_done *dones; /* scratch memory of the thread */
    size_t done_capacity;
};

/* --- one log --- */

/* Opens the segment that takes the next record, after a time in which none came. */
static enum err open_tail(struct seglog *log, struct error *error) {
    char path[STORE_PATH_BYTES];
    seglog_segment_path(log, log->segment_index, path);
    return os_open(&log->fd, path, O_RDWR | O_NOFOLLOW, 0, error);
}

/* Ends the open segment: cuts off its unused space and syncs it. */
static enum err seal(struct seglog *log, struct error *error) {
    enum err err = os_ftruncate(log->fd, log->end, error);
    if (err == OK) err = store_sync_result(log->store, os_fsync(log->fd, error), error);
    if (err != OK) return err;
    os_close(log->fd);
    log->fd = -1;
    log->has_tail = false;
    log->is_dirty = false;
    return OK;
}

static enum err fill_new_segment(struct seglog *log, int folder, int fd, uint64_t allocate,
                                 struct error *error) {
    unsigned char bytes[SEGLOG_HEADER_BYTES];
    struct segment_header header = log->identity;
    header.index = log->segment_index + 1;
    header.first_sequence = log->next_sequence;
    segment_header_write(bytes, &header);
    enum err err = os_fallocate(fd, 0, allocate, error);
    if (err == OK) err = os_pwrite_all(fd, bytes, sizeof bytes, 0, error);
    if (err == OK) err = store_sync_result(log->store, os_fsync(fd, error), error);
    if (err == OK) err = store_sync_result(log->store, os_fsync(folder, error), error);
    if (err == OK) seglog_tell_mirror(log, header.index, 0, bytes, sizeof bytes);
    return err;
}

static enum err open_segment(struct seglog *log, struct error *error) {
    char path[STORE_PATH_BYTES];
    seglog_segment_path(log, log->segment_index + 1, path);
    uint64_t step = log->store->step_bytes;
    uint64_t allocate = log->store->segment_bytes < step ? log->store->segment_bytes : step;
    int fd, folder;
    enum err err = os_open_dir(&folder, log->dir, error);
    if (err != OK) return err;
    err = os_open(&fd, path, O_RDWR | O_CREAT | O_EXCL, 0600, error);
    if (err == OK)
        err = fill_new_segment(log, folder, fd, allocate, error);
    else
        fd = -1;
    os_close(folder);
    if (fd < 0) return err;
    if (err != OK) {
        os_close(fd);
        struct error ignored;
        if (os_unlink(path, &ignored) != OK) return err;
        return err;
    }
    log->fd = fd;
    log->has_tail = true;
    log->segment_index++;
    log->end = SEGLOG_HEADER_BYTES;
    log->allocated = allocate;
    return OK;
}

/* Takes room for `bytes` at log->end, in steps, so that a full disk shows here. */
static enum err allocate(struct seglog *log, uint64_t bytes, struct error *error) {
    if (log->end + bytes <= log->allocated) return OK;
    uint64_t step = bytes > log->store->step_bytes ? bytes : log->store->step_bytes;
    uint64_t until = log->end + step;
    if (until > log->store->segment_bytes && log->end + bytes <= log->store->segment_bytes)
        until = log->store->segment_bytes;
    enum err err = os_fallocate(log->fd, log->allocated, until - log->allocated, error);
    if (err == OK) log->allocated = until;
    return err;
}

/* Writes the first items of one log, as many as fit into the segment; *ret_count says how many. The
 * log changes only when all of them were written, so that a failed call can be repeated. */
static enum err write_run(struct seglog *log, struct group *group, size_t from, size_t to,
                          size_t *ret_count, struct error *error) {
    uint64_t limit = log->store->segment_bytes;
    bool fresh = log->has_tail && log->end == SEGLOG_HEADER_BYTES;
    enum err err = log->has_tail && log->fd < 0 ? open_tail(log, error) : OK;
    if (err == OK && log->has_tail && !fresh && log->end + group->items[from].bytes > limit)
        err = seal(log, error);
    if (err == OK && !log->has_tail) err = open_segment(log, error);
    if (err != OK) return err;
    size_t count = 1;
    uint64_t bytes = group->items[from].bytes;
    while (from + count < to && log->end + bytes + group->items[from + count].bytes <= limit)
        bytes += group->items[from + count++].bytes;
    err = allocate(log, bytes, error);
    if (err == OK)
        err = os_pwrite_all(log->fd, group->bytes.at + group->items[from].at, (size_t)bytes,
                            log->end, error);
    if (err != OK) return err;
    seglog_tell_mirror(log, log->segment_index, log->end, group->bytes.at + group->items[from].at,
                       (size_t)bytes);
    for (size_t i = from; i < from + count; i++) {
        group->items[i].position = (uint64_t)log->segment_index << 32 | log->end;
        log->end += group->items[i].bytes;
    }
    log->is_dirty = true;
    atomic_fetch_add(&log->store->log_append_bytes, bytes);
    *ret_count = count;
    return OK;
}

/* --- one group --- */

static void seal_records(struct group *group) {
    for (size_t i = 0; i < group->count; i++) {
        struct pending *item = &group->items[i];
        item->found.sequence = item->log->next_sequence++;
        record_seal(group->bytes.at + item->at, item->bytes, item->found.sequence);
    }
}

/* Waits a moment. False when the writer stops. */
static bool wait_a_moment(struct seglog_writer *writer) {
    service_beat();
    pthread_mutex_lock(&writer->lock);
    int64_t due_ns = clock_monotonic_ns() + WAIT_NS;
    while (!writer->stopping && sync_wait_until(&writer->work, &writer->lock, due_ns)) continue;
    bool stopping = writer->stopping;
    pthread_mutex_unlock(&writer->lock);
    return !stopping;
}

/* Waits until the disk has room for `bytes`. False when the writer stops before that. */
static bool wait_for_room(struct seglog_writer *writer, uint64_t bytes) {
    store_disk_filled(writer->store);
    while (wait_a_moment(writer))
        if (store_has_room(writer->store, bytes)) return true;
    return false;
}

/* Waits until the next try to open a segment. False when the writer stops before that. */
static bool wait_for_descriptors(struct seglog_writer *writer, const struct error *error) {
    if (!writer->is_exhausted)
        log_error("store=%s event=exhausted error=\"%s\"; results wait until descriptors are free",
                  store_dir(writer->store), error->text);
    writer->is_exhausted = true;
    return wait_a_moment(writer);
}

/* Makes all written records durable, and closes their segments. */
static void sync_logs(struct group *group) {
    struct error error;
    for (size_t i = 0; i < group->count; i++) {
        struct seglog *log = group->items[i].log;
        if (!log->is_dirty) continue;
        int64_t begin_ns = clock_monotonic_ns();
        enum err err = os_fdatasync(log->fd, &error);
        store_note_sync(log->store, clock_monotonic_ns() - begin_ns);
        if (store_sync_result(log->store, err, &error) != OK) continue;
        log->is_dirty = false;
        os_close(log->fd);
        log->fd = -1;
    }
}

/* Writes all items from *at on, and advances *at. */
static enum err write_items(struct group *group, size_t *at, struct error *error) {
    size_t open_count = 0;
    while (*at < group->count) {
        struct seglog *log = group->items[*at].log;
        size_t to = *at + 1, count = 0;
        while (to < group->count && group->items[to].log == log) to++;
        bool was_open = log->fd >= 0;
        enum err err = write_run(log, group, *at, to, &count, error);
        if (err != OK) return err;
        *at += count;
        if (was_open || ++open_count < LOGS_OPEN_MAX) continue;
        sync_logs(group);
        open_count = 0;
    }
    return OK;
}

static void tell(struct seglog_writer *writer, struct group *group) {
    if (group->count > writer->done_capacity) {
        writer->done_capacity = group->capacity;
        writer->dones = mem_resize(writer->dones, writer->done_capacity, sizeof *writer->dones);
    }
    for (size_t i = 0; i < group->count; i++) {
        struct pending *item = &group->items[i];
        pthread_mutex_lock(&item->log->lock);
        seglog_note(item->log, &item->found, item->position);
        pthread_mutex_unlock(&item->log->lock);
        writer->dones[i].cookie = item->cookie;
    }
    writer->done(writer->context, writer->dones, group->count);
}

/* Makes the group durable. False when the writer stops while the disk is full: it is given up. */
static bool commit_group(struct seglog_writer *writer, struct group *group) {
    struct error error;
    size_t at = 0;
    enum err err;
    seal_records(group);
    while ((err = write_items(group, &at, &error)) == ERR_UNAVAILABLE || err == ERR_EXHAUSTED) {
        if (err == ERR_EXHAUSTED) sync_logs(group); /* that frees the descriptors of its own */
        if (!(err == ERR_EXHAUSTED ? wait_for_descriptors(writer, &error)
                                   : wait_for_room(writer, group->bytes.bytes)))
            return false;
    }
    writer->is_exhausted = false;
    /* A failed write ends the process like a failed sync: the log's bytes are unknown. */
    store_sync_result(writer->store, err, &error);
    sync_logs(group);
    store_note_group(writer->store, group->count);
    return true;
}

static void free_group(struct group *group) {
    buf_release(&group->bytes);
    free(group->items);
    free(group);
}

/* The lock is held. */
static struct group *new_group(struct seglog_writer *writer) {
    struct group *group = writer->kept;
    if (group) {
        writer->kept = group->next;
        writer->kept_count--;
        group->next = NULL;
        return group;
    }
    group = mem_new(1, sizeof *group);
    buf_init(&group->bytes, BUF_UNLIMITED);
    return group;
}

/* Takes back a group that has been written. The lock is held. */
static void keep_or_free(struct seglog_writer *writer, struct group *group) {
    if (writer->kept_count == GROUPS_KEPT_MAX || group->bytes.capacity > KEPT_BYTES) {
        free_group(group);
        return;
    }
    group->count = 0;
    buf_clear(&group->bytes);
    group->next = writer->kept;
    writer->kept = group;
    writer->kept_count++;
}

/* Waits for a due group; NULL when the writer stops and no group is left. The lock is held. */
static struct group *take_group(struct seglog_writer *writer) {
    service_beat();
    while (!writer->first && !writer->stopping) {
        sync_wait_until(&writer->work, &writer->lock, service_beat_due_ns());
        service_beat();
    }
    struct group *group = writer->first;
    if (!group) return NULL;
    int64_t due_ns = writer->first_put_ns + GROUP_WAIT_NS;
    while (group->bytes.bytes < GROUP_BYTES && !group->next && !writer->stopping)
        if (!sync_wait_until(&writer->work, &writer->lock, due_ns)) break;
    writer->first = group->next;
    if (!writer->first) writer->last = NULL;
    group->next = NULL;
    return group;
}

static void log_given_up(struct seglog_writer *writer, struct group *group) {
    log_warn("store=%s event=results_given_up count=%zu; their lines run again",
             store_dir(writer->store), group->count);
}

/* The group is told or given up. The lock is held. */
static void finish_group(struct seglog_writer *writer, struct group *group) {
    writer->backlog_bytes -= group->bytes.bytes;
    keep_or_free(writer, group);
    pthread_cond_broadcast(&writer->space);
}

/* Waits for the copy of all that was told to the mirror. False when the writer stops and the
 * storage does not answer: the records are durable here, and nobody is told of them. */
static bool wait_for_copy(struct seglog_writer *writer) {
    int64_t last_ns = 0;
    for (;;) {
        service_beat();
        int64_t now_ns = clock_monotonic_ns();
        if (store_mirror_wait(writer->store, now_ns + COPY_LOOK_NS)) return true;
        bool is_hopeless = clock_monotonic_ns() - now_ns < COPY_LOOK_NS / 2;
        if (wait_a_moment(writer)) continue;
        if (last_ns == 0) last_ns = now_ns + COPY_LAST_NS;
        if (is_hopeless || now_ns >= last_ns) return false;
    }
}

/* Tells of the held groups, in their order, once they are copied. The lock is held, and let go
 * meanwhile. */
static void tell_held(struct seglog_writer *writer) {
    pthread_mutex_unlock(&writer->lock);
    bool is_copied = wait_for_copy(writer);
    for (struct group *group = writer->held; group; group = group->next)
        (is_copied ? tell : log_given_up)(writer, group);
    pthread_mutex_lock(&writer->lock);
    for (struct group *group; (group = writer->held);) {
        writer->held = group->next;
        group->next = NULL;
        finish_group(writer, group);
    }
    writer->held_bytes = 0;
}

static void hold_group(struct seglog_writer *writer, struct group *group) {
    struct group **end = &writer->held;
    while (*end) end = &(*end)->next;
    *end = group;
    writer->held_bytes += group->bytes.bytes;
}

/* While a copy is being stored, further groups are written: they wait for the next one together. */
static void *writer_main(void *context) {
    struct seglog_writer *writer = context;
    pthread_mutex_lock(&writer->lock);
    for (;;) {
        if (writer->held && (!writer->first || writer->held_bytes >= HELD_BYTES_MAX)) {
            tell_held(writer);
            continue;
        }
        struct group *group = take_group(writer);
        if (!group) break;
        pthread_mutex_unlock(&writer->lock);
        bool is_durable = commit_group(writer, group);
        bool is_held = is_durable && writer->store->mirror;
        if (is_held)
            hold_group(writer, group);
        else if (is_durable)
            tell(writer, group);
        else
            log_given_up(writer, group);
        pthread_mutex_lock(&writer->lock);
        if (!is_held) finish_group(writer, group);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* --- the interface --- */

enum err seglog_writer_open(struct seglog_writer **ret_writer, struct store *store,
                            seglog_done_fn done, void *context, struct error *error) {
    struct seglog_writer *writer = mem_new(1, sizeof *writer);
    writer->store = store;
    writer->done = done;
    writer->context = context;
    pthread_mutex_init(&writer->lock, NULL);
    sync_cond_init(&writer->work);
    sync_cond_init(&writer->space);
    int failed = pthread_create(&writer->thread, NULL, writer_main, writer);
    if (failed) {
        free(writer);
        return err_from_errno(error, failed, "cannot start the writer thread");
    }
    pthread_setname_np(writer->thread, "log-writer");
    *ret_writer = writer;
    return OK;
}

void seglog_writer_close(struct seglog_writer *writer) {
    if (!writer) return;
    pthread_mutex_lock(&writer->lock);
    writer->stopping = true;
    pthread_cond_broadcast(&writer->work);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    while (writer->kept) {
        struct group *group = writer->kept;
        writer->kept = group->next;
        free_group(group);
    }
    free(writer->dones);
    pthread_cond_destroy(&writer->work);
    pthread_cond_destroy(&writer->space);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}

static struct pending *add_item(struct group *group) {
    group->items = vec_grow(group->items, group->count, &group->capacity, sizeof *group->items);
    return &group->items[group->count++];
}

void seglog_put(struct seglog_writer *writer, struct seglog *log,
                const struct seglog_record *record, uint64_t cookie) {
    assert(record->line < log->line_count && !log->read_only);
    pthread_mutex_lock(&writer->lock);
    while (writer->backlog_bytes >= BACKLOG_BYTES_MAX && !writer->stopping)
        pthread_cond_wait(&writer->space, &writer->lock);
    if (!writer->last || writer->last->bytes.bytes >= GROUP_BYTES_MAX) {
        struct group *fresh = new_group(writer);
        *(writer->last ? &writer->last->next : &writer->first) = fresh;
        writer->last = fresh;
    }
    struct group *group = writer->last;
    struct pending *item = add_item(group);
    size_t at = group->bytes.bytes;
    record_write(&group->bytes, record, log->identity.batch_sequence);
    *item = (struct pending){.log = log,
                             .at = at,
                             .bytes = group->bytes.bytes - at,
                             .found = {.line = record->line,
                                       .kind = record->kind,
                                       .usage = record->usage,
                                       .marks = record->marks,
                                       .answer = record->answer,
                                       .shape = record->shape},
                             .cookie = cookie};
    writer->backlog_bytes += item->bytes;
    if (group->count == 1 && group == writer->first) writer->first_put_ns = clock_monotonic_ns();
    if (group->count == 1 || (at < GROUP_BYTES && group->bytes.bytes >= GROUP_BYTES))
        pthread_cond_signal(&writer->work);
    pthread_mutex_unlock(&writer->lock);
}

uint64_t seglog_writer_backlog_bytes(struct seglog_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    uint64_t bytes = writer->backlog_bytes;
    pthread_mutex_unlock(&writer->lock);
    return bytes;
}
