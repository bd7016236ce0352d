/* SPDX-License-Identifier: Apache-2.0 */

/* The pages of quern in a browser: GET / and the files that it needs. */

#include "pages/pages.h"

#include "api/api_internal.h"

#include <assert.h>

/* Nothing but this server's files and routes; no frame around a page; no markup made from text. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "                    \
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "            \
    "require-trusted-types-for 'script'; trusted-types 'none'"

static const struct pages_file *find(struct str name) {
    for (size_t i = 0; i < pages_file_count; i++)
        if (str_is(name, pages_files[i].name)) return &pages_files[i];
    return NULL;
}

/* GET / depends on it. */
static const struct http_header by_accept = {"Vary", "Accept"};

/* Browsers ask for HTML. Clients of Ollama look at / to see whether it runs. */
static bool wants_page(struct http_request *request) {
    struct str accept = http_request_header(request, "accept");
    for (size_t i = 0; i + 9 <= accept.bytes; i++)
        if (str_starts_with(str_skip(accept, i), STR("text/html"))) return true;
    return false;
}

/* A browser keeps a file, and asks each time whether it is still the same: a newer binary shows its
 * own pages at once. */
static void answer(struct http_request *request, const struct pages_file *file) {
    const struct http_header headers[] = {
        {"Cache-Control", "no-cache"},
        {"Content-Security-Policy", POLICY},
        {"ETag", file->etag},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        by_accept,
    };
    bool is_known = str_is(http_request_header(request, "if-none-match"), file->etag);
    http_answer(request, &(struct http_answer){
                             .status = is_known ? 304 : 200,
                             .content_type = file->content_type,
                             .body = is_known ? STR("") : file->body,
                             .is_static = true,
                             .headers = headers,
                             .header_count = sizeof headers / sizeof *headers,
                         });
}

void pages_index(void *context, struct http_request *request) {
    (void)context;
    const struct pages_file *file = find(STR("index.html"));
    assert(file);
    if (wants_page(request)) {
        answer(request, file);
        return;
    }
    http_answer(request, &(struct http_answer){.status = 200,
                                               .content_type = "text/plain; charset=utf-8",
                                               .body = STR("Ollama is running"),
                                               .is_static = true,
                                               .headers = &by_accept,
                                               .header_count = 1});
}

void pages_get(void *context, struct http_request *request) {
    (void)context;
    struct str name = http_request_param(request, 0);
    const struct pages_file *file = find(name);
    if (file)
        answer(request, file);
    else
        api_fail(request, 404, NULL, NULL, "No such page: %.100s", api_text(request, name));
}
