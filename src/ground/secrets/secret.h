/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* secret: keys and signing secrets, which must not stand on a command line.
 *
 * A secret NAME has these places, and the first one that exists counts:
 *
 *     1. the file that an option names; if it cannot be read, that is an error
 *     2. the file that the variable NAME_FILE names
 *     3. the variable NAME
 *     4. a file in the folder that systemd passes in $CREDENTIALS_DIRECTORY
 *
 * In the first three, `gcp-secret://projects/P/secrets/S/versions/V` is a secret in Google Cloud's
 * Secret Manager (gcp_secret.h) instead of a file or a value.
 *
 * Variables of the environment go before those of `--env-file`. A file that group or others can
 * read is refused, unless a service manager made it: in $CREDENTIALS_DIRECTORY or under
 * /run/secrets/.
 *
 * Thread: main, also while others run: nothing sets variables of the environment.
 * Memory: the caller wipes and frees with secret_release. */

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

#define SECRET_BYTES_MAX ((size_t)1 << 20)

/* The text of --env-file: `NAME=value` lines. Zero: no such file. */
struct secret_variables {
    char *text;
    size_t bytes;
};

/* Reads the file; the values stay in memory until secret_variables_release. */
enum err secret_variables_read(struct secret_variables *ret_variables, const char *path,
                               struct error *error) MUST_CHECK;
void secret_variables_release(struct secret_variables *variables);

struct secret_place {
    const char *path;       /* the option's file; NULL: not given */
    const char *variable;   /* "QUERN_…" */
    const char *credential; /* name of the file in $CREDENTIALS_DIRECTORY */
};

struct secret {
    char *text; /* ends in NUL; NULL: no secret */
    size_t bytes;
    bool is_gone;    /* it was a variable's value, which is overwritten: no later read finds it */
    char where[512]; /* the file, the variable or the gcp-secret:// name, for messages */
};

/* OK and an empty secret if no place has it. A variable's value is overwritten in the environment
 * after reading, unless it is the name of a secret. */
enum err secret_read(struct secret *ret_secret, const struct secret_place *place,
                     const struct secret_variables *variables, struct error *error) MUST_CHECK;
void secret_release(struct secret *secret);
/* Reads one file, or the secret of a gcp-secret:// name. ERR_INVALID if group or others can read
 * it; ERR_LIMIT over SECRET_BYTES_MAX. */
enum err secret_read_file(struct secret *ret_secret, const char *path,
                          struct error *error) MUST_CHECK;
