/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/call.h"

#include "base/file_lock.h"
#include "base/os.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHANGES_MAX 5 /* times that an object may change while it is fetched */

struct download {
    struct s3 *s3;
    int fd;
    uint64_t at;              /* bytes of the file that are the object's */
    char etag[S3_ETAG_BYTES]; /* names the version that they belong to; empty: not known */
    char part[PATH_MAX], etag_path[PATH_MAX];
    bool has_begun;       /* the answer's first bytes have come */
    bool has_changed;     /* the answer is of another version */
    struct error trouble; /* why the answer is not taken */
};

/* Notes which version the bytes belong to, before the first of them is written. */
static enum err begin_version(struct download *download, const char *etag, struct error *error) {
    download->at = 0;
    snprintf(download->etag, sizeof download->etag, "%s", etag);
    enum err err = os_ftruncate(download->fd, 0, error);
    if (err != OK) return err;
    if (!*etag) return os_unlink(download->etag_path, error);
    return os_write_file(download->etag_path, 0600, etag, strlen(etag), error);
}

/* Whether the piece of an object that comes begins where the file ends. */
static bool is_next(const struct download *download, const struct net_exchange *exchange) {
    char wanted[48];
    struct str range;
    snprintf(wanted, sizeof wanted, "bytes %" PRIu64 "-", download->at);
    return net_exchange_header(exchange, "content-range", 0, &range) &&
           str_starts_with(str_trim(range), str_from(wanted));
}

static enum err begin_answer(struct download *download, const struct net_exchange *exchange) {
    char etag[S3_ETAG_BYTES];
    struct error *trouble = &download->trouble;
    bool has_etag = s3_read_etag(exchange, etag);
    if (net_exchange_status(exchange) == 200)
        return begin_version(download, has_etag ? etag : "", trouble);
    download->has_changed = !has_etag || strcmp(etag, download->etag) != 0;
    if (download->has_changed) return err_set(trouble, ERR_CONFLICT, "another version");
    if (is_next(download, exchange)) return OK;
    return err_set(trouble, ERR_CORRUPT, "S3 sends another range than byte %" PRIu64 " on",
                   download->at);
}

static bool take(void *context, const struct net_exchange *exchange, struct str piece) {
    struct download *download = context;
    enum err err = OK;
    if (!download->has_begun) err = begin_answer(download, exchange);
    download->has_begun = true;
    if (err == OK)
        err = os_pwrite_all(download->fd, piece.at, piece.bytes, download->at, &download->trouble);
    if (err == OK) download->at += piece.bytes;
    return err == OK;
}

static enum err ask(struct download *download, struct s3_call *call, struct error *error) {
    char range[48], match[S3_ETAG_BYTES + 16];
    struct s3 *s3 = download->s3;
    call->lines[0] = NULL;
    if (download->at > 0) {
        snprintf(range, sizeof range, "Range: bytes=%" PRIu64 "-", download->at);
        snprintf(match, sizeof match, "If-Match: %s", download->etag);
        call->lines[0] = range;
        call->lines[1] = match;
    }
    download->has_begun = download->has_changed = false;
    download->trouble = (struct error){0};
    enum err err = s3_call_once(s3, call, error);
    if (err != OK) return err;
    if (s3->answer.status == 412) download->has_changed = true;
    if (s3->answer.end != NET_END_STOPPED || download->has_changed) return OK;
    *error = download->trouble;
    return err_prefix(error, "s3://%.63s/%.200s", call->place->bucket, call->place->key);
}

/* Asks until the bytes are all here. An attempt that brings some counts as none. */
static enum err fetch(struct download *download, struct s3_call *call, struct error *error) {
    struct s3 *s3 = download->s3;
    uint32_t attempts = 0, changes = 0;
    uint64_t furthest = download->at + 1;
    for (;;) {
        uint64_t before = download->at;
        enum err err = ask(download, call, error);
        if (err != OK) return err;
        if (download->has_changed && before > 0 && changes++ < CHANGES_MAX) {
            s3->options.say(s3->options.context,
                            "the object has changed since; it is fetched from its start");
            err = begin_version(download, "", error);
            if (err != OK) return err;
            continue;
        }
        if (s3_is_good(s3)) return OK;
        if (download->at > furthest) attempts = 0;
        if (download->at > furthest) furthest = download->at;
        if (!s3_may_pass(s3) || ++attempts == S3_ATTEMPTS) return s3_judge(s3, call, error);
        err = s3_wait(s3, call, attempts - 1, error);
        if (err != OK) return err;
        /* The last byte is asked for again: a range that begins behind the end is an error. Without
         * a name of the version nothing can be continued. */
        download->at = *download->etag && download->at > 0 ? download->at - 1 : 0;
    }
}

/* Finds what an earlier call left: bytes, and the version that they are of. The last byte is asked
 * for again, so that the answer tells whether they are still the object's. */
static enum err find_beginning(struct download *download, const char *path, struct error *error) {
    uint64_t bytes = 0;
    char *etag;
    size_t etag_bytes;
    struct error ignored;
    bool has_etag = access(download->etag_path, F_OK) == 0;
    if (has_etag && access(download->part, F_OK) != 0 && access(path, F_OK) == 0) {
        enum err err = os_rename(path, download->part, error);
        if (err != OK) return err;
    }
    enum err err =
        os_open(&download->fd, download->part, O_RDWR | O_CREAT | O_NOFOLLOW, 0600, error);
    if (err != OK) return err;
    err = file_lock(download->fd, download->part, false, error);
    if (err == ERR_CONFLICT) return err_set(error, err, "another quern fetches %.300s", path);
    if (err != OK) return err;
    err = os_file_bytes(download->fd, &bytes, error);
    if (err != OK || bytes == 0 || !has_etag) return err;
    if (os_read_file(download->etag_path, S3_ETAG_BYTES - 1, &etag, &etag_bytes, &ignored) != OK)
        return OK;
    bool is_line = etag_bytes > 0 && strlen(etag) == etag_bytes && !strpbrk(etag, "\r\n");
    if (is_line) memcpy(download->etag, etag, etag_bytes + 1);
    if (is_line) download->at = bytes - 1;
    free(etag);
    return OK;
}

enum err s3_get(struct s3 *s3, const struct s3_place *place, const char *path,
                struct error *error) {
    struct download download = {.s3 = s3, .fd = -1};
    struct s3_call call = {.method = "GET",
                           .what = "the download",
                           .place = place,
                           .bytes = take,
                           .context = &download};
    int bytes = snprintf(download.part, PATH_MAX, "%s.part", path);
    snprintf(download.etag_path, PATH_MAX, "%s.etag", path);
    if (bytes >= PATH_MAX)
        return err_set(error, ERR_INVALID, "the name of the file to fetch into is too long");
    enum err err = find_beginning(&download, path, error);
    if (err == OK) err = fetch(&download, &call, error);
    /* An empty object sends no byte, and a shorter one leaves none of an earlier version. */
    if (err == OK) err = os_ftruncate(download.fd, download.at, error);
    if (err == OK) err = os_fsync(download.fd, error);
    if (err == OK) err = os_rename(download.part, path, error);
    /* What cannot be continued does not stay. */
    struct error ignored;
    bool is_useless = err != OK && download.fd >= 0 && (download.at == 0 || !*download.etag);
    if (is_useless && os_unlink(download.part, &ignored) == OK &&
        os_unlink(download.etag_path, &ignored) != OK)
        s3->options.say(s3->options.context, ignored.text);
    os_close(download.fd);
    return err;
}
