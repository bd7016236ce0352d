/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"
#include "dialects/dialect.h"
#include "http/route.h"

#include <string.h>

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

/* `base` is what is said of OpenAI's clients: those of Anthropic and Ollama add /v1 or /api. */
static void add_question(struct buf *sentence, struct str path, const char *base) {
    bool is_bare =
        str_starts_with(path, STR("/v1/messages")) || str_starts_with(path, STR("/api/"));
    if (is_bare) base = "is http://HOST:PORT for this API, with nothing after it";
    buf_printf(sentence, ". Did you mean %.*s? A client's base URL %s", STR_ARGS(path), base);
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
    if (is_lacking)
        add_question(sentence, buf_str(&with), "ends in /v1, and this one lacks it");
    else if (is_double)
        add_question(sentence, shorter, "ends in /v1, once");
    buf_release(&with);
    return is_lacking || is_double;
}

/* Whether the path is one of a route, with or without "/v1". */
static bool is_path_of_api(const char *method, struct str path) {
    struct buf with;
    buf_init(&with, 1024);
    buf_add_text(&with, "/v1");
    buf_add_str(&with, path);
    bool is_one = is_path(method, path) || (!with.overflowed && is_path(method, buf_str(&with)));
    buf_release(&with);
    return is_one;
}

/* The longest end of the path that is one of a route, if what stands before it came from the base
 * URL: a whole endpoint, as in /v1/chat/completions/chat/completions, or anything before /v1 or
 * /api. */
static bool hint_end(const char *method, struct str path, struct buf *sentence) {
    struct buf with;
    bool is_found = false;
    buf_init(&with, 1024);
    for (size_t at = 1; at < path.bytes && !is_found; at++) {
        struct str end = str_skip(path, at);
        if (*end.at != '/' || end.bytes < 2) continue;
        bool is_whole = str_starts_with(end, STR("/v1/")) || str_starts_with(end, STR("/api/"));
        if (!is_whole && !is_path_of_api(method, (struct str){path.at, at})) continue;
        buf_clear(&with);
        if (!is_whole) buf_add_text(&with, "/v1");
        buf_add_str(&with, end);
        is_found = !with.overflowed && is_path(method, buf_str(&with));
        if (!is_found) continue;
        add_question(sentence, buf_str(&with), "is http://HOST:PORT/v1, with nothing after it");
    }
    buf_release(&with);
    return is_found;
}

/* The path with one slash for several, in `room`; false if it has none too many. */
static bool read_slashes(struct str path, struct buf *room) {
    for (size_t i = 0; i < path.bytes; i++)
        if (path.at[i] != '/' || room->bytes == 0 || room->at[room->bytes - 1] != '/')
            buf_add_byte(room, path.at[i]);
    return room->bytes < path.bytes && !room->overflowed;
}

static bool hint_slashes(const char *method, struct str path, struct buf *sentence) {
    struct buf room;
    buf_init(&room, 1024);
    bool is_found = read_slashes(path, &room);
    struct str single = buf_str(&room);
    if (is_found && is_path(method, single))
        add_question(sentence, single, "ends in one slash at most");
    else
        is_found =
            is_found && (hint_base(method, single, sentence) || hint_end(method, single, sentence));
    buf_release(&room);
    return is_found;
}

void api_hint(const char *method, struct str path, struct buf *sentence) {
    if (hint_base(method, path, sentence) || hint_slashes(method, path, sentence)) return;
    (void)hint_end(method, path, sentence);
}

bool api_alias(struct str target, struct buf *ret_target) {
    static const struct str deployments = {"/deployments/", 13};
    struct str name = {NULL, 0};
    if (!str_starts_with(target, STR("/openai/"))) return false;
    struct str rest = str_skip(target, strlen("/openai"));
    if (str_starts_with(rest, deployments)) {
        struct str after = str_skip(rest, deployments.bytes);
        size_t slash = str_find_byte(after, '/', 0);
        if (slash == SIZE_MAX || slash == 0) return false;
        name = (struct str){after.at, slash};
        rest = str_skip(after, slash);
    }
    size_t question = str_find_byte(rest, '?', 0);
    struct str path = {rest.at, question == SIZE_MAX ? rest.bytes : question};
    if (!str_starts_with(rest, STR("/v1/"))) buf_add_text(ret_target, "/v1");
    buf_add_str(ret_target, path);
    if (name.at) buf_printf(ret_target, "?deployment=%.*s", STR_ARGS(name));
    if (question != SIZE_MAX)
        buf_printf(ret_target, "%c%.*s", name.at ? '&' : '?',
                   STR_ARGS(str_skip(rest, question + 1)));
    return !ret_target->overflowed;
}

bool api_is_lenient(struct str target) {
    return str_starts_with(target, STR("/api/"));
}

bool api_error_form(struct str target, int status, struct str error, struct buf *ret_body) {
    enum dialect_errors form = dialect_errors_of(target);
    if (form == ERRORS_OPENAI) return false;
    dialect_write_error(form, status, error, ret_body);
    return true;
}
