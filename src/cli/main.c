/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/os.h"
#include "cli/command.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
    &cmd_run, &cmd_serve,    &cmd_preflight, &cmd_pull,   &cmd_models, &cmd_config,  &cmd_fsck,
    &cmd_key, &cmd_tokenize, &cmd_render,    &cmd_logits, &cmd_embed,  &cmd_openapi, &cmd_engine,
};

static void print_usage(FILE *to) {
    fprintf(to, "quern " QUERN_VERSION ": batch inference, one result for every line\n\n"
                "usage: quern COMMAND [options]      quern COMMAND --help tells more\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!commands[i]->hidden)
            fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\nexample:\n"
                "  quern run -i requests.jsonl -o results.jsonl --model smollm2\n");
}

int main(int argc, char **argv) {
    /* A peer that hangs up is an error of that write, not the end of the program. */
    signal(SIGPIPE, SIG_IGN);
    const char *plan = getenv("QUERN_FAULT");
    struct error error;
    if (plan && os_fault_plan(plan, &error) != OK) {
        fprintf(stderr, "quern: %s\n", error.text);
        return EXIT_WRONG_INPUT;
    }
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("quern " QUERN_VERSION "\n");
        return EXIT_GOOD;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_usage(stdout);
        return EXIT_GOOD;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(name, commands[i]->name) == 0) {
            log_set_process(commands[i]->name);
            return commands[i]->run(argc - 2, argv + 2);
        }
    if (*name) fprintf(stderr, "quern: no command '%s'\n\n", name);
    print_usage(stderr);
    return EXIT_WRONG_INPUT;
}
