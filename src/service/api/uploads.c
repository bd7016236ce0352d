/* SPDX-License-Identifier: Apache-2.0 */
#include "api/uploads.h"

#include "api/api_internal.h"
#include "base/clock.h"
#include "base/mem.h"
#include "batch/input.h"
#include "store/uploads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Files in parts, for files that are too big for one request (contract: Uploads API). */

#define UPLOAD_EXPIRES_S 3600
#define MESSAGE_BYTES 200

/* The body of a create call. */
struct announced {
    int64_t bytes, expires_after_s; /* 0: as the purpose has it */
    struct str filename, mime_type, purpose;
};
#define AT(member) offsetof(struct announced, member)
static const struct field create_rows[] = {
    {"bytes", FIELD_INTEGER, FIELD_ANY, 1, API_UPLOAD_BYTES_MAX, FIELD_REQUIRED, AT(bytes), NULL,
     "Of the whole file."},
    {"filename", FIELD_TEXT, FIELD_ANY, 1, STORE_FILENAME_BYTES - 1, FIELD_REQUIRED, AT(filename),
     NULL, "The file's name."},
    {"mime_type", FIELD_TEXT, FIELD_ANY, 1, 255, FIELD_REQUIRED, AT(mime_type), NULL,
     "The file's type. It is not looked at."},
    {"purpose", FIELD_CHOICE, FIELD_ANY, 0, 0, FIELD_REQUIRED, AT(purpose), api_file_purposes,
     "What the file is for."},
    {"expires_after", FIELD_EXPIRY, FIELD_ANY, API_EXPIRY_S_MIN, API_EXPIRY_S_MAX, 0,
     AT(expires_after_s), NULL, "How long the file is kept from its creation on."},
};
#undef AT
const struct fields uploads_create_fields = {create_rows, sizeof create_rows / sizeof *create_rows,
                                             false, api_field_refuse};

/* The body of a complete call. */
struct joined {
    const json_t *part_ids;
    struct str md5; /* at is NULL: not given */
};
#define AT(member) offsetof(struct joined, member)
static const struct field complete_rows[] = {
    {"part_ids", FIELD_TEXTS, FIELD_ANY, 0, STORE_UPLOAD_PARTS_MAX, FIELD_REQUIRED, AT(part_ids),
     NULL, "The parts in the order of the file."},
    {"md5", FIELD_MD5, FIELD_ANY, 0, 0, 0, AT(md5), NULL, "Of the whole file."},
};
#undef AT
const struct fields uploads_complete_fields = {
    complete_rows, sizeof complete_rows / sizeof *complete_rows, false, api_field_refuse};

/* --- shapes --- */

static void answer_upload(struct http_request *request, const struct store_upload *upload,
                          const struct store_file *file) {
    struct buf body;
    buf_init(&body, 65536);
    buf_printf(&body,
               "{\"id\":\"%s\",\"object\":\"upload\",\"bytes\":%" PRIu64 ",\"created_at\":%" PRId64
               ",\"expires_at\":%" PRId64 ",\"filename\":",
               upload->id, upload->bytes, upload->created_unix_s, upload->expires_unix_s);
    json_write_string(&body, str_from(upload->filename));
    buf_printf(&body, ",\"purpose\":\"%s\",\"status\":\"%s\",\"file\":", upload->purpose,
               store_upload_status_name(upload->status));
    if (file)
        files_write_json(&body, file);
    else
        buf_add_text(&body, "null");
    buf_add_byte(&body, '}');
    api_answer_json(request, &body);
}

static void fail(struct http_request *request, enum err err, struct error *error) {
    bool is_unknown = err == ERR_NOT_FOUND && !error->is_system;
    if (is_unknown)
        err_set(error, err, "No such Upload object: %.80s",
                api_text(request, http_request_param(request, 0)));
    api_fail_err(request, err, error, is_unknown ? "upload_id" : NULL);
}

/* Reads the upload of the path. ERR_NOT_FOUND also if the caller may not see it. */
static enum err find(struct api *api, struct http_request *request, int64_t now_unix_s,
                     struct store_upload *ret_upload, struct error *error) {
    enum err err = store_upload_get(api->options.store, http_request_param(request, 0), now_unix_s,
                                    ret_upload, error);
    if (err == OK && !api_may_see(request, ret_upload->owner))
        err = err_set(error, ERR_NOT_FOUND, "The upload is another owner's.");
    return err;
}

/* --- creating, reading, cancelling --- */

static void copy(char *ret_text, struct str text) {
    memcpy(ret_text, text.at, text.bytes);
    ret_text[text.bytes] = '\0';
}

static void create(struct api *api, struct http_request *request,
                   const struct announced *announced) {
    struct store_upload upload = {0};
    struct error error;
    if (!api_check_filename(request, announced->filename)) return;
    bool is_batch = str_is(announced->purpose, "batch");
    upload.bytes = (uint64_t)announced->bytes;
    copy(upload.filename, files_name_of(announced->filename));
    copy(upload.purpose, announced->purpose);
    memcpy(upload.owner, http_request_caller(request)->owner, sizeof upload.owner);
    upload.owner_bytes_max = http_request_caller(request)->stored_bytes_max;
    upload.created_unix_s = clock_unix_s();
    upload.expires_unix_s = upload.created_unix_s + UPLOAD_EXPIRES_S;
    upload.file_expires_after_s = is_batch ? API_BATCH_FILE_EXPIRES_S : 0;
    if (announced->expires_after_s) upload.file_expires_after_s = announced->expires_after_s;
    if (!api_file_fits(api, request, is_batch, upload.bytes)) return;
    enum err err = store_upload_create(api->options.store, &upload, &error);
    if (err == OK)
        answer_upload(request, &upload, NULL);
    else if (err == ERR_LIMIT)
        api_fail_quota(request, error.text);
    else
        fail(request, err, &error);
}

void uploads_create(void *context, struct http_request *request) {
    struct announced announced = {0};
    json_t *body;
    if (api_refuses_new_work(context, request) || !api_read_object(request, &body)) return;
    if (api_fields_read(request, &uploads_create_fields, body, &announced))
        create(context, request, &announced);
    json_decref(body);
}

void uploads_get(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_upload upload;
    struct store_file file;
    struct error error;
    int64_t now_unix_s = clock_unix_s();
    enum err err = find(api, request, now_unix_s, &upload, &error);
    if (err != OK) {
        fail(request, err, &error);
        return;
    }
    /* The file may have been deleted since. */
    bool has_file = *upload.file_id && store_file_get(api->options.store, str_from(upload.file_id),
                                                      now_unix_s, &file, &error) == OK;
    answer_upload(request, &upload, has_file ? &file : NULL);
}

void uploads_cancel(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_upload upload;
    struct error error;
    struct str id = http_request_param(request, 0);
    int64_t now_unix_s = clock_unix_s();
    enum err err = find(api, request, now_unix_s, &upload, &error);
    if (err == OK) err = store_upload_cancel(api->options.store, id, now_unix_s, &error);
    if (err == OK) err = store_upload_get(api->options.store, id, now_unix_s, &upload, &error);
    if (err == OK)
        answer_upload(request, &upload, NULL);
    else
        fail(request, err, &error);
}

/* --- parts --- */

struct part_upload {
    struct api *api;
    struct store_spool *spool; /* from the start of the part `data` until the commit */
    bool in_data;
};

static void *part_begin(void *context, struct http_request *request) {
    struct part_upload *upload = mem_new(1, sizeof *upload);
    upload->api = context;
    api_refuses_new_work(context, request);
    return upload;
}

static void part_part(void *context, struct http_request *request,
                      const struct multipart_part *part) {
    struct part_upload *upload = context;
    struct error error;
    upload->in_data = strcmp(part->name, "data") == 0;
    if (!upload->in_data) return;
    if (upload->spool) {
        api_fail_param(request, "invalid_value", "data", "The part 'data' is given twice.");
        return;
    }
    enum err err = store_spool_open(&upload->spool, upload->api->options.store, &error);
    if (err != OK) api_fail_err(request, err, &error, NULL);
}

static void part_data(void *context, struct http_request *request, struct str bytes) {
    struct part_upload *upload = context;
    struct error error;
    if (!upload->in_data) return;
    if (bytes.bytes > API_PART_BYTES_MAX - store_spool_bytes(upload->spool)) {
        api_fail(request, 413, NULL, NULL, "The part is larger than the limit of %" PRIu64 " bytes",
                 API_PART_BYTES_MAX);
        return;
    }
    enum err err = store_spool_write(upload->spool, bytes.at, bytes.bytes, &error);
    if (err != OK) api_fail_err(request, err, &error, NULL);
}

static void part_end(void *context, struct http_request *request) {
    (void)context, (void)request;
}

static void part_release(void *context) {
    struct part_upload *upload = context;
    store_spool_abort(upload->spool);
    free(upload);
}

const struct http_upload uploads_part_upload = {.begin = part_begin,
                                                .part = part_part,
                                                .data = part_data,
                                                .part_end = part_end,
                                                .release = part_release};

void uploads_part(void *context, struct http_request *request) {
    struct api *api = context;
    struct part_upload *upload = http_request_upload(request);
    struct str id = http_request_param(request, 0);
    struct store_part part;
    struct error error;
    struct buf body;
    if (!upload->spool) {
        api_fail_param(request, "missing_required_parameter", "data",
                       "Missing required parameter: 'data'.");
        return;
    }
    struct store_upload row;
    enum err err = find(api, request, clock_unix_s(), &row, &error);
    if (err == OK) {
        struct store_spool *spool = upload->spool;
        upload->spool = NULL;
        err = store_part_commit(spool, id, http_request_caller(request)->stored_bytes_max,
                                clock_unix_s(), &part, &error);
    }
    if (err == ERR_LIMIT) {
        api_fail_quota(request, error.text);
        return;
    }
    if (err != OK) {
        fail(request, err, &error);
        return;
    }
    atomic_fetch_add(&api->metrics.upload_bytes, part.bytes);
    buf_init(&body, 4096);
    buf_printf(&body,
               "{\"id\":\"%s\",\"object\":\"upload.part\",\"created_at\":%" PRId64
               ",\"upload_id\":",
               part.id, part.created_unix_s);
    json_write_string(&body, id);
    buf_add_byte(&body, '}');
    api_answer_json(request, &body);
}

/* --- completing --- */

static bool check_md5(struct str wanted, const char *found, struct error *error) {
    if (!found || strncasecmp(wanted.at, found, wanted.bytes) == 0) return true;
    err_set(error, ERR_INVALID,
            "Invalid value for 'md5': the bytes uploaded have the md5 %s, not '%.*s'.", found,
            STR_ARGS(wanted));
    return false;
}

/* Joins the parts, checks the result, and makes it a file. *ret_param is the wrong parameter, or
 * NULL. */
static enum err complete(struct api *api, struct http_request *request,
                         const struct store_join *join, struct str md5, struct store_file *file,
                         const char **ret_param, struct error *error) {
    struct store *store = api->options.store;
    struct store_upload upload;
    struct store_spool *spool;
    enum err err = find(api, request, join->now_unix_s, &upload, error);
    if (err != OK) return err;
    if (upload.status == UPLOAD_PENDING) *ret_param = "part_ids";
    err = store_upload_join(store, join, &spool, error);
    if (err != OK) return err;
    if (!check_md5(md5, join->md5_hex, error)) {
        *ret_param = "md5";
        err = ERR_INVALID;
    } else if (strcmp(upload.purpose, "batch") == 0) {
        err = batch_spool_look(spool, error);
    }
    if (err != OK) {
        store_spool_abort(spool);
        return err;
    }
    *ret_param = NULL;
    memcpy(file->owner, upload.owner, sizeof file->owner);
    memcpy(file->purpose, upload.purpose, sizeof file->purpose);
    memcpy(file->filename, upload.filename, sizeof file->filename);
    file->created_unix_s = join->now_unix_s;
    if (upload.file_expires_after_s)
        file->expires_unix_s = join->now_unix_s + upload.file_expires_after_s;
    return store_upload_finish(spool, join->upload_id, join->now_unix_s, file, error);
}

static void complete_and_answer(struct api *api, struct http_request *request,
                                const struct joined *joined) {
    struct store_upload upload;
    struct store_file file = {0};
    struct error error;
    char md5[DIGEST_HEX_BYTES];
    const char *param = NULL;
    json_t *item;
    size_t index, count = json_array_size(joined->part_ids);
    struct str *ids = mem_new(count + 1, sizeof *ids);
    json_array_foreach(joined->part_ids, index, item) ids[index] = json_str(item);
    const struct store_join join = {.upload_id = http_request_param(request, 0),
                                    .part_ids = ids,
                                    .part_count = count,
                                    .md5_hex = joined->md5.at ? md5 : NULL,
                                    .now_unix_s = clock_unix_s()};
    enum err err = complete(api, request, &join, joined->md5, &file, &param, &error);
    free(ids);
    if (err == OK)
        err =
            store_upload_get(api->options.store, join.upload_id, join.now_unix_s, &upload, &error);
    if (err == OK)
        answer_upload(request, &upload, &file);
    else if (err == ERR_INVALID)
        api_fail_err(request, err, &error, param);
    else
        fail(request, err, &error);
}

void uploads_complete(void *context, struct http_request *request) {
    struct joined joined = {0};
    json_t *body;
    if (!api_read_object(request, &body)) return;
    if (api_fields_read(request, &uploads_complete_fields, body, &joined))
        complete_and_answer(context, request, &joined);
    json_decref(body);
}
