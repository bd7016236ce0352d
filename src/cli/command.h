/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* command: one subcommand of quern. Each cmd_*.c has exactly one; main.c holds the list. */

struct command {
    const char *name;
    const char *summary; /* one line for `quern --help` */
    bool hidden;         /* not listed: for quern itself */
    /* Gets the arguments after the subcommand; returns the exit status. */
    int (*run)(int argc, char **argv);
};

extern const struct command cmd_config;
extern const struct command cmd_embed;
extern const struct command cmd_engine;
extern const struct command cmd_fsck;
extern const struct command cmd_key;
extern const struct command cmd_logits;
extern const struct command cmd_models;
extern const struct command cmd_preflight;
extern const struct command cmd_openapi;
extern const struct command cmd_pull;
extern const struct command cmd_render;
extern const struct command cmd_run;
extern const struct command cmd_serve;
extern const struct command cmd_tokenize;

/* Exit statuses, the same for every subcommand. */
enum exit_status {
    EXIT_GOOD = 0,
    EXIT_LINES_FAILED = 1, /* the work is done, and some lines failed */
    EXIT_WRONG_INPUT = 2,  /* the file or the command is wrong */
    EXIT_MACHINE = 3,      /* disk, model or engine */
};
