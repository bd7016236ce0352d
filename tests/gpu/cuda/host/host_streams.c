/* SPDX-License-Identifier: Apache-2.0 */
#include "host_streams.h"

#include "host_faults.h"

#include "base/rng.h"
#include "gpu/cuda/reduce.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EAGER_ONE_IN 8   /* calls behind which some tasks run */
#define EAGER_TASKS 12   /* at most */
#define SHUFFLE_ONE_IN 6 /* tasks behind which other streams come first */

struct copy {
    char *to;
    const char *from; /* NULL: `value` is set */
    size_t to_stride, from_stride, width, height;
    int value;
};
enum task_kind { TASK_CALLS, TASK_COPY, TASK_RECORD, TASK_WAIT };
struct task {
    struct task *next;
    enum task_kind kind;
    struct copy copy;
    struct CUevent_st *event;
    uint64_t ticket; /* RECORD, WAIT: the event's record that is meant */
    bool is_met;     /* the next call is one of a meeting that all ranks have come to */
    size_t count, at;
    struct host_call calls[]; /* (count), of which those before `at` have run */
};
struct CUstream_st {
    struct CUstream_st *next;
    struct task *first, *last;
    int card;
    uint64_t turn; /* the largest one that can go on does */
};
struct CUevent_st {
    uint64_t asked, done; /* records */
};

static struct CUstream_st *streams;
static struct CUstream_st plain[HOST_CARDS_MAX];
static bool is_running; /* a kernel's call runs */

/* ---- draws ---- */

static struct rng *order(void) {
    static struct rng rng;
    static bool is_open;
    const char *asked = getenv("QUERN_HOST_ORDER");
    if (!is_open) rng.state = asked ? strtoull(asked, NULL, 10) : 1;
    is_open = true;
    return &rng;
}

static bool is_one_in(uint64_t count) {
    return rng_below(order(), count) == 0;
}

static void shuffle(void) {
    for (struct CUstream_st *at = streams; at; at = at->next) at->turn = rng_next(order());
}

/* The streams of plain calls are among the others from the first call on. */
static void open_plain(void) {
    static bool is_open;
    for (int i = 0; i < HOST_CARDS_MAX && !is_open; i++) {
        plain[i] = (struct CUstream_st){.next = streams, .card = i};
        streams = &plain[i];
    }
    is_open = true;
}

/* ---- tasks ---- */

static const struct host_call *call_of(const struct task *task) {
    return task && task->kind == TASK_CALLS && task->at < task->count ? &task->calls[task->at]
                                                                      : NULL;
}

/* Whether two tasks are next to run calls of one meeting. */
static bool do_meet(const struct task *task, const struct cuda_meeting *meeting) {
    const struct host_call *call = call_of(task);
    const struct cuda_meeting *other = call ? host_meeting_of(call->again, call->call) : NULL;
    return other && other->number == meeting->number && other->parts[0] == meeting->parts[0];
}

/* Whether all ranks have come to the meeting. */
static bool is_met(struct task *task, const struct cuda_meeting *meeting) {
    uint32_t count = 0;
    if (task->is_met || (meeting->given_up && *meeting->given_up)) return true;
    for (struct CUstream_st *at = streams; at; at = at->next) count += do_meet(at->first, meeting);
    if (count < meeting->ranks) return false;
    for (struct CUstream_st *at = streams; at; at = at->next)
        if (do_meet(at->first, meeting)) at->first->is_met = true;
    return true;
}

static bool can_go_on(const struct CUstream_st *stream) {
    struct task *task = stream->first;
    if (!task) return false;
    if (task->kind == TASK_WAIT) return task->event->done >= task->ticket;
    const struct host_call *call = call_of(task);
    const struct cuda_meeting *meeting = call ? host_meeting_of(call->again, call->call) : NULL;
    return !meeting || is_met(task, meeting);
}

static void run_call(struct task *task) {
    const struct host_call *call = call_of(task);
    const struct cuda_meeting *meeting = host_meeting_of(call->again, call->call);
    struct error error = {0};
    task->at++;
    if (meeting && !task->is_met) return; /* the host has given up: it leaves all as it was */
    task->is_met = false;
    if (call->again(call->call, call->has_more ? call->more : NULL, &error) == OK) return;
    (void)fprintf(stderr, "host: a kernel that was enqueued is refused: %s\n", error.text);
    abort();
}

static void run_copy(const struct copy *copy) {
    for (size_t i = 0; i < copy->height; i++)
        if (copy->from)
            memmove(copy->to + i * copy->to_stride, copy->from + i * copy->from_stride,
                    copy->width);
        else
            memset(copy->to + i * copy->to_stride, copy->value, copy->width);
}

/* Runs the next call or task of a stream. */
static void go_on(struct CUstream_st *stream) {
    struct task *task = stream->first;
    const int here = host_card();
    (void)cudaSetDevice(stream->card);
    is_running = true;
    switch (task->kind) {
    case TASK_CALLS:
        if (task->at < task->count) run_call(task);
        break;
    case TASK_COPY: run_copy(&task->copy); break;
    case TASK_RECORD: task->event->done = task->ticket; break;
    case TASK_WAIT: break;
    }
    is_running = false;
    (void)cudaSetDevice(here);
    if (task->at < task->count) return;
    stream->first = task->next;
    if (!stream->first) stream->last = NULL;
    free(task);
}

/* Runs a call or a task of one of the streams; false: none can go on. */
static bool run_one(void) {
    struct CUstream_st *next = NULL;
    if (is_one_in(SHUFFLE_ONE_IN)) shuffle();
    for (struct CUstream_st *at = streams; at; at = at->next)
        if (can_go_on(at) && (!next || at->turn > next->turn)) next = at;
    if (next) go_on(next);
    return next != NULL;
}

static bool run_stream(const struct CUstream_st *stream) {
    while (stream->first)
        if (!run_one()) return false;
    return true;
}

static bool run_event(const struct CUevent_st *event) {
    const uint64_t ticket = event->asked;
    while (event->done < ticket)
        if (!run_one()) return false;
    return true;
}

static bool has_tasks(int card) {
    for (struct CUstream_st *at = streams; at; at = at->next)
        if (at->first && (card < 0 || at->card == card)) return true;
    return false;
}

static bool run_cards(int card) {
    while (has_tasks(card))
        if (!run_one()) return false;
    return true;
}

bool host_run_plain(void) {
    open_plain();
    return run_stream(&plain[host_card()]);
}
bool host_run_card(void) {
    return run_cards(host_card());
}
bool host_run_all(void) {
    return run_cards(-1);
}

/* ---- queues ---- */

static struct task *queue(struct CUstream_st *stream, enum task_kind kind, size_t calls) {
    struct task *task = calloc(1, sizeof *task + calls * sizeof *task->calls);
    assert(task && !is_running && !host_is_captured(stream));
    task->kind = kind;
    task->count = calls;
    if (stream->last)
        stream->last->next = task;
    else
        stream->first = task;
    return stream->last = task;
}

/* Behind what was queued: a GPU may be as fast as the host. */
static void run_some(void) {
    if (!is_one_in(EAGER_ONE_IN)) return;
    shuffle();
    for (uint64_t left = rng_below(order(), EAGER_TASKS); left > 0 && run_one();) left--;
}

struct host_call host_call_of(host_again *again, const void *call, size_t call_bytes,
                              const void *more, size_t more_bytes) {
    struct host_call made = {.again = again, .has_more = more != NULL};
    assert(call_bytes <= HOST_ARGUMENT_BYTES && more_bytes <= HOST_ARGUMENT_BYTES);
    memcpy(made.call, call, call_bytes);
    if (more) memcpy(made.more, more, more_bytes);
    return made;
}

void host_queue(struct CUstream_st *stream, const struct host_call *calls, size_t count) {
    struct task *task = queue(stream, TASK_CALLS, count);
    memcpy(task->calls, calls, count * sizeof *calls);
    for (size_t i = 0; i < count; i++) {
        const struct cuda_meeting *meeting = host_meeting_of(calls[i].again, calls[i].call);
        if (meeting) host_waits_while(meeting->given_up);
    }
    run_some();
}

static void queue_copy(struct CUstream_st *stream, struct copy copy) {
    queue(stream, TASK_COPY, 0)->copy = copy;
    run_some();
}

void host_queue_set(void *at, int value, size_t bytes) {
    open_plain();
    queue_copy(&plain[host_card()],
               (struct copy){.to = at, .width = bytes, .height = 1, .value = value});
}

/* ---- the runtime ---- */

/* A captured stream takes kernels alone. */
static bool is_open(cudaStream_t stream) {
    return stream && !host_is_captured(stream);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    if (!is_open(stream) || (width * height > 0 && !host_can_copy(to, from, kind)))
        return cudaErrorInvalidValue;
    /* A GPU reads plain memory before the call returns, if it can. */
    if (width * height > 0 && (!host_is_reached(to) || !host_is_reached(from)))
        return cudaErrorInvalidValue;
    queue_copy(stream, (struct copy){.to = to,
                                     .from = from,
                                     .to_stride = to_stride,
                                     .from_stride = from_stride,
                                     .width = width,
                                     .height = height});
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
    if (!is_open(stream) || (bytes > 0 && !host_can_copy(at, at, cudaMemcpyDeviceToDevice)))
        return cudaErrorInvalidValue;
    queue_copy(stream, (struct copy){.to = at, .width = bytes, .height = 1, .value = value});
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags) {
    (void)flags;
    if (host_is_full("stream")) return cudaErrorMemoryAllocation;
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream) return cudaErrorMemoryAllocation;
    open_plain();
    *stream = (struct CUstream_st){.next = streams, .card = host_card()};
    *ret_stream = streams = stream;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    struct CUstream_st **at = &streams;
    (void)host_run_all(); /* kernels that wait in vain end with their GPU */
    host_forget_waits(stream);
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    while (stream->first) {
        struct task *task = stream->first;
        stream->first = task->next;
        free(task);
    }
    free(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return is_open(stream) ? host_wait(run_stream(stream)) : cudaErrorInvalidValue;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return is_open(stream) ? host_look(run_stream(stream)) : cudaErrorInvalidValue;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    if (!is_open(stream) || !event) return cudaErrorInvalidValue;
    struct task *task = queue(stream, TASK_WAIT, 0);
    task->event = event, task->ticket = event->asked;
    run_some();
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags) {
    (void)flags;
    *ret_event = calloc(1, sizeof **ret_event);
    return *ret_event ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaEventCreate(cudaEvent_t *ret_event) {
    return cudaEventCreateWithFlags(ret_event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    (void)host_run_all();
    free(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!is_open(stream) || !event) return cudaErrorInvalidValue;
    struct task *task = queue(stream, TASK_RECORD, 0);
    task->event = event, task->ticket = ++event->asked;
    run_some();
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return event ? host_wait(run_event(event)) : cudaErrorInvalidValue;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return event ? host_look(run_event(event)) : cudaErrorInvalidValue;
}
cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t from, cudaEvent_t to) {
    *ret_ms = 0.001f;
    return from && to ? cudaSuccess : cudaErrorInvalidValue;
}
