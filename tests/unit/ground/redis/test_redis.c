/* SPDX-License-Identifier: Apache-2.0 */

/* The client against a peer of this test, which reads one request and sends what it was told. */

#include "redis/redis.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct peer {
    int listening;
    uint16_t port;
    pthread_t thread;
    const char *const *says; /* an answer per connection, NULL at the end */
    char heard[4][512];
};

static void *peer_main(void *context) {
    struct peer *peer = context;
    for (size_t i = 0; peer->says[i]; i++) {
        int fd = accept(peer->listening, NULL, NULL);
        if (fd < 0) return NULL;
        ssize_t got = recv(fd, peer->heard[i], sizeof peer->heard[i] - 1, 0);
        if (got > 0) (void)send(fd, peer->says[i], strlen(peer->says[i]), MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static void peer_start(struct peer *peer, const char *const *says) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    *peer = (struct peer){.says = says, .listening = socket(AF_INET, SOCK_STREAM, 0)};
    assert_true(peer->listening >= 0);
    assert_int_equal(bind(peer->listening, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(peer->listening, 4), 0);
    assert_int_equal(getsockname(peer->listening, (struct sockaddr *)&address, &bytes), 0);
    peer->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&peer->thread, NULL, peer_main, peer), 0);
}

static void peer_end(struct peer *peer) {
    pthread_join(peer->thread, NULL);
    close(peer->listening);
}

static struct redis *client_of(const struct peer *peer, const char *user, const char *password) {
    struct redis_options options = {.password = password};
    snprintf(options.place.host, sizeof options.place.host, "127.0.0.1");
    snprintf(options.place.user, sizeof options.place.user, "%s", user);
    options.place.port = peer->port;
    return redis_open(&options);
}

static const struct str ping[] = {{"PING", 4}}, echo[] = {{"ECHO", 4}, {"a\r\n", 3}};

static void commands_go_together_and_replies_come_in_order(void **state) {
    (void)state;
    static const char *const says[] = {"+PONG\r\n$3\r\na\r\n\r\n", NULL};
    struct peer peer;
    struct error error;
    const struct reply_value *reply;
    peer_start(&peer, says);
    struct redis *redis = client_of(&peer, "", NULL);
    redis_add(redis, ping, 1);
    redis_add(redis, echo, 2);
    assert_int_equal(redis_send(redis, &error), OK);
    assert_int_equal(redis_result(redis, 0, &reply, &error), OK);
    assert_true(str_is(reply->text, "PONG"));
    assert_int_equal(redis_result(redis, 0, &reply, &error), OK);
    assert_true(str_is(reply->text, "a\r\n"));
    assert_int_equal(redis_result(redis, 0, &reply, &error), ERR_UNAVAILABLE);
    redis_close(redis);
    peer_end(&peer);
    assert_string_equal(peer.heard[0], "*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n");
}

static void a_lost_connection_is_made_again_by_the_next_commands(void **state) {
    (void)state;
    static const char *const says[] = {"+PO", "+PONG\r\n", NULL};
    struct peer peer;
    struct error error;
    const struct reply_value *reply;
    peer_start(&peer, says);
    struct redis *redis = client_of(&peer, "", NULL);
    redis_add(redis, ping, 1);
    assert_int_equal(redis_send(redis, &error), OK);
    assert_int_equal(redis_reply(redis, 0, &reply, &error), ERR_UNAVAILABLE);
    assert_non_null(strstr(error.text, "closed"));
    redis_add(redis, ping, 1);
    assert_int_equal(redis_send(redis, &error), OK);
    assert_int_equal(redis_reply(redis, 0, &reply, &error), OK);
    redis_close(redis);
    peer_end(&peer);
}

static void a_refused_password_names_the_user_and_not_the_password(void **state) {
    (void)state;
    static const char *const says[] = {"-WRONGPASS invalid username-password pair\r\n", NULL};
    struct peer peer;
    struct error error;
    peer_start(&peer, says);
    struct redis *redis = client_of(&peer, "node", "hush");
    redis_add(redis, ping, 1);
    assert_int_equal(redis_send(redis, &error), ERR_DENIED);
    assert_non_null(strstr(error.text, "'node'"));
    assert_null(strstr(error.text, "hush"));
    redis_close(redis);
    peer_end(&peer);
    assert_string_equal(peer.heard[0], "*3\r\n$4\r\nAUTH\r\n$4\r\nnode\r\n$4\r\nhush\r\n");
}

static void errors_of_the_server_have_codes(void **state) {
    (void)state;
    static const char *const says[] = {"-OOM command not allowed\r\n-NOPERM no\r\n-ERR what\r\n"
                                       "-LOADING it starts\r\n?\r\n",
                                       NULL};
    static const enum err codes[] = {ERR_LIMIT, ERR_DENIED, ERR_IO, ERR_UNAVAILABLE, ERR_CORRUPT};
    struct peer peer;
    struct error error;
    const struct reply_value *reply;
    peer_start(&peer, says);
    struct redis *redis = client_of(&peer, "", NULL);
    for (size_t i = 0; i < 5; i++) redis_add(redis, ping, 1);
    assert_int_equal(redis_send(redis, &error), OK);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(redis_result(redis, 0, &reply, &error), codes[i]);
    redis_close(redis);
    peer_end(&peer);
}

static void a_server_that_is_away_is_a_sentence(void **state) {
    (void)state;
    static const char *const says[] = {NULL};
    struct peer peer;
    struct error error;
    peer_start(&peer, says);
    peer_end(&peer);
    struct redis *redis = client_of(&peer, "", NULL);
    redis_add(redis, ping, 1);
    assert_int_equal(redis_send(redis, &error), ERR_UNAVAILABLE);
    assert_non_null(strstr(error.text, "127.0.0.1"));
    redis_close(redis);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_go_together_and_replies_come_in_order),
        cmocka_unit_test(a_lost_connection_is_made_again_by_the_next_commands),
        cmocka_unit_test(a_refused_password_names_the_user_and_not_the_password),
        cmocka_unit_test(errors_of_the_server_have_codes),
        cmocka_unit_test(a_server_that_is_away_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
