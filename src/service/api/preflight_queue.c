/* SPDX-License-Identifier: Apache-2.0 */
#include "api/preflight_queue.h"

#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASKS_MAX 9 /* the current one and the waiting ones; 5 of one owner if it is alone */

struct preflight_queue {
    void (*work)(struct queued_ask *ask);
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t wake;
    struct queued_ask *first; /* the waiting questions, in the order of their turns */
    bool is_working;          /* on a question of `owner` */
    char owner[OWNER_BYTES];
    uint32_t count; /* waiting ones and the current one */
    bool is_stopping;
};

bool preflight_queue_is_stopping(struct preflight_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    bool stops = queue->is_stopping;
    pthread_mutex_unlock(&queue->lock);
    return stops;
}

bool preflight_queue_is_gone(struct preflight_queue *queue, const struct queued_ask *ask) {
    pthread_mutex_lock(&queue->lock);
    bool gone = ask->is_gone;
    pthread_mutex_unlock(&queue->lock);
    return gone;
}

/* A question of this owner that had so many before it is over: later ones come nearer to their
 * turn. The caller holds the lock. */
static void move_up(struct preflight_queue *queue, const char *owner, uint32_t before) {
    for (struct queued_ask *ask = queue->first; ask; ask = ask->next)
        if (ask->before > before && strcmp(ask->owner, owner) == 0) ask->before--;
}

bool preflight_queue_leave(struct preflight_queue *queue, struct queued_ask *ask) {
    pthread_mutex_lock(&queue->lock);
    ask->is_gone = true;
    bool was_waiting = ask->is_waiting;
    if (was_waiting) {
        struct queued_ask **at = &queue->first;
        while (*at != ask) at = &(*at)->next;
        *at = ask->next;
        move_up(queue, ask->owner, ask->before);
        queue->count--;
        ask->is_waiting = false;
    }
    pthread_mutex_unlock(&queue->lock);
    return was_waiting;
}

/* --- the thread --- */

/* Waits for the next question; NULL at the end. */
static struct queued_ask *take(struct preflight_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    while (!queue->first && !queue->is_stopping) pthread_cond_wait(&queue->wake, &queue->lock);
    struct queued_ask *ask = queue->first;
    if (ask) {
        queue->first = ask->next;
        queue->is_working = true;
        snprintf(queue->owner, sizeof queue->owner, "%s", ask->owner);
        ask->is_waiting = false;
    }
    pthread_mutex_unlock(&queue->lock);
    return ask;
}

static void *queue_main(void *context) {
    struct preflight_queue *queue = context;
    for (struct queued_ask *ask; (ask = take(queue));) {
        queue->work(ask);
        pthread_mutex_lock(&queue->lock);
        move_up(queue, queue->owner, 0);
        queue->is_working = false;
        queue->count--;
        pthread_mutex_unlock(&queue->lock);
    }
    return NULL;
}

/* --- adding --- */

/* The caller holds the lock, as of the next function. */
static uint32_t count_of(const struct preflight_queue *queue, const char *owner) {
    uint32_t count = queue->is_working && strcmp(queue->owner, owner) == 0;
    for (const struct queued_ask *ask = queue->first; ask; ask = ask->next)
        count += strcmp(ask->owner, owner) == 0;
    return count;
}

/* Puts a question behind those whose owners had as few before them: owners take turns. */
static void put_in_turn(struct preflight_queue *queue, struct queued_ask *ask) {
    struct queued_ask **at = &queue->first;
    while (*at && (*at)->before <= ask->before) at = &(*at)->next;
    ask->next = *at;
    *at = ask;
}

enum preflight_added preflight_queue_add(struct preflight_queue *queue, struct queued_ask *ask) {
    enum preflight_added added = PREFLIGHT_TOO_MANY;
    pthread_mutex_lock(&queue->lock);
    ask->before = count_of(queue, ask->owner);
    if (ask->before < ASKS_MAX - queue->count && !queue->is_stopping) added = PREFLIGHT_QUEUED;
    if (ask->is_gone) added = PREFLIGHT_GONE;
    if (added == PREFLIGHT_QUEUED) {
        queue->count++;
        ask->is_waiting = true;
        put_in_turn(queue, ask);
        pthread_cond_signal(&queue->wake);
    }
    pthread_mutex_unlock(&queue->lock);
    return added;
}

/* --- opening and closing --- */

enum err preflight_queue_open(struct preflight_queue **ret_queue,
                              void (*work)(struct queued_ask *ask), struct error *error) {
    struct preflight_queue *queue = mem_new(1, sizeof *queue);
    queue->work = work;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->wake, NULL);
    int failed = pthread_create(&queue->thread, NULL, queue_main, queue);
    if (failed) {
        pthread_cond_destroy(&queue->wake);
        pthread_mutex_destroy(&queue->lock);
        free(queue);
        return err_from_errno(error, failed, "cannot start a thread for preflights");
    }
    pthread_setname_np(queue->thread, "api-preflight");
    *ret_queue = queue;
    return OK;
}

void preflight_queue_stop(struct preflight_queue *queue) {
    if (!queue) return;
    pthread_mutex_lock(&queue->lock);
    queue->is_stopping = true;
    pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
}

void preflight_queue_close(struct preflight_queue *queue) {
    if (!queue) return;
    assert(!queue->first);
    pthread_cond_destroy(&queue->wake);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}
