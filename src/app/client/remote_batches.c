/* SPDX-License-Identifier: Apache-2.0 */
#include "client/remote_batches.h"

#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 4096
#define PAGE_BATCHES 100      /* the most that OpenAI gives at once */
#define ERASE_MS 1800000      /* three files of 2 GiB are written anew before the answer */
#define SEARCHED_BATCHES 2000 /* the newest ones, in which a submission is searched */

/* --- one batch --- */

static void add_path(struct buf *path, const char *id, const char *rest) {
    buf_init(path, PATH_BYTES);
    buf_add_text(path, "/batches/");
    object_add_id(path, id);
    buf_add_text(path, rest);
}

enum err remote_batches_get(struct remote *remote, const char *id, json_t **ret_batch,
                            struct error *error) {
    struct buf path;
    add_path(&path, id, "");
    enum err err =
        remote_get_json(remote, &(struct remote_call){.path = path.at}, ret_batch, error);
    buf_release(&path);
    return err;
}

enum err remote_batches_cancel(struct remote *remote, const char *id, json_t **ret_batch,
                               struct error *error) {
    struct buf path;
    add_path(&path, id, "/cancel");
    const struct remote_call call = {.path = path.at, .body = STR("{}")};
    enum err err = remote_get_json(remote, &call, ret_batch, error);
    buf_release(&path);
    return err;
}

enum err remote_batches_retry(struct remote *remote, const char *id, const char *submission,
                              json_t **ret_batch, struct error *error) {
    struct buf path;
    add_path(&path, id, "/retry");
    const struct remote_call call = {
        .path = path.at, .body = STR("{}"), .idempotency_key = submission};
    enum err err = remote_get_json(remote, &call, ret_batch, error);
    buf_release(&path);
    return err;
}

/* Makes a call that takes something away. After an attempt whose answer was lost, a 404 means that
 * it did so; then *ret_object is NULL. */
static enum err take_away(struct remote *remote, const struct remote_call *call,
                          json_t **ret_object, struct error *error) {
    struct remote_answer answer;
    bool was_lost = false;
    enum err err;
    while ((err = remote_try(remote, call, &answer, error)) == OK && remote_may_pass(&answer)) {
        was_lost = was_lost || answer.end == REMOTE_LOST;
        err = remote_wait(remote, &answer, error);
        if (err != OK) break;
    }
    *ret_object = NULL;
    if (err != OK || (was_lost && answer.end == REMOTE_ANSWERED && answer.status == 404))
        return err;
    err = remote_judge(remote, &answer, error);
    return err == OK ? object_read(answer.body, ret_object, error) : err;
}

enum err remote_batches_delete(struct remote *remote, const char *id, json_t **ret_deleted,
                               struct error *error) {
    struct buf path;
    add_path(&path, id, "");
    const struct remote_call call = {.path = path.at, .is_delete = true};
    enum err err = take_away(remote, &call, ret_deleted, error);
    buf_release(&path);
    return err;
}

enum err remote_batches_erase(struct remote *remote, const char *id, struct str body,
                              json_t **ret_erasure, struct error *error) {
    struct buf path;
    add_path(&path, id, "/erase");
    const struct remote_call call = {.path = path.at, .body = body, .answer_ms = ERASE_MS};
    enum err err = take_away(remote, &call, ret_erasure, error);
    buf_release(&path);
    return err;
}

/* --- lists --- */

/* Reads a page behind the batch `after` (empty: the first one). The caller owns *ret_page. */
static enum err read_page(struct remote *remote, const char *after, uint64_t count,
                          json_t **ret_page, struct error *error) {
    struct buf path;
    buf_init(&path, PATH_BYTES);
    buf_printf(&path, "/batches?limit=%" PRIu64, count < PAGE_BATCHES ? count : PAGE_BATCHES);
    if (*after) {
        buf_add_text(&path, "&after=");
        object_add_id(&path, after);
    }
    enum err err = remote_get_json(remote, &(struct remote_call){.path = path.at}, ret_page, error);
    buf_release(&path);
    if (err == OK && !json_is_array(json_member(*ret_page, "data"))) {
        json_decref(*ret_page);
        err = err_set(error, ERR_CORRUPT,
                      "the server's answer is no list: is this the base URL of an OpenAI API?");
    }
    return err;
}

/* What a list has given so far. */
struct listing {
    char last[OBJECT_ID_BYTES]; /* id of the last batch; empty: none, or one that is no id */
    uint64_t left;              /* batches that may still be taken */
    bool is_over;
};

static void take_page(struct listing *listing, const json_t *page, remote_batches_fn take,
                      void *context) {
    char before[OBJECT_ID_BYTES];
    const json_t *item;
    size_t index;
    memcpy(before, listing->last, sizeof before);
    json_array_foreach(json_member(page, "data"), index, item) {
        struct str id = json_member_str(item, "id");
        if (listing->is_over || listing->left == 0) break;
        listing->left--;
        object_copy_text(object_id_is_sane(id) ? id : STR(""), listing->last, sizeof listing->last);
        listing->is_over = !take(context, item);
    }
    /* A page that leads nowhere new ends a list that would else have no end. */
    bool is_stuck = !*listing->last || strcmp(listing->last, before) == 0;
    if (is_stuck || !json_is_true(json_member(page, "has_more"))) listing->is_over = true;
}

enum err remote_batches_list(struct remote *remote, uint64_t count, remote_batches_fn take,
                             void *context, struct error *error) {
    struct listing listing = {.left = count};
    while (!listing.is_over && listing.left > 0) {
        json_t *page;
        enum err err = read_page(remote, listing.last, listing.left, &page, error);
        if (err != OK) return err;
        take_page(&listing, page, take, context);
        json_decref(page);
    }
    return OK;
}

struct search {
    const char *submission;
    json_t *found;
};

static bool take_submission(void *context, const json_t *batch) {
    struct search *search = context;
    const json_t *metadata = json_member(batch, "metadata");
    if (!str_is(json_member_str(metadata, OBJECT_SUBMISSION), search->submission)) return true;
    search->found = json_deep_copy(batch);
    return false;
}

enum err remote_batches_find(struct remote *remote, const char *submission, json_t **ret_batch,
                             struct error *error) {
    struct search search = {.submission = submission};
    enum err err = remote_batches_list(remote, SEARCHED_BATCHES, take_submission, &search, error);
    if (err != OK) {
        json_decref(search.found);
        return err;
    }
    *ret_batch = search.found;
    return OK;
}

/* --- creating --- */

static void write_wish(const struct batch_wish *wish, struct buf *body) {
    json_t *object = wish->extras ? json_copy(wish->extras) : json_object();
    json_t *metadata = wish->metadata ? json_copy(wish->metadata) : json_object();
    json_object_set_new(metadata, OBJECT_SUBMISSION, json_string(wish->submission));
    json_object_set_new(object, "input_file_id", json_string(wish->input_file_id));
    json_object_set_new(object, "endpoint", json_string(wish->endpoint));
    json_object_set_new(object, "completion_window", json_string(wish->window));
    json_object_set_new(object, "metadata", metadata);
    json_write(body, object);
    json_decref(object);
}

/* Whether the server may have made the batch although it did not say so. */
static bool may_exist(const struct remote_answer *answer) {
    return answer->end == REMOTE_LOST || answer->end == REMOTE_REFUSED ||
           (answer->end == REMOTE_ANSWERED && answer->status >= 500);
}

enum err remote_batches_create(struct remote *remote, const struct batch_wish *wish,
                               json_t **ret_batch, struct error *error) {
    struct buf body;
    struct remote_answer answer;
    json_t *found = NULL;
    enum err err = OK;
    buf_init(&body, BUF_UNLIMITED);
    write_wish(wish, &body);
    const struct remote_call call = {
        .path = "/batches", .body = buf_str(&body), .idempotency_key = wish->submission};
    while (err == OK && !found) {
        err = remote_try(remote, &call, &answer, error);
        if (err != OK) break;
        if (answer.end == REMOTE_ANSWERED && !remote_may_pass(&answer)) {
            err = remote_judge(remote, &answer, error);
            if (err == OK) err = object_read(answer.body, &found, error);
            break;
        }
        bool was_made = may_exist(&answer);
        err = remote_wait(remote, &answer, error);
        if (err == OK && was_made)
            err = remote_batches_find(remote, wish->submission, &found, error);
    }
    buf_release(&body);
    if (err == OK) *ret_batch = found;
    return err;
}
