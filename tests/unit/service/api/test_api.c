/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../tree.h"
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/os.h"
#include "workers/echo/worker_echo.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILE_BYTES_MAX 100000
#define FOR_EVER_MS 3600000
#define PING_MS 50

struct fixture {
    char dir[64];
    struct store *store;
    struct runner *runner;
    struct worker *worker;
    struct api *api;
    uint16_t port;
};

/* --- a client --- */

static int dial(const struct fixture *fixture) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(fixture->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void say(int fd, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0) return;
        bytes += sent;
        count -= (size_t)sent;
    }
}

static void hear(int fd, struct buf *answer) {
    for (;;) {
        char *room = buf_reserve(answer, 65536);
        ssize_t got = recv(fd, room, 65536, 0);
        if (got <= 0) return;
        buf_commit(answer, (size_t)got);
    }
}

/* One request whose answer ends the connection. */
static void request(const struct fixture *fixture, const char *method, const char *path,
                    const char *content_type, struct str body, struct buf *answer) {
    struct buf text;
    buf_init(&text, 16 << 20);
    buf_init(answer, 16 << 20);
    buf_printf(&text,
               "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: %s\r\n"
               "Content-Length: %zu\r\n\r\n",
               method, path, content_type, body.bytes);
    buf_add_str(&text, body);
    int fd = dial(fixture);
    say(fd, text.at, text.bytes);
    hear(fd, answer);
    close(fd);
    buf_release(&text);
}

static bool has(const struct buf *answer, const char *part) {
    return str_find(buf_str(answer), str_from(part), 0) != SIZE_MAX;
}

/* Checks that the answer starts with `HTTP/1.1 STATUS` and holds each part. */
static void check(const struct fixture *fixture, const char *method, const char *path,
                  const char *body, int status, const char *first, const char *second) {
    struct buf answer;
    char line[32];
    snprintf(line, sizeof line, "HTTP/1.1 %d ", status);
    request(fixture, method, path, "application/json", str_from(body), &answer);
    if (!str_starts_with(buf_str(&answer), str_from(line)) || !has(&answer, first) ||
        !has(&answer, second))
        fail_msg("%s %s: wanted %d, '%s', '%s'; got %.*s", method, path, status, first, second,
                 STR_ARGS(buf_str(&answer)));
    buf_release(&answer);
}

static size_t files_in(const struct fixture *fixture, const char *folder) {
    char path[128];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/%s", fixture->dir, folder);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] != '.') count++;
    closedir(directory);
    return count;
}

/* --- the rules --- */

static void operating_errors_map_to_one_status_each(void **state) {
    check(*state, "GET", "/v1/files/file-x", "", 404, "\"type\":\"invalid_request_error\"",
          "\"message\":\"No such File object: file-x\"");
    check(*state, "GET", "/v1/batches/batch_x", "", 404, "No batch found with id 'batch_x'.",
          "\"param\":null,\"code\":null");
    check(*state, "GET", "/v1/files?after=x", "", 400, "\"param\":\"after\"",
          "\"code\":\"invalid_value\"");
    check(*state, "GET", "/v1/batches?limit=101", "", 400, "\"param\":\"limit\"",
          "from 1 to 100, got 101");
    check(*state, "POST", "/v1/batches", "[1]", 400, "must be a JSON object", "\"code\":null");
    check(*state, "POST", "/v1/batches", "{", 400, "not valid JSON", "\"param\":null");
}

static void requests_are_checked_before_an_engine_sees_them(void **state) {
    const char *chat = "/v1/chat/completions";
    check(*state, "POST", chat, "{}", 400, "missing_required_parameter", "\"param\":\"model\"");
    check(*state, "POST", chat, "{\"model\":1}", 400, "invalid_type", "\"param\":\"model\"");
    check(*state, "POST", chat, "{\"model\":\"no\"}", 404, "model_not_found", "'no'");
    check(*state, "POST", chat, "{\"model\":\"echo\",\"stream\":1}", 400, "invalid_type",
          "\"param\":\"stream\"");
    check(*state, "POST", chat, "{\"model\":\"echo\",\"stream_options\":{}}", 400, "invalid_value",
          "\"param\":\"stream_options\"");
    check(*state, "POST", chat, "{\"model\":\"echo\",\"stream_options\":null,\"stream\":null}", 200,
          "chat.completion", "\"model\":\"echo\"");
}

static void a_wrong_name_is_answered_with_what_would_be_right(void **state) {
    check(*state, "POST", "/v1/chat/completions", "{\"model\":\"gpt-4o-mini\"}", 404,
          "Served here: 'echo'", "--alias gpt-4o-mini=echo");
    check(*state, "GET", "/v1/models/no%20name", "", 404, "Served here: 'echo', 'slow'.\"",
          "'no name'");
    check(*state, "POST", "/chat/completions", "{}", 404, "Did you mean /v1/chat/completions?",
          "lacks it");
    check(*state, "GET", "/files/file-1/content", "", 404, "Did you mean /v1/files/file-1/content?",
          "lacks it");
    check(*state, "POST", "/v1/v1/embeddings", "{}", 404, "Did you mean /v1/embeddings?", "once");
    check(*state, "POST", "/api/chat", "{}", 400, "{\"error\":\"", "model is required");
    check(*state, "POST", "/api/nope", "{}", 404, "{\"error\":\"", "POST /api/nope");
    check(*state, "GET", "/v2/models", "", 404, "Check the URL for typos", "GET /v2/models");
}

static void an_alias_is_listed_and_leads_to_its_model(void **state) {
    check(*state, "GET", "/v1/models", "", 200, "\"id\":\"echo\"", "\"id\":\"other/name\"");
    check(*state, "GET", "/v1/models/other%2Fname", "", 200, "{\"id\":\"other/name\"",
          "\"root\":\"echo\"");
    check(*state, "POST", "/v1/completions", "{\"model\":\"other/name\",\"prompt\":\"hi\"}", 200,
          "\"text\":\"hi\"", "\"model\":\"echo\"");
}

static void a_stream_ends_with_done(void **state) {
    check(*state, "POST", "/v1/chat/completions",
          "{\"model\":\"echo\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}"
          "]}",
          200, "Content-Type: text/event-stream", "data: [DONE]\n\n");
}

static void endpoints_that_are_not_there_say_so(void **state) {
    check(*state, "POST", "/v1/responses/compact", "{}", 400, "unsupported_endpoint", "compact");
    check(*state, "POST", "/v1/nope", "{}", 404, "invalid_request_error", "/v1/nope");
}

#define PART(name) "--B\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n"

static void an_upload_over_the_limit_is_refused_and_leaves_nothing(void **state) {
    struct fixture *fixture = *state;
    struct buf body, answer;
    buf_init(&body, 16 << 20);
    buf_add_text(&body, PART("purpose") "user_data\r\n" PART("file"));
    for (int i = 0; i <= FILE_BYTES_MAX; i++) buf_add_byte(&body, 'x');
    buf_add_text(&body, "\r\n--B--\r\n");
    request(fixture, "POST", "/v1/files", "multipart/form-data; boundary=B", buf_str(&body),
            &answer);
    assert_true(str_starts_with(buf_str(&answer), STR("HTTP/1.1 413 ")));
    assert_true(has(&answer, "limit of 100000 bytes"));
    buf_release(&answer);
    /* One byte less fits. */
    size_t first = str_find(buf_str(&body), STR("xx"), 0);
    memmove(body.at + first, body.at + first + 1, body.bytes - first - 1);
    buf_truncate(&body, body.bytes - 1);
    request(fixture, "POST", "/v1/files", "multipart/form-data; boundary=B", buf_str(&body),
            &answer);
    assert_true(has(&answer, "\"bytes\":100000,"));
    buf_release(&answer);
    buf_release(&body);
    assert_int_equal(files_in(fixture, "tmp"), 0);
}

static void metrics_have_every_label_from_the_start(void **state) {
    struct buf answer;
    request(*state, "GET", "/metrics", "text/plain", STR(""), &answer);
    static const char *const lines[] = {
        "\nquern_batches{status=\"validating\"} 0\n",
        "\nquern_batches{status=\"cancelled\"} 0\n",
        "\nquern_requests_total{endpoint=\"score\",outcome=\"expired\"} 0\n",
        "\nquern_tokens_total{type=\"cached\"} 0\n",
        "\nquern_engine_up{engine=\"0\"} 1\n",
        "\nquern_engine_restarts_total{engine=\"0\"} 0\n",
        "\nquern_auth_failures_total{reason=\"wrong\"} 0\n",
        "\nquern_http_requests_total{route=\"cancelBatch\",code=\"5xx\"} 0\n",
        "\n# TYPE quern_log_append_bytes_total counter\n",
        "\nprocess_start_time_seconds ",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!has(&answer, lines[i])) fail_msg("%s is missing", lines[i]);
    buf_release(&answer);
}

static void new_work_is_refused_while_draining(void **state) {
    struct fixture *fixture = *state;
    api_drain(fixture->api);
    const char *draining = "The server is draining";
    check(fixture, "POST", "/v1/chat/completions", "{\"model\":\"echo\"}", 503, draining,
          "retry-after: ");
    check(fixture, "POST", "/v1/batches", "{}", 503, draining, "server_error");
    check(fixture, "GET", "/health", "", 503, draining, "retry-after: ");
    check(fixture, "GET", "/ready", "", 503, "\"ready\":false", "\"accepting\":false");
    check(fixture, "GET", "/v1/files", "", 200, "\"object\":\"list\"", "");
    struct buf answer;
    request(fixture, "POST", "/v1/files", "multipart/form-data; boundary=B",
            STR(PART("purpose") "batch\r\n--B--"), &answer);
    assert_true(str_starts_with(buf_str(&answer), STR("HTTP/1.1 503 ")));
    buf_release(&answer);
}

static enum err attach(struct fixture *fixture, const char *const *models, int64_t latency_ms,
                       struct error *error) {
    struct worker_echo_options options = {.models = models, .latency_ms = latency_ms};
    struct worker_events events;
    uint32_t seat;
    if (!runner_worker_seat(fixture->runner, &events, &seat)) return ERR_LIMIT;
    enum err err = worker_echo_open(&fixture->worker, &options, &events, error);
    if (err == OK) runner_worker_attach(fixture->runner, seat, fixture->worker);
    return err;
}

static int open_api(void **state) {
    static const char *const fast[] = {"echo", NULL};
    static const char *const slow[] = {"slow", NULL};
    static const struct name_alias aliases[] = {{"other/name", "echo"}};
    static const struct names names = {.aliases = aliases, .alias_count = 1};
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct error error = {0};
    *state = fixture;
    snprintf(fixture->dir, sizeof fixture->dir, "/tmp/quern-test-api-XXXXXX");
    if (!mkdtemp(fixture->dir)) return -1;
    struct store_options store = {.dir = fixture->dir, .ballast_bytes = 1 << 16};
    enum err err = store_open(&fixture->store, &store, &error);
    if (err == OK)
        err = runner_open(&fixture->runner, fixture->store,
                          &(struct runner_options){.names = &names}, &error);
    if (err == OK) err = attach(fixture, fast, 0, &error);
    if (err == OK) err = attach(fixture, slow, FOR_EVER_MS, &error);
    if (err == OK) err = runner_start(fixture->runner, &error);
    struct api_options options = {.ping_ms = PING_MS,
                                  .store = fixture->store,
                                  .runner = fixture->runner,
                                  .file_bytes_max = FILE_BYTES_MAX};
    if (err == OK) err = api_open(&fixture->api, &options, &fixture->port, &error);
    if (err != OK) print_error("%s\n", error.text);
    return err == OK ? 0 : -1;
}

static int close_api(void **state) {
    struct fixture *fixture = *state;
    api_close(fixture->api, 1000);
    runner_close(fixture->runner);
    store_close(fixture->store);
    tree_remove(fixture->dir);
    free(fixture);
    return 0;
}

/* Sends a request that the slow worker would answer in an hour; returns once the runner has it. */
static int ask_slow(const struct fixture *fixture) {
    static const char body[] = "{\"model\":\"slow\",\"messages\":[]}";
    char text[256];
    int count = snprintf(text, sizeof text,
                         "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                         "Content-Type: application/json\r\nContent-Length: %zu\r\n"
                         "\r\n%s",
                         strlen(body), body);
    struct runner_status status = {0};
    int fd = dial(fixture);
    say(fd, text, (size_t)count);
    while (status.requests_in_flight == 0) runner_status(fixture->runner, &status);
    return fd;
}

static void a_client_that_goes_away_cancels_its_request(void **state) {
    struct fixture *fixture = *state;
    struct runner_status status;
    close(ask_slow(fixture));
    /* Only the cancel ends this loop. */
    do runner_status(fixture->runner, &status);
    while (status.requests_in_flight > 0);
}

static void a_stream_that_waits_for_its_first_token_is_kept_open(void **state) {
    static const char body[] = "{\"model\":\"slow\",\"messages\":[],\"stream\":true}";
    struct fixture *fixture = *state;
    struct runner_status status;
    struct buf answer;
    char text[256];
    int count = snprintf(text, sizeof text,
                         "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                         "Content-Type: application/json\r\nContent-Length: %zu\r\n"
                         "\r\n%s",
                         strlen(body), body);
    buf_init(&answer, 1 << 20);
    int fd = dial(fixture);
    say(fd, text, (size_t)count);
    while (!has(&answer, ": ping\n\n")) {
        char *room = buf_reserve(&answer, 4096);
        ssize_t got = recv(fd, room, 4096, 0);
        assert_true(got > 0);
        buf_commit(&answer, (size_t)got);
    }
    assert_true(str_starts_with(buf_str(&answer), STR("HTTP/1.1 200 ")));
    assert_true(has(&answer, "Content-Type: text/event-stream"));
    assert_false(has(&answer, "data: "));
    close(fd);
    buf_release(&answer);
    do runner_status(fixture->runner, &status);
    while (status.requests_in_flight > 0);
}

static void a_server_that_closes_cancels_what_still_runs(void **state) {
    struct fixture second = *(struct fixture *)*state;
    struct error error;
    struct api_options options = {.store = second.store, .runner = second.runner};
    assert_int_equal(api_open(&second.api, &options, &second.port, &error), OK);
    int fd = ask_slow(&second);
    api_close(second.api, 1);
    struct buf answer;
    buf_init(&answer, 65536);
    hear(fd, &answer);
    close(fd);
    assert_true(has(&answer, "{\"error\":{"));
    buf_release(&answer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_have_every_label_from_the_start),
        cmocka_unit_test(operating_errors_map_to_one_status_each),
        cmocka_unit_test(requests_are_checked_before_an_engine_sees_them),
        cmocka_unit_test(a_wrong_name_is_answered_with_what_would_be_right),
        cmocka_unit_test(an_alias_is_listed_and_leads_to_its_model),
        cmocka_unit_test(a_stream_ends_with_done),
        cmocka_unit_test(endpoints_that_are_not_there_say_so),
        cmocka_unit_test(an_upload_over_the_limit_is_refused_and_leaves_nothing),
        cmocka_unit_test(a_client_that_goes_away_cancels_its_request),
        cmocka_unit_test(a_stream_that_waits_for_its_first_token_is_kept_open),
        cmocka_unit_test(a_server_that_closes_cancels_what_still_runs),
        cmocka_unit_test(new_work_is_refused_while_draining),
    };
    return cmocka_run_group_tests(tests, open_api, close_api);
}
