/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* studio_child: jobs of Label Studio for clients of the API, each a `quern label-studio` in a
 * process of its own (base/child.h).
 *
 * The child gets the batch as files, and the token as a file without a name. It calls the Label
 * Studio of this server's settings and no other address. It has no key of this server.
 *
 * Thread: open and close: main; run: any.
 * Memory: borrows the settings; studio_child_close wipes the token. */

#include "api/api.h"
#include "secrets/secret.h"

/* The options of `quern serve`. Zero: no Label Studio. */
struct studio_settings {
    const char *url;        /* without '/' at its end */
    const char *token_file; /* NULL: the places of LABEL_STUDIO_API_KEY and label-studio-api-key */
};

struct studio_child {
    const char *url;
    struct secret token;
};

/* Reads the token. ERR_INVALID for a URL without a token, and for a token without a URL. */
enum err studio_child_open(struct studio_child *ret_child, const struct studio_settings *settings,
                           const struct secret_variables *variables,
                           struct error *error) MUST_CHECK;
void studio_child_close(struct studio_child *child); /* zero is allowed */
/* An api_studio_fn; `context` is a struct studio_child. A child that is stopped has ended when this
 * returns. */
enum err studio_child_run(void *context, const struct api_studio *studio,
                          struct error *error) MUST_CHECK;
