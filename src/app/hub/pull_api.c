/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_api.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define TRIES_MAX 6
#define PAGES_MAX 200
#define POLL_MS 100

/* --- URLs --- */

/* Appends a text with the escapes of RFC 3986. `keeps_slash`: the text is a path. */
static void add_escaped(struct buf *url, const char *text, bool keeps_slash) {
    for (const char *c = text; *c; c++) {
        bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                        (*c >= '0' && *c <= '9') || strchr("-._~", *c) ||
                        (*c == '/' && keeps_slash);
        if (is_plain)
            buf_add_byte(url, *c);
        else
            buf_printf(url, "%%%02X", (unsigned char)*c);
    }
}

static enum err end_url(struct buf *url, char ret_url[PULL_URL_BYTES], struct error *error) {
    enum err err = url->overflowed || url->bytes >= PULL_URL_BYTES
                       ? err_set(error, ERR_LIMIT, "a URL is too long")
                       : OK;
    if (err == OK) memcpy(ret_url, url->at, url->bytes + 1);
    buf_release(url);
    return err;
}

enum err pull_api_file_url(const struct pull_source *source, const char *path,
                           char ret_url[PULL_URL_BYTES], struct error *error) {
    struct buf url;
    buf_init(&url, PULL_URL_BYTES);
    buf_printf(&url, "%s/%s/resolve/%s/", source->hub->endpoint, source->repository,
               source->commit);
    add_escaped(&url, path, true);
    return end_url(&url, ret_url, error);
}

static enum err revision_url(const struct pull_source *source, char ret_url[PULL_URL_BYTES],
                             struct error *error) {
    struct buf url;
    buf_init(&url, PULL_URL_BYTES);
    buf_printf(&url, "%s/api/models/%s/revision/", source->hub->endpoint, source->repository);
    add_escaped(&url, source->revision, false);
    return end_url(&url, ret_url, error);
}

static enum err tree_url(const struct pull_source *source, char ret_url[PULL_URL_BYTES],
                         struct error *error) {
    struct buf url;
    buf_init(&url, PULL_URL_BYTES);
    buf_printf(&url, "%s/api/models/%s/tree/%s?recursive=true&expand=false", source->hub->endpoint,
               source->repository, source->commit);
    return end_url(&url, ret_url, error);
}

/* --- refusals --- */

static enum err explain_gated(const struct pull_source *source, struct error *error) {
    const struct pull_hub *hub = source->hub;
    if (*hub->token)
        return err_set(error, ERR_DENIED,
                       "%s is gated, and the account of your token has no access: ask for it at "
                       "%.150s/%s (its authors may take their time), then pull again",
                       source->repository, hub->endpoint, source->repository);
    return err_set(error, ERR_DENIED,
                   "%s is gated: accept its terms at %.100s/%s with an account, make a token that "
                   "may read it at %.100s/settings/tokens, and set HF_TOKEN to it",
                   source->repository, hub->endpoint, source->repository, hub->endpoint);
}

static enum err explain_not_found(const struct pull_source *source, struct error *error) {
    return err_set(error, ERR_NOT_FOUND, "%.100s has no model %s%s", source->hub->endpoint,
                   source->repository,
                   *source->hub->token ? ", or none that your token may see"
                                       : ", or it is private: no HF_TOKEN is set");
}

static enum err explain_status(const struct pull_source *source, const struct pull_answer *answer,
                               struct error *error) {
    const char *code = answer->error_code, *says = answer->error_text;
    bool is_token = answer->is_home && answer->status == 401 && *source->hub->token &&
                    strstr(says, "Invalid credentials");
    if (strcmp(code, "GatedRepo") == 0) return explain_gated(source, error);
    if (strcmp(code, "RevisionNotFound") == 0)
        return err_set(error, ERR_NOT_FOUND, "%s has no revision '%.100s'", source->repository,
                       source->revision);
    if (strcmp(code, "EntryNotFound") == 0)
        return err_set(error, ERR_NOT_FOUND, "%s lacks a file that its own list names",
                       source->repository);
    if (is_token)
        return err_set(error, ERR_DENIED,
                       "the hub refuses the token: HF_TOKEN, or %.250s, is not or no longer one",
                       source->hub->token_place);
    if (strcmp(code, "RepoNotFound") == 0 ||
        (answer->is_home && (answer->status == 404 || answer->status == 401)))
        return explain_not_found(source, error);
    return err_set(error, ERR_UNAVAILABLE, "%s answers with status %d%s%s",
                   answer->is_home ? "the hub" : "where the hub keeps the file", answer->status,
                   *says ? ": " : "", says);
}

enum err pull_api_explain(const struct pull_source *source, const struct pull_answer *answer,
                          struct error *error) {
    if (answer->end == PULL_END_BROKEN)
        return err_set(error, ERR_UNAVAILABLE, "%.150s: %s", source->hub->endpoint, answer->why);
    if (answer->end != PULL_END_WHOLE)
        return err_set(error, ERR_UNAVAILABLE, "%.150s cannot be used: %s", source->hub->endpoint,
                       answer->why);
    return explain_status(source, answer, error);
}

/* --- questions --- */

/* One question, and its answer once is_over. */
struct question {
    const struct pull_source *source;
    struct buf text;
    char next[PULL_URL_BYTES];
    bool is_over, is_good, may_pass;
    int64_t wait_ms;
    uint32_t tries;
    struct error error;
};

static bool no_bytes(void *context, void *owner, const struct pull_head *head, struct str piece) {
    (void)context;
    (void)owner;
    (void)head;
    (void)piece;
    return false;
}

static void on_done(void *context, void *owner, const struct pull_answer *answer) {
    struct question *question = owner;
    (void)context;
    question->is_over = true;
    question->is_good = answer->end == PULL_END_WHOLE && answer->status == 200;
    question->may_pass = pull_answer_is_passing(answer);
    question->wait_ms = pull_answer_wait_ms(answer, question->tries);
    memcpy(question->next, answer->next, sizeof question->next);
    buf_clear(&question->text);
    buf_add_str(&question->text, answer->text);
    if (!question->is_good) (void)pull_api_explain(question->source, answer, &question->error);
}

static bool is_stopped(const volatile bool *stop) {
    return stop && *stop;
}

/* Asks until an answer is good, final or the last try; its text is in `question`. */
static enum err ask(struct pull_web *web, struct question *question, const char *url,
                    const volatile bool *stop, struct error *error) {
    for (question->tries = 1;; question->tries++) {
        question->is_over = false;
        pull_web_start(web, &(struct pull_request){.owner = question, .url = url});
        while (!question->is_over && !is_stopped(stop)) pull_web_poll(web, POLL_MS);
        if (question->is_over && question->is_good) return OK;
        if (question->is_over && (!question->may_pass || question->tries == TRIES_MAX)) {
            *error = question->error;
            return question->error.code;
        }
        int64_t until_ns = clock_monotonic_ns() + question->wait_ms * 1000000;
        while (clock_monotonic_ns() < until_ns && !is_stopped(stop)) clock_sleep_ms(20);
        if (is_stopped(stop)) return err_set(error, ERR_CANCELLED, "stopped");
    }
}

static enum err list_pages(struct pull_web *web, struct question *question,
                           struct pull_listing *listing, const volatile bool *stop,
                           struct error *error) {
    char url[PULL_URL_BYTES];
    enum err err = tree_url(question->source, url, error);
    for (int page = 0; err == OK; page++) {
        err = ask(web, question, url, stop, error);
        if (err == OK) err = pull_listing_read(listing, buf_str(&question->text), error);
        if (err != OK || !*question->next) break;
        if (page == PAGES_MAX || !pull_hub_may_ask(question->source->hub, question->next))
            err = err_set(error, ERR_INVALID, "the hub's list of files goes on %s",
                          page == PAGES_MAX ? "for ever" : "at a URL that may not be asked");
        memcpy(url, question->next, sizeof url);
    }
    return err;
}

enum err pull_api_list(struct pull_source *source, struct pull_listing *listing,
                       const volatile bool *stop, struct error *error) {
    struct question question = {.source = source};
    struct pull_web *web;
    char url[PULL_URL_BYTES];
    const struct pull_web_options options = {
        .hub = source->hub, .exchanges_max = 1, .bytes = no_bytes, .done = on_done};
    enum err err = pull_web_open(&web, &options, error);
    if (err != OK) return err;
    buf_init(&question.text, PULL_TEXT_BYTES_MAX);
    err = revision_url(source, url, error);
    if (err == OK) err = ask(web, &question, url, stop, error);
    if (err == OK) err = pull_commit_read(buf_str(&question.text), source->commit, error);
    if (err == OK) err = list_pages(web, &question, listing, stop, error);
    pull_web_close(web);
    buf_release(&question.text);
    return err;
}
