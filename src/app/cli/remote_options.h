/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* remote_options: the options of commands that are clients of a server, as rows of their tables.
 *
 * client/remote_place.h says what they mean.
 *
 * Thread: any.
 * Memory: constants. */

#include "cli/options.h"
#include "client/remote_place.h"

extern const struct option remote_option_rows[]; /* fill in a struct remote_choice */
