/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* access: the access log, one line per request.
 *
 * A refused request leaves its reason: code, parameter and sentence. What the sentence quotes is
 * kept only as far as it cannot be the text of a prompt. Clients cannot fill a disk: each kind of
 * line has a rate, and lines above it are counted, and told with the next one that is written.
 *
 * Thread: any.
 * Memory: one struct. */

#include "http/http.h"

#include <pthread.h>
#include <stdatomic.h>

/* Kinds of lines, each with a rate of its own, so that a flood of one leaves the others. */
enum access_kind {
    ACCESS_SERVED,  /* status below 400, and 5xx but 503 */
    ACCESS_REFUSED, /* another status, and the caller is known */
    ACCESS_UNKNOWN, /* a caller without a good key, or bytes that are no request */
    ACCESS_KINDS,
};

struct access_bucket {
    double lines; /* that may be written now */
    int64_t filled_ns;
    uint64_t skipped; /* since the latest line */
};

struct access {
    bool leaves_out_served; /* served requests are told at level debug */
    const char *left_out;   /* paths, separated by commas, that are never told; NULL: none */
    atomic_uint_fast64_t skipped_total; /* lines that were not written */
    pthread_mutex_t lock;               /* guards buckets */
    struct access_bucket buckets[ACCESS_KINDS];
};

void access_init(struct access *access, bool leaves_out_served, const char *left_out);
void access_release(struct access *access);
/* Tells of a request. `is_probe`: of health or metrics, which come every few seconds and are told
 * at level debug unless they are refused. */
void access_log(struct access *access, const struct http_done *done, bool is_probe, int64_t now_ns);
/* Tells of an answer of the gate. */
void access_log_gate(struct access *access, const struct http_refused *refused, int64_t now_ns);

/* For access.c and its test. */

/* True if a line may be written; *ret_skipped is the count of lines before it that were not. */
bool access_take(struct access *access, enum access_kind kind, int64_t now_ns,
                 uint64_t *ret_skipped);
/* Writes the sentence as the log may have it. A foreign one ends at its first quotation, unless
 * that names the parameter. One of the server keeps quoted names and cuts other quotations out. */
void access_sentence(const struct http_note *note, char ret_text[HTTP_NOTE_BYTES]);
