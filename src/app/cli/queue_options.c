/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/queue_options.h"

#include "node/queue.h"

#define AT(field) offsetof(struct queue_options, field)
const struct option queue_option_rows[] = {
    {"queue", OPTION_TEXT, AT(url), "URL",
     .help =
         "Redis or Valkey server between machines: redis[s]://[USER@]HOST[:PORT]/?cluster=NAME"},
    {"queue-password-file", OPTION_TEXT, AT(password_file), "F",
     .help = "file of the password for the queue's server (default: QUERN_QUEUE_PASSWORD, else the "
             "credential queue-password, else none)"},
    {"queue-ca-file", OPTION_TEXT, AT(ca_file), "F",
     .help =
         "authorities for the certificate of the queue's server, as PEM (default: the machine's)"},
    {"queue-cert-file", OPTION_TEXT, AT(cert_file), "F",
     .help = "own certificate and key for the queue's server, as PEM (default: none)"},
    {0},
};

const struct option queue_memory_rows[] = {
    {"queue-memory-bytes", OPTION_INTEGER, AT(memory_bytes), "N",
     .help = "requests in flight at all nodes (default 256 MiB)", .min = 1 << 20, .max = 1e15,
     .is_size = true},
    {0},
};
