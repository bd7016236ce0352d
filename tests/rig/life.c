/* SPDX-License-Identifier: Apache-2.0 */
#include "life.h"

#include "api/api.h"
#include "backup/create.h"
#include "backup/restore.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "batch/create.h"
#include "batch/fsck.h"
#include "batch/state.h"
#include "calls.h"
#include "client.h"
#include "faults.h"
#include "http_call.h"
#include "nodes.h"
#include "rig_worker.h"
#include "sockets.h"
#include "store/batches_remove.h"
#include "store/schema.h"
#include "store/seglog_writer.h"
#include "threads.h"
#include "vfs.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIES_MAX 400                 /* a command's tries, 250 ms apart, while the disk is full */
#define END_MS (INT64_C(7200) * 1000) /* by then each batch has ended */
#define LOOK_MS 50
#define RIG_BACKUPS RIG_ROOT "/backups"
#define RIG_RESTORED RIG_ROOT "/restored"
#define PAGE_BYTES ((size_t)256 << 10)

static struct store *store;
static struct runner *runner;
static struct worker *workers[4];
static struct fleet *fleet; /* the workers are with nodes then */
static struct api *api;     /* NULL: the client calls functions */

static void begin_disk(void) {
    calls_begin();
    sockets_begin();
    faults_begin();
    vfs_register();
}

void life_begin(void) {
    const struct threads_world threads_world = {.now_ns = &world->now_ns,
                                                .wall_ms = &world->wall_ms,
                                                .preempt = world->plan.preempt,
                                                .draws = world_rng('t'),
                                                .bytes = world_rng('b'),
                                                .fail = world_fail};
    threads_begin(&threads_world);
    begin_disk();
}

static void violated(void *context, const char *sentence) {
    world_fail("fsck %s: %s", (const char *)context, sentence);
}

/* A directory that was never opened whole is no state directory yet. */
static enum err check_directory(const char *when, struct error *error) {
    struct fsck_found found;
    char name[16];
    snprintf(name, sizeof name, "%s", when);
    return fsck_run(RIG_DIR, violated, name, &found, error);
}

/* A life that finds the last migration in the page cache opens the store without a write, so a
 * power cut may take that migration back: fsck refuses the older database, and the next open
 * migrates it again. ledger_check then sees whether anything that was promised is gone. */
static void check_at_start(void) {
    struct error error;
    enum err err = check_directory("at the start", &error);
    if (err != OK && err != ERR_CONFLICT) world_fail("fsck at the start: %s", error.text);
}

static void check_at_end(void) {
    struct error error;
    if (check_directory("at the end", &error) != OK) world_fail("fsck at the end: %s", error.text);
}

static bool disk_is_full(void) {
    faults_tend();
    return world->full_until_ns != 0;
}

/* The check makes a whole database in memory to compare with, and only reads this one: the first
 * life of a plan has it, as the others would take twice their time. */
enum err __real_schema_check(sqlite3 *db, int version, const char *path, struct error *error);
enum err __wrap_schema_check(sqlite3 *db, int version, const char *path, struct error *error);
enum err __wrap_schema_check(sqlite3 *db, int version, const char *path, struct error *error) {
    return world->life == 0 && !store ? __real_schema_check(db, version, path, error) : OK;
}

static void open_store(void) {
    struct error error;
    const struct store_options options = {
        .dir = RIG_DIR, .ballast_bytes = 1 << 16, .segment_bytes = 1 << 16};
    for (int i = 0;; i++) {
        const bool was_full = disk_is_full();
        const uint32_t fulls =
            world->fulls; /* it may be full within the call, and no more behind */
        if (store_open(&store, &options, &error) == OK) break;
        if (world->has_error) _exit(LIFE_KILLED); /* a start may be refused for a failed sync */
        if ((!was_full && world->fulls == fulls) || i == TRIES_MAX)
            world_fail("the store does not open: %s", error.text);
        clock_sleep_ms(250);
    }
    world->was_open = true;
}

static void open_runner(void) {
    struct error error;
    const struct runner_options options = {.lookahead_lines = 16,
                                           .result_cache_bytes =
                                               world->plan.questions ? 1 << 20 : 0,
                                           .holds_lines = world->plan.nodes > 0};
    if (runner_open(&runner, store, &options, &error) != OK)
        world_fail("the runner does not open: %s", error.text);
    if (world->plan.nodes) fleet = nodes_open_fleet(runner);
    for (uint32_t i = 0; i < world->plan.workers; i++) {
        struct worker_events events;
        uint32_t seat;
        workers[i] = nodes_worker(i);
        if (fleet) continue;
        if (!runner_worker_seat(runner, &events, &seat)) abort();
        workers[i] = rig_worker_open(seat, &events);
        runner_worker_attach(runner, seat, workers[i]);
    }
    enum err err = runner_start(runner, &error);
    if (err != OK) world_fail("the runner does not start: %s", error.text);
    if (fleet) fleet_start(fleet);
}

static void open_api(void) {
    struct error error;
    uint16_t port;
    const struct api_options options = {
        .store = store, .runner = runner, .worker_threads = 2, .no_access_log = true};
    api = NULL;
    if (world->plan.http && api_open(&api, &options, &port, &error) != OK)
        world_fail("the API does not open: %s", error.text);
    http_call_begin();
}

static void close_api(void) {
    http_call_end();
    api_close(api, 1000);
}

/* --- the client --- */

/* A command may fail while the disk is full, and is repeated. */
static bool try_again(enum err err, const struct error *error, const char *what) {
    if (err == OK) return false;
    if (err != ERR_UNAVAILABLE && err != ERR_IO) world_fail("%s is refused: %s", what, error->text);
    return true;
}

static enum err upload(uint32_t batch, const struct event *event, struct error *error) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    if (own->is_uploaded) return OK;
    own->uploads++;
    struct store_spool *spool;
    size_t bytes;
    own->lines = (uint32_t)event->value;
    struct store_file file = {.created_unix_s = clock_unix_s()};
    snprintf(file.purpose, sizeof file.purpose, "batch");
    snprintf(file.filename, sizeof file.filename, "in.jsonl");
    enum err err = store_spool_open(&spool, store, error);
    if (err != OK) return err;
    char *text = ledger_input(batch, own->lines, &bytes);
    for (size_t at = 0; at < bytes && err == OK; at += 4096)
        err = store_spool_write(spool, text + at, bytes - at < 4096 ? bytes - at : 4096, error);
    free(text);
    if (err != OK) {
        store_spool_abort(spool);
        return err;
    }
    err = store_spool_commit(spool, &file, error);
    if (err != OK) return err;
    memcpy(own->file_id, file.id, sizeof own->file_id);
    own->is_uploaded = true;
    return OK;
}

static enum err create(uint32_t batch, struct error *error) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    if (!own->is_uploaded || own->may_be_deleted) return OK;
    struct batch_parameters parameters = {
        .endpoint = ENDPOINT_CHAT, .completion_window = "24h", .window_s = 86400};
    memcpy(parameters.input_file_id, own->file_id, sizeof own->file_id);
    snprintf(parameters.idempotency_key, sizeof parameters.idempotency_key, "key-%u", batch);
    struct store_batch row;
    bool existing;
    enum err err = batch_create(store, &parameters, clock_unix_s(), &row, &existing, error);
    if (err != OK) return err;
    if (own->is_created && strcmp(own->id, row.id) != 0)
        world_fail("%s was created again as %s (I11)", own->id, row.id);
    memcpy(own->id, row.id, sizeof own->id);
    own->is_created = true;
    store_batch_release(&row);
    if (!existing) runner_kick(runner, own->id);
    return OK;
}

static enum err cancel(uint32_t batch, struct error *error) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    if (!own->is_created || own->may_be_deleted) return OK;
    struct store_batch row;
    own->may_be_cancelled = true;
    uint32_t shows = own->shows;
    enum err err = runner_batch_cancel(runner, str_from(own->id), &row, error);
    if (err == ERR_CONFLICT) return OK; /* it has ended */
    if (err != OK) return err;
    bool is_newest = shows == own->shows;
    ledger_note_cancel(batch);
    if (is_newest) ledger_show(batch, &row);
    store_batch_release(&row);
    return OK;
}

static enum err read_page(uint32_t batch, const struct event *event, struct error *error) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    if (!own->is_created || own->may_be_deleted) return OK;
    struct runner_results *results;
    struct page_read read;
    struct buf text;
    const struct page page = {
        .lines_max = (uint64_t)event->value, .bytes_max = PAGE_BYTES, .room = PAGE_BYTES};
    buf_init(&text, BUF_UNLIMITED);
    runner_results_open(&results, runner, str_from(own->id));
    enum err err = runner_results_read(results, &page, &text, &read, error);
    if (err == OK) ledger_read(batch, buf_str(&text));
    runner_results_close(results);
    buf_release(&text);
    return err == ERR_NOT_FOUND ? OK : err; /* it has not begun */
}

/* True when all batches, or this one, have ended. */
static bool has_ended(uint32_t batch) {
    for (uint32_t i = 0; i < PLAN_BATCHES_MAX; i++) {
        const struct ledger_batch *own = &world->ledger.batches[i];
        bool has;
        if ((batch < PLAN_BATCHES_MAX && i != batch) || !own->is_created || own->may_be_deleted)
            continue;
        if (ledger_look(runner, i, &has) && !has) return false;
    }
    return true;
}

/* A client looks at each moment at which results have become durable. */
void __real_runner_on_durable(void *context, const struct seglog_done *done, size_t count);
void __wrap_runner_on_durable(void *context, const struct seglog_done *done, size_t count);
void __wrap_runner_on_durable(void *context, const struct seglog_done *done, size_t count) {
    __real_runner_on_durable(context, done, count);
    (void)has_ended(PLAN_BATCHES_MAX);
}

static void await_end(uint32_t batch) {
    int64_t until_ns = clock_monotonic_ns() + END_MS * 1000000;
    while (!has_ended(batch)) {
        if (clock_monotonic_ns() > until_ns) world_fail("a batch does not end (liveness)");
        clock_sleep_ms(LOOK_MS);
    }
}

static enum err delete_batch(uint32_t batch, struct error *error) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    struct store_freed freed;
    if (!own->is_created) return OK;
    if (!own->may_be_deleted) await_end(batch);
    own->may_be_deleted = true;
    if (api) return client_delete(batch, error);
    enum err err = runner_batch_delete(runner, str_from(own->id), &freed, error);
    if (err == OK) own->is_deleted = true;
    return err == ERR_NOT_FOUND ? OK : err;
}

/* The lines that `value` chooses, one or two. */
static uint64_t chosen_lines(const struct ledger_batch *own, int64_t value) {
    uint64_t bits = UINT64_C(1) << ((uint64_t)value % own->lines);
    if (value % 3 == 0) bits |= UINT64_C(1) << ((uint64_t)(value >> 6) % own->lines);
    return bits;
}

/* Lines that an earlier command has erased are not asked for again: they would be refused. */
static enum err erase(uint32_t batch, const struct event *event, struct error *error) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    struct batch_erasure erasure;
    struct str ids[LEDGER_LINES_MAX];
    char texts[LEDGER_LINES_MAX][24];
    const char *const batches[] = {own->id};
    struct batch_erase wish = {
        .batch_ids = batches, .batch_count = 1, .custom_ids = ids, .reason = "asked"};
    bool is_custom_id;
    if (!own->is_created || own->may_be_deleted) return OK;
    await_end(batch);
    uint64_t bits = chosen_lines(own, event->value) & ~own->erased;
    for (uint32_t line = 0; line < own->lines; line++) {
        if (!(bits >> line & 1)) continue;
        snprintf(texts[line], sizeof texts[line], "b%u-%u", batch, line);
        ids[wish.id_count++] = str_from(texts[line]);
    }
    if (bits == 0) return OK;
    bool was_asked = (own->may_be_erased & bits) != 0;
    own->may_be_erased |= bits;
    enum err err = runner_batch_erase(runner, &wish, &erasure, &is_custom_id, error);
    if (err == ERR_NOT_FOUND && is_custom_id && was_asked) err = OK; /* nobody was told of it */
    if (err == ERR_INVALID && !*own->output_id && !*own->error_id) { /* no result, no proof */
        own->may_be_erased &= ~bits;
        return OK;
    }
    if (err == OK) own->erased |= bits;
    return err;
}

static enum err pause_a_while(uint32_t batch, const struct event *event, struct error *error) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    struct store_batch row;
    if (!own->is_created || own->may_be_deleted) return OK;
    enum err err = runner_batch_pause(runner, str_from(own->id), true, &row, error);
    if (err == OK) {
        store_batch_release(&row);
        clock_sleep_ms(event->value);
        err = runner_batch_pause(runner, str_from(own->id), false, &row, error);
        if (err == OK) store_batch_release(&row);
    }
    return err == ERR_CONFLICT ? OK : err;
}

static void damaged(void *context, const char *sentence) {
    (void)context;
    world_fail("the backup finds damage: %s (backup)", sentence);
}

/* A backup while everything goes on. Whatever the client knew before it began must be in it. */
static enum err back_up(struct error *error) {
    struct ledger before = world->ledger;
    struct backup_created taken;
    const struct backup_options options = {
        .state_dir = RIG_DIR, .dir = RIG_BACKUPS, .version = "rig", .keep = 2, .report = damaged};
    enum err err = backup_create(&options, &taken, error);
    if (err != OK) return err;
    world->backup = before;
    world->backup_generation = taken.generation;
    return OK;
}

static enum err obey(const struct event *event, struct error *error) {
    switch (event->kind) {
    case EVENT_UPLOAD:
        return api ? client_upload(event->batch, (uint32_t)event->value, error)
                   : upload(event->batch, event, error);
    case EVENT_CREATE:
        return api ? client_create(event->batch, error) : create(event->batch, error);
    case EVENT_CANCEL:
        return api ? client_cancel(event->batch, error) : cancel(event->batch, error);
    case EVENT_READ:
        return api ? client_read(event->batch, (uint32_t)event->value, error)
                   : read_page(event->batch, event, error);
    case EVENT_AWAIT: await_end(event->batch); return api ? client_look(event->batch, error) : OK;
    case EVENT_DELETE: return delete_batch(event->batch, error);
    case EVENT_ERASE: return erase(event->batch, event, error);
    case EVENT_PAUSE: return pause_a_while(event->batch, event, error);
    case EVENT_IDLE: clock_sleep_ms(event->value); return OK;
    case EVENT_DOWN: rig_worker_kill(workers[event->batch % world->plan.workers]); return OK;
    case EVENT_SILENCE:
        rig_worker_silence(workers[event->batch % world->plan.workers], event->value);
        return OK;
    case EVENT_QUEUE: nodes_trouble((enum queue_trouble)event->batch, event->value); return OK;
    case EVENT_BACKUP: return back_up(error);
    case EVENT_JUMP:
        world->wall_ms += event->value * 1000;
        if (event->value >= 86400) world->ledger.may_expire = true;
        return OK;
    default: return OK;
    }
}

/* All that a client can see at the end. */
static void read_all(void) {
    struct error error;
    for (uint32_t i = 0; i <= PLAN_BATCHES_MAX; i++) {
        const bool is_last = i == PLAN_BATCHES_MAX;
        for (int n = 0;; n++) {
            enum err err = is_last ? client_list(&error) : client_look(i, &error);
            if (err == OK && !is_last) err = client_download(i, &error);
            if (!try_again(err, &error, "reading all")) break;
            if (n == TRIES_MAX) world_fail("reading all: %s (liveness)", error.text);
            clock_sleep_ms(250);
        }
    }
}

static void obey_all(void) {
    for (; world->command < world->plan.event_count; world->command++) {
        const struct event *event = &world->plan.events[world->command];
        struct error error;
        char what[96];
        plan_write_event(event, what, sizeof what);
        for (int i = 0; try_again(obey(event, &error), &error, what); i++) {
            if (i == TRIES_MAX) world_fail("%s: %s (liveness)", what, error.text);
            clock_sleep_ms(250);
        }
    }
    await_end(PLAN_BATCHES_MAX);
    if (api) read_all();
}

static void live(void) {
    store = NULL;
    if (world->was_open) check_at_start();
    open_store();
    open_runner();
    open_api();
    ledger_check(store, runner);
    obey_all();
    ledger_check(store, runner);
    ledger_check_ends(store, runner);
    ledger_check_erased(store);
    close_api();
    if (fleet) runner_halt(runner);
    fleet_close(fleet);
    runner_close(runner);
    store_close(store);
    if (calls_open() > 0) world_fail("%u descriptors are left open", calls_open());
    check_at_end();
}

void life_run(void) {
    life_begin();
    log_set_level(LOG_WARN);
    live();
    _exit(LIFE_DONE);
}

void life_main(void) {
    begin_disk();
    live();
}

/* --- the backup --- */

void life_restore(void) {
    struct error error;
    struct backup_restored restored;
    char when[] = "of the restored directory";
    struct fsck_found found;
    const struct store_options options = {
        .dir = RIG_RESTORED, .ballast_bytes = 1 << 16, .segment_bytes = 1 << 16};
    life_begin();
    log_set_level(LOG_WARN);
    const struct backup_restore restore = {
        .dir = RIG_BACKUPS, .state_dir = RIG_RESTORED, .generation = world->backup_generation};
    if (backup_restore(&restore, &restored, &error) != OK)
        world_fail("a complete backup is not restored: %s (backup)", error.text);
    if (fsck_run(RIG_RESTORED, violated, when, &found, &error) != OK)
        world_fail("fsck %s: %s", when, error.text);
    if (store_open(&store, &options, &error) != OK)
        world_fail("the restored store does not open: %s (backup)", error.text);
    world->plan.workers = 0;
    world->ledger = world->backup;
    open_runner();
    ledger_check(store, runner);
    ledger_check_seen(runner);
    runner_close(runner);
    store_close(store);
    _exit(LIFE_DONE);
}

void life_format(void) {
    life_begin();
    open_store();
    store_close(store);
    _exit(LIFE_DONE);
}
