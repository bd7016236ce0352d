/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/front_options.h"

#include "server/serve.h"

#define AT(field) offsetof(struct serve_options, field)
const struct option front_option_rows[] = {
    {"api-key-file", OPTION_TEXT, AT(keys.file), "F",
     .help = "file of keys that clients must send, one per line (default: no key needed)"},
    {"insecure-no-keys", OPTION_SWITCH, AT(insecure_no_keys),
     .help =
         "serve an address of other machines although no key exists: everyone may do everything"},
    {"env-file", OPTION_TEXT, AT(env_file), "F",
     .help = "file of NAME=value lines, for secrets that no option names"},
    {"webhook-url", OPTION_TEXT, AT(webhooks.url), "URL",
     .help = "receiver of an event for every batch that ends"},
    {"webhook-secret-file", OPTION_TEXT, AT(webhooks.secret_file), "F",
     .help = "file of the secret that signs events; second line: the previous secret"},
    {"webhook-events", OPTION_TEXT, AT(webhooks.events), "LIST",
     .help = "events for --webhook-url (default: the four ends of a batch)"},
    {"webhook-allow-private", OPTION_SWITCH, AT(webhooks.allow_private),
     .help = "allow webhooks plain http and private addresses"},
    {"webhook-retry-seconds", OPTION_INTEGER, AT(webhooks.retry_s), "N",
     .help = "wait before the second attempt, doubled each time (default 5 s)", .min = 1,
     .max = 3600},
    {0},
};
