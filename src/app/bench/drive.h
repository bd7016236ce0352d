/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* drive: sends the requests of a workload to one server and notes when each byte of text came.
 *
 * A closed loop keeps a number of requests in flight: the next one starts when one ends. An open
 * loop starts requests at the times of a Poisson process, whatever the server does, so that a slow
 * server cannot slow down its own test.
 *
 * A time counts from the start of an exchange, connecting included, on the monotonic clock. The
 * first token is the first event with text, a thought or a piece of a call. Events that come in one
 * read have one time. Tokens are those of the server's usage. A server that tells none gets its
 * events counted, and the record says so.
 *
 * An answer of another status than 200, an error event, and a stream that ends without
 * finish_reason or [DONE] are failures: they are counted, and no time of them is a latency.
 *
 * Thread: one. Measured against a server that answers at once: docs/measurements/figures.md.
 * Memory: bench_run_release frees the records. */

#include "base/err.h"
#include "bench/figures.h"
#include "bench/workload.h"

struct bench_target {
    const char *name;     /* for tables and files */
    const char *base_url; /* "http://127.0.0.1:8080/v1" */
    const char *key;      /* NULL: none */
    const char *ca_file;  /* NULL: the system's certificates */
    char *model;          /* owned; replaces the model of the lines. NULL: their own */
};

struct bench_load {
    uint32_t concurrency; /* requests in flight at most */
    double rate;          /* requests per second of an open loop; 0: a closed loop */
};

/* One request. Times are in seconds since the start of the run. */
struct bench_record {
    const struct workload_line *line;
    double start, first, last, end; /* `first` is 0 without an event that has text */
    float *gaps;                    /* (gap_count) seconds between events with text */
    size_t gap_count, gap_capacity;
    uint32_t events;  /* with text */
    bool is_good;     /* a whole answer of status 200 */
    bool is_streamed; /* it came in events */
    bool has_cached;  /* the usage tells cached_tokens */
    bool has_usage;   /* the counts are the server's; else output_tokens are `events` */
    bool has_answer_end, has_error; /* about a stream */
    int status;                     /* 0: none came */
    uint64_t prompt_tokens, cached_tokens, output_tokens;
    char *why; /* reason for a failure; NULL */
};

/* The figures of a run; times in milliseconds, of good requests only. */
struct bench_figures {
    uint64_t completed, failed;
    uint64_t without_usage; /* completed, with tokens counted as events */
    uint64_t below_events;  /* completed, with fewer tokens in the usage than events with text */
    uint64_t with_cached;   /* completed, with a usage that tells its cached tokens */
    uint64_t prompt_tokens, cached_tokens, output_tokens;
    double seconds; /* from the first start to the last end */
    double requests_per_s, output_per_s, tokens_per_s;
    double output_per_s_max; /* maximum over the whole seconds of the run, by events */
    uint32_t in_flight_max;
    struct figures first_ms; /* time to first token */
    struct figures token_ms; /* time per output token but the first */
    struct figures gap_ms;   /* between events */
    struct figures whole_ms; /* duration of a request */
};

struct bench_run {
    const struct bench_target *target;
    const struct workload *workload;
    struct bench_load load;
    uint32_t round;               /* from 1 */
    int64_t started_s;            /* Unix time */
    struct bench_record *records; /* (count) in the order of the workload */
    size_t count;
    uint32_t in_flight_max;
    struct bench_figures figures;
};

struct bench_drive_options {
    bool is_streamed;
    bool is_fresh;     /* begins each prompt with a mark of its run, which no prefix cache has */
    const char *nonce; /* names this benchmark in the marks of its runs */
    uint32_t warmups;  /* requests before the measured ones: the first lines of the workload */
    uint64_t seed;     /* seed for the open loop's times */
    const volatile bool *stop;
};

/* Runs *run, whose target, workload, load and round the caller has set, and measures it.
 * ERR_CANCELLED after *stop; ERR_IO if libcurl does not start. A server that does not answer is no
 * error: its requests fail. The caller releases. */
enum err bench_drive(struct bench_run *run, const struct bench_drive_options *options,
                     struct error *error) MUST_CHECK;
void bench_run_release(struct bench_run *run);

/* Finds the model that the server's list names: `wanted` if the list has it, else the first one.
 * *ret_model is NULL for a server that lists none: the lines keep their own. ERR_UNAVAILABLE if the
 * server does not answer, ERR_DENIED if it wants another key. The caller frees *ret_model. */
enum err bench_find_model(const struct bench_target *target, const char *wanted, char **ret_model,
                          struct error *error) MUST_CHECK;
