/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sigv4: the signature of a request by AWS's Signature Version 4, as the header Authorization.
 *
 * Pure: knows no clock, no S3 and no connection. S3 differs from AWS's other services in that its
 * paths are percent-encoded once; the caller gives the path as it stands in the request.
 *
 * Thread: any.
 * Memory: keys that are derived from the secret are wiped. */

#include "base/buf.h"

#include <stdint.h>

#define SIGV4_TIME_BYTES 17          /* 20130524T000000Z and a NUL */
#define SIGV4_FIELDS_MAX ((size_t)8) /* the most fields of a query, and the most headers */

/* A parameter of a query, or a header. */
struct sigv4_field {
    const char *name; /* a header's in lower case */
    const char *value;
};

struct sigv4_signer {
    const char *key_id, *secret;
    const char *region, *service;
    const char *time; /* as sigv4_time writes it */
};

struct sigv4_request {
    const char *method;
    struct str path;                   /* percent-encoded */
    struct str query;                  /* as sigv4_query writes it */
    const struct sigv4_field *headers; /* host among them; all of them are signed */
    size_t header_count;
    const char *payload_hex; /* SHA-256 of the body */
};

/* Percent-encodes all bytes but letters, digits and "-._~", and slashes if `keeps_slashes`. */
void sigv4_encode(struct buf *out, struct str text, bool keeps_slashes);
/* Writes the query of a URL, without "?": encoded, and sorted as the signature wants it. */
void sigv4_query(struct buf *out, const struct sigv4_field *fields, size_t count);
void sigv4_time(int64_t unix_s, char ret_time[SIGV4_TIME_BYTES]);
/* Appends the value of the header Authorization. */
void sigv4_sign(struct buf *out, const struct sigv4_signer *signer,
                const struct sigv4_request *request);
