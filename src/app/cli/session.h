/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* session: what the commands that are clients of a server share: the server, the key, patience, and
 * where texts go.
 *
 * Data goes to standard output, everything else to standard error, as "quern COMMAND: sentence".
 *
 * Thread: main.
 * Memory: session_close wipes the key. */

#include "cli/remote_options.h"
#include "cli/terminal.h"
#include "client/objects.h"
#include "client/remote.h"

/* The values of session_option_rows. */
struct session_choice {
    struct remote_choice remote;
    int64_t retry_seconds;
    bool json;
};
extern const struct option session_option_rows[]; /* without those of remote_option_rows */
void session_set_defaults(struct session_choice *choice);
#define SESSION_WATCH_S 3600 /* the least patience of a command that watches a batch */

/* The two tables of a command whose struct has a session_choice at `at`. */
#define SESSION_TABLES(at)                                                                         \
    {session_option_rows, (at)}, {                                                                 \
        remote_option_rows, (at) + offsetof(struct session_choice, remote)                         \
    }

struct session {
    const char *command;
    struct remote_place place;
    struct remote *remote;
    struct terminal terminal;
    const volatile bool *stop;
};

/* Opens the connection; makes no call. */
enum err session_open(struct session *ret_session, const char *command,
                      const struct session_choice *choice, const volatile bool *stop,
                      struct error *error) MUST_CHECK;
void session_close(struct session *session);
/* Tells a sentence on standard error. Control characters become blanks. */
void session_say(struct session *session, const char *format, ...) PRINTF_LIKE(2, 3);
/* Prints an object on standard output, as one line of JSON in ASCII. */
void session_print_json(const json_t *object);
/* ERR_INVALID for a server that is no URL. */
enum err session_check(const struct session_choice *choice, struct error *error) MUST_CHECK;
/* The same, and ERR_INVALID unless the operand is there and is an id. */
enum err session_check_id(const struct session_choice *choice, const char *operand,
                          struct error *error) MUST_CHECK;
/* Reads the batch that the server has sent; releases `object` after an error. */
enum err session_read_batch(json_t *object, struct batch_object *ret_batch,
                            struct error *error) MUST_CHECK;
