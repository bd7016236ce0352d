/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_sum.h"

#include "base/digest.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_BYTES ((uint64_t)1 << 20)

struct pull_summer {
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below, and the jobs */
    pthread_cond_t changed;
    struct pull_sum_job *first, *last;
    bool is_stopping;
};

/* --- one of the two sums --- */

struct sum {
    bool is_git;
    struct digest blob; /* git names a blob by the SHA-1 of a head and its bytes */
    struct sha256 sha256;
};

static void sum_init(struct sum *sum, bool is_git, uint64_t bytes) {
    char head[32];
    sum->is_git = is_git;
    sum->blob = (struct digest){0};
    sha256_init(&sum->sha256);
    if (!is_git) return;
    digest_begin(&sum->blob, DIGEST_SHA1);
    int count = snprintf(head, sizeof head, "blob %" PRIu64, bytes);
    digest_add(&sum->blob, head, (size_t)count + 1); /* with the NUL */
}

static void sum_add(struct sum *sum, const void *bytes, size_t count) {
    if (sum->is_git)
        digest_add(&sum->blob, bytes, count);
    else
        sha256_add(&sum->sha256, bytes, count);
}

static void sum_end(struct sum *sum, char ret_sum[PULL_SUM_BYTES]) {
    unsigned char digest[SHA256_BYTES];
    if (sum->is_git) {
        digest_end_hex(&sum->blob, ret_sum);
        return;
    }
    sha256_end(&sum->sha256, digest);
    sha256_hex(digest, ret_sum);
}

/* --- the thread --- */

/* Waits for bytes from `at` on. How many may be read; 0: the summer stops. */
static uint64_t wait_for_bytes(struct pull_summer *summer, const struct pull_sum_job *job,
                               uint64_t at) {
    pthread_mutex_lock(&summer->lock);
    while (!summer->is_stopping && job->ready <= at)
        pthread_cond_wait(&summer->changed, &summer->lock);
    uint64_t count = summer->is_stopping ? 0 : job->ready - at;
    pthread_mutex_unlock(&summer->lock);
    return count;
}

static void sum_job(struct pull_summer *summer, struct pull_sum_job *job, char *chunk) {
    struct sum sum;
    struct error error = {0};
    enum err err = OK;
    uint64_t at = 0;
    sum_init(&sum, job->is_git, job->bytes);
    while (at < job->bytes && err == OK) {
        uint64_t count = wait_for_bytes(summer, job, at);
        if (count == 0) {
            digest_release(&sum.blob);
            return;
        }
        if (count > CHUNK_BYTES) count = CHUNK_BYTES;
        err = os_pread_all(job->fd, chunk, count, at, &error);
        if (err == OK) sum_add(&sum, chunk, count);
        at += count;
    }
    pthread_mutex_lock(&summer->lock);
    sum_end(&sum, job->sum);
    job->err = err;
    job->error = error;
    job->is_done = true;
    pthread_mutex_unlock(&summer->lock);
}

static void *run(void *argument) {
    struct pull_summer *summer = argument;
    char *chunk = mem_alloc(CHUNK_BYTES);
    for (;;) {
        pthread_mutex_lock(&summer->lock);
        while (!summer->is_stopping && !summer->first)
            pthread_cond_wait(&summer->changed, &summer->lock);
        struct pull_sum_job *job = summer->is_stopping ? NULL : summer->first;
        if (job) summer->first = job->next;
        pthread_mutex_unlock(&summer->lock);
        if (!job) break;
        sum_job(summer, job, chunk);
    }
    free(chunk);
    return NULL;
}

enum err pull_summer_open(struct pull_summer **ret_summer, struct error *error) {
    struct pull_summer *summer = mem_new(1, sizeof *summer);
    pthread_mutex_init(&summer->lock, NULL);
    pthread_cond_init(&summer->changed, NULL);
    int failed = pthread_create(&summer->thread, NULL, run, summer);
    if (failed != 0) {
        free(summer);
        return err_from_errno(error, failed, "cannot start a thread");
    }
    pthread_setname_np(summer->thread, "sums");
    *ret_summer = summer;
    return OK;
}

void pull_summer_close(struct pull_summer *summer) {
    if (!summer) return;
    pthread_mutex_lock(&summer->lock);
    summer->is_stopping = true;
    pthread_cond_broadcast(&summer->changed);
    pthread_mutex_unlock(&summer->lock);
    pthread_join(summer->thread, NULL);
    pthread_cond_destroy(&summer->changed);
    pthread_mutex_destroy(&summer->lock);
    free(summer);
}

void pull_summer_add(struct pull_summer *summer, struct pull_sum_job *job) {
    pthread_mutex_lock(&summer->lock);
    job->next = NULL;
    job->ready = 0;
    job->is_done = false;
    if (summer->first)
        summer->last->next = job;
    else
        summer->first = job;
    summer->last = job;
    pthread_cond_broadcast(&summer->changed);
    pthread_mutex_unlock(&summer->lock);
}

void pull_summer_tell(struct pull_summer *summer, struct pull_sum_job *job, uint64_t ready) {
    pthread_mutex_lock(&summer->lock);
    if (ready > job->ready) {
        job->ready = ready;
        pthread_cond_broadcast(&summer->changed);
    }
    pthread_mutex_unlock(&summer->lock);
}

bool pull_summer_is_done(struct pull_summer *summer, const struct pull_sum_job *job) {
    pthread_mutex_lock(&summer->lock);
    bool is_done = job->is_done;
    pthread_mutex_unlock(&summer->lock);
    return is_done;
}

/* --- a whole file --- */

enum err pull_sum_file(const char *path, bool is_git, char ret_sum[PULL_SUM_BYTES],
                       bool (*progress)(void *context, uint64_t bytes), void *context,
                       struct error *error) {
    struct sum sum;
    uint64_t bytes, at = 0;
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err != OK) return err;
    err = os_file_bytes(fd, &bytes, error);
    char *chunk = mem_alloc(CHUNK_BYTES);
    sum_init(&sum, is_git, bytes);
    while (err == OK && at < bytes) {
        uint64_t count = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        err = os_pread_all(fd, chunk, count, at, error);
        if (err == OK) sum_add(&sum, chunk, count);
        at += count;
        if (err == OK && progress && !progress(context, at))
            err = err_set(error, ERR_CANCELLED, "stopped");
    }
    if (err == OK) sum_end(&sum, ret_sum);
    free(chunk);
    os_close(fd);
    return err;
}
