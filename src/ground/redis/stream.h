/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* stream: one connection to another machine, plain or with TLS, that gives up at a deadline.
 *
 * With TLS the certificate must be of the host that was asked for, and be signed by an authority
 * that the machine, or the file of the options, trusts.
 *
 * Thread: a stream belongs to one thread.
 * Memory: the buffers of OpenSSL. */

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct stream;

/* Texts are borrowed for the call. */
struct stream_options {
    const char *host;
    uint16_t port;
    bool is_tls;
    const char *ca_file;   /* authorities as PEM; NULL: those of the machine */
    const char *cert_file; /* own certificate and key as PEM; NULL: none */
    int64_t timeout_ms;    /* for the name, the connection and the handshake together */
};

/* ERR_UNAVAILABLE, with the reason; ERR_DENIED if the certificate is not to be trusted;
 * ERR_INVALID if a file of the options cannot be used. */
enum err stream_open(struct stream **ret_stream, const struct stream_options *options,
                     struct error *error) MUST_CHECK;
void stream_close(struct stream *stream); /* NULL is allowed */
/* Writes all of it before `due_ns` of the monotonic clock. */
enum err stream_write(struct stream *stream, const void *bytes, size_t count, int64_t due_ns,
                      struct error *error) MUST_CHECK;
/* Reads what is there, at least one byte. *ret_count is 0 if none came before `due_ns`. */
enum err stream_read(struct stream *stream, void *ret_bytes, size_t count, int64_t due_ns,
                     size_t *ret_count, struct error *error) MUST_CHECK;
