/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* secret: reads what must not stand on a command line: keys and signing secrets.
 *
 * A secret NAME is looked for in the file an option names, then in the file the variable NAME_FILE
 * names, in the variable NAME itself, both of the environment first and then of the file of
 * `--env-file`, and last in the folder systemd passes in $CREDENTIALS_DIRECTORY. The first that is
 * there counts. A file that others than its owner can read is refused, but for those that a service
 * manager made: in $CREDENTIALS_DIRECTORY and under /run/secrets/.
 *
 * Thread: main, before others start.  Memory: the caller wipes and frees with secret_release. */

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>

#define SECRET_BYTES_MAX ((size_t)1 << 20)

/* The text of --env-file: `NAME=value` lines. Zero: there is none. */
struct secret_variables {
    char *text;
    size_t bytes;
};

/* Reads the file; the values stay in memory until secret_variables_release. */
enum err secret_variables_read(struct secret_variables *ret_variables, const char *path,
                               struct error *error) MUST_CHECK;
void secret_variables_release(struct secret_variables *variables);

struct secret_place {
    const char *path;       /* of the option; NULL: not given */
    const char *variable;   /* "QUERN_…" */
    const char *credential; /* the file's name in $CREDENTIALS_DIRECTORY */
};

struct secret {
    char *text; /* NULL: there is none; ends in NUL */
    size_t bytes;
    char where[256]; /* what to name in a message: a file or a variable */
};

/* OK and an empty secret when it is nowhere. A variable's bytes are overwritten in the environment
 * once read. */
enum err secret_read(struct secret *ret_secret, const struct secret_place *place,
                     const struct secret_variables *variables, struct error *error) MUST_CHECK;
void secret_release(struct secret *secret);
/* Refuses what group or others can read; reads at most SECRET_BYTES_MAX bytes. */
enum err secret_read_file(struct secret *ret_secret, const char *path,
                          struct error *error) MUST_CHECK;
