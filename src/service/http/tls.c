/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/no_memory.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FIRST_BYTE_OF_TLS 0x16 /* a record of the handshake */

struct tls {
    pthread_mutex_t lock; /* guards `context`, which tls_take changes */
    SSL_CTX *context;
    BIO_METHOD *socket;
};

struct tls_session {
    struct tls *tls;
    SSL *ssl; /* NULL before the first byte */
    int fd;
    bool at_end; /* the client has closed its side */
    bool failed;
    bool is_plain_http;
    bool receive_waits_to_send, send_waits_to_receive;
};

/* --- the socket, as OpenSSL sees it --- */

/* OpenSSL's own would raise SIGPIPE. */
static int socket_write(BIO *bio, const char *bytes, int count) {
    const struct tls_session *session = BIO_get_data(bio);
    ssize_t sent;
    do sent = send(session->fd, bytes, (size_t)count, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
    return (int)sent;
}

static int socket_read(BIO *bio, char *bytes, int count) {
    struct tls_session *session = BIO_get_data(bio);
    ssize_t got;
    do got = recv(session->fd, bytes, (size_t)count, 0);
    while (got < 0 && errno == EINTR);
    BIO_clear_retry_flags(bio);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
    if (got == 0) session->at_end = true;
    return (int)got;
}

static long socket_control(BIO *bio, int command, long number, void *pointer) {
    const struct tls_session *session = BIO_get_data(bio);
    (void)number, (void)pointer;
    if (command == BIO_CTRL_EOF) return session->at_end;
    return command == BIO_CTRL_FLUSH;
}

/* --- the certificate and its key --- */

/* The reason that OpenSSL gives for its latest failure. */
static const char *reason(void) {
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text ? text : "no reason given";
}

static int refuse_password(char *buffer, int bytes, int is_writing, void *context) {
    bool *asked = context;
    (void)buffer, (void)bytes, (void)is_writing;
    *asked = true;
    return -1;
}

static BIO *memory_of(const struct tls_pem *pem) {
    BIO *memory = BIO_new_mem_buf(pem->text.at, (int)pem->text.bytes);
    if (!memory) no_memory();
    return memory;
}

/* Says so in the log if clients will refuse the certificate because of its dates. */
static void judge_dates(const X509 *certificate, const char *where) {
    time_t now = (time_t)clock_unix_s();
    if (X509_cmp_time(X509_get0_notAfter(certificate), &now) < 0)
        log_warn("event=certificate_expired file=%s; clients will refuse it", where);
    if (X509_cmp_time(X509_get0_notBefore(certificate), &now) > 0)
        log_warn("event=certificate_not_yet_valid file=%s; clients will refuse it", where);
}

static enum err take_certificates(SSL_CTX *context, const struct tls_pem *pem,
                                  struct error *error) {
    bool asked = false;
    BIO *memory = memory_of(pem);
    X509 *certificate = PEM_read_bio_X509_AUX(memory, NULL, refuse_password, &asked);
    enum err err = OK;
    if (!certificate)
        err = err_set(error, ERR_INVALID, "%s has no certificate in PEM form", pem->where);
    else if (SSL_CTX_use_certificate(context, certificate) != 1)
        err = err_set(error, ERR_INVALID, "the certificate in %s cannot be used: %s", pem->where,
                      reason());
    else
        judge_dates(certificate, pem->where);
    X509_free(certificate);
    while (err == OK) {
        X509 *issuer = PEM_read_bio_X509(memory, NULL, refuse_password, &asked);
        if (!issuer) break;
        if (SSL_CTX_add0_chain_cert(context, issuer) == 1) continue; /* the context has it now */
        X509_free(issuer);
        err = err_set(error, ERR_INVALID, "a certificate of the chain in %s cannot be used: %s",
                      pem->where, reason());
    }
    /* The end of the text is "no start line"; any other reason is a damaged certificate. */
    if (err == OK && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
        err = err_set(error, ERR_INVALID, "a certificate of the chain in %s is damaged: %s",
                      pem->where, reason());
    BIO_free(memory);
    ERR_clear_error();
    return err;
}

static enum err take_key(SSL_CTX *context, const struct tls_pem *pem, const char *certificate,
                         struct error *error) {
    bool asked = false;
    BIO *memory = memory_of(pem);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(memory, NULL, refuse_password, &asked);
    enum err err = OK;
    if (!key && asked)
        err = err_set(error, ERR_INVALID,
                      "the private key in %s is encrypted, and quern takes no passwords; "
                      "`openssl pkey -in KEY -out NEW` writes it without one (then chmod 600 NEW)",
                      pem->where);
    else if (!key)
        err = err_set(error, ERR_INVALID, "%s has no private key in PEM form", pem->where);
    else if (X509_check_private_key(SSL_CTX_get0_certificate(context), key) != 1)
        err = err_set(error, ERR_INVALID, "the private key in %s does not belong to %s", pem->where,
                      certificate);
    else if (SSL_CTX_use_PrivateKey(context, key) != 1)
        err = err_set(error, ERR_INVALID, "the private key in %s cannot be used: %s", pem->where,
                      reason());
    EVP_PKEY_free(key);
    BIO_free(memory);
    ERR_clear_error();
    return err;
}

/* --- opening and closing --- */

/* Chooses HTTP/1.1. A client that offers only other protocols is not meant for this server. */
static int choose_protocol(SSL *ssl, const unsigned char **ret_name, unsigned char *ret_bytes,
                           const unsigned char *offered, unsigned int offered_bytes,
                           void *context) {
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *name;
    (void)ssl, (void)context;
    int found =
        SSL_select_next_proto(&name, ret_bytes, ours, sizeof ours - 1, offered, offered_bytes);
    *ret_name = name;
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static enum err set_rules(SSL_CTX *context, struct error *error) {
    /* The machine's openssl.cnf may demand more than 1.2, but not less. */
    if (SSL_CTX_get_min_proto_version(context) < TLS1_2_VERSION &&
        SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
        return err_set(error, ERR_UNAVAILABLE, "OpenSSL has no TLS 1.2: %s", reason());
    if (SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
        return err_set(error, ERR_UNAVAILABLE, "OpenSSL has none of the suites: %s", reason());
    /* A client that closes its socket without a last word of TLS is taken as the end, too: the
     * framing of HTTP says whether a request is whole. */
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF); /* clients keep tickets */
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    return OK;
}

/* OpenSSL has 127 numbers for kinds of BIO in a process, and takes none back. */
static int socket_kind;

static void take_socket_kind(void) {
    socket_kind = BIO_get_new_index() | BIO_TYPE_SOURCE_SINK;
}

enum err tls_open(struct tls **ret_tls, const struct tls_pem *certificate,
                  const struct tls_pem *key, struct error *error) {
    assert(certificate->text.bytes < INT_MAX && key->text.bytes < INT_MAX);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tls *tls = mem_new(1, sizeof *tls);
    pthread_mutex_init(&tls->lock, NULL);
    ERR_clear_error();
    pthread_once(&once, take_socket_kind);
    tls->context = SSL_CTX_new(TLS_server_method());
    tls->socket = BIO_meth_new(socket_kind, "quern socket");
    enum err err = OK;
    if (!tls->context || !tls->socket)
        err = err_set(error, ERR_UNAVAILABLE, "OpenSSL gives no TLS: %s", reason());
    if (err == OK) {
        BIO_meth_set_write(tls->socket, socket_write);
        BIO_meth_set_read(tls->socket, socket_read);
        BIO_meth_set_ctrl(tls->socket, socket_control);
        err = set_rules(tls->context, error);
    }
    if (err == OK) err = take_certificates(tls->context, certificate, error);
    if (err == OK) err = take_key(tls->context, key, certificate->where, error);
    if (err == OK)
        *ret_tls = tls;
    else
        tls_close(tls);
    return err;
}

void tls_close(struct tls *tls) {
    if (!tls) return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->socket);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

void tls_take(struct tls *tls, struct tls *fresh) {
    pthread_mutex_lock(&tls->lock);
    SSL_CTX *old = tls->context;
    tls->context = fresh->context;
    pthread_mutex_unlock(&tls->lock);
    fresh->context = old; /* its sessions hold it until they end */
    tls_close(fresh);
}

/* --- sessions --- */

struct tls_session *tls_session_new(struct tls *tls, int fd) {
    struct tls_session *session = mem_new(1, sizeof *session);
    session->tls = tls;
    session->fd = fd;
    return session;
}

void tls_session_free(struct tls_session *session) {
    if (!session) return;
    SSL_free(session->ssl); /* and its BIO */
    free(session);
}

/* Looks at the first byte without taking it, and prepares for a handshake. Returns 1, or as
 * tls_receive. */
static ssize_t begin(struct tls_session *session) {
    unsigned char first;
    ssize_t got;
    do got = recv(session->fd, &first, 1, MSG_PEEK);
    while (got < 0 && errno == EINTR);
    if (got <= 0) return got;
    if (first != FIRST_BYTE_OF_TLS) {
        session->is_plain_http = first >= 'A' && first <= 'Z';
        session->failed = true;
        errno = EPROTO;
        return -1;
    }
    pthread_mutex_lock(&session->tls->lock);
    session->ssl = SSL_new(session->tls->context);
    pthread_mutex_unlock(&session->tls->lock);
    BIO *socket = BIO_new(session->tls->socket);
    if (!session->ssl || !socket) no_memory();
    BIO_set_data(socket, session);
    BIO_set_init(socket, 1);
    SSL_set_bio(session->ssl, socket, socket);
    SSL_set_accept_state(session->ssl);
    return 1;
}

/* Sets errno for a call that returned `result`, and what it waits for. */
static ssize_t fail(struct tls_session *session, int result, bool *waits_for_other, int other) {
    int trouble = SSL_get_error(session->ssl, result);
    bool waits = trouble == SSL_ERROR_WANT_READ || trouble == SSL_ERROR_WANT_WRITE;
    *waits_for_other = trouble == other;
    if (!waits && trouble != SSL_ERROR_ZERO_RETURN) session->failed = true;
    ERR_clear_error();
    errno = waits ? EAGAIN : EPROTO;
    return -1;
}

ssize_t tls_receive(struct tls_session *session, void *bytes, size_t count) {
    if (session->failed) {
        errno = EPROTO;
        return -1;
    }
    if (!session->ssl) {
        ssize_t begun = begin(session);
        if (begun <= 0) return begun;
    }
    session->receive_waits_to_send = false;
    ERR_clear_error();
    int got = SSL_read(session->ssl, bytes, count < INT_MAX ? (int)count : INT_MAX);
    if (got > 0) return got;
    ssize_t failed = fail(session, got, &session->receive_waits_to_send, SSL_ERROR_WANT_WRITE);
    bool is_end = session->at_end || SSL_get_shutdown(session->ssl) & SSL_RECEIVED_SHUTDOWN;
    return is_end ? 0 : failed;
}

ssize_t tls_send(struct tls_session *session, const void *bytes, size_t count) {
    if (session->failed || !session->ssl) {
        errno = EPROTO;
        return -1;
    }
    session->send_waits_to_receive = false;
    ERR_clear_error();
    int sent = SSL_write(session->ssl, bytes, count < INT_MAX ? (int)count : INT_MAX);
    if (sent > 0) return sent;
    return fail(session, sent, &session->send_waits_to_receive, SSL_ERROR_WANT_READ);
}

void tls_end(struct tls_session *session) {
    if (session->failed || !session->ssl) return;
    ERR_clear_error();
    SSL_shutdown(session->ssl);
    ERR_clear_error();
}

bool tls_is_plain_http(const struct tls_session *session) {
    return session->is_plain_http;
}

bool tls_receive_waits_to_send(const struct tls_session *session) {
    return session->receive_waits_to_send;
}

bool tls_send_waits_to_receive(const struct tls_session *session) {
    return session->send_waits_to_receive;
}
