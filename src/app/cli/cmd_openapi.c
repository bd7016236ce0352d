/* SPDX-License-Identifier: Apache-2.0 */
#include "api/openapi.h"
#include "cli/command.h"

#include <stdio.h>

#define DOCUMENT_BYTES_MAX ((size_t)4 << 20)

static enum err run(struct command_call *call, struct error *error) {
    struct buf text;
    (void)call;
    buf_init(&text, DOCUMENT_BYTES_MAX);
    openapi_write(&text, true);
    bool good = fwrite(text.at, 1, text.bytes, stdout) == text.bytes && putchar('\n') == '\n' &&
                fflush(stdout) == 0;
    buf_release(&text);
    return good ? OK : err_set(error, ERR_IO, "cannot write to standard output");
}

const struct command cmd_openapi = {
    .name = "openapi",
    .summary = "print the OpenAPI document of the API",
    .usage = "openapi",
    .help = "Prints the OpenAPI 3.1 document of the API, which a server has under /openapi.json.\n",
    .run = run,
};
