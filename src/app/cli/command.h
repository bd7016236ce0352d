/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* command: the frame of quern's subcommands.
 *
 * Each cmd_*.c has one `const struct command`: a name, texts for the help, static tables of
 * options, and up to four functions. The frame does the rest: it makes the struct that the options
 * fill, reads settings and the command line, prints the help, catches signals, prints the one
 * sentence of an error and chooses the exit status. So `quern config` can show a command's options
 * without running it.
 *
 * Thread: main.
 * Memory: the frame owns the chosen options and the settings' texts until `run` has returned. */

#include "cli/exit_status.h"
#include "cli/options.h"
#include "cli/settings.h"

#include <stdbool.h>

#define COMMAND_OPERANDS_MAX 65

/* One run of a command. */
struct command_call {
    const struct command *command;
    int argc; /* what follows the command's name */
    char **argv;
    const struct options *options;              /* those of `chosen`; NULL for `main` */
    void *chosen;                               /* the struct of chosen_bytes that options fill */
    const char *operands[COMMAND_OPERANDS_MAX]; /* NULL: not given */
    const volatile bool *stop;                  /* true after the first SIGINT or SIGTERM; NULL
                                                   without `stops` */
    enum exit_status status;                    /* the status of an OK run; EXIT_GOOD unless set */
};

struct command {
    const char *name;
    const char *summary;               /* a phrase for `quern --help` */
    const char *usage;                 /* follows "usage: quern " */
    const char *help;                  /* paragraphs that end in a newline */
    const struct option_table *tables; /* (table_count) */
    size_t table_count;
    size_t chosen_bytes;
    size_t operands_max;    /* at most COMMAND_OPERANDS_MAX */
    const char *operand_as; /* the option whose values operands are; NULL: none */
    const char *words;      /* first operands to choose from, separated by '|'; NULL: any */
    bool has_settings;      /* options also come from files and the environment (settings.h) */
    bool stops;             /* `run` watches call->stop and then returns ERR_CANCELLED or OK */
    bool logs;              /* its messages are lines of the log, too, with --log-format json */
    bool is_hidden;         /* not listed: started by quern itself */

    /* Writes the defaults that are not zero. NULL: all are zero. */
    void (*set_defaults)(void *chosen);
    /* Checks the command line: an ERR_INVALID from here is a usage error. NULL: nothing to
     * check. */
    enum err (*check)(struct command_call *call, struct error *error);
    /* Does the work. */
    enum err (*run)(struct command_call *call, struct error *error);
    /* Frees what the chosen options own. NULL: nothing. */
    void (*release)(void *chosen);
    /* Takes the arguments as they are, instead of all the above; returns the exit status. */
    int (*main)(int argc, char **argv);
};

extern const struct command cmd_audit;
extern const struct command cmd_backup;
extern const struct command cmd_bench;
extern const struct command cmd_calibrate;
extern const struct command cmd_cancel;
extern const struct command cmd_compare;
extern const struct command cmd_completion;
extern const struct command cmd_config;
extern const struct command cmd_doctor;
extern const struct command cmd_embed;
extern const struct command cmd_engine;
extern const struct command cmd_erase;
extern const struct command cmd_fsck;
extern const struct command cmd_key;
extern const struct command cmd_label_studio;
extern const struct command cmd_list;
extern const struct command cmd_log;
extern const struct command cmd_logits;
extern const struct command cmd_models;
extern const struct command cmd_openapi;
extern const struct command cmd_preflight;
extern const struct command cmd_pull;
extern const struct command cmd_render;
extern const struct command cmd_replay;
extern const struct command cmd_restore;
extern const struct command cmd_results;
extern const struct command cmd_retry;
extern const struct command cmd_rm;
extern const struct command cmd_run;
extern const struct command cmd_serve;
extern const struct command cmd_status;
extern const struct command cmd_submit;
extern const struct command cmd_table;
extern const struct command cmd_tokenize;
extern const struct command cmd_top;
extern const struct command cmd_evaluate;
extern const struct command cmd_tune;
extern const struct command cmd_verify;
extern const struct command cmd_watch;
extern const struct command cmd_worker;

/* All commands in the order of the help, then NULL. */
extern const struct command *const commands[];

/* The command of that name, or NULL. */
const struct command *command_find(const char *name);
/* Makes the struct of the options with its defaults and binds the tables to it; the caller passes
 * it to command_end. */
void *command_begin(const struct command *command, struct options *ret_options);
void command_end(const struct command *command, void *chosen);
/* The settings and the command line, read again. */
struct command_reading {
    struct command_call call;
    struct options options;
    struct settings settings;
};

/* Reads files, environment and arguments of a running call once more, into a struct of its own, and
 * checks them as at the start. Values that a command wipes from its arguments are empty now. After
 * an error nothing is to be released. */
enum err command_read_again(struct command_reading *ret_reading, const struct command_call *call,
                            struct error *error) MUST_CHECK;
void command_reading_release(struct command_reading *reading);
/* `quern` with its arguments, the program's name first. Returns the exit status. */
int command_main(int argc, char **argv);
