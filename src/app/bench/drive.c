/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/drive.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/answer_event.h"
#include "bench/measure.h"
#include "json/json.h"
#include "net/client.h"
#include "net/sse.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1e9
#define ANSWER_BYTES_MAX ((size_t)64 << 20)
#define EVENT_BYTES_MAX ((size_t)16 << 20)
#define WHY_BYTES 400
#define POLL_MS 200 /* between two looks at the stop flag */
#define CONNECT_MS 30000
#define FIND_MODEL_MS 30000

/* One request in flight. */
struct flight {
    struct driver *driver;
    struct bench_record *record;
    struct net_sse sse;
    bool is_busy;
};

struct driver {
    struct bench_run *run;
    const struct bench_drive_options *options;
    struct net_client *client;
    struct flight *flights; /* (concurrency) */
    uint32_t in_flight;
    bool is_warming; /* no record is kept */
    int64_t zero_ns; /* the start of the run */
    struct buf body, url;
    char mark[48];
};

static double since(const struct driver *driver, int64_t now_ns) {
    return (double)(now_ns - driver->zero_ns) / NS_PER_S;
}

/* --- answers --- */

static void note_usage(struct bench_record *record, const struct answer_event *event) {
    if (!event->has_usage) return;
    record->has_usage = true;
    record->prompt_tokens = event->prompt_tokens;
    record->has_cached = event->has_cached;
    record->cached_tokens = event->cached_tokens;
    record->output_tokens = event->completion_tokens;
}

static void note_text(struct bench_record *record, double now) {
    if (record->events++ == 0) {
        record->first = now;
    } else {
        record->gaps =
            vec_grow(record->gaps, record->gap_count, &record->gap_capacity, sizeof *record->gaps);
        record->gaps[record->gap_count++] = (float)(now - record->last);
    }
    record->last = now;
}

static void keep_why(struct bench_record *record, const char *what, struct str more) {
    char text[WHY_BYTES];
    if (record->why) return;
    snprintf(text, sizeof text, "%s%s%.*s", what, more.bytes > 0 ? ": " : "",
             (int)(more.bytes < 300 ? more.bytes : 300), more.at ? more.at : "");
    record->why = mem_text(text);
}

static bool take_event(void *context, struct str data) {
    struct flight *flight = context;
    struct answer_event event;
    if (!answer_event_read(&event, data)) {
        keep_why(flight->record, "an event is no JSON", data);
        return false;
    }
    if (event.is_error) {
        flight->record->has_error = true;
        keep_why(flight->record, "an error event", data);
    }
    if (event.has_text) note_text(flight->record, since(flight->driver, clock_monotonic_ns()));
    flight->record->has_answer_end |= event.is_finished || event.is_end;
    note_usage(flight->record, &event);
    return true;
}

static bool on_bytes(void *context, void *owner, struct str piece) {
    struct flight *flight = owner;
    (void)context;
    flight->record->is_streamed = true;
    return net_sse_feed(&flight->sse, piece, take_event, flight);
}

/* Judges an answer that has ended. */
static void judge(struct bench_record *record, const struct net_answer *answer) {
    struct answer_event event;
    record->status = answer->status;
    if (answer->end != NET_END_WHOLE) {
        keep_why(record, answer->what, str_from(answer->why));
    } else if (answer->status != 200) {
        char what[32];
        snprintf(what, sizeof what, "status %d", answer->status);
        keep_why(record, what, answer->body);
    } else if (record->is_streamed) {
        record->is_good = record->has_answer_end && !record->has_error;
        if (!record->is_good) keep_why(record, "the stream ended early", (struct str){NULL, 0});
    } else if (!answer_event_read(&event, answer->body) || event.is_error || event.is_end) {
        keep_why(record, "the answer is no JSON object of an answer", answer->body);
    } else {
        record->is_good = true;
        note_usage(record, &event);
    }
    /* A usage of 0 tokens for an answer with text is none. */
    if (record->output_tokens == 0 && record->events > 0) record->has_usage = false;
    if (!record->has_usage) record->output_tokens = record->events;
}

static void on_done(void *context, const struct net_answer *answer) {
    struct driver *driver = context;
    struct flight *flight = answer->owner;
    flight->record->end = since(driver, answer->ended_ns);
    judge(flight->record, answer);
    flight->is_busy = false;
    driver->in_flight--;
}

/* --- requests --- */

static void start(struct driver *driver, const struct workload_line *line,
                  struct bench_record *record) {
    struct flight *flight = driver->flights;
    while (flight->is_busy) flight++;
    const struct workload_form form = {.model = driver->run->target->model,
                                       .is_streamed = driver->options->is_streamed,
                                       .mark = *driver->mark ? driver->mark : NULL};
    workload_write_body(&driver->body, line, &form);
    buf_clear(&driver->url);
    buf_printf(&driver->url, "%s%s", driver->run->target->base_url, line->path);
    struct buf kept[] = {flight->sse.line, flight->sse.data};
    buf_clear(&kept[0]);
    buf_clear(&kept[1]);
    flight->sse = (struct net_sse){.line = kept[0], .data = kept[1]};
    flight->record = record;
    flight->is_busy = true;
    driver->in_flight++;
    if (driver->in_flight > driver->run->in_flight_max && !driver->is_warming)
        driver->run->in_flight_max = driver->in_flight;
    record->line = line;
    record->start = since(driver, clock_monotonic_ns());
    net_client_start(driver->client, &(struct net_request){.owner = flight,
                                                           .url = driver->url.at,
                                                           .body = buf_str(&driver->body),
                                                           .sends_key = true,
                                                           .may_repeat = true,
                                                           .stream = NET_STREAM_EVENTS});
}

static bool is_stopped(const struct driver *driver) {
    return driver->options->stop && *driver->options->stop;
}

/* How long until the open loop's next request, in ms; 0 in a closed loop. */
static int wait_ms(const struct driver *driver, double next) {
    double left = next - since(driver, clock_monotonic_ns());
    if (left <= 0) return 0;
    return left * 1000 > POLL_MS ? POLL_MS : (int)(left * 1000) + 1;
}

/* Sends `count` lines with records, as many at a time as the load allows. */
static void send_all(struct driver *driver, struct bench_record *records, size_t count,
                     double rate) {
    struct rng rng = {driver->options->seed ^ driver->run->round};
    size_t sent = 0;
    double next = 0;
    while ((sent < count || driver->in_flight > 0) && !is_stopped(driver)) {
        while (sent < count && driver->in_flight < driver->run->load.concurrency &&
               (rate <= 0 || wait_ms(driver, next) == 0)) {
            start(driver, &driver->run->workload->lines[sent], &records[sent]);
            sent++;
            if (rate > 0) next -= log(1 - rng_unit(&rng)) / rate;
        }
        int wait = POLL_MS;
        if (rate > 0 && sent < count && driver->in_flight < driver->run->load.concurrency)
            wait = wait_ms(driver, next);
        net_client_poll(driver->client, wait);
    }
}

static void release_records(struct bench_record *records, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(records[i].gaps);
        free(records[i].why);
    }
    free(records);
}

/* A mark that no other run has: of this benchmark or of an earlier one. The servers of a round get
 * the same. */
static void set_mark(struct driver *driver, const char *kind) {
    const struct bench_run *run = driver->run;
    struct sha256 hash;
    unsigned char digest[SHA256_BYTES];
    char key[256], hex[SHA256_HEX_BYTES];
    if (!driver->options->is_fresh) return;
    snprintf(key, sizeof key, "%s %s %.64s %" PRIu32 " %.17g %" PRIu32, kind,
             driver->options->nonce, run->workload->name, run->load.concurrency, run->load.rate,
             run->round);
    sha256_init(&hash);
    sha256_add(&hash, key, strlen(key));
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    snprintf(driver->mark, sizeof driver->mark, "[%.8s] ", hex);
}

static void warm_up(struct driver *driver) {
    size_t count = driver->options->warmups;
    if (count > driver->run->count) count = driver->run->count;
    struct bench_record *records = mem_new(count, sizeof *records);
    driver->is_warming = true;
    driver->zero_ns = clock_monotonic_ns();
    set_mark(driver, "warm-up");
    send_all(driver, records, count, 0);
    driver->is_warming = false;
    release_records(records, count);
}

static void measure(struct driver *driver) {
    struct bench_run *run = driver->run;
    set_mark(driver, "run");
    run->started_s = clock_unix_s();
    driver->zero_ns = clock_monotonic_ns();
    send_all(driver, run->records, run->count, run->load.rate);
}

static enum err open_client(struct driver *driver, const struct bench_target *target,
                            uint32_t exchanges, struct error *error) {
    return net_client_open(&driver->client,
                           &(struct net_client_options){.exchanges_max = exchanges,
                                                        .text_bytes_max = ANSWER_BYTES_MAX,
                                                        .connect_ms = CONNECT_MS,
                                                        .key = target->key,
                                                        .certificates = target->ca_file,
                                                        .context = driver,
                                                        .bytes = on_bytes,
                                                        .done = on_done},
                           error);
}

enum err bench_drive(struct bench_run *run, const struct bench_drive_options *options,
                     struct error *error) {
    struct driver driver = {.run = run, .options = options};
    run->count = run->workload->count;
    run->records = mem_new(run->count, sizeof *run->records);
    enum err err = open_client(&driver, run->target, run->load.concurrency, error);
    if (err != OK) return err;
    driver.flights = mem_new(run->load.concurrency, sizeof *driver.flights);
    buf_init(&driver.body, BUF_UNLIMITED);
    buf_init(&driver.url, BUF_UNLIMITED);
    for (uint32_t i = 0; i < run->load.concurrency; i++) {
        driver.flights[i].driver = &driver;
        buf_init(&driver.flights[i].sse.line, EVENT_BYTES_MAX);
        buf_init(&driver.flights[i].sse.data, EVENT_BYTES_MAX);
    }
    warm_up(&driver);
    if (!is_stopped(&driver)) measure(&driver);
    net_client_close(driver.client);
    for (uint32_t i = 0; i < run->load.concurrency; i++) {
        buf_release(&driver.flights[i].sse.line);
        buf_release(&driver.flights[i].sse.data);
    }
    free(driver.flights);
    buf_release(&driver.body);
    buf_release(&driver.url);
    if (is_stopped(&driver)) return err_set(error, ERR_CANCELLED, "stopped");
    bench_measure(run);
    return OK;
}

void bench_run_release(struct bench_run *run) {
    release_records(run->records, run->count);
    *run = (struct bench_run){.records = NULL};
}

/* --- models --- */

struct finding {
    struct net_answer answer;
    struct buf body;
    bool is_done;
};

static void on_list(void *context, const struct net_answer *answer) {
    struct finding *finding = context;
    finding->answer = *answer;
    buf_add_str(&finding->body, answer->body);
    finding->is_done = true;
}

/* The name to use, borrowed from the list; NULL if it has none. */
static const char *choose_model(const json_t *list, const char *wanted) {
    const char *first = NULL;
    json_t *model;
    size_t index;
    json_array_foreach(json_member(list, "data"), index, model) {
        const char *id = json_string_value(json_member(model, "id"));
        if (!id) continue;
        if (wanted && str_is(str_from(id), wanted)) return id;
        if (!first) first = id;
    }
    return first;
}

enum err bench_find_model(const struct bench_target *target, const char *wanted, char **ret_model,
                          struct error *error) {
    struct finding finding = {.is_done = false};
    struct net_client *client;
    struct buf url;
    json_t *list = NULL;
    const char *found = NULL;
    struct net_client_options options = {.exchanges_max = 1,
                                         .text_bytes_max = ANSWER_BYTES_MAX,
                                         .connect_ms = CONNECT_MS,
                                         .key = target->key,
                                         .certificates = target->ca_file,
                                         .context = &finding,
                                         .done = on_list};
    enum err err = net_client_open(&client, &options, error);
    if (err != OK) return err;
    buf_init(&finding.body, ANSWER_BYTES_MAX);
    buf_init(&url, BUF_UNLIMITED);
    buf_printf(&url, "%s/models", target->base_url);
    net_client_start(
        client, &(struct net_request){.url = url.at, .sends_key = true, .whole_ms = FIND_MODEL_MS});
    while (!finding.is_done) net_client_poll(client, POLL_MS);
    if (finding.answer.end != NET_END_WHOLE)
        err = err_set(error, ERR_UNAVAILABLE, "%s %s", target->base_url, finding.answer.what);
    else if (finding.answer.status == 401 || finding.answer.status == 403)
        err = err_set(error, ERR_DENIED, "%s wants another key", target->base_url);
    else if (json_read(&list, buf_str(&finding.body), error) == OK)
        found = choose_model(list, wanted);
    if (err == OK) *ret_model = mem_text(found);
    json_decref(list);
    net_client_close(client);
    buf_release(&finding.body);
    buf_release(&url);
    return err;
}
