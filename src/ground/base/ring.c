/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ring.h"
#include "base/sync.h"

#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ring {
    pthread_mutex_t lock;
    pthread_cond_t not_full;
    pthread_cond_t not_empty;
    size_t capacity;
    size_t message_bytes;
    size_t first;
    size_t count;
    bool stopped;
    char *slots; /* (capacity, message_bytes) */
};

enum err ring_open(struct ring **ret_ring, size_t capacity, size_t message_bytes,
                   struct error *error) {
    if (capacity == 0 || message_bytes == 0)
        return err_set(error, ERR_INVALID, "ring: %zu slots of %zu bytes", capacity, message_bytes);
    struct ring *ring = mem_new(1, sizeof *ring);
    ring->slots = calloc(capacity, message_bytes);
    if (!ring->slots) {
        free(ring);
        return err_set(error, ERR_LIMIT, "ring: no memory for %zu slots of %zu bytes", capacity,
                       message_bytes);
    }
    ring->capacity = capacity;
    ring->message_bytes = message_bytes;
    pthread_mutex_init(&ring->lock, NULL);
    pthread_cond_init(&ring->not_full, NULL);
    sync_cond_init(&ring->not_empty);
    *ret_ring = ring;
    return OK;
}

void ring_close(struct ring *ring) {
    if (!ring) return;
    pthread_cond_destroy(&ring->not_empty);
    pthread_cond_destroy(&ring->not_full);
    pthread_mutex_destroy(&ring->lock);
    free(ring->slots);
    free(ring);
}

static void put_locked(struct ring *ring, const void *message) {
    assert(ring->count < ring->capacity);
    size_t at = (ring->first + ring->count) % ring->capacity;
    memcpy(ring->slots + at * ring->message_bytes, message, ring->message_bytes);
    ring->count++;
    pthread_cond_signal(&ring->not_empty);
}

bool ring_put(struct ring *ring, const void *message) {
    pthread_mutex_lock(&ring->lock);
    while (ring->count == ring->capacity && !ring->stopped)
        pthread_cond_wait(&ring->not_full, &ring->lock);
    bool taken = !ring->stopped;
    if (taken) put_locked(ring, message);
    pthread_mutex_unlock(&ring->lock);
    return taken;
}

bool ring_try_put(struct ring *ring, const void *message) {
    pthread_mutex_lock(&ring->lock);
    bool taken = !ring->stopped && ring->count < ring->capacity;
    if (taken) put_locked(ring, message);
    pthread_mutex_unlock(&ring->lock);
    return taken;
}

/* Waits, with the lock held, until a message comes, the ring stops or the deadline passes. */
static void wait_for_message(struct ring *ring, int64_t timeout_ms) {
    int64_t due_ns = sync_deadline_ns(timeout_ms);
    while (ring->count == 0 && !ring->stopped && timeout_ms != 0) {
        if (!sync_wait_until(&ring->not_empty, &ring->lock, due_ns)) return;
    }
}

bool ring_take(struct ring *ring, void *ret_message, int64_t timeout_ms) {
    pthread_mutex_lock(&ring->lock);
    wait_for_message(ring, timeout_ms);
    bool found = ring->count > 0;
    if (found) {
        memcpy(ret_message, ring->slots + ring->first * ring->message_bytes, ring->message_bytes);
        ring->first = (ring->first + 1) % ring->capacity;
        ring->count--;
        pthread_cond_signal(&ring->not_full);
    }
    pthread_mutex_unlock(&ring->lock);
    return found;
}

void ring_stop(struct ring *ring) {
    pthread_mutex_lock(&ring->lock);
    ring->stopped = true;
    pthread_cond_broadcast(&ring->not_full);
    pthread_cond_broadcast(&ring->not_empty);
    pthread_mutex_unlock(&ring->lock);
}

bool ring_is_stopped(struct ring *ring) {
    pthread_mutex_lock(&ring->lock);
    bool stopped = ring->stopped;
    pthread_mutex_unlock(&ring->lock);
    return stopped;
}

size_t ring_count(struct ring *ring) {
    pthread_mutex_lock(&ring->lock);
    size_t count = ring->count;
    pthread_mutex_unlock(&ring->lock);
    return count;
}
