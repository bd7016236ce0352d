/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* studio_source: the Label Studio that a command reads: its address, its token, and the annotations
 * of one of its projects as judgements.
 *
 * Thread: main.
 * Memory: the caller's. */

#include "client/remote_place.h"
#include "label_studio/history.h"
#include "secrets/secret.h"

/* The address that an option gave, else LABEL_STUDIO_URL. */
enum err studio_source_url(const char *given, char ret_url[REMOTE_URL_BYTES],
                           struct error *error) MUST_CHECK;
/* The token in the file that an option gave, else of the environment; ERR_DENIED without one. The
 * caller releases it after OK. */
enum err studio_source_token(const char *file, struct secret *ret_token,
                             struct error *error) MUST_CHECK;
/* Appends the judgements of a project (history.h). */
enum err studio_source_read(const struct studio_options *options, const struct history_wish *wish,
                            struct buf *out, struct history_report *ret_report,
                            struct error *error) MUST_CHECK;

/* The project of the text "label-studio:NUMBER"; 0: the text is another one. */
int64_t studio_source_project(const char *text);
/* Opens a file without a name that has the judgements of a project as they are now; the caller
 * closes it. The address and the token are those of the environment. */
enum err studio_source_open(const struct history_wish *wish, const volatile bool *stop, int *ret_fd,
                            struct error *error) MUST_CHECK;
