/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* echo_internal: the inside of the echo worker, shared by worker_echo.c (its thread and the
 * runner's calls) and answer.c (its answers).
 *
 * Thread: the members after `lock` are guarded by it, except the scratch buffers, which are the
 *     thread's.
 * Memory: see worker_echo.h. */

#include "base/buf.h"
#include "protocol/names.h"
#include "workers/echo/worker_echo.h"

#include <pthread.h>

#define ECHO_ANSWER_BYTES_MAX ((size_t)64 << 20)
#define ECHO_CREATED_UNIX_S 1700000000 /* fixed, so that equal requests have equal answers */

struct echo_job {
    struct echo_job *next;
    struct worker_job job;
    int64_t due_ns;
    int64_t each_ms;
    int64_t told_status; /* 0: none */
    bool cancelled;
    bool hangs;
    bool goes_down;
    char model[MODEL_NAME_BYTES]; /* empty: the body names it */
    size_t bytes;
    char body[];
};

struct echo {
    struct worker worker;
    struct worker_echo_options options;
    struct worker_events events;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct echo_job *first, **last;
    struct echo_job *hanging; /* answered only when they are cancelled */
    uint32_t waiting;
    int64_t last_due_ns; /* the latest of the waiting jobs with each_ms */
    bool was_full;       /* a submit was refused */
    bool ready;
    bool stopping;
    int64_t down_until_ns;
    uint64_t seen; /* jobs taken up; the "every n-th" options count them */
    uint64_t answered;
    uint64_t restarts;
    uint64_t tokens_in, tokens_out;
    struct buf answer;
    struct buf text;
    struct buf model;
};

/* --- answer.c: without the lock --- */
/* The member `echo` of a body; empty if the body has none. */
struct str echo_wishes(struct str body);
void echo_answer(struct echo *echo, const struct echo_job *job);
void echo_answer_error(struct echo *echo, const struct echo_job *job, int32_t status,
                       enum outcome outcome, const char *message);
/* Answers with the status that the body asks for, after the text of a stream. */
void echo_fail_as_told(struct echo *echo, const struct echo_job *job);
