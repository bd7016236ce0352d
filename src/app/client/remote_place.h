/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* remote_place: which server a command talks to, and with which key.
 *
 * Commands that are clients of a server take these options (cli/remote_options.h). They read the
 * variables of OpenAI's clients, so that one environment serves a Python script and quern:
 *
 *     --base-url, OPENAI_BASE_URL               http://127.0.0.1:8080/v1 without either
 *     --api-key-file, OPENAI_API_KEY_FILE, OPENAI_API_KEY, the credential openai-api-key
 *
 * A key is never the value of an option, because each process of a machine can read those. The
 * files of settings are not read: there api-key-file names the keys that a server accepts.
 *
 * Thread: main, before other threads start.
 * Memory: remote_place_release wipes and frees the key; the place borrows ca_file. */

#include "secrets/secret.h"

#define REMOTE_URL_BYTES 2048
#define REMOTE_URL_USUAL "http://127.0.0.1:8080/v1"

/* What the options name. Zero is a valid start. */
struct remote_choice {
    const char *base_url;
    const char *api_key_file;
    const char *ca_file;
};

/* Zero is a valid start. */
struct remote_place {
    char base_url[REMOTE_URL_BYTES]; /* without '/' at its end: "https://host/v1" */
    struct secret key;               /* its text is NULL without a key */
    const char *ca_file;             /* NULL: the certificates of the system */
};

/* Checks the URL alone, for a usage error. */
enum err remote_place_check(const struct remote_choice *choice, struct error *error) MUST_CHECK;
/* Finds the server and the key. A URL without a path gets /v1. ERR_INVALID for a text that is no
 * http or https URL, for one with a user or a query, and for a key that cannot stand in a header.
 * The caller releases the place, also after an error. */
enum err remote_place_read(const struct remote_choice *choice, struct remote_place *ret_place,
                           struct error *error) MUST_CHECK;
/* Reads the text of a base URL as remote_place_read does; `origin` is the name of the option or
 * of the variable, for sentences. */
enum err remote_place_read_url(const char *text, const char *origin, char ret_url[REMOTE_URL_BYTES],
                               struct error *error) MUST_CHECK;
/* Likewise, for a server whose paths do not begin with /v1: a URL without a path stays as it is. */
enum err remote_place_read_root(const char *text, const char *origin,
                                char ret_url[REMOTE_URL_BYTES], struct error *error) MUST_CHECK;
/* Removes the line end of a key from a file; a blank key becomes none. ERR_INVALID for a key that
 * is not one word of printable ASCII, because it goes into a header. */
enum err remote_place_trim_key(struct secret *key, struct error *error) MUST_CHECK;
void remote_place_release(struct remote_place *place);
