/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* studio: calls to a Label Studio server, with patience (client/remote.h).
 *
 * Both kinds of tokens are taken (studio_token.h). After a 401, a token is bought again once.
 *
 * Calls that read are repeated. A call that makes something goes out once: after a lost answer the
 * outcome is STUDIO_UNKNOWN, and the caller looks.
 *
 * Thread: one.
 * Memory: the caller owns the JSON that it gets. studio_close wipes the tokens. */

#include "base/err.h"
#include "base/str.h"

#include <jansson.h>

struct studio;

struct studio_options {
    const char *url; /* without '/' at its end; borrowed */
    const char *token;
    const char *certificates; /* a file; NULL: the system's */
    int64_t patience_ms;      /* longest silence before a call fails */
    const volatile bool *stop;
    void *context;
    /* Takes a sentence for the user. */
    void (*say)(void *context, const char *sentence);
};

enum studio_outcome {
    STUDIO_DONE,
    STUDIO_UNKNOWN, /* no answer, or one that leaves open whether the call was done */
};

enum err studio_open(struct studio **ret_studio, const struct studio_options *options,
                     struct error *error) MUST_CHECK;
void studio_close(struct studio *studio); /* NULL is allowed */

/* ERR_INVALID, with the server's reason, for a config that the server does not take. */
enum err studio_check_config(struct studio *studio, const char *config,
                             struct error *error) MUST_CHECK;
struct studio_project {
    const char *title, *marker, *config; /* the marker stands in the project's description */
};
enum err studio_make_project(struct studio *studio, const struct studio_project *project,
                             enum studio_outcome *ret_outcome, int64_t *ret_id,
                             struct error *error) MUST_CHECK;
/* *ret_id is 0 if no project has the marker. */
enum err studio_find_project(struct studio *studio, const char *marker, int64_t *ret_id,
                             struct error *error) MUST_CHECK;
enum err studio_get_project(struct studio *studio, int64_t id, json_t **ret_project,
                            struct error *error) MUST_CHECK;

/* Imports an array of tasks. *ret_import is the number of an import in the background; 0: the
 * import is done. An error means that the tasks were refused. */
enum err studio_import(struct studio *studio, int64_t project, struct str tasks,
                       enum studio_outcome *ret_outcome, int64_t *ret_import,
                       struct error *error) MUST_CHECK;
/* Waits for the end of an import in the background. ERR_INVALID, with the server's reason, if it
 * failed. */
enum err studio_wait_import(struct studio *studio, int64_t project, int64_t import,
                            struct error *error) MUST_CHECK;
/* Removes tasks, an array of ids. May be repeated. */
enum err studio_remove_tasks(struct studio *studio, int64_t project, json_t *ids,
                             struct error *error) MUST_CHECK;

enum studio_part {
    STUDIO_ALL,       /* tasks with id, meta, total_annotations and cancelled_annotations */
    STUDIO_ANNOTATED, /* tasks that have an annotation, with id, meta and annotations */
    STUDIO_SKIPPED,   /* tasks that have a cancelled annotation; members as before */
    STUDIO_HISTORY,   /* as STUDIO_ANNOTATED, and data of tasks, ground_truth of annotations */
};
/* Takes one page of tasks, an array in the order of their ids. */
typedef enum err (*studio_tasks_fn)(void *context, const json_t *tasks, struct error *error);
/* Passes all tasks of a project behind the task `after`. */
enum err studio_each_task(struct studio *studio, int64_t project, int64_t after,
                          enum studio_part part, studio_tasks_fn take, void *context,
                          struct error *error) MUST_CHECK;
/* Makes an annotation, an object with a unique_id; a repeated call makes no second one.
 * ERR_NOT_FOUND if there is no such task. */
enum err studio_annotate(struct studio *studio, int64_t task, const json_t *annotation,
                         struct error *error) MUST_CHECK;
/* The users that the token may see, an array. */
enum err studio_get_users(struct studio *studio, json_t **ret_users,
                          struct error *error) MUST_CHECK;
/* Sleeps for this time. ERR_CANCELLED if *stop became true. */
enum err studio_pause(const struct studio *studio, int64_t milliseconds,
                      struct error *error) MUST_CHECK;
void studio_say(const struct studio *studio, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
