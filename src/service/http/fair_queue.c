/* SPDX-License-Identifier: Apache-2.0 */
#include "http/fair_queue.h"

#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct waiting {
    struct waiting *next;
    void *item;
};

struct share {
    struct share *next; /* in the order of turns */
    struct waiting *first, **last;
    uint32_t threads; /* held now */
    char owner[];
};

struct fair_queue {
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t work;
    struct share *first; /* whose turn is next; owners without items and threads are not in it */
    uint32_t threads_each;
    bool is_stopped;
};

struct fair_queue *fair_queue_new(uint32_t threads_each) {
    struct fair_queue *queue = mem_new(1, sizeof *queue);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->work, NULL);
    queue->threads_each = threads_each > 0 ? threads_each : 1;
    return queue;
}

void fair_queue_free(struct fair_queue *queue) {
    if (!queue) return;
    assert(!queue->first);
    pthread_cond_destroy(&queue->work);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

/* Takes a share out of the order. */
static void take_out(struct fair_queue *queue, const struct share *share) {
    struct share **at = &queue->first;
    while (*at != share) at = &(*at)->next;
    *at = share->next;
}

static void put_last(struct fair_queue *queue, struct share *share) {
    struct share **at = &queue->first;
    while (*at) at = &(*at)->next;
    share->next = NULL;
    *at = share;
}

static struct share *share_of(struct fair_queue *queue, const char *owner) {
    for (struct share *share = queue->first; share; share = share->next)
        if (strcmp(share->owner, owner) == 0) return share;
    size_t bytes = strlen(owner) + 1;
    struct share *share = mem_new(1, sizeof *share + bytes);
    memcpy(share->owner, owner, bytes);
    share->last = &share->first;
    put_last(queue, share);
    return share;
}

void fair_queue_put(struct fair_queue *queue, const char *owner, void *item) {
    struct waiting *waiting = mem_new(1, sizeof *waiting);
    waiting->item = item;
    pthread_mutex_lock(&queue->lock);
    struct share *share = share_of(queue, owner);
    *share->last = waiting;
    share->last = &waiting->next;
    pthread_cond_signal(&queue->work);
    pthread_mutex_unlock(&queue->lock);
}

/* The owner who gets the next thread. NULL: no owner has an item and a thread left for it; once the
 * queue is stopped, no owner has an item, because then an owner may hold all threads. */
static struct share *next_share(const struct fair_queue *queue) {
    for (struct share *share = queue->first; share; share = share->next)
        if (share->first && (share->threads < queue->threads_each || queue->is_stopped))
            return share;
    return NULL;
}

void *fair_queue_take(struct fair_queue *queue, struct share **ret_share) {
    struct share *share;
    void *item = NULL;
    pthread_mutex_lock(&queue->lock);
    while (!(share = next_share(queue)) && !queue->is_stopped)
        pthread_cond_wait(&queue->work, &queue->lock);
    if (share) {
        struct waiting *waiting = share->first;
        item = waiting->item;
        share->first = waiting->next;
        if (!share->first) share->last = &share->first;
        free(waiting);
        share->threads++;
        take_out(queue, share);
        put_last(queue, share);
    }
    pthread_mutex_unlock(&queue->lock);
    *ret_share = share;
    return item;
}

void fair_queue_done(struct fair_queue *queue, struct share *share) {
    pthread_mutex_lock(&queue->lock);
    bool was_full = share->threads-- == queue->threads_each;
    if (was_full && share->first) pthread_cond_signal(&queue->work);
    bool is_over = share->threads == 0 && !share->first;
    if (is_over) take_out(queue, share);
    pthread_mutex_unlock(&queue->lock);
    if (is_over) free(share);
}

void fair_queue_stop(struct fair_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->is_stopped = true;
    pthread_cond_broadcast(&queue->work);
    pthread_mutex_unlock(&queue->lock);
}
