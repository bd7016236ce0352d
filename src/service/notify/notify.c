/* SPDX-License-Identifier: Apache-2.0 */
#include "notify/notify.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "net/retry.h"
#include "notify/delivery.h"
#include "notify/target.h"
#include "store/mirror.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define COPY_WAIT_NS INT64_C(1000000000) /* 1 s: the wait for a copy (store/mirror.h) per look */
#define DELIVERIES_MAX 32
#define RETRY_S 5
#define RETRY_MS_MAX ((int64_t)4 * 3600 * 1000)
#define GIVE_UP_S (72 * 3600)
#define BUSY_POLL_MS 1000
#define IDLE_POLL_MS 60000
#define STOP_POLL_MS 20

/* A place for one attempt: empty, under way, or ended with a row that must still be written. */
struct notice_place {
    struct delivery delivery;
    bool is_used;
    bool is_settling;
    int64_t begun_ns;
    struct store_outbox_attempt attempt;
};

struct notify {
    struct store *store;
    char url[TARGET_URL_BYTES_MAX + 1]; /* empty: none is configured */
    pthread_mutex_t keys_lock;          /* guards `keys` */
    struct webhook_keys keys;
    bool allow_private;
    int64_t retry_s;
    int64_t give_up_s;
    struct net_client *client;
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
    int64_t stop_by_ns; /* written before `stop` */
    struct rng rng;     /* the thread's, as are `places` and `used_count` */
    struct notice_place places[DELIVERIES_MAX];
    size_t used_count;
    atomic_uint_fast64_t delivered, failed, refused, given_up;
    pthread_mutex_t seconds_lock; /* guards `seconds` */
    struct histogram seconds;
};

/* --- the end of an attempt --- */

/* 5 s, 10 s, 20 s … 4 h, each up to a quarter more or less: events that failed together do not
 * come back together. */
static int64_t pause_ms(struct notify *notify, uint32_t attempts) {
    int64_t ms = net_backoff_ms(notify->retry_s * 1000, RETRY_MS_MAX, attempts);
    return (int64_t)((double)ms * (0.75 + 0.5 * rng_unit(&notify->rng)));
}

static void settle(struct notify *notify, struct notice_place *place) {
    struct error error;
    if (store_outbox_settle(notify->store, &place->attempt, &error) != OK) {
        log_warn("webhook=%s error=\"%s\", retrying", place->delivery.row.event_id, error.text);
        return; /* the place stays taken: its receiver is busy, so the row is not sent again */
    }
    delivery_release(&place->delivery);
    *place = (struct notice_place){0};
    notify->used_count--;
}

const struct histogram_bounds notify_bounds = {
    12, {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}};

static void note_seconds(struct notify *notify, int64_t ns) {
    pthread_mutex_lock(&notify->seconds_lock);
    histogram_add(&notify->seconds, &notify_bounds, (double)ns * 1e-9);
    pthread_mutex_unlock(&notify->seconds_lock);
}

static void take_end(struct notify *notify, struct notice_place *place,
                     const struct delivery_end *end) {
    const struct store_outbox_row *row = &place->delivery.row;
    int64_t now_ms = clock_unix_ms();
    bool is_late = now_ms / 1000 - row->created_unix_s >= notify->give_up_s;
    place->is_settling = true;
    place->attempt = (struct store_outbox_attempt){
        .sequence = row->sequence,
        .state = end->is_delivered ? OUTBOX_DELIVERED
                 : is_late         ? OUTBOX_GIVEN_UP
                                   : OUTBOX_OPEN,
        .due_unix_ms = now_ms + pause_ms(notify, row->attempts),
        .unreachable = end->is_unreachable ? row->receiver : NULL,
    };
    const char *event = end->is_delivered ? "delivered" : is_late ? "given_up" : "failed";
    log_write(end->is_delivered ? LOG_INFO : LOG_WARN,
              "webhook=%s batch=%s type=%s receiver=%s attempt=%u event=%s status=%d text=\"%s\"",
              row->event_id, row->subject, row->type, *row->receiver ? row->receiver : "configured",
              row->attempts + 1, event, end->status, end->text);
    /* The time first: notify_status reads it last, so that each attempt it counts has its time. */
    note_seconds(notify, clock_monotonic_ns() - place->begun_ns);
    if (end->was_refused) atomic_fetch_add(&notify->refused, 1);
    atomic_fetch_add(end->is_delivered ? &notify->delivered
                     : is_late         ? &notify->given_up
                                       : &notify->failed,
                     1);
    settle(notify, place);
}

static void on_done(void *context, const struct net_answer *answer) {
    struct notice_place *place = answer->owner; /* its delivery is its first member */
    struct delivery_end end = delivery_read_answer(&place->delivery, answer);
    take_end(context, place, &end);
}

/* Writes the rows that could not be written before. */
static void settle_again(struct notify *notify) {
    for (size_t i = 0; i < DELIVERIES_MAX; i++)
        if (notify->places[i].is_settling) settle(notify, &notify->places[i]);
}

/* --- the start of an attempt --- */

static void start(struct notify *notify, const struct store_outbox_row *row) {
    struct notice_place *place = notify->places;
    struct error error;
    const struct delivery_way way = {notify->client, notify->url, &notify->keys,
                                     notify->allow_private};
    while (place->is_used) place++;
    place->is_used = true;
    place->begun_ns = clock_monotonic_ns();
    notify->used_count++;
    pthread_mutex_lock(&notify->keys_lock);
    enum err err = delivery_start(&place->delivery, &way, row, clock_unix_s(), &error);
    pthread_mutex_unlock(&notify->keys_lock);
    if (err == OK) return;
    struct delivery_end end = {.text = error.text};
    take_end(notify, place, &end);
}

/* The receivers of the places in use. */
static size_t list_busy(struct notify *notify, const char *ret_busy[DELIVERIES_MAX]) {
    size_t count = 0;
    for (size_t i = 0; i < DELIVERIES_MAX; i++)
        if (notify->places[i].is_used) ret_busy[count++] = notify->places[i].delivery.row.receiver;
    return count;
}

static void start_due(struct notify *notify) {
    const char *busy[DELIVERIES_MAX];
    struct store_outbox_row row;
    struct error error;
    while (notify->used_count < DELIVERIES_MAX) {
        size_t busy_count = list_busy(notify, busy);
        enum err err =
            store_outbox_next(notify->store, clock_unix_ms(), busy, busy_count, &row, &error);
        if (err == ERR_NOT_FOUND) return;
        if (err != OK) {
            log_warn("event=outbox error=\"%s\", retrying", error.text);
            return;
        }
        /* A receiver is told of nothing that another machine could not go on with. */
        if (!store_mirror_wait(notify->store, clock_monotonic_ns() + COPY_WAIT_NS)) {
            store_outbox_release(&row);
            return;
        }
        start(notify, &row);
    }
}

/* --- the thread --- */

/* The time until a row can be due. A socket or a new row ends the wait early. */
static int poll_ms(struct notify *notify) {
    int64_t due_ms;
    struct error error;
    if (notify->used_count > 0) return BUSY_POLL_MS;
    enum err err = store_outbox_due(notify->store, &due_ms, &error);
    if (err == ERR_NOT_FOUND) return IDLE_POLL_MS;
    if (err != OK) return BUSY_POLL_MS;
    int64_t left_ms = due_ms - clock_unix_ms();
    return left_ms < 1 ? 1 : left_ms < IDLE_POLL_MS ? (int)left_ms : IDLE_POLL_MS;
}

static bool goes_on(struct notify *notify) {
    if (!atomic_load(&notify->stop)) return true;
    return notify->used_count > 0 && clock_monotonic_ns() < notify->stop_by_ns;
}

static void *notify_main(void *context) {
    struct notify *notify = context;
    while (goes_on(notify)) {
        bool is_stopping = atomic_load(&notify->stop);
        if (!is_stopping) start_due(notify);
        net_client_poll(notify->client, is_stopping ? STOP_POLL_MS : poll_ms(notify));
        settle_again(notify);
    }
    return NULL;
}

static void wake(void *context) {
    struct notify *notify = context;
    net_client_wake(notify->client);
}

/* --- opening and closing --- */

static enum err start_thread(struct notify *notify, struct error *error) {
    int failed = pthread_create(&notify->thread, NULL, notify_main, notify);
    if (failed != 0) return err_from_errno(error, failed, "cannot start a thread for webhooks");
    pthread_setname_np(notify->thread, "notify");
    notify->has_thread = true;
    return OK;
}

enum err notify_open(struct notify **ret_notify, const struct notify_options *options,
                     struct error *error) {
    if (options->url) {
        enum err err = target_read(NULL, str_from(options->url), options->allow_private, error);
        if (err != OK) return err_prefix(error, "the webhook URL");
    }
    struct notify *notify = mem_new(1, sizeof *notify);
    pthread_mutex_init(&notify->seconds_lock, NULL);
    pthread_mutex_init(&notify->keys_lock, NULL);
    const struct net_client_options client = {.exchanges_max = DELIVERIES_MAX,
                                              .text_bytes_max = DELIVERY_REPLY_BYTES_MAX,
                                              .context = notify,
                                              .done = on_done,
                                              .may_connect = delivery_may_connect};
    enum err err = net_client_open(&notify->client, &client, error);
    if (err != OK) {
        pthread_mutex_destroy(&notify->seconds_lock);
        free(notify);
        return err;
    }
    notify->store = options->store;
    if (options->url) memcpy(notify->url, options->url, strlen(options->url) + 1);
    notify->keys = *options->keys;
    notify->allow_private = options->allow_private;
    notify->retry_s = options->retry_s ? options->retry_s : RETRY_S;
    notify->give_up_s = options->give_up_s ? options->give_up_s : GIVE_UP_S;
    notify->rng.state = id_u64();
    uint32_t events = options->events ? options->events : OUTBOX_EVENTS_DEFAULT;
    store_outbox_set_rules(notify->store,
                           &(struct store_outbox_rules){options->url ? events : 0, notify, wake});
    /* No pause is longer: a later row was put off by a clock that was ahead. */
    err = store_outbox_pull_in(notify->store, clock_unix_ms() + RETRY_MS_MAX / 4 * 5, error);
    if (err == OK) err = start_thread(notify, error);
    if (err != OK) {
        notify_close(notify, 0);
        return err;
    }
    *ret_notify = notify;
    return OK;
}

void notify_close(struct notify *notify, int64_t deadline_ms) {
    if (!notify) return;
    store_outbox_set_rules(notify->store, &(struct store_outbox_rules){0});
    notify->stop_by_ns = clock_monotonic_ns() + deadline_ms * 1000000;
    atomic_store(&notify->stop, true);
    net_client_wake(notify->client);
    if (notify->has_thread) pthread_join(notify->thread, NULL);
    net_client_close(notify->client);
    for (size_t i = 0; i < DELIVERIES_MAX; i++)
        if (notify->places[i].is_used) delivery_release(&notify->places[i].delivery);
    webhook_keys_wipe(&notify->keys);
    pthread_mutex_destroy(&notify->seconds_lock);
    pthread_mutex_destroy(&notify->keys_lock);
    free(notify);
}

void notify_set_keys(struct notify *notify, const struct webhook_keys *keys) {
    pthread_mutex_lock(&notify->keys_lock);
    webhook_keys_wipe(&notify->keys);
    notify->keys = *keys;
    pthread_mutex_unlock(&notify->keys_lock);
}

/* --- questions --- */

enum err notify_check_url(const struct notify *notify, const char *url, struct error *error) {
    return target_read(NULL, str_from(url), notify->allow_private, error);
}

void notify_status(struct notify *notify, struct notify_status *ret_status) {
    struct error error;
    *ret_status = (struct notify_status){.delivered = atomic_load(&notify->delivered),
                                         .failed = atomic_load(&notify->failed),
                                         .refused = atomic_load(&notify->refused),
                                         .given_up = atomic_load(&notify->given_up)};
    pthread_mutex_lock(&notify->seconds_lock);
    ret_status->seconds = notify->seconds;
    pthread_mutex_unlock(&notify->seconds_lock);
    if (store_outbox_open_count(notify->store, &ret_status->open, &error) != OK)
        ret_status->open = 0;
}
