/* SPDX-License-Identifier: Apache-2.0 */

/* A session of the server on one end of a socket pair, a client of libssl on the other, in one
 * thread. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct fixture {
    struct tls *tls;
    struct tls_session *session;
    int fds[2]; /* the session's, the client's */
    SSL_CTX *context;
    SSL *client;
};

/* Writes a self-signed certificate and its key into one memory. */
static BIO *make_pem(void) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    BIO *memory = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_X509(memory, certificate), 1);
    assert_int_equal(PEM_write_bio_PrivateKey(memory, key, NULL, NULL, 0, NULL, NULL), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return memory;
}

static int setup(void **state) {
    static struct fixture fixture;
    struct error error;
    char *text;
    BIO *memory = make_pem();
    long bytes = BIO_get_mem_data(memory, &text);
    struct tls_pem pem = {.text = {text, (size_t)bytes}, .where = "here"};
    assert_int_equal(tls_open(&fixture.tls, &pem, &pem, &error), OK);
    BIO_free(memory);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fixture.fds), 0);
    fixture.session = tls_session_new(fixture.tls, fixture.fds[0]);
    fixture.context = SSL_CTX_new(TLS_client_method());
    fixture.client = SSL_new(fixture.context);
    SSL_set_fd(fixture.client, fixture.fds[1]);
    SSL_set_connect_state(fixture.client);
    *state = &fixture;
    return 0;
}

static int teardown(void **state) {
    struct fixture *fixture = *state;
    SSL_free(fixture->client);
    SSL_CTX_free(fixture->context);
    tls_session_free(fixture->session);
    tls_close(fixture->tls);
    close(fixture->fds[0]);
    close(fixture->fds[1]);
    return 0;
}

/* Expects that no byte of a request is there yet. */
static void receive_nothing(struct fixture *fixture) {
    char byte;
    assert_int_equal(tls_receive(fixture->session, &byte, 1), -1);
    assert_int_equal(errno, EAGAIN);
}

static void shake_hands(struct fixture *fixture) {
    while (SSL_do_handshake(fixture->client) != 1) receive_nothing(fixture);
    receive_nothing(fixture); /* its last message of the handshake */
}

static void expect(struct fixture *fixture, const char *text) {
    char bytes[100];
    ssize_t got = -1;
    for (int i = 0; i < 10 && got < 0; i++)
        got = tls_receive(fixture->session, bytes, sizeof bytes);
    assert_int_equal(got, strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

static void bytes_go_both_ways(void **state) {
    struct fixture *fixture = *state;
    char bytes[10];
    receive_nothing(fixture);
    shake_hands(fixture);
    assert_int_equal(SSL_write(fixture->client, "hello", 5), 5);
    expect(fixture, "hello");
    assert_int_equal(tls_send(fixture->session, "world", 5), 5);
    assert_int_equal(SSL_read(fixture->client, bytes, sizeof bytes), 5);
    assert_memory_equal(bytes, "world", 5);
}

/* The gate's thread serves others between two of them. */
static void each_other_record_ends_the_call(void **state) {
    struct fixture *fixture = *state;
    shake_hands(fixture);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(SSL_key_update(fixture->client, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(fixture->client), 1);
    }
    assert_int_equal(SSL_write(fixture->client, "hello", 5), 5);
    for (int i = 0; i < 20; i++) {
        receive_nothing(fixture);
        assert_false(tls_receive_waits_to_send(fixture->session));
    }
    expect(fixture, "hello");
}

/* The client asks for new keys in return, and both go on with them. */
static void keys_are_changed_when_the_client_asks(void **state) {
    struct fixture *fixture = *state;
    char bytes[10];
    shake_hands(fixture);
    assert_int_equal(SSL_key_update(fixture->client, SSL_KEY_UPDATE_REQUESTED), 1);
    assert_int_equal(SSL_write(fixture->client, "hello", 5), 5);
    receive_nothing(fixture);
    expect(fixture, "hello");
    assert_int_equal(tls_send(fixture->session, "world", 5), 5);
    assert_int_equal(SSL_read(fixture->client, bytes, sizeof bytes), 5);
}

static void a_reader_that_stops_gets_every_byte_later(void **state) {
    struct fixture *fixture = *state;
    size_t sent = 0, got = 0;
    char *bytes = malloc(1 << 22), *read = malloc(1 << 22);
    for (size_t i = 0; i < 1 << 22; i++) bytes[i] = (char)(i * 2654435761u >> 13);
    shake_hands(fixture);
    for (bool blocked = false; !blocked;) {
        ssize_t count = tls_send(fixture->session, bytes + sent, 60000);
        blocked = count < 0;
        if (blocked) assert_int_equal(errno, EAGAIN);
        if (!blocked) sent += (size_t)count;
        assert_true(sent < 1 << 21);
    }
    assert_false(tls_send_waits_to_receive(fixture->session));
    size_t all = sent + 200000;
    while (got < all) {
        int count = SSL_read(fixture->client, read + got, 50000);
        if (count > 0) got += (size_t)count;
        /* From another place in memory, and more of it than before. */
        char *moved = malloc(all - sent + 1);
        memcpy(moved, bytes + sent, all - sent);
        ssize_t more = sent < all ? tls_send(fixture->session, moved, all - sent) : 0;
        if (more > 0) sent += (size_t)more;
        free(moved);
    }
    assert_memory_equal(read, bytes, all);
    free(bytes);
    free(read);
}

static void plain_http_is_noticed_and_left_in_the_socket(void **state) {
    struct fixture *fixture = *state;
    char bytes[10];
    assert_int_equal(write(fixture->fds[1], "GET /", 5), 5);
    assert_int_equal(tls_receive(fixture->session, bytes, sizeof bytes), -1);
    assert_int_not_equal(errno, EAGAIN);
    assert_true(tls_is_plain_http(fixture->session));
    assert_int_equal(recv(fixture->fds[0], bytes, sizeof bytes, 0), 5);
}

static void the_last_words_are_heard(void **state) {
    struct fixture *fixture = *state;
    char bytes[10];
    shake_hands(fixture);
    assert_int_equal(SSL_shutdown(fixture->client), 0);
    assert_int_equal(tls_receive(fixture->session, bytes, sizeof bytes), 0);
    assert_int_equal(tls_send(fixture->session, "world", 5), 5);
    tls_end(fixture->session);
    assert_int_equal(SSL_read(fixture->client, bytes, sizeof bytes), 5);
    assert_int_equal(SSL_shutdown(fixture->client), 1);
}

static void a_closed_socket_is_an_end(void **state) {
    struct fixture *fixture = *state;
    char bytes[10];
    shake_hands(fixture);
    shutdown(fixture->fds[1], SHUT_WR);
    assert_int_equal(tls_receive(fixture->session, bytes, sizeof bytes), 0);
    assert_int_equal(tls_send(fixture->session, "world", 5), 5);
}

static void a_socket_that_closes_during_the_handshake_is_an_end(void **state) {
    struct fixture *fixture = *state;
    char bytes[10];
    assert_int_equal(SSL_do_handshake(fixture->client), -1);
    shutdown(fixture->fds[1], SHUT_WR);
    assert_int_equal(tls_receive(fixture->session, bytes, sizeof bytes), 0);
    tls_end(fixture->session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_go_both_ways, setup, teardown),
        cmocka_unit_test_setup_teardown(each_other_record_ends_the_call, setup, teardown),
        cmocka_unit_test_setup_teardown(keys_are_changed_when_the_client_asks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reader_that_stops_gets_every_byte_later, setup, teardown),
        cmocka_unit_test_setup_teardown(plain_http_is_noticed_and_left_in_the_socket, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_last_words_are_heard, setup, teardown),
        cmocka_unit_test_setup_teardown(a_closed_socket_is_an_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_socket_that_closes_during_the_handshake_is_an_end, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
