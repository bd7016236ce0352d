/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define SAY_NS INT64_C(60000000000) /* between two sentences in the log about one trouble */

/* Keeps the sentence for the status, and logs it now and then. */
static void note_failure(struct copy *copy, int64_t *said_ns, const struct error *error) {
    int64_t now_ns = clock_monotonic_ns();
    pthread_mutex_lock(&copy->lock);
    copy->status.failures++;
    snprintf(copy->status.sentence, sizeof copy->status.sentence, "%.390s", error->text);
    pthread_mutex_unlock(&copy->lock);
    if (*said_ns && now_ns - *said_ns < SAY_NS) return;
    *said_ns = now_ns;
    log_warn("event=copy_waits error=\"%s\"; nothing is acknowledged until it is stored",
             error->text);
}

static void note_success(struct copy *copy) {
    pthread_mutex_lock(&copy->lock);
    bool was_failing = *copy->status.sentence;
    copy->status.sentence[0] = '\0';
    pthread_mutex_unlock(&copy->lock);
    if (was_failing) log_info("event=copy_goes_on");
}

static bool is_starting(struct copy *copy) {
    pthread_mutex_lock(&copy->lock);
    bool is_starting = !copy->store;
    pthread_mutex_unlock(&copy->lock);
    return is_starting;
}

/* True when the close waits no longer. */
static bool is_over(struct copy *copy) {
    pthread_mutex_lock(&copy->lock);
    bool over = copy->is_closing && clock_monotonic_ns() >= copy->close_ns;
    pthread_mutex_unlock(&copy->lock);
    return over || copy->stop || (is_starting(copy) && *copy->asked_to_stop);
}

enum err copy_put_piece(struct copy *copy, const char *name, struct str bytes, int64_t until_ns,
                        struct error *error) {
    int64_t said_ns = 0;
    for (;;) {
        enum err err = bucket_write(copy->bucket, name, bytes, false, error);
        if (err == OK || err == ERR_CANCELLED) return err;
        note_failure(copy, &said_ns, error);
        if (copy_is_fenced(copy))
            return err_set(error, ERR_UNAVAILABLE, "another server has taken over");
        if (is_over(copy) || !chain_pause(&copy->stop))
            return err_set(error, ERR_CANCELLED, "stopped");
        if (until_ns && clock_monotonic_ns() >= until_ns)
            return err_set(error, ERR_UNAVAILABLE, "the copy cannot be stored now");
    }
}

/* Who wrote the entry that exists already. */
static enum err judge_conflict(struct copy *copy, uint64_t number, struct error *error) {
    char name[ENTRY_NAME_BYTES];
    struct entry_header header;
    struct buf bytes;
    buf_init(&bytes, ENTRY_BYTES_MAX);
    chain_log_name(number, name);
    enum err err = chain_read(copy->bucket, name, number, &copy->stop, &bytes, &header, error);
    buf_release(&bytes);
    if (err != OK) return err == ERR_CORRUPT ? err : ERR_UNAVAILABLE;
    if (strcmp(header.nonce, copy->nonce) == 0) return OK;
    return err_set(error, ERR_CONFLICT, "the server on '%s' has taken over the copy", header.host);
}

enum err copy_put_entry(struct copy *copy, uint64_t number, struct str bytes, struct error *error) {
    char name[ENTRY_NAME_BYTES];
    int64_t said_ns = 0;
    chain_log_name(number, name);
    for (;;) {
        enum err err = bucket_write(copy->bucket, name, bytes, true, error);
        if (err == ERR_CONFLICT) {
            err = judge_conflict(copy, number, error);
            if (err == ERR_CONFLICT || err == ERR_CORRUPT) return ERR_CONFLICT;
        }
        if (err == OK) note_success(copy);
        if (err == OK || err == ERR_CANCELLED) return err;
        note_failure(copy, &said_ns, error);
        /* Later, an account that is renewed may let it go on; a first entry shows what is wrong. */
        if (is_starting(copy) && !chain_may_pass(err)) return err;
        if (is_over(copy) || !chain_pause(&copy->stop))
            return err_set(error, ERR_CANCELLED, "stopped");
    }
}
