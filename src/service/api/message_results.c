/* SPDX-License-Identifier: Apache-2.0 */

/* The results of a Message Batch: each record becomes one line in Anthropic's form while the client
 * takes it. Their size is not known before. */

#include "api/api_internal.h"
#include "api/message_batches.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "batch/jsonl_file.h"
#include "batch/message_batch.h"
#include "json/span.h"

#include <stdlib.h>

#define PAGE_ROOM_BYTES ((size_t)64 << 10) /* records that are read at once */

/* Results on their way. */
struct results {
    struct store_batch batch;
    struct runner_results *reader; /* NULL: no request of the batch was validated */
    struct page_place place;
    bool is_over;            /* the reader has no more records */
    struct jsonl_file input; /* in place of the reader */
    struct buf records;      /* bytes of records; the last one may not be whole */
    struct buf ready;        /* lines that the client has not taken */
    size_t taken;            /* bytes of them that it has */
};

static void results_release(void *context) {
    struct results *results = context;
    runner_results_close(results->reader);
    jsonl_file_close(&results->input);
    store_batch_release(&results->batch);
    buf_release(&results->records);
    buf_release(&results->ready);
    free(results);
}

/* Makes the next lines of the records that are whole; none of them ends in the first `searched`
 * bytes. */
static enum err convert(struct results *results, size_t searched, struct error *error) {
    struct str rest = buf_str(&results->records);
    for (size_t end; (end = str_find_byte(rest, '\n', searched)) != SIZE_MAX; searched = 0) {
        if (!message_batch_add_result(&results->ready, (struct str){rest.at, end}))
            return err_set(error, ERR_CORRUPT, "a record is no result");
        rest = str_skip(rest, end + 1);
    }
    buf_consume(&results->records, results->records.bytes - rest.bytes);
    return OK;
}

static enum err read_records(struct results *results, struct error *error) {
    struct page page = {.from = results->place,
                        .lines_max = UINT64_MAX,
                        .bytes_max = UINT64_MAX,
                        .room = PAGE_ROOM_BYTES};
    struct page_read read;
    size_t before = results->records.bytes;
    enum err err = runner_results_read(results->reader, &page, &results->records, &read, error);
    if (err != OK) return err;
    results->place = read.next;
    results->is_over = results->records.bytes == before && !read.more;
    if (results->records.bytes == before && read.more)
        return err_set(error, ERR_CORRUPT, "a record of it is damaged");
    return convert(results, before, error);
}

/* The batch ended before its input was read: the input tells its requests. */
static enum err read_input(struct results *results, struct error *error) {
    struct str line;
    while (results->ready.bytes < PAGE_ROOM_BYTES && jsonl_file_next(&results->input, &line)) {
        struct str custom_id = {NULL, 0};
        if (json_span_read(line, &line) && json_span_is_object(line))
            custom_id = json_span_get(line, "custom_id");
        if (!custom_id.at || !json_span_is_string(custom_id))
            return err_set(error, ERR_CORRUPT, "a line of the input has no custom_id");
        message_batch_add_unrun(&results->ready, custom_id, &results->batch);
    }
    if (results->input.failed) {
        *error = results->input.why;
        return ERR_IO;
    }
    results->is_over = results->ready.bytes == 0;
    return OK;
}

static enum err read_more(struct results *results, struct error *error) {
    enum err err = OK;
    buf_clear(&results->ready);
    results->taken = 0;
    while (err == OK && results->ready.bytes == 0 && !results->is_over)
        err = results->reader ? read_records(results, error) : read_input(results, error);
    return err;
}

static bool read_piece(void *context, size_t room, struct buf *buf) {
    struct results *results = context;
    struct error error;
    enum err err = OK;
    if (results->taken == results->ready.bytes) err = read_more(results, &error);
    if (err != OK) {
        log_warn("batch=%s err=%s error=\"the results are cut off: %s\"", results->batch.id,
                 err_name(err), error.text);
        return false;
    }
    size_t left = results->ready.bytes - results->taken;
    size_t count = left < room ? left : room;
    if (count > 0) buf_add(buf, results->ready.at + results->taken, count);
    results->taken += count;
    return true;
}

/* Opens what the results come from. ERR_NOT_FOUND if it was deleted or has expired. */
static enum err open_source(struct api *api, struct results *results, struct error *error) {
    struct store_file file;
    const struct store_batch *batch = &results->batch;
    int fd;
    if (batch->total > 0) {
        runner_results_open(&results->reader, api->options.runner, str_from(batch->id));
        return OK;
    }
    enum err err = store_file_open(api->options.store, str_from(batch->input_file_id),
                                   clock_unix_s(), &fd, &file, error);
    if (err == OK) jsonl_file_take(&results->input, fd, file.bytes);
    return err;
}

void message_batches_results(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    struct error error;
    if (!message_batches_find(api, request, &batch)) return;
    if (!message_batch_has_ended(&batch)) {
        store_batch_release(&batch);
        api_fail(request, 404, "not_found", NULL,
                 "The batch has no results yet: its processing_status is not 'ended'.");
        return;
    }
    struct results *results = mem_new(1, sizeof *results);
    results->batch = batch;
    jsonl_file_init(&results->input);
    buf_init(&results->records, BUF_UNLIMITED);
    buf_init(&results->ready, BUF_UNLIMITED);
    enum err err = open_source(api, results, &error);
    if (err == OK) err = read_more(results, &error);
    if (err != OK) {
        results_release(results);
        if (err == ERR_NOT_FOUND && !error.is_system)
            api_fail(request, 404, "not_found", NULL,
                     "The results of this batch were deleted or have expired.");
        else
            api_fail_err(request, err, &error, NULL);
        return;
    }
    struct buf first;
    buf_init(&first, 0);
    http_answer_source(request,
                       &(struct http_answer){.status = 200, .content_type = "application/x-jsonl"},
                       &first,
                       &(struct http_source){.bytes = HTTP_SIZE_UNKNOWN,
                                             .context = results,
                                             .read = read_piece,
                                             .release = results_release});
}
