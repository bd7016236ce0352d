/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"
#include "base/mem.h"

#include "base/clock.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void files_write_json(struct buf *buf, const struct store_file *file) {
    buf_printf(buf,
               "{\"id\":\"%s\",\"object\":\"file\",\"bytes\":%" PRIu64 ",\"created_at\":%" PRId64
               ",\"expires_at\":",
               file->id, file->bytes, file->created_unix_s);
    if (file->expires_unix_s)
        buf_printf(buf, "%" PRId64, file->expires_unix_s);
    else
        buf_add_text(buf, "null");
    buf_add_text(buf, ",\"filename\":");
    json_write_string(buf, str_from(file->filename));
    buf_add_text(buf, ",\"purpose\":");
    json_write_string(buf, str_from(file->purpose));
    buf_add_text(buf, ",\"status\":\"processed\",\"status_details\":null}");
}

/* Answers 404 in the API's words, or another error. */
static void fail(struct http_request *request, enum err err, struct error *error) {
    if (err == ERR_NOT_FOUND)
        err_set(error, err, "No such File object: %s",
                api_text(request, http_request_param(request, 0)));
    api_fail_err(request, err, error, "id");
}

static bool read_order(struct http_request *request, bool *ret_ascending) {
    struct str order = http_request_query(request, "order");
    *ret_ascending = str_is(order, "asc");
    if (!order.at || *ret_ascending || str_is(order, "desc")) return true;
    api_fail_param(request, "invalid_value", "order",
                   "Invalid value for 'order': '%s'. Supported values are: 'asc' and 'desc'.",
                   api_text(request, order));
    return false;
}

static void write_id(struct buf *buf, const char *key, const struct store_file *file) {
    buf_printf(buf, ",\"%s\":", key);
    if (file)
        json_write_string(buf, str_from(file->id));
    else
        buf_add_text(buf, "null");
}

static void answer_list(struct http_request *request, const struct store_file *files, size_t count,
                        bool has_more) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0) buf_add_byte(&body, ',');
        files_write_json(&body, &files[i]);
    }
    buf_add_byte(&body, ']');
    write_id(&body, "first_id", count ? &files[0] : NULL);
    write_id(&body, "last_id", count ? &files[count - 1] : NULL);
    buf_printf(&body, ",\"has_more\":%s}", has_more ? "true" : "false");
    api_answer_json(request, &body);
}

void files_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct error error;
    struct store_file_list list = {.after = http_request_query(request, "after"),
                                   .purpose = http_request_query(request, "purpose"),
                                   .owner = api_sees_owner(request),
                                   .now_unix_s = clock_unix_s()};
    if (!api_read_limit(request, API_FILES_LIST_MAX, API_FILES_LIST_MAX, &list.limit) ||
        !read_order(request, &list.ascending))
        return;
    struct store_file *files = mem_new(list.limit, sizeof *files);
    size_t count = 0;
    bool has_more = false;
    enum err err = store_file_list(api->options.store, &list, files, &count, &has_more, &error);
    if (err == OK)
        answer_list(request, files, count, has_more);
    else if (err == ERR_INVALID)
        api_fail_param(request, "invalid_value", "after",
                       "Invalid value for 'after': '%s' is not a file that can be listed.",
                       api_text(request, list.after));
    else
        api_fail_err(request, err, &error, NULL);
    free(files);
}

/* Reads the file of the path. False, and answered with 404, if it does not exist or the caller may
 * not see it. */
static bool find_file(struct api *api, struct http_request *request, struct store_file *ret_file) {
    struct error error;
    enum err err = store_file_get(api->options.store, http_request_param(request, 0),
                                  clock_unix_s(), ret_file, &error);
    if (err == OK && !api_may_see(request, ret_file->owner)) err = ERR_NOT_FOUND;
    if (err != OK) fail(request, err, &error);
    return err == OK;
}

void files_get(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_file file;
    struct buf body;
    if (!find_file(api, request, &file)) return;
    buf_init(&body, 65536);
    files_write_json(&body, &file);
    api_answer_json(request, &body);
}

/* Writes Content-Disposition; characters that could end the quoted string or the line are
 * replaced. */
static void write_disposition(char *ret_text, size_t text_bytes, const char *filename) {
    size_t used = (size_t)snprintf(ret_text, text_bytes, "attachment; filename=\"");
    for (; *filename && used + 2 < text_bytes; filename++) {
        bool plain = *filename >= 0x20 && *filename < 0x7F && *filename != '"' && *filename != '\\';
        ret_text[used++] = plain ? *filename : '_';
    }
    ret_text[used++] = '"';
    ret_text[used] = '\0';
}

static void note_damaged(void *context, const char *sha256_hex) {
    struct api *api = context;
    damaged_add(&api->damaged, sha256_hex);
}

void files_content(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_file file;
    struct error error;
    int fd;
    if (!find_file(api, request, &file)) return;
    enum err err = store_file_open(api->options.store, http_request_param(request, 0),
                                   clock_unix_s(), &fd, &file, &error);
    if (err != OK) {
        fail(request, err, &error);
        return;
    }
    char hex[SHA256_HEX_BYTES], etag[SHA256_HEX_BYTES + 2], disposition[STORE_FILENAME_BYTES + 32];
    sha256_hex(file.sha256, hex);
    if (damaged_has(&api->damaged, hex)) {
        os_close(fd);
        err = err_set(&error, ERR_CORRUPT, "the bytes of %s are damaged on the disk", file.id);
        fail(request, err, &error);
        return;
    }
    snprintf(etag, sizeof etag, "\"%s\"", hex);
    write_disposition(disposition, sizeof disposition, file.filename);
    http_answer_file(request, &(struct http_file){.fd = fd,
                                                  .bytes = file.bytes,
                                                  .content_type = "application/octet-stream",
                                                  .etag = etag,
                                                  .disposition = disposition,
                                                  .sha256_hex = hex,
                                                  .damaged = note_damaged,
                                                  .context = api});
}

void files_delete(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_file file;
    struct error error;
    struct buf body;
    struct str id = http_request_param(request, 0);
    if (!find_file(api, request, &file) || !api_audit(api, request, "file.delete", file.id)) return;
    enum err err = store_file_delete(api->options.store, id, clock_unix_s(), &error);
    if (err != OK) {
        api_audit_failed(api, request, "file.delete", file.id, &error);
        fail(request, err, &error);
        return;
    }
    buf_init(&body, 4096);
    buf_add_text(&body, "{\"id\":");
    json_write_string(&body, id);
    buf_add_text(&body, ",\"object\":\"file\",\"deleted\":true}");
    api_answer_json(request, &body);
}
