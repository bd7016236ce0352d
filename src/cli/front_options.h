/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* front_options: the options of `quern serve` about who may come in and who is told: keys, webhooks,
 * and where their secrets are.  Thread: main.  Memory: values point into argv. */

#include "cli/options.h"
#include "server/serve.h"

#define DOOR_OPTION_COUNT 7

/* Rows that write into `serve`. */
void front_options_fill(struct option ret_options[DOOR_OPTION_COUNT], struct serve_options *serve);
