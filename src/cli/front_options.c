/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/front_options.h"

#include <string.h>

void front_options_fill(struct option ret_options[DOOR_OPTION_COUNT], struct serve_options *serve) {
    const struct option rows[DOOR_OPTION_COUNT] = {
        {.name = "api-key-file",
         .kind = OPTION_TEXT,
         .target = &serve->api_key_file,
         .value = "F",
         .help = "keys clients must send, one a line; none: anybody"},
        {.name = "env-file",
         .kind = OPTION_TEXT,
         .target = &serve->env_file,
         .value = "F",
         .help = "NAME=value lines, for secrets that no option names"},
        {.name = "webhook-url",
         .kind = OPTION_TEXT,
         .target = &serve->webhooks.url,
         .value = "URL",
         .help = "is told when a batch ends"},
        {.name = "webhook-secret-file",
         .kind = OPTION_TEXT,
         .target = &serve->webhooks.secret_file,
         .value = "F",
         .help = "signs what webhooks are told; a second line: the secret before"},
        {.name = "webhook-events",
         .kind = OPTION_TEXT,
         .target = &serve->webhooks.events,
         .value = "LIST",
         .help = "for --webhook-url; the four ends of a batch"},
        {.name = "webhook-allow-private",
         .kind = OPTION_SWITCH,
         .target = &serve->webhooks.allow_private,
         .help = "webhooks may use plain http and go to private addresses"},
        {.name = "webhook-retry-seconds",
         .kind = OPTION_INTEGER,
         .target = &serve->webhooks.retry_s,
         .value = "N",
         .help = "before the second attempt, doubled each time; 5",
         .min = 1,
         .max = 3600},
    };
    memcpy(ret_options, rows, sizeof rows);
}
