/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../tree.h"
#include "api/api.h"
#include "base/clock.h"
#include "store/files.h"
#include "workers/echo/worker_echo.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#define WORKED_ON_AND_WAITING 5

/* The work itself is a door that a test opens. */
struct door {
    atomic_bool is_open;
    atomic_uint begun, stopped;
    atomic_uint running, running_most;
    char model[256];
    char watts[16]; /* a digit per question, in the order in which they were worked on */
};

enum { OWNER_A, OWNER_B, OWNERS };

struct fixture {
    char dir[64];
    struct store *store;
    struct runner *runner;
    struct api *api;
    uint16_t port;
    struct door door;
    struct key_set *keys; /* NULL: none is asked for */
    char key[OWNERS][KEY_TEXT_BYTES];
};

static enum err stand_at_the_door(void *context, const struct api_preflight *preflight,
                                  struct buf *ret_json, struct error *error) {
    struct door *door = context;
    unsigned running = atomic_fetch_add(&door->running, 1) + 1;
    if (running > atomic_load(&door->running_most)) atomic_store(&door->running_most, running);
    snprintf(door->model, sizeof door->model, "%s", preflight->model);
    unsigned before = atomic_fetch_add(&door->begun, 1);
    if (before < sizeof door->watts - 1)
        door->watts[before] = (char)('0' + (int)preflight->prices.watts);
    bool was_stopped = false;
    while (!atomic_load(&door->is_open) && !was_stopped) {
        clock_sleep_ms(1);
        was_stopped = preflight->stopped(preflight->context);
    }
    atomic_fetch_sub(&door->running, 1);
    if (was_stopped) atomic_fetch_add(&door->stopped, 1);
    if (was_stopped) return err_set(error, ERR_CANCELLED, "stopped");
    buf_add_text(ret_json, "{\"object\":\"preflight\"}");
    return OK;
}

static void make_keys(struct fixture *fixture) {
    char path[128];
    struct error error;
    for (size_t i = 0; i < OWNERS; i++) {
        struct key_row row = {.scopes = KEY_SCOPES_DEFAULT};
        snprintf(row.owner, sizeof row.owner, "owner-%zu", i);
        assert_int_equal(key_file_add(fixture->dir, &row, clock_unix_s(), fixture->key[i], &error),
                         OK);
    }
    snprintf(path, sizeof path, "%s/" KEY_FILE_NAME, fixture->dir);
    assert_int_equal(key_set_open(&fixture->keys, &(struct key_set_options){.path = path}, &error),
                     OK);
}

static void open_with(struct fixture *fixture, int64_t preflight_ms, bool with_keys) {
    static const char *const models[] = {"echo", "other", NULL};
    static const struct name_alias aliases[] = {{"also-echo", "echo"}};
    static const struct names names = {.aliases = aliases, .alias_count = 1};
    struct worker_events events;
    struct worker *worker;
    struct error error;
    uint32_t seat;
    memset(fixture, 0, sizeof *fixture);
    snprintf(fixture->dir, sizeof fixture->dir, "/tmp/quern-preflight-XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    struct store_options store = {.dir = fixture->dir, .ballast_bytes = 1 << 20};
    struct runner_options runner = {.names = &names};
    assert_int_equal(store_open(&fixture->store, &store, &error), OK);
    assert_int_equal(runner_open(&fixture->runner, fixture->store, &runner, &error), OK);
    assert_true(runner_worker_seat(fixture->runner, &events, &seat));
    struct worker_echo_options echo = {.models = models};
    assert_int_equal(worker_echo_open(&worker, &echo, &events, &error), OK);
    runner_worker_attach(fixture->runner, seat, worker);
    assert_int_equal(runner_start(fixture->runner, &error), OK);
    if (with_keys) make_keys(fixture);
    struct api_options api = {.keys = fixture->keys,
                              .store = fixture->store,
                              .runner = fixture->runner,
                              .preflight = stand_at_the_door,
                              .preflight_context = &fixture->door,
                              .preflight_ms = preflight_ms};
    assert_int_equal(api_open(&fixture->api, &api, &fixture->port, &error), OK);
}

static void open_all(struct fixture *fixture, int64_t preflight_ms) {
    open_with(fixture, preflight_ms, false);
}

static void close_all(struct fixture *fixture) {
    api_close(fixture->api, 1000);
    key_set_close(fixture->keys);
    runner_close(fixture->runner);
    store_close(fixture->store);
    tree_remove(fixture->dir);
}

/* A file whose lines name these models. */
static void put_file(const struct fixture *fixture, const char *const *models, const char *owner,
                     struct store_file *ret_file) {
    struct store_spool *spool;
    struct error error;
    struct buf text;
    buf_init(&text, 65536);
    for (size_t i = 0; models[i]; i++)
        buf_printf(&text,
                   "{\"custom_id\":\"c%zu\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
                   "\"body\":{\"model\":\"%s\",\"messages\":[]}}\n",
                   i, models[i]);
    *ret_file = (struct store_file){.purpose = "batch", .filename = "in.jsonl"};
    ret_file->created_unix_s = clock_unix_s();
    snprintf(ret_file->owner, sizeof ret_file->owner, "%s", owner);
    assert_int_equal(store_spool_open(&spool, fixture->store, &error), OK);
    assert_int_equal(store_spool_write(spool, text.at, text.bytes, &error), OK);
    assert_int_equal(store_spool_commit(spool, ret_file, &error), OK);
    buf_release(&text);
}

static int ask_as(const struct fixture *fixture, const char *const *models, const char *more,
                  const char *owner, const char *key) {
    struct store_file file;
    char body[300], text[700];
    put_file(fixture, models, owner, &file);
    int bytes =
        snprintf(body, sizeof body, "{\"input_file_id\":\"%s\"%s}", file.id, more ? more : "");
    int count = snprintf(text, sizeof text,
                         "POST /v1/batches/preflight HTTP/1.1\r\nHost: localhost\r\n"
                         "Content-Type: application/json\r\nConnection: close\r\n"
                         "Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
                         key, bytes, body);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(fixture->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(send(fd, text, (size_t)count, MSG_NOSIGNAL), count);
    return fd;
}

static int ask(const struct fixture *fixture, const char *const *models, const char *more) {
    return ask_as(fixture, models, more, "", "none");
}

static const char *const echo_lines[] = {"echo", "also-echo", "echo", NULL};

/* The answer has each of these texts; NULL for fewer. */
static void hear(int fd, const char *first, const char *second, const char *third) {
    const char *wanted[] = {first, second, third};
    struct buf answer;
    buf_init(&answer, 1 << 20);
    for (;;) {
        char *room = buf_reserve(&answer, 4096);
        ssize_t got = recv(fd, room, 4096, 0);
        if (got <= 0) break;
        buf_commit(&answer, (size_t)got);
    }
    close(fd);
    for (size_t i = 0; i < 3; i++)
        if (wanted[i] && str_find(buf_str(&answer), str_from(wanted[i]), 0) == SIZE_MAX)
            fail_msg("'%s' is not in: %.*s", wanted[i], STR_ARGS(buf_str(&answer)));
    buf_release(&answer);
}

static void wait_for(atomic_uint *counter, unsigned value) {
    while (atomic_load(counter) < value) clock_sleep_ms(1);
}

static void one_is_worked_on_and_a_few_wait(void **state) {
    struct fixture fixture;
    struct pollfd fds[WORKED_ON_AND_WAITING + 1];
    const size_t count = sizeof fds / sizeof *fds;
    (void)state;
    open_all(&fixture, 0);
    for (size_t i = 0; i < count; i++)
        fds[i] = (struct pollfd){.fd = ask(&fixture, echo_lines, NULL), .events = POLLIN};
    /* They arrive on several threads; whichever is the last is refused at once. */
    assert_int_equal(poll(fds, count, -1), 1);
    size_t refused = 0;
    while (!fds[refused].revents) refused++;
    hear(fds[refused].fd, "HTTP/1.1 429 ", "retry-after", "Other preflights wait already");
    atomic_store(&fixture.door.is_open, true);
    for (size_t i = 0; i < count; i++)
        if (i != refused) hear(fds[i].fd, "HTTP/1.1 200 ", "{\"object\":\"preflight\"}", NULL);
    assert_int_equal(atomic_load(&fixture.door.running_most), 1);
    close_all(&fixture);
}

static int ask_of(const struct fixture *fixture, size_t owner) {
    return ask_as(fixture, echo_lines, owner == OWNER_A ? ",\"watts\":1" : ",\"watts\":2",
                  owner == OWNER_A ? "owner-0" : "owner-1", fixture->key[owner]);
}

/* One of these is refused at once, and closed; the others are taken. */
static void hear_the_refused(struct pollfd *fds, size_t count) {
    assert_int_equal(poll(fds, count, -1), 1);
    size_t refused = 0;
    while (!fds[refused].revents) refused++;
    hear(fds[refused].fd, "HTTP/1.1 429 ", "retry-after", NULL);
    fds[refused].fd = -1;
}

static void owners_take_turns_and_one_does_not_fill_the_places(void **state) {
    struct fixture fixture;
    struct pollfd fds[9] = {{.fd = -1}};
    (void)state;
    open_with(&fixture, 0, true);
    fds[0].fd = ask_of(&fixture, OWNER_A);
    wait_for(&fixture.door.begun, 1);
    for (size_t i = 1; i < 9; i++)
        fds[i] = (struct pollfd){.fd = i < 6 ? ask_of(&fixture, OWNER_A) : -1, .events = POLLIN};
    hear_the_refused(fds + 1, 5);
    for (size_t i = 6; i < 9; i++) fds[i].fd = ask_of(&fixture, OWNER_B);
    hear_the_refused(fds + 6, 3);
    atomic_store(&fixture.door.is_open, true);
    for (size_t i = 0; i < 9; i++)
        if (fds[i].fd >= 0) hear(fds[i].fd, "HTTP/1.1 200 ", NULL, NULL);
    assert_string_equal(fixture.door.watts, "1212111");
    assert_int_equal(atomic_load(&fixture.door.running_most), 1);
    close_all(&fixture);
}

static void a_client_that_goes_away_stops_its_own_and_gives_up_its_place(void **state) {
    struct fixture fixture;
    (void)state;
    open_all(&fixture, 0);
    int working = ask(&fixture, echo_lines, NULL);
    wait_for(&fixture.door.begun, 1);
    int waiting = ask(&fixture, echo_lines, NULL);
    close(waiting);
    close(working);
    wait_for(&fixture.door.stopped, 1);
    atomic_store(&fixture.door.is_open, true);
    hear(ask(&fixture, echo_lines, NULL), "HTTP/1.1 200 ", NULL, NULL);
    /* On a slow machine the second one comes in when the first has stopped; then it is begun, and
     * stopped too. */
    assert_in_range(atomic_load(&fixture.door.stopped), 1, 2);
    close_all(&fixture);
}

static void one_that_takes_too_long_is_a_504_that_is_not_tried_again(void **state) {
    struct fixture fixture;
    (void)state;
    open_all(&fixture, 20);
    hear(ask(&fixture, echo_lines, NULL), "HTTP/1.1 504 ", "x-should-retry: false",
         "preflight_timeout");
    assert_int_equal(atomic_load(&fixture.door.stopped), 1);
    close_all(&fixture);
}

static void draining_ends_them_all(void **state) {
    struct fixture fixture;
    int fds[2];
    (void)state;
    open_all(&fixture, 0);
    for (size_t i = 0; i < 2; i++) {
        fds[i] = ask(&fixture, echo_lines, NULL);
        wait_for(&fixture.door.begun, 1);
    }
    api_drain(fixture.api);
    for (size_t i = 0; i < 2; i++) hear(fds[i], "HTTP/1.1 503 ", "draining", NULL);
    hear(ask(&fixture, echo_lines, NULL), "HTTP/1.1 503 ", "draining", NULL);
    close_all(&fixture);
}

static void the_model_is_the_one_that_all_lines_mean(void **state) {
    static const char *const two[] = {"echo", "also-echo", "other", NULL};
    static const char *const unknown[] = {"echo", "nobody's", NULL};
    struct fixture fixture;
    (void)state;
    open_all(&fixture, 0);
    atomic_store(&fixture.door.is_open, true);
    hear(ask(&fixture, echo_lines, NULL), "HTTP/1.1 200 ", NULL, NULL);
    assert_string_equal(fixture.door.model, "echo");
    hear(ask(&fixture, two, NULL), "HTTP/1.1 400 ", "'echo' and 'other'", "\"param\":\"model\"");
    hear(ask(&fixture, unknown, NULL), "HTTP/1.1 404 ", "model_not_found", "nobody's");
    hear(ask(&fixture, two, ",\"model\":\"other\""), "HTTP/1.1 200 ", NULL, NULL);
    assert_string_equal(fixture.door.model, "other");
    hear(ask(&fixture, unknown, ",\"model\":\"also-echo\""), "HTTP/1.1 200 ", NULL, NULL);
    assert_string_equal(fixture.door.model, "echo");
    assert_int_equal(atomic_load(&fixture.door.begun), 3);
    close_all(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_worked_on_and_a_few_wait),
        cmocka_unit_test(owners_take_turns_and_one_does_not_fill_the_places),
        cmocka_unit_test(a_client_that_goes_away_stops_its_own_and_gives_up_its_place),
        cmocka_unit_test(one_that_takes_too_long_is_a_504_that_is_not_tried_again),
        cmocka_unit_test(draining_ends_them_all),
        cmocka_unit_test(the_model_is_the_one_that_all_lines_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
