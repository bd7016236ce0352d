/* SPDX-License-Identifier: Apache-2.0 */

/* The queues of cards from which curators judge a batch (an extension): GET /v1/batches/{id}/cards,
 * and GET /v1/batches/{id}/schema, the shape of their answers. */

#include "api/api_internal.h"
#include "api/judgement_body.h"

#include "curation/card.h"
#include "curation/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAGE_CARDS 10
#define PAGE_CARDS_MAX 50
#define PAGE_BYTES ((size_t)4 << 20) /* a page ends with the card that reaches it */
#define SAMPLE_DEFAULT 100
#define SAMPLE_MAX 1000000

/* A batch whose lines are read for one request. */
struct open_batch {
    struct store_batch batch;
    struct deck *deck;
    struct deck_reader reader;
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
    struct error error;
    enum err err = deck_take(api->decks, &open->batch, &open->deck, &error);
    if (err == OK) {
        err = deck_reader_open(&open->reader, open->deck, &error);
        if (err != OK) deck_drop(open->deck);
    }
    open->is_open = err == OK;
    if (open->is_open) return true;
    store_batch_release(&open->batch);
    api_fail_err(request, err, &error, NULL);
    return false;
}

static void close_lines(struct open_batch *open) {
    if (!open->is_open) return;
    deck_reader_close(&open->reader);
    deck_drop(open->deck);
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

/* --- the page --- */

static bool is_wanted(const struct queue *queue, const struct ask *ask, size_t index) {
    return ask->any || !queue->is_judged[queue->entries[index].line];
}

/* Appends cards from `index` on. *ret_after becomes the cursor behind the last one; empty if no
 * card was written. */
static enum err write_cards(struct buf *body, const struct queue *queue, const struct ask *ask,
                            const struct card_source *source, size_t index,
                            char ret_after[QUEUE_CURSOR_BYTES], bool *ret_has_more,
                            struct error *error) {
    size_t written = 0, begun = body->bytes;
    *ret_after = '\0';
    *ret_has_more = false;
    for (; index < queue->count; index++) {
        if (!is_wanted(queue, ask, index)) continue;
        *ret_has_more = written == ask->limit || body->bytes - begun >= PAGE_BYTES;
        if (*ret_has_more) break;
        size_t before = body->bytes;
        if (written > 0) buf_add_byte(body, ',');
        enum err err = card_write(body, source, queue->entries[index].line, error);
        /* A line that cannot be shown is left out, and the curator gets the lines behind it. */
        if (err == ERR_LIMIT || err == ERR_CORRUPT) {
            buf_truncate(body, before);
            continue;
        }
        if (err != OK) return err;
        written++;
        queue_write_cursor(queue, &queue->entries[index], ret_after);
    }
    return OK;
}

static enum err write_page(struct buf *body, const struct queue *queue, const struct ask *ask,
                           const struct card_source *source, size_t first, struct error *error) {
    char after[QUEUE_CURSOR_BYTES];
    bool has_more;
    buf_printf(body, "{\"object\":\"list\",\"total\":%zu,\"left\":%" PRIu64 ",\"data\":[",
               queue->count, queue->left);
    enum err err = write_cards(body, queue, ask, source, first, after, &has_more, error);
    buf_printf(body, "],\"has_more\":%s,\"after\":", has_more ? "true" : "false");
    if (*after)
        buf_printf(body, "\"%s\"}", after);
    else
        buf_add_text(body, "null}");
    return err;
}

static void answer_cards(struct api *api, struct http_request *request, const struct ask *ask,
                         struct open_batch *one, struct open_batch *with) {
    struct queue queue;
    struct error error;
    struct buf body;
    size_t first = 0;
    struct deck_reader *other = with->is_open ? &with->reader : NULL;
    const struct queue_options options = {.kind = ask->kind,
                                          .seed = ask->seed,
                                          .size = ask->size,
                                          .store = api->options.store,
                                          .batch_id = one->batch.id,
                                          .curator = ask->curator,
                                          .reader = &one->reader,
                                          .with = other};
    const struct card_source source = {.store = api->options.store,
                                       .batch_id = one->batch.id,
                                       .reader = &one->reader,
                                       .with = other,
                                       .with_id = with->batch.id};
    enum err err = queue_make(&queue, &options, &error);
    if (err != OK) {
        api_fail_err(request, err, &error, NULL);
        return;
    }
    if (ask->after.at && !queue_seek(&queue, ask->after, &first)) {
        api_fail_param(request, "invalid_value", "after",
                       "Invalid value for 'after': '%.100s' is no place in the queue '%s'.",
                       api_text(request, ask->after), queue_names[ask->kind]);
        queue_release(&queue);
        return;
    }
    buf_init(&body, BUF_UNLIMITED);
    err = write_page(&body, &queue, ask, &source, first, &error);
    queue_release(&queue);
    if (err == OK) {
        api_answer_json(request, &body);
        return;
    }
    buf_release(&body);
    api_fail_err(request, err, &error, NULL);
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

void cards_schema(void *context, struct http_request *request) {
    struct open_batch one = {.is_open = false};
    struct error error;
    struct buf body;
    if (!open_path(context, request, &one)) return;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"schema\":");
    enum err err = card_write_schema(&body, &one.reader, &error);
    buf_add_byte(&body, '}');
    close_lines(&one);
    if (err == OK) {
        api_answer_json(request, &body);
        return;
    }
    buf_release(&body);
    api_fail_err(request, err, &error, NULL);
}
