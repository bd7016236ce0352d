/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_api: what a hub is asked before anything is fetched: which commit a name stands for, and
 * which files it has. And what its refusals mean.
 *
 * Thread: main.  Memory: the caller's. */

#include "hub/pull_web.h"

/* One repository at one revision of it. Texts are borrowed. */
struct pull_source {
    const struct pull_hub *hub;
    const char *repository; /* pull_is_repository takes it */
    const char *revision;   /* pull_is_revision takes it */
    char commit[PULL_COMMIT_BYTES];
};

/* Asks for the commit and the list, trying again what may pass. *stop (NULL allowed) ends it with
 * ERR_CANCELLED. */
enum err pull_api_list(struct pull_source *source, struct pull_listing *listing,
                       const volatile bool *stop, struct error *error) MUST_CHECK;
/* The URL of a file. */
enum err pull_api_file_url(const struct pull_source *source, const char *path,
                           char ret_url[PULL_URL_BYTES], struct error *error) MUST_CHECK;
/* The sentence for an answer that is no success, and its code: ERR_NOT_FOUND, ERR_INVALID for what
 * the user has to put right (a gated model, a token), ERR_UNAVAILABLE for what may pass. */
enum err pull_api_explain(const struct pull_source *source, const struct pull_answer *answer,
                          struct error *error);
