/* SPDX-License-Identifier: Apache-2.0 */

/* Followers: clients that keep a connection open and get the lines of a batch as they become
 * durable. One thread serves all of them in turn; the lines that a slow client has not taken stay
 * on the disk. */

#include "api/api_internal.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sync.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Twice what one owner can have when it is alone. */
#define FOLLOWERS_MAX 128
#define LOOK_NS 100000000

struct follower {
    struct follower *next;
    struct http_request *request;
    struct runner_results *results;
    struct page_place place;
    uint64_t lines_left;
    struct key_caller caller;
};

/* The followers of one owner. */
struct share {
    char owner[OWNER_BYTES];
    uint32_t count; /* 0: the share is free */
};

struct followers {
    struct key_set *keys; /* NULL: nobody needs one */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below; the items of the list belong to the thread */
    pthread_cond_t work;
    struct follower *added;
    struct share shares[FOLLOWERS_MAX];
    uint32_t count;
    bool is_hungry; /* a client has taken its piece */
    bool is_stopping;
};

/* The owner's share, or else a free one. There are as many as followers. */
static struct share *share_of(struct followers *followers, const char *owner) {
    struct share *free_one = NULL;
    for (size_t i = 0; i < FOLLOWERS_MAX; i++) {
        struct share *share = &followers->shares[i];
        if (share->count > 0 && strcmp(share->owner, owner) == 0) return share;
        if (share->count == 0 && !free_one) free_one = share;
    }
    return free_one;
}

/* Takes a place for a follower of the owner. An owner gets one while it has fewer than are free:
 * half of all if it is alone, and newcomers find a place however many the others ask for. */
static bool take_place(struct followers *followers, const char *owner) {
    if (followers->count == FOLLOWERS_MAX || followers->is_stopping) return false;
    struct share *share = share_of(followers, owner);
    if (share->count >= FOLLOWERS_MAX - followers->count) return false;
    if (share->count == 0) memcpy(share->owner, owner, OWNER_BYTES);
    share->count++;
    followers->count++;
    return true;
}

static void follower_free(struct follower *follower) {
    runner_results_close(follower->results);
    free(follower);
}

enum progress { SAME, FED, OVER };

/* Gives one client its next piece of lines, if it has taken the one before. */
static enum progress feed(struct follower *follower, struct key_set *keys) {
    struct http_request *request = follower->request;
    struct error error;
    struct buf lines;
    struct page_read read;
    bool good = true;
    if (!key_set_still_knows(keys, &follower->caller)) {
        log_info("request_id=%s event=follower_ended reason=key", http_request_id(request));
        http_stream_abort(request); /* an end would say that the batch has ended */
        follower->request = NULL;
        return OVER;
    }
    if (http_stream_waiting(request) > 0)
        return http_stream_put(request, (struct str){0}) ? SAME : OVER;
    buf_init(&lines, HTTP_PIECE_BYTES);
    struct page page = {.from = follower->place,
                        .lines_max = follower->lines_left,
                        .bytes_max = UINT64_MAX,
                        .room = HTTP_PIECE_BYTES};
    enum err err = runner_results_read(follower->results, &page, &lines, &read, &error);
    bool fed = lines.bytes > 0;
    if (err == OK) good = http_stream_put(request, buf_str(&lines));
    buf_release(&lines);
    if (err != OK) {
        log_warn("request_id=%s batch=%.*s error=\"%s\"", http_request_id(request),
                 STR_ARGS(http_request_param(request, 0)), error.text);
        http_stream_abort(request);
        follower->request = NULL;
        return OVER;
    }
    follower->place = read.next;
    follower->lines_left -= read.lines;
    if (!good || !read.more || follower->lines_left == 0) return OVER;
    return fed ? FED : SAME;
}

/* Serves all clients once. True if one got a line. */
static bool feed_all(struct followers *followers, struct follower **list) {
    bool any = false;
    for (struct follower **at = list; *at;) {
        struct follower *follower = *at;
        enum progress progress = feed(follower, followers->keys);
        any = any || progress == FED;
        if (progress != OVER) {
            at = &follower->next;
            continue;
        }
        *at = follower->next;
        if (follower->request) http_stream_end(follower->request);
        pthread_mutex_lock(&followers->lock);
        share_of(followers, follower->caller.owner)->count--;
        followers->count--;
        pthread_mutex_unlock(&followers->lock);
        follower_free(follower);
    }
    return any;
}

/* Waits, and moves new clients to the thread's list. False at the end. */
static bool wait_and_take(struct followers *followers, struct follower **list, bool is_busy) {
    int64_t due_ns = clock_monotonic_ns() + LOOK_NS;
    pthread_mutex_lock(&followers->lock);
    while (!*list && !followers->added && !followers->is_stopping)
        pthread_cond_wait(&followers->work, &followers->lock);
    if (*list && !is_busy && !followers->added && !followers->is_stopping && !followers->is_hungry)
        sync_wait_until(&followers->work, &followers->lock, due_ns);
    followers->is_hungry = false;
    while (followers->added) {
        struct follower *follower = followers->added;
        followers->added = follower->next;
        follower->next = *list;
        *list = follower;
    }
    bool goes_on = !followers->is_stopping;
    pthread_mutex_unlock(&followers->lock);
    return goes_on;
}

static void *followers_main(void *context) {
    struct followers *followers = context;
    struct follower *list = NULL;
    bool is_busy = false;
    while (wait_and_take(followers, &list, is_busy)) is_busy = feed_all(followers, &list);
    while (list) {
        struct follower *follower = list;
        list = follower->next;
        http_stream_abort(follower->request);
        follower_free(follower);
    }
    return NULL;
}

/* A client has taken its piece and wants the next; on the connection thread. */
static void take_empty(void *context) {
    struct followers *followers = context;
    pthread_mutex_lock(&followers->lock);
    followers->is_hungry = true;
    pthread_cond_signal(&followers->work);
    pthread_mutex_unlock(&followers->lock);
}

void followers_add(struct api *api, struct http_request *request, uint64_t after, uint64_t lines) {
    struct followers *followers = api->followers;
    struct follower *follower = mem_new(1, sizeof *follower);
    follower->request = request;
    follower->place.after = after;
    follower->lines_left = lines;
    follower->caller = *http_request_caller(request);
    runner_results_open(&follower->results, api->options.runner, http_request_param(request, 0));
    pthread_mutex_lock(&followers->lock);
    bool has_room = take_place(followers, follower->caller.owner);
    if (has_room) {
        http_stream_on_empty(request, take_empty, followers);
        http_stream_begin_as(request, "application/jsonl");
        follower->next = followers->added;
        followers->added = follower;
        pthread_cond_signal(&followers->work);
    }
    pthread_mutex_unlock(&followers->lock);
    if (has_room) return;
    follower_free(follower);
    api_fail(request, 429, "rate_limit_exceeded", "follow", "Too many clients follow results");
}

enum err followers_open(struct api *api, struct error *error) {
    struct followers *followers = mem_new(1, sizeof *followers);
    followers->keys = api->options.keys;
    pthread_mutex_init(&followers->lock, NULL);
    sync_cond_init(&followers->work);
    int failed = pthread_create(&followers->thread, NULL, followers_main, followers);
    if (failed) {
        free(followers);
        return err_from_errno(error, failed, "cannot start a thread for followers");
    }
    pthread_setname_np(followers->thread, "api-follow");
    api->followers = followers;
    return OK;
}

void followers_stop(struct api *api) {
    struct followers *followers = api->followers;
    if (!followers) return;
    pthread_mutex_lock(&followers->lock);
    followers->is_stopping = true;
    pthread_cond_signal(&followers->work);
    pthread_mutex_unlock(&followers->lock);
    pthread_join(followers->thread, NULL);
}

void followers_close(struct api *api) {
    struct followers *followers = api->followers;
    if (!followers) return;
    pthread_cond_destroy(&followers->work);
    pthread_mutex_destroy(&followers->lock);
    free(followers);
    api->followers = NULL;
}
