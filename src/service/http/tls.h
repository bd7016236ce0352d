/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tls: HTTPS for the gate's connections, by OpenSSL's libssl.
 *
 * A session stands between the gate and one client socket: the gate receives and sends through it
 * as it would through the socket. libmicrohttpd, behind the gate, sees plain bytes; its own TLS
 * would hide the framing from the gate. It reads no files and knows no HTTP.
 *
 * Versions are TLS 1.2 and 1.3; in 1.2 only suites with forward secrecy and AEAD. Clients show no
 * certificate. A session is made with the first byte of a client, so that silent connections cost
 * no memory here.
 *
 * Thread: struct tls any, after tls_open; a session the gate's.
 * Memory: tls_open copies what it reads; a session belongs to its connection.
 * Invariant: one call of tls_receive reads at most one record of application data, and returns
 * after one other record, so that no client can keep the gate's thread in it. */

#include "base/err.h"
#include "base/str.h"

#include <sys/types.h>

struct tls;
struct tls_session;

/* A text in PEM form and the file that it comes from, for messages. */
struct tls_pem {
    struct str text;
    const char *where;
};

/* Reads the certificate with its chain (the server's own first) and the private key. ERR_INVALID
 * with a sentence if they are unusable, the key is encrypted, or they do not belong together. Warns
 * in the log of a certificate that is not in force now. */
enum err tls_open(struct tls **ret_tls, const struct tls_pem *certificate,
                  const struct tls_pem *key, struct error *error) MUST_CHECK;
void tls_close(struct tls *tls); /* NULL is allowed; after all sessions */
/* From now on new sessions show the certificate of `fresh`, which is closed. Sessions that have
 * begun go on as they are. */
void tls_take(struct tls *tls, struct tls *fresh);

struct tls_session *tls_session_new(struct tls *tls, int fd); /* `fd` stays the caller's */
void tls_session_free(struct tls_session *session);           /* NULL is allowed */

/* As recv and send without waiting. Failures set errno: EAGAIN, or another value after which the
 * session is of no more use. */
ssize_t tls_receive(struct tls_session *session, void *bytes, size_t count);
ssize_t tls_send(struct tls_session *session, const void *bytes, size_t count);
/* Tells the client that no byte follows, if its socket takes that now. */
void tls_end(struct tls_session *session);

/* True after a failed tls_receive if the client speaks plain HTTP; not one byte was taken. */
bool tls_is_plain_http(const struct tls_session *session);
/* The latest tls_receive waits until the socket takes bytes. */
bool tls_receive_waits_to_send(const struct tls_session *session);
/* The latest tls_send waits for bytes of the client. */
bool tls_send_waits_to_receive(const struct tls_session *session);
