/* SPDX-License-Identifier: Apache-2.0 */

/* The results of a batch while it runs: GET /v1/batches/{id}/results (an extension). */

#include "api/api_internal.h"

#include <inttypes.h>
#include <stdio.h>

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

static void answer_page(struct http_request *request, struct buf *body, uint64_t last, bool more) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, last);
    struct http_header headers[] = {{"X-Incomplete", more ? "true" : "false"},
                                    {"X-Last-Line", text}};
    http_answer(request, &(struct http_answer){.status = 200,
                                               .content_type = "application/jsonl",
                                               .body = buf_str(body),
                                               .headers = headers,
                                               .header_count = 2});
}

void results_get(void *context, struct http_request *request) {
    struct api *api = context;
    struct error error;
    uint64_t after, last = 0;
    size_t limit;
    bool follow, more = true;
    struct store_batch batch;
    if (!read_after(request, &after) || !read_follow(request, &follow) ||
        !api_read_limit(request, API_RESULTS_LIST_MAX, API_RESULTS_LIST_MAX, &limit) ||
        !batches_find(api, request, &batch))
        return;
    store_batch_release(&batch);
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    struct runner_page page = {.after = after, .lines_max = limit, .bytes_max = PAGE_BYTES};
    if (follow) page.lines_max = 0; /* only asks whether the result files still exist */
    enum err err = runner_batch_results(api->options.runner, http_request_param(request, 0), &page,
                                        &body, &last, &more, &error);
    if (err != OK)
        api_fail_err(request, err, &error, NULL);
    else if (follow)
        followers_add(api, request, after, limit);
    else
        answer_page(request, &body, last, more);
    buf_release(&body);
}
