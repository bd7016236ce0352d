/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* input: the requests and results of a batch for `quern label-studio`, from files of
 * the user or from a server.
 *
 * Bytes from a server are kept in nameless files in $TMPDIR (else /tmp). A running batch of a
 * quern server gives the results that exist so far.
 *
 * Thread: main.
 * Memory: see pairs.h. */

#include "client/remote.h"
#include "label_studio/pairs.h"

#define LABEL_STUDIO_FILES_MAX 32 /* as many as a list of options has */

struct label_studio_input {
    int requests;
    int results[LABEL_STUDIO_FILES_MAX];
    size_t count; /* number of results */
    struct pairs *pairs;
};

/* The caller closes the input, also after an error. */
enum err label_studio_input_files(struct label_studio_input *ret_input, const char *requests,
                                  const char *const *results, size_t result_count,
                                  struct error *error) MUST_CHECK;
enum err label_studio_input_fetch(struct label_studio_input *ret_input, struct remote *remote,
                                  const char *batch, struct error *error) MUST_CHECK;
void label_studio_input_close(struct label_studio_input *input);
