/* SPDX-License-Identifier: Apache-2.0 */
/* The engine loop: jobs in, steps of the model, tokens into text, chunks out.
 *
 * A request of n choices is n requests to the scheduler, number k with seed + k, so that a client
 * can ask for each of them alone; the scheduler shares their prompt. The scheduler's id of a choice
 * combines the job's slot and the choice's index. */
#include "engine/state.h"

#include "base/clock.h"
#include "base/log.h"
#include "scheduler/scheduler.h"

#include <assert.h>
#include <stdlib.h>

#define STATS_PERIOD_NS ((int64_t)1000000000)
/* For 10 min after an interactive job, the time of a conversation, steps are composed late. An
 * engine that runs only lines never waits. */
#define CONVERSATION_NS ((int64_t)600 * 1000000000)

static uint64_t choice_id(const struct job *job, uint32_t index) {
    return (uint64_t)job->slot * REQUEST_SEQUENCES_MAX + index;
}

static int64_t priority_of(const struct job *job) {
    return (int64_t)job->tier * ((int64_t)1 << 33) + job->priority;
}

static void hand_to_finish(struct engine *engine, struct job *job) {
    loop_time_end(engine, job);
    engine->running[job->slot] = NULL;
    bool was_put = ring_try_put(engine->finish_ring, &job);
    assert(was_put);
}

/* The name of the field whose text a request is about. */
static const char *text_param(const struct job *job) {
    if (endpoint_is_decision(job->endpoint)) return decision_text_member(job->endpoint);
    return job->endpoint == ENDPOINT_CHAT ? "messages" : "prompt";
}

static void refuse_job(struct job *job, const struct error *error) {
    job->is_refused = true;
    if (error->code == ERR_LIMIT) {
        refuse(&job->refusal, "context_length_exceeded", text_param(job),
               "The request does not fit: %s.", error->text);
    } else {
        refuse_status(&job->refusal, 500, NULL, NULL, "The request could not be queued: %s.",
                      error->text);
        if (error->code == ERR_UNAVAILABLE) job->outcome = OUTCOME_TRY_AGAIN;
    }
}

/* Cancels all choices. The last FINISHED may come from inside this and free the job. The scheduler
 * ignores ids of choices that are done. */
static void cancel_job(struct engine *engine, struct job *job) {
    if (endpoint_is_pooled(job->endpoint)) {
        embed_queue_remove(engine->embed_queue, job);
        job_refuse_cancelled(job);
        hand_to_finish(engine, job);
        return;
    }
    uint64_t first = choice_id(job, 0);
    uint32_t count = job->choice_count;
    if (endpoint_is_decision(job->endpoint)) {
        /* Now, so that a read which ends meanwhile lets no other one begin. */
        if (!job->is_refused) job_refuse_cancelled(job);
        count = DECISION_READS_UNDER_WAY_MAX;
    }
    for (uint32_t i = 0; i < count; i++) scheduler_cancel(engine->scheduler, first + i);
}

static uint32_t prompt_top_logprobs(const struct request *request) {
    int64_t count = request->has_prompt_logprobs ? request->prompt_logprobs : 0;
    bool is_echoed = request->echo && request->logprobs;
    if (is_echoed && request->top_logprobs > count) count = request->top_logprobs;
    return (uint32_t)count;
}

static enum err submit_choice(struct engine *engine, struct job *job, uint32_t index,
                              struct error *error) {
    uint32_t candidates = (uint32_t)job->request.candidates;
    const struct prompt *prompt = &job->prompts[index / candidates];
    struct scheduler_request request = {
        .id = choice_id(job, index),
        .priority = priority_of(job),
        .sequence_count = 1,
        .prompt = prompt->ids.at,
        .prompt_count = (uint32_t)prompt->ids.count,
        .sampling = loop_sampling(engine, job),
        .is_constrained = job->shapes || job->closing_masks,
        .is_urgent = tier_is_interactive(job->tier),
        .cache_salt = job->cache_salt,
    };
    request.sampling.seed = job->seed + index % candidates;
    /* Once per prompt. */
    if (index % candidates == 0 && request_scores_prompt(&job->request)) {
        request.sampling.prompt_logprobs = true;
        request.sampling.prompt_top_logprobs = prompt_top_logprobs(&job->request);
    }
    return scheduler_submit(engine->scheduler, &request, error);
}

/* --- decisions --- */

static bool has_reads_under_way(const struct decision *decision) {
    for (uint32_t i = 0; i < DECISION_READS_UNDER_WAY_MAX; i++)
        if (decision->under_way[i]) return true;
    return false;
}

/* Submits a read. Its label may be any token, an end of the text too. */
static enum err submit_read(struct engine *engine, struct job *job, uint32_t place,
                            struct error *error) {
    const struct decision_read *read = &job->decision.reads[job->decision.under_way[place] - 1];
    struct ids ids = {.at = NULL};
    decision_read_tokens(&job->decision, read, &ids);
    const struct scheduler_request request = {
        .id = choice_id(job, place),
        .priority = priority_of(job),
        .sequence_count = 1,
        .prompt = ids.at,
        .prompt_count = (uint32_t)ids.count,
        .sampling = {.logprobs = true,
                     .logprob_tokens = read->labels,
                     .logprob_token_count = read->label_count,
                     .max_tokens = 1},
        .is_urgent = tier_is_interactive(job->tier),
        .cache_salt = job->cache_salt,
    };
    enum err err = scheduler_submit(engine->scheduler, &request, error);
    ids_release(&ids);
    return err;
}

/* Submits reads until enough are under way, and hands the job on when none is left. */
static void run_reads(struct engine *engine, struct job *job) {
    struct decision *decision = &job->decision;
    for (uint32_t i = 0; i < DECISION_READS_UNDER_WAY_MAX && !job->is_refused; i++) {
        struct error error;
        if (decision->under_way[i] || decision->next_read == decision->read_count) continue;
        decision->under_way[i] = ++decision->next_read;
        if (submit_read(engine, job, i, &error) == OK) continue;
        decision->under_way[i] = 0;
        refuse_job(job, &error);
        if (has_reads_under_way(decision)) {
            cancel_job(engine, job); /* may free the job */
            return;
        }
    }
    if (has_reads_under_way(decision)) return;
    if (!job->is_refused) job->is_refused = !decision_check_results(decision, &job->refusal);
    hand_to_finish(engine, job);
}

static void on_read(struct engine *engine, struct job *job, uint32_t place,
                    const struct scheduler_event *event) {
    struct decision *decision = &job->decision;
    const struct decision_read *read = &decision->reads[decision->under_way[place] - 1];
    if (event->kind == SCHEDULER_STARTED) loop_time_start(engine, job);
    if (event->kind == SCHEDULER_TOKEN) {
        job->token_ns = engine->step_begun_ns;
        loop_time_token(engine, job, NULL);
        decision_take(decision, read, event->sample);
        return;
    }
    if (event->kind != SCHEDULER_FINISHED) return;
    decision->under_way[place] = 0;
    decision->done_count++;
    decision->input_tokens += event->prompt_tokens;
    decision->cached_tokens += event->cached_tokens;
    if (event->reason == FINISH_CANCELLED && !job->is_refused) job_refuse_cancelled(job);
    run_reads(engine, job);
}

static void send_chunks(struct engine *engine, struct job *job, uint32_t index) {
    if (!job->stream || !engine->events.delta || job->is_refused) return;
    while (answer_write_chunk(&engine->chunk, &engine->source, job, index)) {
        engine->events.delta(engine->events.context, job->id, buf_str(&engine->chunk));
        buf_clear(&engine->chunk);
    }
}

static void end_job(struct engine *engine, struct job *job) {
    if (job->stream && engine->events.delta && job->request.include_usage && !job->is_refused) {
        answer_write_usage_chunk(&engine->chunk, &engine->source, job);
        engine->events.delta(engine->events.context, job->id, buf_str(&engine->chunk));
        buf_clear(&engine->chunk);
    }
    hand_to_finish(engine, job);
}

static void submit_choices(struct engine *engine, struct job *job) {
    for (uint32_t i = 0; i < job->choice_count; i++) {
        struct error error;
        if (!job->is_refused && submit_choice(engine, job, i, &error) == OK) continue;
        if (!job->is_refused) refuse_job(job, &error);
        /* Choices that were never submitted are done; the others end with their events. */
        for (uint32_t k = i; k < job->choice_count; k++) job->choices[k].is_done = true;
        job->open_count -= job->choice_count - i;
        cancel_job(engine, job);
        return;
    }
}

static void admit(struct engine *engine, struct job *job) {
    if (atomic_load(&job->is_cancelled) || engine->has_failed) {
        if (engine->has_failed)
            job_refuse_failed(job);
        else
            job_refuse_cancelled(job);
        hand_to_finish(engine, job);
        return;
    }
    engine->running[job->slot] = job;
    if (tier_is_interactive(job->tier)) engine->urgent_ns = clock_monotonic_ns();
    if (endpoint_is_pooled(job->endpoint)) {
        embed_queue_add(engine->embed_queue, job, priority_of(job));
        return;
    }
    if (endpoint_is_decision(job->endpoint)) {
        run_reads(engine, job);
        return;
    }
    /* Tokens that are given inside scheduler_submit may end choices: the job stays until all are
     * submitted. */
    job->open_count++;
    submit_choices(engine, job);
    if (!job->request.return_token_ids && !request_scores_prompt(&job->request))
        for (size_t i = 0; i < job->request.prompt_count; i++) ids_release(&job->prompts[i].ids);
    if (--job->open_count == 0) end_job(engine, job);
}

/* The last score of a prompt lets the streams of all its choices begin. */
static void on_scored(struct engine *engine, struct job *job, uint32_t index,
                      const struct scheduler_event *event) {
    uint32_t candidates = (uint32_t)job->request.candidates;
    struct prompt *prompt = &job->prompts[index / candidates];
    logprobs_add(&prompt->scores, event->sample, STR(""));
    if (prompt->scores.count + 1 < prompt->token_count) return;
    prompt->is_scored = true;
    for (uint32_t i = 0; i < candidates; i++) send_chunks(engine, job, index + i);
}

const uint32_t *loop_allowed(void *user, uint64_t id, uint32_t sequence) {
    struct engine *engine = user;
    (void)sequence; /* a choice is a request of one sequence */
    struct job *job = engine->running[id / REQUEST_SEQUENCES_MAX];
    return shapes_allowed(engine->shapes, job, (uint32_t)(id % REQUEST_SEQUENCES_MAX));
}

uint32_t loop_given(void *user, uint64_t id, uint32_t sequence, uint32_t room,
                    int32_t *ret_tokens) {
    struct engine *engine = user;
    (void)sequence;
    struct job *job = engine->running[id / REQUEST_SEQUENCES_MAX];
    if (!job->shapes) return 0; /* only its thoughts are limited */
    return shapes_given(engine->shapes, job, (uint32_t)(id % REQUEST_SEQUENCES_MAX), room,
                        ret_tokens);
}

uint32_t loop_ahead(void *user, uint64_t id, uint32_t sequence, const int32_t *tokens,
                    uint32_t count, const uint32_t **ret_allowed) {
    struct engine *engine = user;
    (void)sequence;
    struct job *job = engine->running[id / REQUEST_SEQUENCES_MAX];
    return shapes_ahead(engine->shapes, job, (uint32_t)(id % REQUEST_SEQUENCES_MAX), tokens, count,
                        ret_allowed);
}

static bool is_end_token(const struct engine *engine, int32_t token) {
    for (uint32_t i = 0; i < engine->end_token_count; i++)
        if (engine->end_tokens[i] == token) return true;
    return false;
}

static void on_token(struct engine *engine, struct job *job, uint32_t index,
                     const struct scheduler_event *event) {
    struct choice *choice = &job->choices[index];
    /* A given token may come before the model has computed anything for the job. */
    if (!event->is_given) {
        job->token_ns = engine->step_begun_ns;
        loop_time_token(engine, job, &choice->token_ns);
    }
    if (choice->stopped) return; /* a token that was computed when the stop string was found */
    if (job->request.is_echo_only) return;
    struct sampling sampling = loop_sampling(engine, job);
    bool is_end = sampling_is_stop(&sampling, event->token, event->token_index + 1);
    /* With ignore_eos a token that ends an answer may come without ending the sequence. */
    bool ends_shape = is_end || is_end_token(engine, event->token);
    if (job->shapes && !job->is_refused &&
        !shapes_take(engine->shapes, job, index, event->token, ends_shape, &job->refusal)) {
        job->is_refused = true;
        cancel_job(engine, job); /* may free the job */
        return;
    }
    struct sample plain; /* `top` stays unset: it is long, and this runs for every token */
    plain.token = event->token;
    plain.logprob = 0;
    plain.rank = plain.top_count = 0;
    const struct sample *sample = event->sample ? event->sample : &plain;
    bool is_stopped =
        choice_add(choice, &job->request, engine->model->vocabulary.tokenizer, sample, is_end);
    /* Given tokens are streamed with the next one that the model says. */
    if (!event->is_given) send_chunks(engine, job, index);
    /* Last, because FINISHED may come before this returns and free the job. */
    if (is_stopped) scheduler_finish(engine->scheduler, event->id, event->sequence);
}

static void on_finished(struct engine *engine, struct job *job, uint32_t index,
                        const struct scheduler_event *event) {
    struct choice *choice = &job->choices[index];
    choice_end(choice, &job->request,
               job->request.is_echo_only && event->reason == FINISH_STOP ? FINISH_LENGTH
                                                                         : event->reason);
    choice->is_whole = event->reason == FINISH_STOP && !choice->stopped && job->shapes &&
                       grammar_can_end(&job->shapes[index]);
    choice->prompt_tokens = event->prompt_tokens;
    choice->cached_tokens = event->cached_tokens;
    if (event->reason == FINISH_CANCELLED && !job->is_refused) job_refuse_cancelled(job);
    send_chunks(engine, job, index);
    if (--job->open_count == 0) end_job(engine, job);
}

void loop_on_event(void *user, const struct scheduler_event *event) {
    struct engine *engine = user;
    struct job *job = engine->running[event->id / REQUEST_SEQUENCES_MAX];
    uint32_t index = (uint32_t)(event->id % REQUEST_SEQUENCES_MAX);
    assert(job);
    if (endpoint_is_decision(job->endpoint)) {
        on_read(engine, job, index, event);
        return;
    }
    assert(index < job->choice_count);
    switch (event->kind) {
    case SCHEDULER_STARTED:
        job->choices[index].cached_tokens = event->cached_tokens;
        loop_time_start(engine, job);
        break;
    case SCHEDULER_SCORED: on_scored(engine, job, index, event); break;
    case SCHEDULER_TOKEN: on_token(engine, job, index, event); break;
    case SCHEDULER_FINISHED: on_finished(engine, job, index, event); break;
    case SCHEDULER_PREEMPTED: break;
    }
}

void loop_on_embedded(void *user, struct job *job) {
    hand_to_finish(user, job);
}

static void take_message(struct engine *engine, const struct loop_message *message) {
    struct job *job;
    engine->event_ns = 0;
    switch (message->kind) {
    case LOOP_JOB: admit(engine, message->job); break;
    case LOOP_CANCEL:
        job = engine->running[message->slot];
        /* Another job may have the slot by now. A job that is not here yet is refused when it
         * comes. */
        if (job && job->id == message->id) cancel_job(engine, job);
        break;
    case LOOP_PING: loop_report_stats(engine, message->id); break;
    case LOOP_WAKE: break;
    }
}

/* Ends every job as a fault of the machine: the state of the model's cache is unknown, so no job
 * can go on. */
static void fail(struct engine *engine, const struct error *error) {
    engine->has_failed = true;
    pthread_mutex_lock(&engine->lock);
    engine->is_refusing = true;
    pthread_mutex_unlock(&engine->lock);
    log_error("event=engine_failed reason=\"%s\"", error->text);
    if (engine->events.fatal) engine->events.fatal(engine->events.context, error->text);
    for (uint32_t slot = 0; slot < ENGINE_JOBS_MAX; slot++) {
        struct job *job = engine->running[slot];
        if (!job) continue;
        job_refuse_failed(job);
        hand_to_finish(engine, job);
    }
}

/* Takes the messages in the ring; waits for one only if there is nothing to compute. */
static bool take_messages(struct engine *engine) {
    struct loop_message message;
    int64_t wait_ms = 0;
    if (!loop_has_work(engine)) {
        wait_ms = (engine->stats_due_ns - clock_monotonic_ns()) / 1000000 + 1;
        if (wait_ms < 0) wait_ms = 0;
    }
    while (ring_take(engine->loop_ring, &message, wait_ms)) {
        take_message(engine, &message);
        wait_ms = 0;
    }
    return !ring_is_stopped(engine->loop_ring);
}

/* Waits until the next step should be composed, and takes messages meanwhile: a chat among them
 * joins that step. */
static void wait_to_compose(struct engine *engine) {
    int64_t now_ns = clock_monotonic_ns();
    if (engine->urgent_ns == 0 || now_ns - engine->urgent_ns > CONVERSATION_NS) return;
    int64_t due_ns = step_clock_due_ns(&engine->step_clock);
    struct loop_message message;
    while (due_ns - now_ns >= 1000000 &&
           ring_take(engine->loop_ring, &message, (due_ns - now_ns) / 1000000)) {
        take_message(engine, &message);
        now_ns = clock_monotonic_ns();
    }
}

/* Begins a step. */
static enum err begin_step(struct engine *engine, bool *ret_started, struct error *error) {
    struct scheduler *scheduler = engine->scheduler;
    if (scheduler_under_way(scheduler) > 0) wait_to_compose(engine);
    engine->event_ns = 0;
    enum err err = scheduler_begin(scheduler, ret_started, error);
    if (err == OK && *ret_started)
        step_clock_begin(&engine->step_clock, scheduler_newest_rows(scheduler),
                         clock_monotonic_ns());
    return err;
}

/* Begins steps until as many are under way as the backend holds, and ends the oldest. So a device
 * computes the next one while the tokens of this one become text. */
static enum err generate(struct engine *engine, struct error *error) {
    struct scheduler *scheduler = engine->scheduler;
    enum err err = OK;
    bool is_started = true;
    while (err == OK && is_started &&
           scheduler_under_way(scheduler) < scheduler_steps_max(scheduler))
        err = begin_step(engine, &is_started, error);
    if (err != OK || scheduler_under_way(scheduler) == 0) return err;
    for (bool is_done = false; err == OK && !is_done;) {
        struct loop_message message;
        while (ring_take(engine->loop_ring, &message, 0)) take_message(engine, &message);
        engine->event_ns = 0;
        err = scheduler_advance(scheduler, &is_done, error);
    }
    engine->event_ns = 0;
    if (err == OK) err = scheduler_end(scheduler, error);
    if (err == OK) step_clock_end(&engine->step_clock, loop_event_ns(engine));
    if (err == OK && scheduler_steps_max(scheduler) == 1)
        scheduler_note_time(scheduler, clock_monotonic_ns() - engine->step_begun_ns);
    return err;
}

/* Runs a step. A model that generates and embeds does both by turns. */
static void step(struct engine *engine) {
    struct error error;
    enum err err = OK;
    engine->step_begun_ns = clock_monotonic_ns();
    if (engine->scheduler && scheduler_has_work(engine->scheduler)) err = generate(engine, &error);
    engine->event_ns = 0;
    if (err == OK && engine->embed_queue && embed_queue_has_work(engine->embed_queue))
        err = embed_queue_step(engine->embed_queue, &error);
    loop_time_step(engine);
    engine->step_ended_ns = clock_monotonic_ns();
    int64_t step_ns = engine->step_ended_ns - engine->step_begun_ns;
    if (step_ns > engine->step_ns_max) engine->step_ns_max = step_ns;
    if (err != OK) fail(engine, &error);
}

void *loop_main(void *user) {
    struct engine *engine = user;
    pthread_setname_np(pthread_self(), "quern-loop");
    engine->stats_due_ns = clock_monotonic_ns() + STATS_PERIOD_NS;
    while (take_messages(engine)) {
        if (loop_has_work(engine)) step(engine);
        int64_t now_ns = clock_monotonic_ns();
        if (now_ns < engine->stats_due_ns) continue;
        loop_report_stats(engine, 0);
        engine->stats_due_ns = now_ns + STATS_PERIOD_NS;
    }
    return NULL;
}
