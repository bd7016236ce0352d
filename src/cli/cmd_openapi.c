/* SPDX-License-Identifier: Apache-2.0 */
#include "api/openapi.h"
#include "cli/command.h"
#include "cli/options.h"

#include <stdio.h>

static int run(int argc, char **argv) {
    const struct options_help help = {
        "openapi", "Prints the OpenAPI 3.1 document of the API, as the server has it under\n"
                   "/openapi.json.\n"};
    struct error error = {0};
    bool done = false;
    if (options_read(NULL, 0, &help, argc, argv, NULL, 0, &done, &error) != OK) {
        fprintf(stderr, "quern openapi: %s\n", error.text);
        return EXIT_WRONG_INPUT;
    }
    if (done) return EXIT_GOOD;
    struct buf text;
    buf_init(&text, (size_t)4 << 20);
    openapi_write(&text);
    bool good = fwrite(text.at, 1, text.bytes, stdout) == text.bytes && putchar('\n') == '\n' &&
                fflush(stdout) == 0;
    buf_release(&text);
    if (good) return EXIT_GOOD;
    fprintf(stderr, "quern openapi: cannot write to standard output\n");
    return EXIT_MACHINE;
}

const struct command cmd_openapi = {"openapi", "prints the OpenAPI document of the API", false,
                                    run};
