/* SPDX-License-Identifier: Apache-2.0 */

/* The results of a batch while it runs: GET /v1/batches/{id}/results (an extension). A page is
 * measured first, since its headers tell where it ends; then it is read again in pieces. */

#include "api/api_internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE_BYTES ((size_t)4 << 20)

static bool read_after(struct http_request *request, uint64_t *ret_after) {
    struct str text = http_request_query(request, "after");
    *ret_after = 0;
    if (!text.at || str_to_u64(text, ret_after)) return true;
    api_fail_param(request, "invalid_type", "after",
                   "Invalid value for 'after': expected the number of lines taken so far (what "
                   "X-Last-Line said), got '%.100s'.",
                   api_text(request, text));
    return false;
}

static bool read_follow(struct http_request *request, bool *ret_follow) {
    struct str text = http_request_query(request, "follow");
    *ret_follow = str_is(text, "true");
    if (!text.at || *ret_follow || str_is(text, "false")) return true;
    api_fail_param(request, "invalid_value", "follow",
                   "Invalid value for 'follow': '%.100s'. Supported values are: 'true' and "
                   "'false'.",
                   api_text(request, text));
    return false;
}

/* A page that is read from the disk while its client takes it. */
struct results {
    struct runner_results *reader;
    struct page_place place;
    uint64_t last; /* its last line, as its header says */
};

/* True if the pieces so far are of the page. A record that was counted and then found damaged is
 * left out, and later ones would fill its room. */
static bool is_in_page(const struct results *results) {
    const struct page_place *place = &results->place;
    return place->after < results->last || (place->after == results->last && place->skip == 0);
}

static bool read_piece(void *context, size_t room, struct buf *buf) {
    struct results *results = context;
    struct page page = {
        .from = results->place, .lines_max = UINT64_MAX, .bytes_max = UINT64_MAX, .room = room};
    struct page_read read;
    struct error error;
    enum err err = runner_results_read(results->reader, &page, buf, &read, &error);
    if (err == OK) results->place = read.next;
    if (err == OK && !is_in_page(results))
        err = err_set(&error, ERR_CORRUPT, "a record of it is damaged");
    if (err != OK)
        log_warn("err=%s error=\"a page of results is cut off: %s\"", err_name(err), error.text);
    return err == OK;
}

static void results_release(void *context) {
    struct results *results = context;
    runner_results_close(results->reader);
    free(results);
}

/* `first` holds the first bytes of the page. Takes it and the reader over. */
static void answer_page(struct http_request *request, struct runner_results *reader,
                        struct buf *first, const struct page_read *read) {
    char last[24];
    snprintf(last, sizeof last, "%" PRIu64, read->last);
    struct http_header headers[] = {{"X-Incomplete", read->more ? "true" : "false"},
                                    {"X-Last-Line", last}};
    struct http_answer answer = {.status = 200,
                                 .content_type = "application/jsonl",
                                 .body = buf_str(first),
                                 .headers = headers,
                                 .header_count = 2};
    if (read->bytes == first->bytes) {
        runner_results_close(reader);
        http_answer(request, &answer);
        buf_release(first);
        return;
    }
    struct results *results = mem_new(1, sizeof *results);
    *results = (struct results){reader, read->next, read->last};
    http_answer_source(request, &answer, first,
                       &(struct http_source){.bytes = read->bytes,
                                             .context = results,
                                             .read = read_piece,
                                             .release = results_release});
}

void results_get(void *context, struct http_request *request) {
    struct api *api = context;
    struct error error;
    uint64_t after;
    size_t limit;
    bool follow;
    struct store_batch batch;
    if (!read_after(request, &after) || !read_follow(request, &follow) ||
        !api_read_limit(request, API_RESULTS_LIST_MAX, API_RESULTS_LIST_MAX, &limit) ||
        !batches_find(api, request, &batch))
        return;
    store_batch_release(&batch);
    struct buf first;
    buf_init(&first, HTTP_PIECE_BYTES);
    buf_reserve(&first, HTTP_PIECE_BYTES); /* not more by doubling */
    struct runner_results *reader;
    struct page page = {.from = {.after = after},
                        .lines_max = follow ? 0 : limit, /* 0: asks whether the files exist */
                        .bytes_max = PAGE_BYTES,
                        .room = HTTP_PIECE_BYTES,
                        .counts = true};
    struct page_read read;
    runner_results_open(&reader, api->options.runner, http_request_param(request, 0));
    enum err err = runner_results_read(reader, &page, &first, &read, &error);
    if (err == OK && !follow) {
        answer_page(request, reader, &first, &read);
    } else {
        runner_results_close(reader);
        buf_release(&first);
        if (err == OK)
            followers_add(api, request, after, limit);
        else
            api_fail_err(request, err, &error, NULL);
    }
}
