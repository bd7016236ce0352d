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
    char heard[READS][512];
};

/* Each read gets the beginning of a reply that has more bytes than the client takes. */
static void *peer_main(void *context) {
    struct peer *peer = context;
    static const char says[] = "*1\r\n$1000000\r\n";
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
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct peer peer = {.listening = socket(AF_INET, SOCK_STREAM, 0)};
    pthread_t thread;
    struct error error;
    char url[64];
    assert_int_equal(bind(peer.listening, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(peer.listening, READS), 0);
    assert_int_equal(getsockname(peer.listening, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(pthread_create(&thread, NULL, peer_main, &peer), 0);
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/", ntohs(address.sin_port));
    struct redis_options options = {.reply_bytes_max = 1000};
    assert_int_equal(redis_place_read(&options.place, url, &error), OK);
    struct bus_place place = bus_redis_place(&options);
    struct bus *bus = place.open(place.context);
    for (int i = 0; i < READS; i++)
        assert_int_equal(bus->ops->results(bus, 1, false, 10, no_pack, NULL, &error), ERR_CORRUPT);
    pthread_join(thread, NULL);
    for (int i = 0; i < READS; i++)
        if (!strstr(peer.heard[i], "$5\r\nCOUNT\r\n") || !strstr(peer.heard[i], counts[i]))
            fail_msg("read %d asked %s", i, peer.heard[i]);
    bus->ops->close(bus);
    close(peer.listening);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_reply_that_is_too_large_fewer_packs_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
