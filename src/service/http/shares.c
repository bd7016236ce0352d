/* SPDX-License-Identifier: Apache-2.0 */
#include "http/shares.h"

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

struct shares {
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t work;
    struct share *first; /* whose turn is next; owners without items and threads are not in it */
    uint32_t threads_each;
    bool is_stopped;
};

struct shares *shares_new(uint32_t threads_each) {
    struct shares *shares = mem_new(1, sizeof *shares);
    pthread_mutex_init(&shares->lock, NULL);
    pthread_cond_init(&shares->work, NULL);
    shares->threads_each = threads_each > 0 ? threads_each : 1;
    return shares;
}

void shares_free(struct shares *shares) {
    if (!shares) return;
    assert(!shares->first);
    pthread_cond_destroy(&shares->work);
    pthread_mutex_destroy(&shares->lock);
    free(shares);
}

/* Takes a share out of the order. */
static void take_out(struct shares *shares, const struct share *share) {
    struct share **at = &shares->first;
    while (*at != share) at = &(*at)->next;
    *at = share->next;
}

static void put_last(struct shares *shares, struct share *share) {
    struct share **at = &shares->first;
    while (*at) at = &(*at)->next;
    share->next = NULL;
    *at = share;
}

static struct share *share_of(struct shares *shares, const char *owner) {
    for (struct share *share = shares->first; share; share = share->next)
        if (strcmp(share->owner, owner) == 0) return share;
    size_t bytes = strlen(owner) + 1;
    struct share *share = mem_new(1, sizeof *share + bytes);
    memcpy(share->owner, owner, bytes);
    share->last = &share->first;
    put_last(shares, share);
    return share;
}

void shares_put(struct shares *shares, const char *owner, void *item) {
    struct waiting *waiting = mem_new(1, sizeof *waiting);
    waiting->item = item;
    pthread_mutex_lock(&shares->lock);
    struct share *share = share_of(shares, owner);
    *share->last = waiting;
    share->last = &waiting->next;
    pthread_cond_signal(&shares->work);
    pthread_mutex_unlock(&shares->lock);
}

/* The owner who gets the next thread. NULL: no owner has an item and a thread left for it; once the
 * queue is stopped, no owner has an item, because then an owner may hold all threads. */
static struct share *next_share(const struct shares *shares) {
    for (struct share *share = shares->first; share; share = share->next)
        if (share->first && (share->threads < shares->threads_each || shares->is_stopped))
            return share;
    return NULL;
}

void *shares_take(struct shares *shares, struct share **ret_share) {
    struct share *share;
    void *item = NULL;
    pthread_mutex_lock(&shares->lock);
    while (!(share = next_share(shares)) && !shares->is_stopped)
        pthread_cond_wait(&shares->work, &shares->lock);
    if (share) {
        struct waiting *waiting = share->first;
        item = waiting->item;
        share->first = waiting->next;
        if (!share->first) share->last = &share->first;
        free(waiting);
        share->threads++;
        take_out(shares, share);
        put_last(shares, share);
    }
    pthread_mutex_unlock(&shares->lock);
    *ret_share = share;
    return item;
}

void shares_done(struct shares *shares, struct share *share) {
    pthread_mutex_lock(&shares->lock);
    bool was_full = share->threads-- == shares->threads_each;
    if (was_full && share->first) pthread_cond_signal(&shares->work);
    bool is_over = share->threads == 0 && !share->first;
    if (is_over) take_out(shares, share);
    pthread_mutex_unlock(&shares->lock);
    if (is_over) free(share);
}

void shares_stop(struct shares *shares) {
    pthread_mutex_lock(&shares->lock);
    shares->is_stopped = true;
    pthread_cond_broadcast(&shares->work);
    pthread_mutex_unlock(&shares->lock);
}
