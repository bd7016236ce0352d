/* SPDX-License-Identifier: Apache-2.0 */
#include "redis/stream.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/no_memory.h"
#include "base/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct stream {
    int fd;
    SSL_CTX *context; /* NULL: plain */
    SSL *ssl;
    BIO_METHOD *socket;
};

/* Waits until the socket can be read or written. False at `due_ns`. */
static bool wait_for(const struct stream *stream, short events, int64_t due_ns) {
    for (;;) {
        int64_t left_ns = due_ns - clock_monotonic_ns();
        if (left_ns <= 0) return false;
        int64_t left_ms = left_ns / 1000000 + 1;
        struct pollfd poller = {.fd = stream->fd, .events = events};
        int count = poll(&poller, 1, clock_wait_ms(left_ms > 60000 ? 60000 : (int)left_ms));
        if (count > 0) return true;
        if (count < 0 && errno != EINTR) return true; /* the call that follows tells why */
    }
}

/* --- TLS --- */

/* OpenSSL's own would raise SIGPIPE. */
static int socket_write(BIO *bio, const char *bytes, int count) {
    const struct stream *stream = BIO_get_data(bio);
    ssize_t sent = send(stream->fd, bytes, (size_t)count, MSG_NOSIGNAL);
    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
    return (int)sent;
}

static int socket_read(BIO *bio, char *bytes, int count) {
    const struct stream *stream = BIO_get_data(bio);
    ssize_t got = recv(stream->fd, bytes, (size_t)count, 0);
    BIO_clear_retry_flags(bio);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    return (int)got;
}

static long socket_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static const char *reason(void) {
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text ? text : "no reason given";
}

/* The socket waits for whatever TLS wants next. False at `due_ns` or if TLS has failed. */
static bool tls_wait(const struct stream *stream, int result, int64_t due_ns) {
    int want = SSL_get_error(stream->ssl, result);
    if (want == SSL_ERROR_WANT_READ) return wait_for(stream, POLLIN, due_ns);
    if (want == SSL_ERROR_WANT_WRITE) return wait_for(stream, POLLOUT, due_ns);
    return false;
}

static enum err trust(struct stream *stream, const struct stream_options *options,
                      struct error *error) {
    SSL_CTX *context = stream->context;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    int is_read = options->ca_file ? SSL_CTX_load_verify_locations(context, options->ca_file, NULL)
                                   : SSL_CTX_set_default_verify_paths(context);
    if (is_read != 1)
        return err_set(error, ERR_INVALID, "the authorities in %s cannot be used: %s",
                       options->ca_file ? options->ca_file : "the machine's store", reason());
    if (!options->cert_file) return OK;
    if (SSL_CTX_use_certificate_chain_file(context, options->cert_file) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, options->cert_file, SSL_FILETYPE_PEM) != 1)
        return err_set(error, ERR_INVALID, "the certificate and key in %s cannot be used: %s",
                       options->cert_file, reason());
    return OK;
}

static void expect_host(SSL *ssl, const char *host) {
    char *name = mem_text(host); /* OpenSSL wants it writable */
    X509_VERIFY_PARAM *wanted = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(wanted, name) != 1) {
        SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name);
        if (SSL_set1_host(ssl, name) != 1) no_memory();
    }
    free(name);
}

static enum err start_tls(struct stream *stream, const struct stream_options *options,
                          int64_t due_ns, struct error *error) {
    ERR_clear_error();
    stream->context = SSL_CTX_new(TLS_client_method());
    stream->socket = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "queue");
    if (!stream->context || !stream->socket) no_memory();
    BIO_meth_set_write(stream->socket, socket_write);
    BIO_meth_set_read(stream->socket, socket_read);
    BIO_meth_set_ctrl(stream->socket, socket_control);
    enum err err = trust(stream, options, error);
    if (err != OK) return err;
    stream->ssl = SSL_new(stream->context);
    BIO *bio = BIO_new(stream->socket);
    if (!stream->ssl || !bio) no_memory();
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    SSL_set_bio(stream->ssl, bio, bio);
    expect_host(stream->ssl, options->host);
    int result;
    do {
        ERR_clear_error();
        result = SSL_connect(stream->ssl);
    } while (result != 1 && tls_wait(stream, result, due_ns));
    if (result == 1) return OK;
    long verdict = SSL_get_verify_result(stream->ssl);
    if (verdict != X509_V_OK)
        return err_set(error, ERR_DENIED, "the certificate of %s is not trusted: %s", options->host,
                       X509_verify_cert_error_string(verdict));
    return err_set(error, ERR_UNAVAILABLE, "no TLS with %s: %s", options->host, reason());
}

/* --- the connection --- */

static bool connect_to(struct stream *stream, const struct addrinfo *to, int64_t due_ns) {
    int on = 1, failed = 0;
    socklen_t bytes = sizeof failed;
    stream->fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (stream->fd < 0) return false;
    setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(stream->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (connect(stream->fd, to->ai_addr, to->ai_addrlen) == 0) return true;
    if (errno == EINPROGRESS) {
        failed = wait_for(stream, POLLOUT, due_ns) ? 0 : ETIMEDOUT;
        if (!failed) getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &failed, &bytes);
        if (!failed) return true;
        errno = failed;
    }
    failed = errno;
    close(stream->fd);
    stream->fd = -1;
    errno = failed;
    return false;
}

enum err stream_open(struct stream **ret_stream, const struct stream_options *options,
                     struct error *error) {
    int64_t due_ns = sync_deadline_ns(options->timeout_ms);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", options->port);
    int failed = getaddrinfo(options->host, port, &hints, &list);
    if (failed)
        return err_set(error, ERR_UNAVAILABLE, "%s is not found: %s", options->host,
                       gai_strerror(failed));
    struct stream *stream = mem_new(1, sizeof *stream);
    stream->fd = -1;
    errno = 0;
    for (struct addrinfo *to = list; to; to = to->ai_next)
        if (connect_to(stream, to, due_ns)) break;
    failed = errno;
    freeaddrinfo(list);
    enum err err = OK;
    if (stream->fd < 0)
        err = err_set(error, ERR_UNAVAILABLE, "%s:%s cannot be reached: %s", options->host, port,
                      strerror(failed));
    else if (options->is_tls)
        err = start_tls(stream, options, due_ns, error);
    if (err == OK)
        *ret_stream = stream;
    else
        stream_close(stream);
    return err;
}

void stream_close(struct stream *stream) {
    if (!stream) return;
    SSL_free(stream->ssl);
    SSL_CTX_free(stream->context);
    BIO_meth_free(stream->socket);
    if (stream->fd >= 0) close(stream->fd);
    free(stream);
}

static enum err lost(struct error *error, const char *what) {
    return err_set(error, ERR_UNAVAILABLE, "the connection to the queue's server was lost: %s",
                   what);
}

enum err stream_write(struct stream *stream, const void *bytes, size_t count, int64_t due_ns,
                      struct error *error) {
    const char *at = bytes;
    while (count > 0) {
        bool may_wait;
        size_t sent = 0;
        if (stream->ssl) {
            ERR_clear_error();
            int result = SSL_write_ex(stream->ssl, at, count, &sent);
            may_wait = result == 1 || tls_wait(stream, result, due_ns);
        } else {
            ssize_t result = send(stream->fd, at, count, MSG_NOSIGNAL);
            if (result >= 0) sent = (size_t)result;
            may_wait = result >= 0 || errno == EINTR ||
                       (errno == EAGAIN && wait_for(stream, POLLOUT, due_ns));
        }
        if (!may_wait) return lost(error, stream->ssl ? reason() : strerror(errno));
        at += sent;
        count -= sent;
    }
    return OK;
}

enum err stream_read(struct stream *stream, void *ret_bytes, size_t count, int64_t due_ns,
                     size_t *ret_count, struct error *error) {
    *ret_count = 0;
    for (;;) {
        if (stream->ssl) {
            ERR_clear_error();
            int result = SSL_read_ex(stream->ssl, ret_bytes, count, ret_count);
            if (result == 1) return OK;
            int want = SSL_get_error(stream->ssl, result);
            if (want != SSL_ERROR_WANT_READ && want != SSL_ERROR_WANT_WRITE)
                return lost(error, want == SSL_ERROR_ZERO_RETURN ? "it was closed" : reason());
            if (!tls_wait(stream, result, due_ns)) return OK;
            continue;
        }
        ssize_t got = recv(stream->fd, ret_bytes, count, 0);
        if (got > 0) *ret_count = (size_t)got;
        if (got > 0) return OK;
        if (got == 0) return lost(error, "it was closed");
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return lost(error, strerror(errno));
        if (!wait_for(stream, POLLIN, due_ns)) return OK;
    }
}
