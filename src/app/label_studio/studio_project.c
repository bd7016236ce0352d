/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/studio_project.h"

#include "base/hash.h"
#include "base/id.h"
#include "json/json.h"
#include "label_studio/config.h"
#include "label_studio/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MARKER "quern-batch-"
#define MARKER_HEX 24
#define LOOK_MS 1000

/* --- the form --- */

/* The most objects that each array of the answers has. */
static enum err count_objects(struct pairs *pairs, json_t *lengths, struct error *error) {
    struct pair pair;
    bool has = true;
    enum err err = pairs_rewind(pairs, error);
    while (err == OK && has) {
        err = pairs_next(pairs, &pair, &has, error);
        if (err == OK && has) err = task_add_lengths(lengths, &pair, error);
    }
    return err;
}

static enum err add_schema(struct pairs *pairs, struct form *form, const json_t *given,
                           struct error *error) {
    json_t *schema = json_deep_copy(given); /* the pair goes with the next one */
    json_t *lengths = json_object();
    enum err err = form_has_arrays(schema) ? count_objects(pairs, lengths, error) : OK;
    if (err == OK) form_add_schema(form, schema, lengths);
    json_decref(lengths);
    json_decref(schema);
    return err;
}

/* Reads the form from the schema of the first request, or from all answers. */
static enum err make_form(struct pairs *pairs, struct form *form, struct error *error) {
    struct pair pair;
    bool has;
    enum err err = pairs_rewind(pairs, error);
    if (err == OK) err = pairs_next(pairs, &pair, &has, error);
    if (err != OK || !has)
        return err != OK ? err : err_set(error, ERR_INVALID, "the batch has no requests");
    const json_t *schema = form_find_schema(pair.body);
    bool has_schema = schema != NULL;
    if (schema) err = add_schema(pairs, form, schema, error);
    while (err == OK && has && form->count == 0 && !has_schema) {
        /* Without a schema the fields come from the answers. */
        for (; err == OK && has; err = pairs_next(pairs, &pair, &has, error)) {
            err = task_add_fields(form, &pair, error);
            if (err != OK) return err;
        }
    }
    if (err == OK) err = pairs_rewind(pairs, error);
    return err;
}

/* True if the project's config has the control, on the text of the tasks. */
static bool has_control(const json_t *config, const struct control *control) {
    const json_t *own = json_object_get(config, control->name), *name;
    size_t index;
    bool is_on_text = false;
    json_array_foreach(json_member(own, "to_name"), index,
                       name) if (str_is(json_str(name), FORM_TEXT)) is_on_text = true;
    return is_on_text && str_is(json_member_str(own, "type"), control_tag(control));
}

static void drop_missing(struct studio *studio, struct form *form, const json_t *config) {
    for (size_t i = form->count; i-- > 0;) {
        if (has_control(config, &form->at[i])) continue;
        studio_say(studio,
                   "the project has no %s named %s on a Text named " FORM_TEXT
                   ": the field is not shown",
                   control_tag(&form->at[i]), form->at[i].name);
        form_drop(form, i);
    }
}

/* --- the project --- */

static enum err use_project(struct studio *studio, struct link *link, int64_t id, struct form *form,
                            struct error *error) {
    json_t *project = NULL;
    enum err err = studio_get_project(studio, id, &project, error);
    if (err == OK) drop_missing(studio, form, json_member(project, "parsed_label_config"));
    if (err == OK) link_set_project(link, id, form);
    json_decref(project);
    return err == OK ? link_sync(link, error) : err;
}

/* Waits at most `settle_ms` for the project that has the marker. *ret_id is 0 if none appears. */
static enum err look_for(struct studio *studio, const char *marker, int64_t settle_ms,
                         int64_t *ret_id, struct error *error) {
    for (int64_t left_ms = settle_ms;; left_ms -= LOOK_MS) {
        enum err err = studio_find_project(studio, marker, ret_id, error);
        if (err != OK || *ret_id > 0 || left_ms <= 0) return err;
        err = studio_pause(studio, LOOK_MS, error);
        if (err != OK) return err;
    }
}

/* A marker that no other project has, or, with `is_unique`, only projects of this batch. */
static void write_marker(const char *batch, bool is_unique, char ret_marker[LINK_MARKER_BYTES]) {
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    struct sha256 hash;
    if (!is_unique) {
        id_hex(ret_marker, LINK_MARKER_BYTES, MARKER, MARKER_HEX);
        return;
    }
    sha256_init(&hash);
    sha256_add(&hash, batch, strlen(batch));
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    snprintf(ret_marker, LINK_MARKER_BYTES, MARKER "%.*s", MARKER_HEX, hex);
}

static enum err make_project(struct studio *studio, struct link *link, struct form *form,
                             const struct studio_push_wish *wish, struct error *error) {
    char marker[LINK_MARKER_BYTES];
    struct buf config;
    int64_t id = 0;
    enum err err = OK;
    write_marker(link->batch, wish->is_unique, marker);
    if (*link->marker)
        err = look_for(studio, link->marker, wish->settle_ms, &id, error);
    else if (wish->is_unique)
        err = studio_find_project(studio, marker, &id, error);
    if (err != OK) return err;
    if (id > 0) return use_project(studio, link, id, form, error);
    buf_init(&config, BUF_UNLIMITED);
    config_write(&config, form);
    err = studio_check_config(studio, config.at, error);
    while (err == OK && id == 0) {
        enum studio_outcome outcome = STUDIO_UNKNOWN;
        link_want_project(link, marker);
        err = link_sync(link, error);
        const struct studio_project project = {
            .title = wish->title, .marker = marker, .config = config.at};
        if (err == OK) err = studio_make_project(studio, &project, &outcome, &id, error);
        bool is_refused = err != OK && err != ERR_CANCELLED && err != ERR_CORRUPT &&
                          err != ERR_UNAVAILABLE && err != ERR_IO;
        if (is_refused) {
            struct error ignored;
            link_want_project(link, "");
            (void)!link_sync(link, &ignored);
        }
        if (err == OK && outcome == STUDIO_UNKNOWN)
            err = look_for(studio, marker, wish->settle_ms, &id, error);
    }
    buf_release(&config);
    if (err != OK) return err;
    link_set_project(link, id, form);
    return link_sync(link, error);
}

enum err studio_project(struct studio *studio, struct link *link, struct pairs *pairs,
                        const struct studio_push_wish *wish, struct error *error) {
    struct form form = {0};
    json_t *project = NULL;
    enum err err;
    if (link->project > 0 && wish->project > 0 && link->project != wish->project)
        return err_set(error, ERR_CONFLICT,
                       "%s is of project %" PRId64 ": name another --state for project %" PRId64,
                       link->path, link->project, wish->project);
    if (link->project > 0) {
        err = studio_get_project(studio, link->project, &project, error);
        json_decref(project);
        if (err != ERR_NOT_FOUND || !wish->is_unique || wish->project > 0) return err;
        studio_say(studio, "project %" PRId64 " is gone; a new one is made", link->project);
        link_forget_project(link);
    }
    err = make_form(pairs, &form, error);
    if (err == OK && wish->project > 0)
        err = use_project(studio, link, wish->project, &form, error);
    else if (err == OK)
        err = make_project(studio, link, &form, wish, error);
    form_release(&form);
    return err;
}
