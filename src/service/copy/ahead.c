/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "copy/copy_internal.h"

#include <stdlib.h>

#define READERS_MAX 16 /* a storage that answers after 30 ms gives 500 entries per second */
/* Entries that wait to be taken. Above it only the next one is read. */
#define WAITING_BYTES_MAX ((size_t)32 << 20)

struct ahead_entry {
    struct buf bytes;
    struct entry_header header;
    struct error error;
    enum err err;
    bool is_here;
};

struct ahead {
    struct bucket *bucket;     /* fixed */
    const volatile bool *stop; /* fixed */
    uint64_t last;             /* fixed */
    pthread_t readers[READERS_MAX];
    size_t reader_count; /* the opener alone uses it */

    pthread_mutex_t lock;
    pthread_cond_t room, here;
    uint64_t next;  /* to be read */
    uint64_t taken; /* to be taken */
    size_t waiting_bytes;
    bool is_closing;
    struct ahead_entry entries[READERS_MAX]; /* by number; a reader's until it is_here */
};

/* The lock is held. */
static bool may_read(const struct ahead *ahead) {
    if (ahead->next > ahead->last || ahead->next >= ahead->taken + READERS_MAX) return false;
    return ahead->next == ahead->taken || ahead->waiting_bytes < WAITING_BYTES_MAX;
}

static void *reader_main(void *context) {
    struct ahead *ahead = context;
    char name[ENTRY_NAME_BYTES];
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->is_closing && ahead->next <= ahead->last) {
        if (!may_read(ahead)) {
            pthread_cond_wait(&ahead->room, &ahead->lock);
            continue;
        }
        uint64_t number = ahead->next++;
        struct ahead_entry *entry = &ahead->entries[number % READERS_MAX];
        pthread_mutex_unlock(&ahead->lock);
        chain_log_name(number, name);
        entry->err = chain_read(ahead->bucket, name, number, ahead->stop, &entry->bytes,
                                &entry->header, &entry->error);
        pthread_mutex_lock(&ahead->lock);
        entry->is_here = true;
        ahead->waiting_bytes += entry->bytes.bytes;
        pthread_cond_signal(&ahead->here);
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

void ahead_close(struct ahead *ahead) {
    pthread_mutex_lock(&ahead->lock);
    ahead->is_closing = true;
    pthread_cond_broadcast(&ahead->room);
    pthread_mutex_unlock(&ahead->lock);
    for (size_t i = 0; i < ahead->reader_count; i++) pthread_join(ahead->readers[i], NULL);
    for (size_t i = 0; i < READERS_MAX; i++) buf_release(&ahead->entries[i].bytes);
    pthread_cond_destroy(&ahead->here);
    pthread_cond_destroy(&ahead->room);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead);
}

enum err ahead_open(struct ahead **ret_ahead, struct bucket *bucket, uint64_t first, uint64_t last,
                    const volatile bool *stop, struct error *error) {
    struct ahead *ahead = mem_new(1, sizeof *ahead);
    ahead->bucket = bucket;
    ahead->stop = stop;
    ahead->next = ahead->taken = first;
    ahead->last = last;
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->room, NULL);
    pthread_cond_init(&ahead->here, NULL);
    for (size_t i = 0; i < READERS_MAX; i++) buf_init(&ahead->entries[i].bytes, ENTRY_BYTES_MAX);
    int failed = 0;
    while (!failed && ahead->reader_count < READERS_MAX && ahead->reader_count < last - first + 1) {
        failed = pthread_create(&ahead->readers[ahead->reader_count], NULL, reader_main, ahead);
        if (failed) break;
        pthread_setname_np(ahead->readers[ahead->reader_count++], "copy-read");
    }
    if (ahead->reader_count > 0) {
        *ret_ahead = ahead;
        return OK;
    }
    ahead_close(ahead);
    return err_from_errno(error, failed, "cannot start a thread that reads the copy");
}

enum err ahead_take(struct ahead *ahead, struct buf *ret_bytes, struct entry_header *ret_header,
                    struct error *error) {
    pthread_mutex_lock(&ahead->lock);
    struct ahead_entry *entry = &ahead->entries[ahead->taken % READERS_MAX];
    while (!entry->is_here) pthread_cond_wait(&ahead->here, &ahead->lock);
    entry->is_here = false;
    ahead->waiting_bytes -= entry->bytes.bytes;
    enum err err = entry->err;
    *error = entry->error;
    *ret_header = entry->header;
    struct buf mine = *ret_bytes;
    *ret_bytes = entry->bytes;
    entry->bytes = mine;
    ahead->taken++;
    pthread_cond_broadcast(&ahead->room);
    pthread_mutex_unlock(&ahead->lock);
    return err;
}
