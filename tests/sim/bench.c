/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include "base/clock.h"
#include "base/os.h"
#include "base/rng.h"
#include "scheduler/scheduler.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* The workload quern is planned for: mean 788 prompt tokens, 60 % of them shared, mean 308 tokens
 * out, JSON-like ends anywhere. */
#define PREFIX_COUNT 40u
#define SHARED_TOKENS 473u
#define OWN_TOKENS_MEAN 315u
#define OUTPUT_TOKENS_MEAN 308u
#define OUTPUT_TOKENS_MAX 1024u
#define VOCAB 32000u
#define END_TOKEN 0

struct bench {
    const struct step *step;
    int64_t backend_ns;
    uint64_t tokens;
    uint64_t finished;
};

static enum err bench_submit(void *self, const struct step *step, struct error *error) {
    (void)error;
    ((struct bench *)self)->step = step;
    return OK;
}

static enum err bench_wait(void *self, struct step_result *result, struct error *error) {
    (void)error;
    struct bench *bench = self;
    int64_t start = clock_monotonic_ns();
    for (uint32_t i = 0; i < bench->step->logit_count; i++) {
        const struct logit_row *row = &bench->step->logit_rows[i];
        uint64_t bits = rng_at(row->seed, row->counter);
        bool is_end = bits % OUTPUT_TOKENS_MEAN == 0;
        result->samples[i].token = is_end ? END_TOKEN : (int32_t)(1 + (bits >> 32) % (VOCAB - 1));
    }
    bench->backend_ns += clock_monotonic_ns() - start;
    return OK;
}

static void bench_close(void *self) {
    (void)self;
}

static void on_event(void *user, const struct scheduler_event *event) {
    struct bench *bench = user;
    bench->tokens += event->kind == SCHEDULER_TOKEN;
    bench->finished += event->kind == SCHEDULER_FINISHED;
}

static void submit_all(struct scheduler *scheduler, uint32_t requests) {
    static const int32_t end_tokens[] = {END_TOKEN};
    int32_t prompt[SHARED_TOKENS + 2 * OWN_TOKENS_MEAN];
    struct rng rng = {1};
    for (uint32_t i = 0; i < requests; i++) {
        uint64_t prefix = rng_below(&rng, PREFIX_COUNT);
        uint32_t own = 1 + (uint32_t)rng_below(&rng, 2 * OWN_TOKENS_MEAN);
        for (uint32_t k = 0; k < SHARED_TOKENS; k++)
            prompt[k] = (int32_t)(rng_at(prefix, k) % VOCAB);
        for (uint32_t k = 0; k < own; k++)
            prompt[SHARED_TOKENS + k] = (int32_t)rng_below(&rng, VOCAB);
        struct scheduler_request request = {
            .id = i,
            .prompt = prompt,
            .prompt_count = SHARED_TOKENS + own,
            .sampling = {.temperature = 1,
                         .max_tokens = OUTPUT_TOKENS_MAX,
                         .end_tokens = end_tokens,
                         .end_token_count = 1},
        };
        struct error error;
        enum err err = scheduler_submit(scheduler, &request, &error);
        assert(err == OK);
    }
}

static void print(const struct scheduler_stats *stats, const struct bench *bench, uint32_t requests,
                  int64_t submit_ns, int64_t run_ns) {
    double rows = (double)stats->rows;
    printf("requests %u, steps %llu, rows %.0f (prefill %llu), generated %llu, preemptions %llu\n",
           requests, (unsigned long long)stats->steps, rows,
           (unsigned long long)stats->prefill_rows, (unsigned long long)stats->generated_tokens,
           (unsigned long long)stats->preemptions);
    printf("prompt tokens found in the cache: %.1f %%\n",
           100.0 * (double)stats->prefix_hit_tokens / (double)stats->prefix_queried_tokens);
    double step_ns = (double)(run_ns - bench->backend_ns);
    printf("submit            %8.3f us a request (the bench making the prompt included)\n",
           (double)submit_ns / 1e3 / requests);
    printf("plan and schedule %8.3f us a row, %.3f us a generated token, %.1f us a step\n",
           step_ns / 1e3 / rows, step_ns / 1e3 / (double)stats->generated_tokens,
           step_ns / 1e3 / (double)stats->steps);
    printf("with submit       %8.3f us a row; peak memory %.0f MB\n",
           (step_ns + (double)submit_ns) / 1e3 / rows, (double)os_peak_rss_bytes() / 1e6);
}

int bench_run(uint32_t requests, uint32_t sequences) {
    if (requests == 0 || sequences == 0) return 2;
    static const struct backend_ops ops = {
        .submit = bench_submit, .wait = bench_wait, .close = bench_close};
    struct bench bench = {0};
    /* Blocks for the sequences that run at once, at this workload's mean length, and a third
     * more. */
    struct backend backend = {.ops = &ops,
                              .self = &bench,
                              .caps = {.block_tokens = BACKEND_BLOCK_TOKENS,
                                       .page_count = 1000 + sequences * 45,
                                       .full_pages = 1,
                                       .rows_max = 2 * sequences + 512,
                                       .sequences_max = sequences,
                                       .context_tokens_max = 4096,
                                       .vocab = VOCAB,
                                       .steps_max = 1,
                                       .copies_pages = true}};
    struct scheduler_options options = {
        .backend = &backend, .enable_prefix_caching = true, .on_event = on_event, .user = &bench};
    struct scheduler *scheduler;
    struct error error;
    enum err err = scheduler_open(&scheduler, &options, &error);
    assert(err == OK);
    int64_t start = clock_monotonic_ns();
    submit_all(scheduler, requests);
    int64_t submitted = clock_monotonic_ns();
    while (scheduler_has_work(scheduler)) {
        err = scheduler_step(scheduler, &error);
        assert(err == OK);
    }
    int64_t end = clock_monotonic_ns();
    struct scheduler_stats stats;
    scheduler_stats(scheduler, &stats);
    print(&stats, &bench, requests, submitted - start, end - submitted);
    scheduler_close(scheduler);
    return bench.finished == requests ? 0 : 1;
}
