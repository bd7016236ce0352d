/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"
#include "base/mem.h"

#include "base/clock.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "batch/input.h"
#include "json/span.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* POST /v1/files: the parts may come in any order, so `file` is spooled before the purpose is
 * known (contract: multipart). */

#define FIELD_BYTES_MAX 4096

enum form_part { PART_FILE, PART_PURPOSE, PART_ANCHOR, PART_SECONDS, PART_EXPIRY, PART_COUNT };

static const char *const field_names[PART_COUNT] = {
    "file",          "purpose", "expires_after[anchor]", "expires_after[seconds]",
    "expires_after", /* both as one object of JSON */
};
/* The forms of clients that write members with a dot. */
static const char *const other_names[PART_COUNT] = {
    [PART_ANCHOR] = "expires_after.anchor", [PART_SECONDS] = "expires_after.seconds"};

const char *const api_file_purposes[] = {"assistants", "batch", "fine-tune", "vision",
                                         "user_data",  "evals", NULL};

struct upload {
    struct api *api;
    struct store_spool *spool; /* open from the start of the file part to the commit */
    char filename[STORE_FILENAME_BYTES];
    struct buf texts[PART_COUNT]; /* contents of the small fields */
    bool seen[PART_COUNT];
    int current;         /* PART_COUNT: an unknown part */
    uint64_t bytes_left; /* rest of the owner's quota, when the file's part began */
};

static void *upload_begin(void *context, struct http_request *request) {
    struct upload *upload = mem_new(1, sizeof *upload);
    upload->api = context;
    for (int i = 0; i < PART_COUNT; i++) buf_init(&upload->texts[i], FIELD_BYTES_MAX);
    api_refuses_new_work(context, request);
    return upload;
}

static void upload_release(void *context) {
    struct upload *upload = context;
    store_spool_abort(upload->spool);
    for (int i = 0; i < PART_COUNT; i++) buf_release(&upload->texts[i]);
    free(upload);
}

struct str files_name_of(struct str path) {
    for (size_t i = path.bytes; i > 0; i--)
        if (path.at[i - 1] == '/' || path.at[i - 1] == '\\') {
            path = str_skip(path, i);
            break;
        }
    bool is_name = path.bytes > 0 && !str_is(path, ".") && !str_is(path, "..");
    return is_name ? path : STR("upload");
}

/* Keeps the last name of a path, cut to fit and always valid UTF-8. */
static void keep_filename(struct upload *upload, const char *filename) {
    struct buf repaired;
    buf_init(&repaired, 4 * MULTIPART_TEXT_BYTES);
    utf8_add_repaired(&repaired, files_name_of(str_from(filename)));
    struct str text = buf_str(&repaired);
    if (text.bytes >= sizeof upload->filename) {
        text.bytes = sizeof upload->filename - 1;
        text.bytes = utf8_valid_prefix(text);
    }
    memcpy(upload->filename, text.at, text.bytes);
    upload->filename[text.bytes] = '\0';
    buf_release(&repaired);
}

/* A program that lists files prints their names, and a terminal obeys control characters. */
bool api_check_filename(struct http_request *request, struct str filename) {
    if (!printable_has_control(filename)) return true;
    api_fail_param(request, "invalid_value", "filename",
                   "Invalid value for 'filename': it has a control character.");
    return false;
}

static enum err read_quota(struct upload *upload, struct http_request *request,
                           struct error *error) {
    const struct key_caller *caller = http_request_caller(request);
    uint64_t used = 0, most = caller->stored_bytes_max;
    upload->bytes_left = UINT64_MAX;
    if (!most) return OK;
    enum err err =
        store_owner_bytes(upload->api->options.store, caller->owner, clock_unix_s(), &used, error);
    upload->bytes_left = used < most ? most - used : 0;
    return err;
}

void api_fail_quota(struct http_request *request, const char *sentence) {
    api_fail(request, 413, "storage_quota_exceeded", NULL, "%s", sentence);
}

static bool is_name_of(const char *name, int part) {
    return strcmp(name, field_names[part]) == 0 ||
           (other_names[part] && strcmp(name, other_names[part]) == 0);
}

static void upload_part(void *context, struct http_request *request,
                        const struct multipart_part *part) {
    struct upload *upload = context;
    struct error error;
    upload->current = 0;
    while (upload->current < PART_COUNT && !is_name_of(part->name, upload->current))
        upload->current++;
    if (upload->current == PART_COUNT) return;
    if (upload->seen[upload->current]) {
        api_fail_param(request, "invalid_value", field_names[upload->current],
                       "The part '%s' is given twice.", field_names[upload->current]);
        return;
    }
    upload->seen[upload->current] = true;
    if (upload->current != PART_FILE) return;
    keep_filename(upload, part->filename);
    if (!api_check_filename(request, str_from(upload->filename))) return;
    enum err err = read_quota(upload, request, &error);
    if (err == OK) err = store_spool_open(&upload->spool, upload->api->options.store, &error);
    if (err != OK) api_fail_err(request, err, &error, NULL);
}

static void upload_data(void *context, struct http_request *request, struct str bytes) {
    struct upload *upload = context;
    struct error error;
    if (upload->current == PART_COUNT) return;
    if (upload->current != PART_FILE) {
        buf_add_str(&upload->texts[upload->current], bytes);
        return;
    }
    uint64_t bytes_max = upload->api->options.file_bytes_max;
    if (bytes.bytes > bytes_max - store_spool_bytes(upload->spool)) {
        api_fail(request, 413, NULL, NULL, "The file is larger than the limit of %" PRIu64 " bytes",
                 bytes_max);
        return;
    }
    if (bytes.bytes > upload->bytes_left) {
        api_fail_quota(request, "Storage quota exceeded: the file is larger than the bytes that "
                                "are left. Delete files first.");
        return;
    }
    upload->bytes_left -= bytes.bytes;
    enum err err = store_spool_write(upload->spool, bytes.at, bytes.bytes, &error);
    if (err != OK) api_fail_err(request, err, &error, NULL);
}

static void upload_part_end(void *context, struct http_request *request) {
    struct upload *upload = context;
    if (upload->current != PART_COUNT && upload->texts[upload->current].overflowed)
        api_fail_param(request, "string_above_max_length", field_names[upload->current],
                       "The part '%s' is longer than %d bytes.", field_names[upload->current],
                       FIELD_BYTES_MAX);
}

const struct http_upload files_upload = {.begin = upload_begin,
                                         .part = upload_part,
                                         .data = upload_data,
                                         .part_end = upload_part_end,
                                         .release = upload_release};

/* --- when it is all there --- */

static bool read_purpose(struct upload *upload, struct http_request *request, char *ret_purpose,
                         size_t purpose_bytes) {
    struct str given = buf_str(&upload->texts[PART_PURPOSE]);
    if (given.bytes == 0) {
        api_fail_param(request, "missing_required_parameter", "purpose",
                       "Missing required parameter: 'purpose'.");
        return false;
    }
    for (size_t i = 0; api_file_purposes[i]; i++)
        if (str_is(given, api_file_purposes[i])) {
            memcpy(ret_purpose, given.at, given.bytes);
            memset(ret_purpose + given.bytes, 0, purpose_bytes - given.bytes);
            return true;
        }
    api_fail_param(request, "invalid_value", "purpose",
                   "Invalid value for 'purpose': '%.100s'. Supported values are: 'assistants', "
                   "'batch', 'fine-tune', 'vision', 'user_data', and 'evals'.",
                   api_text(request, given));
    return false;
}

/* Takes the anchor and the seconds out of the one part of JSON that has both. */
static bool read_expiry_object(struct upload *upload, struct http_request *request) {
    struct buf *anchor = &upload->texts[PART_ANCHOR], *seconds = &upload->texts[PART_SECONDS];
    struct str text = str_trim(buf_str(&upload->texts[PART_EXPIRY])), whole = {NULL, 0};
    if (!upload->seen[PART_EXPIRY] || text.bytes == 0 || str_is(text, "null")) return true;
    if (upload->seen[PART_ANCHOR] || upload->seen[PART_SECONDS]) {
        api_fail_param(request, "invalid_value", "expires_after",
                       "The part 'expires_after' is given, and a part of its members, too.");
        return false;
    }
    if (!json_span_is_utf8(text) || !json_span_read(text, &whole) || !json_span_is_object(whole)) {
        api_fail_param(request, "invalid_type", "expires_after",
                       "Invalid type for 'expires_after': expected an object such as {\"anchor\": "
                       "\"created_at\", \"seconds\": 3600}, got '%.100s'.",
                       api_text(request, text));
        return false;
    }
    struct str of_anchor = json_span_get(whole, "anchor");
    struct str of_seconds = json_span_get(whole, "seconds");
    if (json_span_is_string(of_anchor))
        json_span_decode(anchor, of_anchor);
    else
        buf_add_str(anchor, of_anchor);
    buf_add_str(seconds, of_seconds);
    upload->seen[PART_ANCHOR] = upload->seen[PART_SECONDS] = true;
    return true;
}

/* Reads the expiry; *ret_seconds 0: the file never expires. */
static bool read_expiry(struct upload *upload, struct http_request *request, bool is_batch,
                        int64_t *ret_seconds) {
    struct str anchor = buf_str(&upload->texts[PART_ANCHOR]);
    struct str seconds = buf_str(&upload->texts[PART_SECONDS]);
    *ret_seconds = is_batch ? API_BATCH_FILE_EXPIRES_S : 0;
    if (!upload->seen[PART_ANCHOR] && !upload->seen[PART_SECONDS]) return true;
    if (!str_is(anchor, "created_at")) {
        api_fail_param(request, "invalid_value", "expires_after.anchor",
                       "Invalid value for 'expires_after.anchor': '%.100s'. Supported values are: "
                       "'created_at'.",
                       api_text(request, anchor));
        return false;
    }
    if (!str_to_i64(seconds, ret_seconds)) {
        api_fail_param(request, "invalid_type", "expires_after.seconds",
                       "Invalid type for 'expires_after.seconds': expected an integer, got "
                       "'%.100s'.",
                       api_text(request, seconds));
        return false;
    }
    if (*ret_seconds >= API_EXPIRY_S_MIN && *ret_seconds <= API_EXPIRY_S_MAX) return true;
    bool below = *ret_seconds < API_EXPIRY_S_MIN;
    api_fail_param(request, below ? "integer_below_min_value" : "integer_above_max_value",
                   "expires_after.seconds",
                   "Invalid 'expires_after.seconds': expected a value from %d to %d, got %" PRId64
                   ".",
                   API_EXPIRY_S_MIN, API_EXPIRY_S_MAX, *ret_seconds);
    return false;
}

bool api_file_fits(const struct api *api, struct http_request *request, bool is_batch,
                   uint64_t bytes) {
    uint64_t bytes_max = api->options.batch_file_bytes_max;
    if (!is_batch || bytes_max == 0 || bytes <= bytes_max) return true;
    api_fail(request, 413, NULL, "file",
             "The file has %" PRIu64 " bytes; with the purpose 'batch' at most %" PRIu64
             " are allowed.",
             bytes, bytes_max);
    return false;
}

void files_create(void *context, struct http_request *request) {
    struct api *api = context;
    struct upload *upload = http_request_upload(request);
    struct store_file file = {0};
    struct error error;
    int64_t seconds;
    if (!read_purpose(upload, request, file.purpose, sizeof file.purpose)) return;
    if (!upload->seen[PART_FILE]) {
        api_fail_param(request, "missing_required_parameter", "file",
                       "Missing required parameter: 'file'.");
        return;
    }
    bool is_batch = strcmp(file.purpose, "batch") == 0;
    if (!read_expiry_object(upload, request) || !read_expiry(upload, request, is_batch, &seconds) ||
        !api_file_fits(api, request, is_batch, store_spool_bytes(upload->spool)))
        return;
    enum err err = is_batch ? batch_spool_look(upload->spool, &error) : OK;
    if (err == OK) {
        memcpy(file.filename, upload->filename, sizeof file.filename);
        memcpy(file.owner, http_request_caller(request)->owner, sizeof file.owner);
        file.owner_bytes_max = http_request_caller(request)->stored_bytes_max;
        file.created_unix_s = clock_unix_s();
        file.expires_unix_s = seconds ? file.created_unix_s + seconds : 0;
        struct store_spool *spool = upload->spool;
        upload->spool = NULL;
        err = store_spool_commit(spool, &file, &error);
    }
    if (err == ERR_LIMIT) {
        api_fail_quota(request, error.text);
        return;
    }
    if (err != OK) {
        api_fail_err(request, err, &error, NULL);
        return;
    }
    atomic_fetch_add(&api->metrics.upload_bytes, file.bytes);
    struct buf body;
    buf_init(&body, 65536);
    files_write_json(&body, &file);
    api_answer_json(request, &body);
}
