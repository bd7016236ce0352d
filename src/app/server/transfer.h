/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* transfer: one file from or to a web server: `quern run -i https://…` and `-o https://…`.
 *
 * A download is a GET, an upload a PUT of the whole file, as vLLM's run-batch makes them. Both are
 * tried ATTEMPTS times if the server is away or fails for a moment. Redirects are followed, but
 * never from https to http. Sentences show no query and no password, which may be secrets.
 *
 * Thread: main.
 * Memory: none is kept. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define TRANSFER_SHOWN_BYTES 300

bool transfer_is_url(const char *name);
/* Scheme, host, port and path of the URL: what may be shown, and what stays the same when a URL is
 * signed anew. ERR_INVALID for a text that is no http or https URL. */
enum err transfer_show(const char *url, char ret_shown[TRANSFER_SHOWN_BYTES],
                       struct error *error) MUST_CHECK;

/* Fetches the URL into `path`, which appears whole and synced, by rename. ERR_NOT_FOUND (404, 410),
 * ERR_DENIED (401, 403), ERR_UNAVAILABLE (after the last attempt), ERR_CANCELLED if *stop became
 * true, and errors of the file system. */
enum err transfer_get(const char *url, const char *path, const volatile bool *stop,
                      struct error *error) MUST_CHECK;
/* Sends the file to the URL. Errors as above. */
enum err transfer_put(const char *url, const char *path, const volatile bool *stop,
                      struct error *error) MUST_CHECK;
