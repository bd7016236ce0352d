/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/front_options.h"

#include "server/serve.h"

#define AT(field) offsetof(struct serve_options, field)
const struct option front_option_rows[] = {
    {"api-key-file", OPTION_TEXT, AT(keys.file), "F",
     .help = "file of keys that clients must send, one per line, or a gcp-secret:// name (default: "
             "no key needed)",
     .reloads = true},
    {"insecure-no-keys", OPTION_SWITCH, AT(insecure_no_keys),
     .help =
         "serve an address of other machines although no key exists: everyone may do everything"},
    {"access-log", OPTION_SWITCH, AT(access_log),
     .help = "log one line per request, but for probes (default on; off: --no-access-log)"},
    {"disable-uvicorn-access-log", OPTION_SWITCH, AT(no_uvicorn_access_log),
     .help = "the same as --no-access-log"},
    {"disable-access-log-for-endpoints", OPTION_TEXT, AT(access_log_leaves_out), "LIST",
     .help = "paths, separated by commas, whose requests leave no line"},
    {"metrics-compat", OPTION_TEXT, AT(metrics_compat), "NAME",
     .help = "names for /metrics in addition to quern's own: vllm (default: none)",
     .words = "vllm"},
    {"env-file", OPTION_TEXT, AT(env_file), "F",
     .help = "file of NAME=value lines, for secrets that no option names", .reloads = true},
    {"webhook-url", OPTION_TEXT, AT(webhooks.url), "URL",
     .help = "receiver of an event for every batch that ends"},
    {"webhook-secret-file", OPTION_TEXT, AT(webhooks.secret_file), "F",
     .help = "file of the secret that signs events; second line: the previous secret",
     .reloads = true},
    {"webhook-events", OPTION_TEXT, AT(webhooks.events), "LIST",
     .help = "events for --webhook-url (default: the four ends of a batch)"},
    {"webhook-allow-private", OPTION_SWITCH, AT(webhooks.allow_private),
     .help = "allow webhooks plain http and private addresses"},
    {"webhook-retry-seconds", OPTION_INTEGER, AT(webhooks.retry_s), "N",
     .help = "wait before the second attempt, doubled each time (default 5 s)", .min = 1,
     .max = 3600},
    {"label-studio-url", OPTION_TEXT, AT(studio.url), "URL",
     .help = "Label Studio to which the pages send batches (default: none)"},
    {"label-studio-token-file", OPTION_TEXT, AT(studio.token_file), "F",
     .help = "file of its token, legacy or personal (default: LABEL_STUDIO_API_KEY_FILE, else "
             "LABEL_STUDIO_API_KEY)"},
    {0},
};
