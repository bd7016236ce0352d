/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"
#include "http/route.h"

#include <string.h>

/* Ollama's own API, whose clients are often pointed at other servers, and what to use instead. */
static const struct {
    const char *path, *instead;
} ollama[] = {
    {"/api/chat", "/v1/chat/completions"}, {"/api/generate", "/v1/completions"},
    {"/api/embed", "/v1/embeddings"},      {"/api/embeddings", "/v1/embeddings"},
    {"/api/tags", "/v1/models"},           {"/api/ps", "/v1/models"},
    {"/api/show", "/v1/models"},           {"/api/version", "/version"},
};

/* Whether a route has this path, for any method. */
static bool is_path(const char *method, struct str path) {
    char room[512];
    struct arena arena;
    struct route_match match;
    arena_init(&arena, sizeof room);
    enum route_found found = route_find(api_routes, api_route_count, method, path, &arena, &match);
    arena_release(&arena);
    return found == ROUTE_FOUND || found == ROUTE_NO_METHOD;
}

/* The path of a client whose base URL lacks "/v1", or has it twice. */
static bool hint_base(const char *method, struct str path, struct buf *sentence) {
    struct buf with;
    struct str shorter = str_skip(path, strlen("/v1"));
    buf_init(&with, 1024);
    buf_add_text(&with, "/v1");
    buf_add_str(&with, path);
    bool is_lacking = !with.overflowed && is_path(method, buf_str(&with));
    bool is_double = str_starts_with(path, STR("/v1/v1/")) && is_path(method, shorter);
    if (is_lacking || is_double)
        buf_printf(sentence, ". Did you mean %.*s? A client's base URL ends in /v1, %s",
                   STR_ARGS(is_lacking ? buf_str(&with) : shorter),
                   is_lacking ? "and this one lacks it" : "once");
    buf_release(&with);
    return is_lacking || is_double;
}

void api_hint(const char *method, struct str path, struct buf *sentence) {
    if (hint_base(method, path, sentence)) return;
    if (!str_starts_with(path, STR("/api/"))) return;
    buf_add_text(sentence, ". This server speaks OpenAI's API and not Ollama's");
    for (size_t i = 0; i < sizeof ollama / sizeof *ollama; i++)
        if (str_is(path, ollama[i].path)) buf_printf(sentence, "; use %s", ollama[i].instead);
    buf_add_text(sentence, ". The base URL of a client is http://HOST:PORT/v1");
}
