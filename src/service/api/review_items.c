/* SPDX-License-Identifier: Apache-2.0 */

/* The queues of cards from which curators judge a batch (an extension): GET /v1/batches/{id}/cards,
 * and GET /v1/batches/{id}/schema, the shape of their answers. */

#include "api/api_internal.h"
#include "api/judgement_body.h"

#include "base/mem.h"
#include "batch/state.h"
#include "curation/queue.h"
#include "curation/review_item.h"

#include <inttypes.h>
#include <stdlib.h>

#define CATCH_UP_MS 200 /* for results that have just come */
#define PAGE_CARDS 10
#define PAGE_CARDS_MAX 50
#define PAGE_BYTES ((size_t)4 << 20) /* a page ends with the card that reaches it */
#define PAGE_ROUNDS 4 /* over lines that cannot be shown; the client gets the place to go on from */
#define SAMPLE_DEFAULT 100
#define SAMPLE_MAX 1000000

/* A batch whose lines are read for one request. */
struct open_batch {
    struct store_batch batch;
    struct review_lines lines;
    struct answers_state state;
    struct answers_requests requests;
    bool is_open;
};

struct ask {
    enum queue_kind kind;
    uint64_t seed, size;
    struct str with, after;
    const char *curator;
    bool any;
    size_t limit;
};

/* --- the query --- */

static bool read_choice(struct http_request *request, const char *name, const char *const *choices,
                        size_t *ret_index) {
    struct str text = http_request_query(request, name);
    struct buf known;
    *ret_index = 0;
    for (size_t i = 0; choices[i]; i++) {
        if (text.at && !str_is(text, choices[i])) continue;
        *ret_index = i;
        return true;
    }
    buf_init(&known, 4096);
    for (size_t i = 0; choices[i]; i++) buf_printf(&known, "%s'%s'", i ? ", " : "", choices[i]);
    api_fail_param(request, "invalid_value", name,
                   "Invalid value for '%s': '%.100s'. Supported values are: %s.", name,
                   api_text(request, text), known.at);
    buf_release(&known);
    return false;
}

static bool read_number(struct http_request *request, const char *name, uint64_t least,
                        uint64_t most, uint64_t *number) {
    struct str text = http_request_query(request, name);
    uint64_t value = *number;
    if (!text.at || (str_to_u64(text, &value) && value >= least && value <= most)) {
        *number = value;
        return true;
    }
    api_fail_param(request, "invalid_value", name,
                   "Invalid value for '%s': expected an integer from %" PRIu64 " to %" PRIu64
                   ", got '%.100s'.",
                   name, least, most, api_text(request, text));
    return false;
}

static bool read_curator(struct http_request *request, const char **ret_curator) {
    struct str text = http_request_query(request, "curator");
    struct refusal refusal;
    *ret_curator = judgements_curator(request);
    if (!text.at) return true;
    if (!judgement_curator_check(text, &refusal)) {
        api_refuse(request, &refusal);
        return false;
    }
    *ret_curator = api_text(request, text);
    return true;
}

static bool read_ask(struct http_request *request, struct ask *ask) {
    static const char *const judged[] = {"no", "any", NULL};
    size_t kind, any;
    ask->seed = 1;
    ask->size = SAMPLE_DEFAULT;
    ask->with = http_request_query(request, "with");
    ask->after = http_request_query(request, "after");
    if (!read_choice(request, "queue", queue_names, &kind) ||
        !read_choice(request, "judged", judged, &any) ||
        !read_number(request, "seed", 0, UINT64_MAX, &ask->seed) ||
        !read_number(request, "size", 1, SAMPLE_MAX, &ask->size) ||
        !api_read_limit(request, PAGE_CARDS, PAGE_CARDS_MAX, &ask->limit) ||
        !read_curator(request, &ask->curator))
        return false;
    ask->kind = (enum queue_kind)kind;
    ask->any = any != 0;
    if ((ask->kind == QUEUE_RUNS_DISAGREE) == (ask->with.at != NULL)) return true;
    api_fail_param(request, ask->with.at ? "invalid_value" : "missing_required_parameter", "with",
                   "Invalid 'with': the queue 'runs_disagree' needs another batch, and no other "
                   "queue has one.");
    return false;
}

/* --- batches --- */

/* Opens the lines of a batch, and takes its row over. False, with an answer sent, if the lines
 * cannot be read. */
static bool open_lines(struct api *api, struct http_request *request, struct open_batch *open) {
    struct review_lines *lines = &open->lines;
    lines->batch_id = open->batch.id;
    lines->index = answers_take(api->answers, &open->batch);
    answers_requests(lines->index, &open->requests);
    answers_catch_up(lines->index, CATCH_UP_MS);
    answers_requests(lines->index, &open->requests);
    answers_state(lines->index, &open->state);
    open->is_open = open->state.err == OK && open->requests.err == OK;
    if (open->is_open) {
        answers_reader_open(&lines->reader, lines->index);
        return true;
    }
    if (open->state.err != OK)
        api_fail_err(request, open->state.err, &open->state.error, NULL);
    else
        api_fail_err(request, open->requests.err, &open->requests.error, NULL);
    answers_drop(lines->index);
    store_batch_release(&open->batch);
    return false;
}

/* True if the index has reached the end of the results once, and all requests were read. */
static bool is_made(const struct open_batch *open) {
    return !open->is_open || (open->state.is_made && open->requests.is_read);
}

static void close_lines(struct open_batch *open) {
    if (!open->is_open) return;
    answers_reader_close(open->lines.reader);
    answers_drop(open->lines.index);
    store_batch_release(&open->batch);
}

static bool open_path(struct api *api, struct http_request *request, struct open_batch *open) {
    return batches_find(api, request, &open->batch) && open_lines(api, request, open);
}

/* Opens the batch of `with`. False, with an answer sent, if the caller may not see it. */
static bool open_with(struct api *api, struct http_request *request, struct str id,
                      struct open_batch *open) {
    struct error error;
    if (!id.at) return true;
    enum err err = runner_batch_get(api->options.runner, id, &open->batch, &error);
    if (err == OK && !api_may_see(request, open->batch.owner)) {
        store_batch_release(&open->batch);
        err = err_set(&error, ERR_NOT_FOUND, "No batch found with id '%.80s'.",
                      api_text(request, id));
    }
    if (err == OK) return open_lines(api, request, open);
    api_fail_err(request, err, &error, "with");
    return false;
}

/* Appends the progress of the reading. */
static void write_progress(struct buf *buf, const struct open_batch *one,
                           const struct open_batch *with) {
    bool made = is_made(one) && is_made(with);
    buf_printf(buf, ",\"is_made\":%s,", made ? "true" : "false");
    answers_write_counts(buf, &one->state, &one->batch);
    if (!with->is_open) return;
    buf_add_text(buf, ",\"with\":{");
    answers_write_counts(buf, &with->state, &with->batch);
    buf_add_byte(buf, '}');
}

/* --- the page --- */

/* A page of cards while it is written. */
struct writing {
    struct buf *body;
    const struct review_source *source;
    struct answers_query *query;
    size_t begun; /* bytes of the body before the first card */
    size_t limit, written;
    uint32_t last; /* the line that was looked at last; ANSWERS_NO_LINE: none */
    bool has_more;
    uint64_t total, left;
};

/* Appends the cards of some lines. A line that cannot be shown is left out, and the curator gets
 * the lines behind it. */
static enum err write_cards(struct writing *writing, const struct answers_page *page,
                            struct error *error) {
    struct buf *body = writing->body;
    for (size_t i = 0; i < page->count; i++) {
        size_t before = body->bytes;
        if (before - writing->begun >= PAGE_BYTES) {
            writing->has_more = true;
            writing->limit = writing->written;
            return OK;
        }
        if (writing->written > 0) buf_add_byte(body, ',');
        enum err err = review_item_write(body, writing->source, page->lines[i], error);
        if (err == ERR_LIMIT || err == ERR_CORRUPT)
            buf_truncate(body, before);
        else if (err != OK)
            return err;
        else
            writing->written++;
        writing->last = page->lines[i];
    }
    return OK;
}

/* Finds and writes cards until the page is full. */
static enum err fill_page(struct writing *writing, struct error *error) {
    struct answers_index *index = writing->source->lines->index;
    struct answers_page *page = mem_new(1, sizeof *page);
    struct buf after;
    enum err err = OK;
    bool is_first = true;
    int rounds = 0;
    buf_init(&after, 512);
    buf_add_str(&after, writing->query->after);
    while (err == OK && rounds++ < PAGE_ROUNDS &&
           (is_first || (writing->has_more && writing->written < writing->limit))) {
        writing->query->after = buf_str(&after);
        writing->query->limit = writing->limit - writing->written;
        err = answers_find(index, writing->query, page, error);
        if (err != OK) break;
        if (is_first) writing->total = page->matched;
        if (is_first) writing->left = page->unseen;
        is_first = false;
        writing->has_more = page->has_more;
        err = write_cards(writing, page, error);
        buf_clear(&after);
        buf_add_str(&after, buf_str(&page->after));
        answers_page_release(page);
    }
    free(page);
    buf_release(&after);
    return err;
}

/* Writes the whole answer. */
static enum err write_page(struct writing *writing, const struct open_batch *one,
                           const struct open_batch *with, struct error *error) {
    struct buf *body = writing->body;
    buf_add_text(body, "{\"object\":\"list\",\"data\":[");
    writing->begun = body->bytes;
    enum err err = fill_page(writing, error);
    if (err != OK) return err;
    buf_printf(body, "],\"total\":%" PRIu64 ",\"left\":%" PRIu64 ",\"has_more\":%s,\"after\":",
               writing->total, writing->left, writing->has_more ? "true" : "false");
    if (writing->last == ANSWERS_NO_LINE) {
        buf_add_text(body, "null");
    } else {
        buf_add_byte(body, '"');
        answers_write_cursor(body, one->lines.index, writing->query, writing->last);
        buf_add_byte(body, '"');
    }
    write_progress(body, one, with);
    buf_add_byte(body, '}');
    return OK;
}

/* Answers a page without cards. The answers are being read, and the client is to ask again. */
static void answer_unread(struct http_request *request, const struct ask *ask,
                          const struct open_batch *one, const struct open_batch *with) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"object\":\"list\",\"data\":[],\"total\":null,\"left\":null,"
                        "\"has_more\":true,\"after\":");
    if (ask->after.bytes > 0)
        json_write_string(&body, ask->after);
    else
        buf_add_text(&body, "null");
    write_progress(&body, one, with);
    buf_add_byte(&body, '}');
    api_answer_json(request, &body);
}

static void answer_page(struct http_request *request, const struct ask *ask,
                        const struct review_source *source, struct answers_query *query,
                        const struct open_batch *one, const struct open_batch *with) {
    struct buf body;
    struct error error;
    struct writing writing = {.body = &body,
                              .source = source,
                              .query = query,
                              .limit = ask->limit,
                              .last = ANSWERS_NO_LINE};
    query->after = ask->after;
    query->marks.shows_seen = ask->any;
    query->turn = source->turn;
    query->is_gone = api_is_gone;
    query->context = request;
    buf_init(&body, BUF_UNLIMITED);
    enum err err = write_page(&writing, one, with, &error);
    if (err == OK) {
        api_answer_json(request, &body);
        return;
    }
    buf_release(&body);
    if (err == ERR_INVALID)
        api_fail_param(request, "invalid_value", "after",
                       "Invalid value for 'after': '%.100s' is no place in the queue '%s'.",
                       api_text(request, ask->after), queue_names[ask->kind]);
    else
        api_fail_err(request, err, &error, NULL);
}

static void answer_cards(struct api *api, struct http_request *request, const struct ask *ask,
                         struct open_batch *one, struct open_batch *with) {
    struct queue queue;
    struct error error;
    const struct queue_options options = {.kind = ask->kind,
                                          .seed = ask->seed,
                                          .size = ask->size,
                                          .store = api->options.store,
                                          .batch_id = one->batch.id,
                                          .lines = (uint32_t)one->batch.total,
                                          .curator = ask->curator,
                                          .index = one->lines.index,
                                          .with = with->lines.index,
                                          .is_gone = api_is_gone,
                                          .context = request};
    struct large_turn turn = {.large = &api->large};
    const struct review_source source = {.store = api->options.store,
                                         .lines = &one->lines,
                                         .with = with->is_open ? &with->lines : NULL,
                                         .turn = &turn};
    if (!is_made(one) || !is_made(with)) {
        answer_unread(request, ask, one, with);
        return;
    }
    enum err err = queue_make(&queue, &options, &error);
    if (err != OK) {
        api_fail_err(request, err, &error, NULL);
        return;
    }
    answer_page(request, ask, &source, &queue.query, one, with);
    large_give(&turn);
    queue_release(&queue);
}

void cards_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct ask ask;
    struct open_batch one = {.is_open = false}, with = {.is_open = false};
    if (!read_ask(request, &ask) || !open_path(api, request, &one)) return;
    if (open_with(api, request, ask.with, &with)) answer_cards(api, request, &ask, &one, &with);
    close_lines(&with);
    close_lines(&one);
}

/* A batch whose file was refused: its input may be missing, and no request asks for anything. */
static bool has_no_lines(const struct store_batch *batch) {
    return batch_status_is_terminal(batch->status) && batch->total == 0;
}

void cards_schema(void *context, struct http_request *request) {
    struct api *api = context;
    struct large_turn turn = {.large = &api->large};
    struct open_batch one = {.is_open = false};
    const struct open_batch none = {.is_open = false};
    struct error error;
    struct buf body;
    enum err err = OK;
    if (!batches_find(api, request, &one.batch)) return;
    if (has_no_lines(&one.batch)) {
        store_batch_release(&one.batch);
        buf_init(&body, 256);
        buf_add_text(&body, "{\"schema\":null,\"is_made\":true,\"indexed\":0,\"lines\":0}");
        api_answer_json(request, &body);
        return;
    }
    if (!open_lines(api, request, &one)) return;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"schema\":");
    if (is_made(&one) && one.requests.has_one_shape)
        err = review_item_write_schema(&body, &one.lines, &turn, &error);
    else
        buf_add_text(&body, "null");
    write_progress(&body, &one, &none);
    buf_add_byte(&body, '}');
    close_lines(&one);
    large_give(&turn);
    if (err == OK) {
        api_answer_json(request, &body);
        return;
    }
    buf_release(&body);
    api_fail_err(request, err, &error, NULL);
}
