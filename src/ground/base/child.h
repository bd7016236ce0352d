/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* child: a command of this program, run as a process of its own whose output is read to its end. It
 * knows no command.
 *
 * Thread: one per call, which lasts as long as the process.
 * Memory: at most CHILD_SAID_BYTES of standard error, the newest ones. */

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

#define CHILD_SAID_BYTES ((size_t)1 << 20)
#define CHILD_SENTENCE_BYTES 300
#define CHILD_FDS_MAX 5

struct child_options {
    const char *command;          /* the word after `quern`, with which its sentences begin */
    const char *const *arguments; /* argv: "quern", the command, …, ending in NULL */
    int fds[CHILD_FDS_MAX];       /* become the child's descriptors 3, 4, …; borrowed */
    size_t fd_count;
    void *context;
    bool (*stopped)(void *context); /* is asked every 50 ms; true: the child gets SIGTERM */
    void (*output)(void *context, struct str bytes); /* gets pieces of its standard output */
};

struct child_end {
    int status; /* exit status; -1: a signal ended it */
    /* Its last sentence on standard error, "quern COMMAND: …", else how it ended. */
    char sentence[CHILD_SENTENCE_BYTES];
};

/* Runs the command and waits for its end. ERR_CANCELLED if `stopped` returned true; then the child
 * has ended, too, and *ret_end has its status alone. */
enum err child_run(const struct child_options *options, struct child_end *ret_end,
                   struct error *error) MUST_CHECK;
