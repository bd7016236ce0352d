/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* call: one signed request to S3 and its answer, and the waits between attempts.
 *
 * Thread: that of the s3.
 * Memory: an answer lies in the s3 until the next call. */

#include "base/buf.h"
#include "net/client.h"
#include "s3/account.h"
#include "s3/s3.h"
#include "s3/sigv4.h"

#define S3_ETAG_BYTES 256
#define S3_ATTEMPTS 5
/* SHA-256 of no bytes. */
#define S3_NO_BODY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct s3_call {
    const char *method, *what; /* what the user wants, for sentences: "the download" */
    const struct s3_place *place;
    const struct sigv4_field *query;
    size_t query_count;
    const char *lines[3];        /* further headers, not signed; NULL: none */
    const struct net_file *file; /* the body; NULL: none */
    const char *payload_hex;     /* SHA-256 of the body */
    /* Takes the bytes of a good answer; NULL: they are kept. */
    bool (*bytes)(void *context, const struct net_exchange *exchange, struct str piece);
    void *context;
};

struct s3_answer {
    bool is_over;
    enum net_end end;
    int status;
    char etag[S3_ETAG_BYTES]; /* empty: none */
    bool has_whole_bytes;
    uint64_t whole_bytes; /* the object's size, of an answer to a Range */
    int64_t retry_after_ms;
    char region[64];             /* the bucket's; empty: not told */
    char code[64], message[200]; /* what S3's error says; empty: nothing */
    char fault[200];             /* why no answer came */
};

struct s3 {
    struct s3_options options;
    struct s3_account account;
    bool is_path_style; /* the endpoint is not AWS's */
    char scheme[16];
    char host[300];
    char prefix[300]; /* the endpoint's own path, without a slash at its end */
    struct net_client *client;
    struct net_exchange *exchange;
    const struct s3_call *call;
    struct s3_answer answer;
    struct buf body;
};

/* Callbacks for the client of the s3; `context` is the s3. */
bool s3_take_bytes(void *context, void *owner, struct str piece);
void s3_take_end(void *context, const struct net_answer *answer);

/* The ETag of an answer that is under way; false if it has none that fits. */
bool s3_read_etag(const struct net_exchange *exchange, char ret_etag[S3_ETAG_BYTES]);
/* Makes the call once; the answer is in s3->answer. ERR_CANCELLED, ERR_INVALID for a bucket that
 * cannot be asked for. */
enum err s3_call_once(struct s3 *s3, const struct s3_call *call, struct error *error) MUST_CHECK;
/* Makes it until the answer is no passing trouble, at most S3_ATTEMPTS times. ERR_UNAVAILABLE after
 * the last. */
enum err s3_call_make(struct s3 *s3, const struct s3_call *call, struct error *error) MUST_CHECK;
bool s3_is_good(const struct s3 *s3);
/* Whether the same call may be answered better a while later. */
bool s3_may_pass(const struct s3 *s3);
/* The error that the last answer is, which is not good. */
enum err s3_judge(const struct s3 *s3, const struct s3_call *call, struct error *error) MUST_CHECK;
/* Waits before attempt number `times` + 2, and says so. */
enum err s3_wait(struct s3 *s3, const struct s3_call *call, uint32_t times,
                 struct error *error) MUST_CHECK;
