/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_api: the questions to a hub before files are fetched (which commit a revision is, and which
 * files it has), and the meaning of the hub's refusals.
 *
 * Thread: main.
 * Memory: the caller's. */

#include "hub/pull_web.h"

/* One revision of one repository. Texts are borrowed. */
struct pull_source {
    const struct pull_hub *hub;
    const char *repository; /* pull_is_repository takes it */
    const char *revision;   /* pull_is_revision takes it */
    char commit[PULL_COMMIT_BYTES];
};

/* Asks for the commit and the list of files, and again after a failure that may pass. *stop ends it
 * with ERR_CANCELLED; `stop` may be NULL. */
enum err pull_api_list(struct pull_source *source, struct pull_listing *listing,
                       const volatile bool *stop, struct error *error) MUST_CHECK;
/* The URL of a file; ERR_LIMIT: it is too long. */
enum err pull_api_file_url(const struct pull_source *source, const char *path,
                           char ret_url[PULL_URL_BYTES], struct error *error) MUST_CHECK;
/* The code and the sentence for an answer that is no success: ERR_NOT_FOUND; ERR_INVALID if the
 * user has to act (a gated model, a token); ERR_UNAVAILABLE for all else. */
enum err pull_api_explain(const struct pull_source *source, const struct pull_answer *answer,
                          struct error *error);
