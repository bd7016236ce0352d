/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/kept_judgements.h"

#include "base/mem.h"
#include "base/os.h"
#include "client/objects.h"
#include "json/json.h"
#include "json/lines.h"
#include "label_studio/judgement.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 1000
#define OWN_PREFIX "ls-" /* begins the ids that a pull makes */

static json_t *find(const struct kept_judgements *list, const json_t *judgement) {
    struct str id = json_member_str(judgement, "custom_id");
    struct str curator = json_member_str(judgement, "curator");
    json_t *curators = id.at ? json_object_getn(list->newest, id.at, id.bytes) : NULL;
    return curator.at ? json_object_getn(curators, curator.at, curator.bytes) : NULL;
}

static void take(struct kept_judgements *list, const json_t *judgement) {
    struct str id = json_member_str(judgement, "custom_id");
    struct str curator = json_member_str(judgement, "curator");
    if (!id.at || !curator.at) return;
    json_t *curators = json_object_getn(list->newest, id.at, id.bytes);
    if (!curators) {
        curators = json_object();
        json_object_setn_new(list->newest, id.at, id.bytes, curators);
    }
    json_object_setn(curators, curator.at, curator.bytes, (json_t *)(uintptr_t)judgement);
    if (json_member(judgement, "id")) map_put(&list->ids, json_member_str(judgement, "id"), 1);
}

static void add_path(const struct kept_judgements *list, struct buf *path) {
    buf_init(path, BUF_UNLIMITED);
    buf_add_text(path, "/batches/");
    object_add_id(path, list->batch);
    buf_add_text(path, "/judgements");
}

static enum err read_all(struct kept_judgements *list, struct error *error) {
    bool has_more = true;
    uint64_t after = 0;
    while (has_more) {
        json_t *page = NULL;
        const json_t *judgement;
        size_t index;
        struct buf path;
        add_path(list, &path);
        buf_printf(&path, "?limit=%d&after=%" PRIu64, PAGE, after);
        enum err err =
            remote_get_json(list->remote, &(struct remote_call){.path = path.at}, &page, error);
        buf_release(&path);
        if (err != OK) return err;
        has_more = false;
        json_array_foreach(json_member(page, "data"), index, judgement) {
            const json_t *seq = json_member(judgement, "seq");
            uint64_t number = json_is_integer(seq) ? (uint64_t)json_integer_value(seq) : 0;
            take(list, judgement);
            if (number > after) {
                after = number;
                has_more = json_is_true(json_member(page, "has_more"));
            }
        }
        json_decref(page);
    }
    return OK;
}

static enum err read_file(struct kept_judgements *list, const char *path, struct error *error) {
    struct lines lines;
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY | O_CLOEXEC, 0, error);
    if (err != OK) return err;
    lines_init(&lines, fd);
    while ((err = lines_next(&lines, error)) == OK && lines.line.at) {
        json_t *judgement = NULL;
        err = json_read(&judgement, lines.line, error);
        if (err != OK) {
            err = err_prefix(error, "%s: line %" PRIu64, path, lines.number);
            break;
        }
        take(list, judgement);
        json_decref(judgement);
    }
    lines_release(&lines);
    os_close(fd);
    return err;
}

enum err kept_judgements_open(struct kept_judgements *ret_list, struct remote *remote,
                              const char *path, const char *batch, struct error *error) {
    enum err err = OK;
    *ret_list = (struct kept_judgements){
        .remote = remote, .batch = mem_text(batch), .newest = json_object()};
    map_init(&ret_list->ids);
    if (remote) err = read_all(ret_list, error);
    if (!remote && path) err = read_file(ret_list, path, error);
    if (err == OK) return OK;
    kept_judgements_close(ret_list);
    if (remote && (err == ERR_NOT_FOUND || err == ERR_INVALID))
        return err_prefix(error, "the server gives no judgements of %.80s (-o writes a file)",
                          batch);
    return err;
}

void kept_judgements_close(struct kept_judgements *list) {
    if (!list->batch) return;
    free(list->batch);
    json_decref(list->newest);
    map_release(&list->ids);
    *list = (struct kept_judgements){0};
}

bool kept_judgements_has(const struct kept_judgements *list, const char *id) {
    return map_get(&list->ids, str_from(id), NULL);
}

bool kept_judgements_is_pulled(const json_t *judgement) {
    return str_starts_with(json_member_str(judgement, "id"), STR(OWN_PREFIX));
}

static json_int_t version_of(const struct kept_judgements *list, const json_t *judgement) {
    const json_t *version = json_member(find(list, judgement), "version");
    return json_is_integer(version) ? json_integer_value(version) : 0;
}

static enum err post(struct kept_judgements *list, const json_t *judgement, struct error *error) {
    json_t *body = json_copy((json_t *)(uintptr_t)judgement), *answer = NULL;
    struct buf path, text;
    add_path(list, &path);
    buf_init(&text, BUF_UNLIMITED);
    json_object_set_new(body, "version", json_integer(version_of(list, judgement)));
    json_write(&text, body);
    const struct remote_call call = {.path = path.at, .body = buf_str(&text)};
    enum err err = remote_get_json(list->remote, &call, &answer, error);
    if (err == OK) take(list, answer);
    json_decref(answer);
    json_decref(body);
    buf_release(&text);
    buf_release(&path);
    return err;
}

enum err kept_judgements_post(struct kept_judgements *list, const json_t *judgement,
                              struct error *error) {
    if (!list->remote) return OK;
    enum err err = post(list, judgement, error);
    if (err != ERR_CONFLICT) return err;
    err = read_all(list, error); /* another program has judged under the same curator */
    if (err != OK || kept_judgements_has(list, json_string_value(json_member(judgement, "id"))))
        return err;
    return post(list, judgement, error);
}

const json_t *kept_judgements_conflict(const struct kept_judgements *list, const json_t *judgement,
                                       const char **ret_curator) {
    struct str id = json_member_str(judgement, "custom_id");
    const char *curator;
    json_t *other;
    json_object_foreach(json_object_getn(list->newest, id.at, id.bytes), curator, other) {
        if (kept_judgements_is_pulled(other) ||
            str_is(json_member_str(judgement, "curator"), curator))
            continue;
        if (!judgement_differs(judgement, other)) continue;
        *ret_curator = curator;
        return other;
    }
    return NULL;
}
