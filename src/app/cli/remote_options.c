/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote_options.h"

#include <stddef.h>

#define AT(field) offsetof(struct remote_choice, field)
const struct option remote_option_rows[] = {
    {"base-url", OPTION_TEXT, AT(base_url), "URL",
     .help = "server to talk to (default: OPENAI_BASE_URL, else " REMOTE_URL_USUAL ")"},
    {"api-key-file", OPTION_TEXT, AT(api_key_file), "F",
     .help = "file of the key to send (default: OPENAI_API_KEY_FILE, else OPENAI_API_KEY)"},
    {"ca-file", OPTION_TEXT, AT(ca_file), "F",
     .help = "file of trusted certificates, for https (default: the system's)"},
    {0},
};
