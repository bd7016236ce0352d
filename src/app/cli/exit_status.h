/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* exit_status: the numbers with which every command of quern ends.
 *
 * Scripts depend on them; docs/man/quern.1, section EXIT STATUS, is the same table.
 *
 * Thread: any.
 * Memory: none. */

#include "base/err.h"

enum exit_status {
    EXIT_GOOD = 0,
    EXIT_FAILED = 1,         /* the machine failed, or the work is done and some lines failed */
    EXIT_USAGE = 2,          /* the command line, the environment or a settings file is wrong */
    EXIT_UNUSABLE = 3,       /* a model, an input or a state directory cannot be used as it is */
    EXIT_NOT_FOUND = 4,      /* no such model, file, key or batch */
    EXIT_AUTHENTICATION = 5, /* a token is missing, wrong or without access */
    EXIT_UNAVAILABLE = 6,    /* not now: the disk is full, a server does not answer */
    EXIT_CONFLICT = 7,       /* in use, there already, or of another input */
    EXIT_DAMAGED = 10,       /* the check that was asked for found damage */
    EXIT_INTERRUPTED = 130,  /* stopped by SIGINT or SIGTERM */
};

/* The status for an error of a command's work. Errors of its command line are EXIT_USAGE. */
enum exit_status exit_status_of(enum err err);
