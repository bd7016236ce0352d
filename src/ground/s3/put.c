/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/call.h"

#include "base/mem.h"
#include "base/os.h"
#include "s3/upload_state.h"
#include "s3/xml.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define LIST_MAX "1000" /* parts in one answer; its 300 KB stay below the limit of an answer */
#define OCTETS "application/octet-stream"

struct upload {
    struct s3 *s3;
    const struct s3_place *place;
    int fd;
    uint64_t bytes, part_bytes;
    struct upload_state state;
};

/* The SHA-256 of a piece of a file. */
static enum err sum_piece(int fd, uint64_t from, uint64_t bytes, char ret_hex[DIGEST_HEX_BYTES],
                          struct error *error) {
    struct digest digest;
    char *piece = mem_new(1, PIECE_BYTES);
    enum err err = OK;
    digest_begin(&digest, DIGEST_SHA256);
    for (uint64_t at = 0; err == OK && at < bytes;) {
        size_t count = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        err = os_pread_all(fd, piece, count, from + at, error);
        if (err == OK) digest_add(&digest, piece, count);
        at += count;
    }
    if (err == OK) digest_end_hex(&digest, ret_hex);
    digest_release(&digest);
    free(piece);
    return err;
}

/* Makes the call, whose answer must be good. */
static enum err need(struct s3 *s3, const struct s3_call *call, struct error *error) {
    enum err err = s3_call_make(s3, call, error);
    return err != OK || s3_is_good(s3) ? err : s3_judge(s3, call, error);
}

static enum err put_whole(struct upload *upload, struct error *error) {
    char sum[DIGEST_HEX_BYTES];
    const struct net_file file = {.fd = upload->fd, .bytes = upload->bytes};
    enum err err = sum_piece(upload->fd, 0, upload->bytes, sum, error);
    const struct s3_call call = {.method = "PUT",
                                 .what = "the upload",
                                 .place = upload->place,
                                 .lines = {"Content-Type: " OCTETS},
                                 .file = &file,
                                 .payload_hex = sum};
    return err == OK ? need(upload->s3, &call, error) : err;
}

/* --- the parts --- */

static enum err begin_parts(struct upload *upload, struct error *error) {
    char id[S3_UPLOAD_ID_BYTES];
    const struct sigv4_field query = {"uploads", ""};
    const struct net_file nothing = {.fd = -1, .post_type = OCTETS};
    const struct s3_call call = {.method = "POST",
                                 .what = "the begin of an upload",
                                 .place = upload->place,
                                 .query = &query,
                                 .query_count = 1,
                                 .file = &nothing};
    enum err err = need(upload->s3, &call, error);
    if (err != OK) return err;
    xml_text(buf_str(&upload->s3->body), "UploadId", id, sizeof id);
    return upload_state_begin(&upload->state, id, error);
}

static uint64_t bytes_of(const struct upload *upload, uint32_t number) {
    uint64_t from = (number - 1) * upload->part_bytes, left = upload->bytes - from;
    return left < upload->part_bytes ? left : upload->part_bytes;
}

/* Notes that S3 has a part of that ETag and size, if it is the one that was written down. */
static void note_part(struct upload *upload, struct str part) {
    char number_text[16], etag[S3_ETAG_BYTES], size_text[24];
    uint64_t number, size;
    if (!xml_text(part, "PartNumber", number_text, sizeof number_text) ||
        !xml_text(part, "ETag", etag, sizeof etag) ||
        !xml_text(part, "Size", size_text, sizeof size_text))
        return;
    if (!str_to_u64(str_from(number_text), &number) || !str_to_u64(str_from(size_text), &size) ||
        number < 1 || number > upload->state.part_count)
        return;
    struct upload_part *known = &upload->state.parts[number - 1];
    known->is_there =
        *known->sum && strcmp(known->etag, etag) == 0 && size == bytes_of(upload, (uint32_t)number);
}

/* Asks which parts S3 has. *ret_is_known is false if it does not know the upload. */
static enum err list_parts(struct upload *upload, bool *ret_is_known, struct error *error) {
    char marker[16] = "0", next[16], more[8];
    struct s3 *s3 = upload->s3;
    *ret_is_known = true;
    for (uint32_t page = 0; page * 100 < S3_PARTS_MAX; page++) {
        const struct sigv4_field query[] = {{"max-parts", LIST_MAX},
                                            {"part-number-marker", marker},
                                            {"uploadId", upload->state.upload_id}};
        const struct s3_call call = {.method = "GET",
                                     .what = "the question which parts are there",
                                     .place = upload->place,
                                     .query = query,
                                     .query_count = 3};
        enum err err = s3_call_make(s3, &call, error);
        if (err != OK) return err;
        *ret_is_known = s3->answer.status != 404 || strcmp(s3->answer.code, "NoSuchUpload") != 0;
        if (!*ret_is_known) return OK;
        if (!s3_is_good(s3)) return s3_judge(s3, &call, error);
        struct str part, answer = buf_str(&s3->body);
        for (size_t at = 0; xml_next(answer, "Part", &at, &part);) note_part(upload, part);
        bool goes_on = xml_text(answer, "IsTruncated", more, sizeof more) &&
                       strcmp(more, "true") == 0 &&
                       xml_text(answer, "NextPartNumberMarker", next, sizeof next);
        if (!goes_on || strcmp(next, marker) == 0) return OK;
        memcpy(marker, next, sizeof marker);
    }
    return OK;
}

static enum err send_part(struct upload *upload, uint32_t number, struct error *error) {
    char sum[DIGEST_HEX_BYTES], number_text[16];
    const struct upload_part *known = &upload->state.parts[number - 1];
    struct s3 *s3 = upload->s3;
    const struct net_file file = {.fd = upload->fd,
                                  .from = (number - 1) * upload->part_bytes,
                                  .bytes = bytes_of(upload, number)};
    enum err err = sum_piece(upload->fd, file.from, file.bytes, sum, error);
    if (err != OK || (known->is_there && strcmp(known->sum, sum) == 0)) return err;
    snprintf(number_text, sizeof number_text, "%" PRIu32, number);
    const struct sigv4_field query[] = {{"partNumber", number_text},
                                        {"uploadId", upload->state.upload_id}};
    const struct s3_call call = {.method = "PUT",
                                 .what = "a part of the upload",
                                 .place = upload->place,
                                 .query = query,
                                 .query_count = 2,
                                 .file = &file,
                                 .payload_hex = sum};
    err = need(s3, &call, error);
    if (err != OK) return err;
    if (!*s3->answer.etag || strpbrk(s3->answer.etag, " <>&"))
        return err_set(error, ERR_CORRUPT, "s3://%.63s/%.200s: S3 gives part %" PRIu32 " no ETag",
                       upload->place->bucket, upload->place->key, number);
    char etag[S3_ETAG_BYTES];
    memcpy(etag, s3->answer.etag, sizeof etag);
    return upload_state_add(&upload->state, number, sum, etag, error);
}

/* --- the end --- */

/* The ETag that S3 gives an object of these parts: the MD5 of their MD5s. False if an ETag is no
 * MD5, as with keys of a customer. */
static bool whole_etag(const struct upload_state *state, char ret_etag[S3_ETAG_BYTES]) {
    struct digest digest;
    char hex[DIGEST_HEX_BYTES];
    bool is_good = true;
    digest_begin(&digest, DIGEST_MD5);
    for (uint32_t i = 0; is_good && i < state->part_count; i++) {
        struct str etag = str_from(state->parts[i].etag);
        is_good = etag.bytes == 34 && etag.at[0] == '"' && etag.at[33] == '"';
        for (size_t at = 1; is_good && at < 33; at += 2) {
            char pair[3] = {etag.at[at], etag.at[at + 1], '\0'}, *end;
            unsigned char byte = (unsigned char)strtoul(pair, &end, 16);
            is_good = *end == '\0' && pair[0] != ' ' && pair[0] != '+' && pair[0] != '-';
            digest_add(&digest, &byte, 1);
        }
    }
    if (is_good) {
        digest_end_hex(&digest, hex);
        snprintf(ret_etag, S3_ETAG_BYTES, "\"%s-%" PRIu32 "\"", hex, state->part_count);
    }
    digest_release(&digest);
    return is_good;
}

/* Whether the object is what these parts make: its completion was done, and the answer lost. */
static enum err is_complete(struct upload *upload, bool *ret_is_complete, struct error *error) {
    char etag[S3_ETAG_BYTES];
    struct s3 *s3 = upload->s3;
    const struct s3_call call = {.method = "GET",
                                 .what = "the look at it",
                                 .place = upload->place,
                                 .lines = {"Range: bytes=0-0"}};
    *ret_is_complete = false;
    if (!whole_etag(&upload->state, etag)) return OK;
    enum err err = s3_call_make(s3, &call, error);
    if (err == OK)
        *ret_is_complete = s3_is_good(s3) && s3->answer.has_whole_bytes &&
                           s3->answer.whole_bytes == upload->bytes &&
                           strcmp(s3->answer.etag, etag) == 0;
    return err;
}

static void write_parts(const struct upload *upload, struct buf *body) {
    char etag[S3_ETAG_BYTES * 6];
    buf_add_text(body, "<CompleteMultipartUpload>");
    for (uint32_t i = 0; i < upload->state.part_count; i++) {
        if (!xml_escape(upload->state.parts[i].etag, etag, sizeof etag)) abort();
        buf_printf(body, "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>%s</ETag></Part>", i + 1,
                   etag);
    }
    buf_add_text(body, "</CompleteMultipartUpload>");
}

static enum err complete_once(struct upload *upload, const struct s3_call *call,
                              bool *ret_is_unknown, struct error *error) {
    struct s3 *s3 = upload->s3;
    *ret_is_unknown = false;
    enum err err = s3_call_make(s3, call, error);
    if (err != OK || s3_is_good(s3)) return err;
    *ret_is_unknown = strcmp(s3->answer.code, "NoSuchUpload") == 0;
    return s3_judge(s3, call, error);
}

/* Makes the parts an object. ERR_CONFLICT if S3 has forgotten the upload. */
static enum err complete(struct upload *upload, struct error *error) {
    struct buf body;
    bool is_unknown, is_done = false;
    const struct sigv4_field query = {"uploadId", upload->state.upload_id};
    char sum[DIGEST_HEX_BYTES];
    struct digest digest;
    buf_init(&body, BUF_UNLIMITED);
    write_parts(upload, &body);
    digest_begin(&digest, DIGEST_SHA256);
    digest_add(&digest, body.at, body.bytes);
    digest_end_hex(&digest, sum);
    const struct net_file file = {
        .fd = -1, .before = buf_str(&body), .post_type = "application/xml"};
    const struct s3_call call = {.method = "POST",
                                 .what = "the end of an upload",
                                 .place = upload->place,
                                 .query = &query,
                                 .query_count = 1,
                                 .file = &file,
                                 .payload_hex = sum};
    enum err err = complete_once(upload, &call, &is_unknown, error);
    buf_release(&body);
    if (!is_unknown) return err;
    err = is_complete(upload, &is_done, error);
    return err != OK || is_done ? err : err_set(error, ERR_CONFLICT, "S3 has dropped the upload");
}

/* --- all of it --- */

/* Finds an upload of an earlier call, or begins one. */
static enum err find_upload(struct upload *upload, bool *ret_is_done, struct error *error) {
    bool is_known = false;
    enum err err = OK;
    *ret_is_done = false;
    if (*upload->state.upload_id) {
        err = list_parts(upload, &is_known, error);
        if (err == OK && !is_known) err = is_complete(upload, ret_is_done, error);
    }
    return err != OK || is_known || *ret_is_done ? err : begin_parts(upload, error);
}

static enum err put_parts(struct upload *upload, struct error *error) {
    bool is_done;
    enum err err = upload_state_open(&upload->state, error);
    if (err == OK) err = find_upload(upload, &is_done, error);
    for (int time = 0; err == OK && !is_done; time++) {
        for (uint32_t number = 1; err == OK && number <= upload->state.part_count; number++)
            err = send_part(upload, number, error);
        if (err != OK) break;
        err = complete(upload, error);
        if (err == OK) break;
        if (err != ERR_CONFLICT || time > 0) break;
        err = begin_parts(upload, error);
    }
    if (err == OK) err = os_unlink(upload->state.path, error);
    upload_state_close(&upload->state);
    return err;
}

/* A sum of the endpoint and the object, so that a file is never taken for another place's. */
static void sum_place(const struct upload *upload, char ret_hex[DIGEST_HEX_BYTES]) {
    struct digest digest;
    const char *const words[] = {upload->s3->host, upload->s3->prefix, upload->place->bucket,
                                 upload->place->key};
    digest_begin(&digest, DIGEST_SHA256);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        digest_add(&digest, words[i], strlen(words[i]) + 1);
    digest_end_hex(&digest, ret_hex);
}

enum err s3_put(struct s3 *s3, const struct s3_place *place, const char *path,
                struct error *error) {
    struct upload upload = {.s3 = s3, .place = place, .fd = -1, .state = {.fd = -1}};
    char state_path[PATH_MAX];
    if (snprintf(state_path, sizeof state_path, "%s.upload", path) >= PATH_MAX)
        return err_set(error, ERR_INVALID, "the name of the file to send is too long");
    enum err err = os_open(&upload.fd, path, O_RDONLY, 0, error);
    if (err == OK) err = os_file_bytes(upload.fd, &upload.bytes, error);
    upload.part_bytes = S3_PART_BYTES;
    while (upload.bytes / upload.part_bytes >= S3_PARTS_MAX) upload.part_bytes *= 2;
    if (err == OK && upload.bytes <= upload.part_bytes) {
        err = put_whole(&upload, error);
    } else if (err == OK) {
        upload.state.path = state_path;
        upload.state.file_bytes = upload.bytes;
        upload.state.part_count =
            (uint32_t)((upload.bytes + upload.part_bytes - 1) / upload.part_bytes);
        sum_place(&upload, upload.state.place);
        err = put_parts(&upload, error);
    }
    os_close(upload.fd);
    return err;
}
