/* SPDX-License-Identifier: Apache-2.0 */
#include "node/card_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sync.h"
#include "node/nvml.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S ((int64_t)1000000000)
#define ROUND_MS 1000
#define FRESH_NS (10 * NS_PER_S)
#define SAMPLES 61 /* samples of one second each: rates are over the last minute */
#define XIDS_PER_ROUND 100
#define CLOSE_S 3

struct sample {
    int64_t at_ns;
    uint64_t tokens;
    double joules; /* NAN: not known */
};

struct watched {
    struct card_status status;
    int64_t answered_ns; /* time of the last answer; 0: none yet */
    struct sample samples[SAMPLES];
    uint32_t sample_count; /* all; sample i is samples[i % SAMPLES] */
};

struct card_watch {
    struct card_watch_options options;
    struct nvml *nvml;   /* the thread's */
    bool is_unavailable; /* the thread's: the library was looked for in vain */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t stopping;
    bool is_stopping;
    struct watched cards[CARDS_MAX];
    size_t count;
};

/* ---- rates ---- */

static const struct sample *sample_at(const struct watched *card, uint32_t number) {
    return &card->samples[number % SAMPLES];
}

static void set_rates(struct watched *card) {
    uint32_t count = card->sample_count;
    struct card_status *status = &card->status;
    status->tokens_per_s = status->joules_per_1000_tokens = NAN;
    if (count < 2) return;
    const struct sample *last = sample_at(card, count - 1);
    const struct sample *first = sample_at(card, count > SAMPLES ? count - SAMPLES : 0);
    double seconds = (double)(last->at_ns - first->at_ns) / NS_PER_S;
    double tokens = (double)(last->tokens - first->tokens);
    if (seconds <= 0) return;
    status->tokens_per_s = tokens / seconds;
    if (tokens > 0) status->joules_per_1000_tokens = 1000 * (last->joules - first->joules) / tokens;
}

/* An engine that starts again counts from 0, and so does a driver: rates begin anew then. */
static void add_sample(struct watched *card, uint64_t tokens, int64_t now_ns) {
    const struct sample sample = {now_ns, tokens, card->status.values[CARD_ENERGY_JOULES]};
    if (card->sample_count > 0) {
        const struct sample *last = sample_at(card, card->sample_count - 1);
        if (tokens < last->tokens || sample.joules < last->joules) card->sample_count = 0;
    }
    card->samples[card->sample_count++ % SAMPLES] = sample;
    set_rates(card);
}

/* ---- the thread ---- */

/* The entry of a GPU, made when it is used for the first time; NULL: there are too many. */
static struct watched *find(struct card_watch *watch, const char *uuid, bool is_new) {
    for (size_t i = 0; i < watch->count; i++)
        if (strcmp(watch->cards[i].status.uuid, uuid) == 0) return &watch->cards[i];
    if (!is_new || watch->count == CARDS_MAX) return NULL;
    struct watched *card = &watch->cards[watch->count++];
    memcpy(card->status.uuid, uuid, strlen(uuid) + 1);
    card->status.tokens_per_s = card->status.joules_per_1000_tokens = NAN;
    for (size_t i = 0; i < CARD_VALUES; i++) card->status.values[i] = NAN;
    return card;
}

/* Adds the GPUs that are new; true for each of them in ret_new. False: the watch is closing. */
static bool ask_uses(struct card_watch *watch, struct card_use *ret_uses, size_t *ret_count,
                     bool *ret_new) {
    pthread_mutex_lock(&watch->lock);
    bool goes_on = !watch->is_stopping;
    *ret_count = goes_on ? watch->options.uses(watch->options.context, ret_uses) : 0;
    for (size_t i = 0; i < *ret_count; i++) {
        size_t before = watch->count;
        (void)find(watch, ret_uses[i].uuid, true);
        ret_new[i] = watch->count > before;
    }
    pthread_mutex_unlock(&watch->lock);
    return goes_on;
}

static bool has_library(struct card_watch *watch) {
    struct error error;
    if (watch->nvml || watch->is_unavailable) return watch->nvml != NULL;
    if (nvml_open(&watch->nvml, watch->options.library, &error) == OK) return true;
    watch->is_unavailable = true;
    log_info("event=card_watch reason=\"%s\"", error.text);
    return false;
}

/* How many uncorrected errors of its memory a GPU tells that it had not told before. A count that
 * is new to the watch is no news: the errors may be of last week. */
static double ecc_grown(const struct watched *card, const struct card_status *now) {
    double grown = now->values[CARD_ECC_ERRORS] - card->status.values[CARD_ECC_ERRORS];
    return grown > 0 ? grown : 0;
}

/* One GPU: asked without the lock, since a driver may hold the call. */
static void look(struct card_watch *watch, const struct card_use *use) {
    struct card_status now;
    double ecc_new = 0;
    memset(&now, 0, sizeof now);
    nvml_read(watch->nvml, use->uuid, &now);
    int64_t now_ns = clock_monotonic_ns();
    pthread_mutex_lock(&watch->lock);
    struct watched *card = find(watch, use->uuid, false);
    if (card && now.is_up) {
        ecc_new = ecc_grown(card, &now);
        memcpy(card->status.name, now.name, sizeof now.name);
        memcpy(card->status.values, now.values, sizeof now.values);
        memcpy(card->status.brakes, now.brakes, sizeof now.brakes);
        card->answered_ns = now_ns;
        add_sample(card, use->tokens, now_ns);
    }
    if (card) card->status.is_up = now.is_up;
    pthread_mutex_unlock(&watch->lock);
    if (ecc_new > 0)
        log_warn("event=card_error card=%s ecc_errors=%.0f ecc_new=%.0f", use->uuid,
                 now.values[CARD_ECC_ERRORS], ecc_new);
}

static void take_xids(struct card_watch *watch) {
    char uuid[CARD_UUID_BYTES];
    uint32_t xid;
    for (int i = 0; i < XIDS_PER_ROUND && nvml_next_xid(watch->nvml, &xid, uuid); i++) {
        log_warn("event=card_error card=%s xid=%u", uuid, xid);
        pthread_mutex_lock(&watch->lock);
        struct watched *card = find(watch, uuid, false);
        if (card) {
            card->status.xid_count++;
            card->status.xid_last = xid;
        }
        pthread_mutex_unlock(&watch->lock);
    }
}

/* False: the watch is closing. */
static bool pause_round(struct card_watch *watch) {
    int64_t due_ns = sync_deadline_ns(ROUND_MS);
    pthread_mutex_lock(&watch->lock);
    while (!watch->is_stopping && sync_wait_until(&watch->stopping, &watch->lock, due_ns)) {
    }
    bool goes_on = !watch->is_stopping;
    pthread_mutex_unlock(&watch->lock);
    return goes_on;
}

static void *watch_main(void *argument) {
    struct card_watch *watch = argument;
    struct card_use uses[CARDS_MAX];
    bool is_new[CARDS_MAX];
    size_t count;
    while (ask_uses(watch, uses, &count, is_new)) {
        for (size_t i = 0; i < count && has_library(watch); i++) {
            if (is_new[i] && !nvml_follow(watch->nvml, uses[i].uuid))
                log_info("event=card_watch card=%s reason=\"it reports no errors\"", uses[i].uuid);
            look(watch, &uses[i]);
        }
        if (watch->nvml) take_xids(watch);
        if (!pause_round(watch)) break;
    }
    nvml_close(watch->nvml);
    return NULL;
}

/* ---- open, read, close ---- */

struct card_watch *card_watch_open(const struct card_watch_options *options) {
    struct card_watch *watch = mem_new(1, sizeof *watch);
    watch->options = *options;
    pthread_mutex_init(&watch->lock, NULL);
    sync_cond_init(&watch->stopping);
    if (pthread_create(&watch->thread, NULL, watch_main, watch) == 0) {
        pthread_setname_np(watch->thread, "card-watch");
        return watch;
    }
    pthread_cond_destroy(&watch->stopping);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
    return NULL;
}

void card_watch_close(struct card_watch *watch) {
    struct timespec until;
    if (!watch) return;
    pthread_mutex_lock(&watch->lock);
    watch->is_stopping = true;
    pthread_cond_broadcast(&watch->stopping);
    pthread_mutex_unlock(&watch->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLOSE_S;
    if (pthread_timedjoin_np(watch->thread, NULL, &until) != 0) {
        pthread_detach(watch->thread);
        log_warn("event=card_watch_left reason=\"the driver holds a call\"");
        return;
    }
    pthread_cond_destroy(&watch->stopping);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

size_t card_watch_read(struct card_watch *watch, struct card_status ret_cards[CARDS_MAX]) {
    if (!watch) return 0;
    int64_t now_ns = clock_monotonic_ns();
    pthread_mutex_lock(&watch->lock);
    size_t count = watch->count;
    for (size_t i = 0; i < count; i++) {
        ret_cards[i] = watch->cards[i].status;
        if (now_ns - watch->cards[i].answered_ns > FRESH_NS) ret_cards[i].is_up = false;
    }
    pthread_mutex_unlock(&watch->lock);
    return count;
}
