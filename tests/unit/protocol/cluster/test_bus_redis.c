/* SPDX-License-Identifier: Apache-2.0 */

/* The bus against a peer of this test in Redis's place. The rest is tested over a real Redis, in
 * tests/api/test_cluster.py. */

#include "cluster/bus_redis.h"

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

#define READS 5

struct peer {
    int listening;
    uint16_t port;
    pthread_t thread;
    char heard[READS][2048];
};

static void peer_start(struct peer *peer, void *(*run)(void *)) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    *peer = (struct peer){.listening = socket(AF_INET, SOCK_STREAM, 0)};
    assert_int_equal(bind(peer->listening, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(peer->listening, READS), 0);
    assert_int_equal(getsockname(peer->listening, (struct sockaddr *)&address, &bytes), 0);
    peer->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&peer->thread, NULL, run, peer), 0);
}

static struct bus *bus_to(const struct peer *peer, struct redis_options *options) {
    struct error error;
    char url[64];
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/", peer->port);
    assert_int_equal(redis_place_read(&options->place, url, &error), OK);
    struct bus_place place = bus_redis_place(options);
    return place.open(place.context);
}

#define SAYS_TIME "*2\r\n$4\r\n2000\r\n$6\r\n500000\r\n"

/* Each read gets the time, and the beginning of a reply that has more bytes than the client takes.
 */
static void *peer_too_large(void *context) {
    struct peer *peer = context;
    static const char says[] = SAYS_TIME "*1\r\n$1000000\r\n";
    for (int i = 0; i < READS; i++) {
        int fd = accept(peer->listening, NULL, NULL);
        if (fd < 0) return NULL;
        ssize_t got = recv(fd, peer->heard[i], sizeof peer->heard[i] - 1, 0);
        if (got > 0) (void)send(fd, says, sizeof says - 1, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static void no_pack(void *context, struct str node, struct str pack) {
    (void)context, (void)node, (void)pack;
    fail_msg("nothing came whole");
}

static void after_a_reply_that_is_too_large_fewer_packs_are_asked_for(void **state) {
    (void)state;
    static const char *const counts[READS] = {"$2\r\n64\r\n", "$2\r\n16\r\n", "$1\r\n4\r\n",
                                              "$1\r\n1\r\n", "$1\r\n1\r\n"};
    struct redis_options options = {.reply_bytes_max = 100000};
    struct peer peer;
    struct error error;
    peer_start(&peer, peer_too_large);
    struct bus *bus = bus_to(&peer, &options);
    for (int i = 0; i < READS; i++)
        assert_int_equal(bus->ops->results(bus, 1, false, 10, no_pack, NULL, &error), ERR_CORRUPT);
    pthread_join(peer.thread, NULL);
    for (int i = 0; i < READS; i++)
        if (!strstr(peer.heard[i], "$5\r\nCOUNT\r\n") || !strstr(peer.heard[i], counts[i]))
            fail_msg("read %d asked %s", i, peer.heard[i]);
    bus->ops->close(bus);
    close(peer.listening);
}

/* A pack that was put 10.5 s before. */
static void *peer_late(void *context) {
    struct peer *peer = context;
    static const char says[] = SAYS_TIME "*1\r\n*2\r\n$1\r\nr\r\n*1\r\n*2\r\n$9\r\n1990000-0\r\n"
                                         "*4\r\n$1\r\nn\r\n$1\r\na\r\n$1\r\np\r\n$1\r\nx\r\n";
    int fd = accept(peer->listening, NULL, NULL);
    if (fd < 0) return NULL;
    if (recv(fd, peer->heard[0], sizeof peer->heard[0] - 1, 0) > 0)
        (void)send(fd, says, sizeof says - 1, MSG_NOSIGNAL);
    (void)recv(fd, peer->heard[1], sizeof peer->heard[1] - 1, 0); /* its end */
    close(fd);
    return NULL;
}

static void note_wait(void *context, struct str node, struct str pack) {
    struct bus **bus = context;
    assert_true(str_is(node, "a") && str_is(pack, "x"));
    assert_int_equal((*bus)->waited_ms, 10500);
    *bus = NULL;
}

static void how_long_a_pack_has_waited_is_told_by_the_clock_of_the_queue(void **state) {
    (void)state;
    struct redis_options options = {0};
    struct peer peer;
    struct error error;
    peer_start(&peer, peer_late);
    struct bus *bus = bus_to(&peer, &options), *heard = bus;
    assert_int_equal(bus->ops->results(bus, 7, false, 1, note_wait, &heard, &error), OK);
    assert_null(heard);
    bus->ops->close(bus);
    pthread_join(peer.thread, NULL);
    close(peer.listening);
}

/* Answers the first piece that it hears, and hears the rest. */
static void *peer_says(struct peer *peer, const char *says) {
    int fd = accept(peer->listening, NULL, NULL);
    size_t heard = 0;
    ssize_t got = recv(fd, peer->heard[0], sizeof peer->heard[0] - 1, 0);
    if (got > 0) (void)send(fd, says, strlen(says), MSG_NOSIGNAL);
    while (got > 0) {
        heard += (size_t)got;
        got = recv(fd, peer->heard[0] + heard, sizeof peer->heard[0] - 1 - heard, 0);
    }
    close(fd);
    return NULL;
}

static void *peer_put(void *context) {
    return peer_says(context, "$3\r\n1-7\r\n:1\r\n");
}

static void a_stream_that_has_expired_and_is_made_by_a_later_pack_expires_too(void **state) {
    (void)state;
    struct redis_options options = {0};
    struct peer peer;
    struct error error;
    peer_start(&peer, peer_put);
    struct bus *bus = bus_to(&peer, &options);
    bus->ops->put(bus, "a", 1, 7, STR("x"));
    assert_int_equal(bus->ops->flush(bus, &error), OK);
    bus->ops->close(bus);
    pthread_join(peer.thread, NULL);
    close(peer.listening);
    const char *put = strstr(peer.heard[0], "XADD\r\n$19\r\n{quern:default}:w:a\r\n");
    assert_non_null(put);
    assert_non_null(strstr(put, "PEXPIRE\r\n$19\r\n{quern:default}:w:a\r\n$6\r\n600000\r\n"));
}

/* A server of epoch 5 was there, with a stream of results, and no value can be put. */
static void *peer_full(void *context) {
    return peer_says(context,
                     "$8\r\nserver 5\r\n$-1\r\n:1\r\n+OK\r\n-OOM full\r\n-OOM full\r\n+OK\r\n");
}

static void a_full_queue_that_takes_no_epoch_gets_its_results_back(void **state) {
    (void)state;
    struct redis_options options = {0};
    struct peer peer;
    struct error error;
    uint64_t epoch;
    bool follows;
    char there[256], back[256], number[24];
    peer_start(&peer, peer_full);
    struct bus *bus = bus_to(&peer, &options);
    assert_int_equal(bus->ops->lead(bus, "server", &epoch, &follows, &error), ERR_LIMIT);
    bus->ops->close(bus);
    pthread_join(peer.thread, NULL);
    close(peer.listening);
    const char *named = strstr(peer.heard[0], "SET\r\n");
    assert_non_null(named);
    const char *value = strstr(named, "server ");
    assert_non_null(value);
    snprintf(number, sizeof number, "%.*s", (int)strcspn(value + 7, "\r"), value + 7);
    size_t bytes = strlen("{quern:default}:r:") + strlen(number);
    snprintf(there, sizeof there,
             "$6\r\nRENAME\r\n$19\r\n{quern:default}:r:5\r\n$%zu\r\n{quern:default}:r:%s\r\n",
             bytes, number);
    snprintf(back, sizeof back,
             "$6\r\nRENAME\r\n$%zu\r\n{quern:default}:r:%s\r\n$19\r\n{quern:default}:r:5\r\n",
             bytes, number);
    const char *first = strstr(peer.heard[0], there), *second = strstr(peer.heard[0], back);
    assert_true(first && second && first < named && named < second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(how_long_a_pack_has_waited_is_told_by_the_clock_of_the_queue),
        cmocka_unit_test(after_a_reply_that_is_too_large_fewer_packs_are_asked_for),
        cmocka_unit_test(a_stream_that_has_expired_and_is_made_by_a_later_pack_expires_too),
        cmocka_unit_test(a_full_queue_that_takes_no_epoch_gets_its_results_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
