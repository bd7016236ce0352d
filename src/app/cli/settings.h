/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* settings: a command's options, filled from every source but the command line.
 *
 * The sources, the later winning:
 *
 *     the defaults
 *     /etc/quern/config
 *     ${XDG_CONFIG_HOME:-~/.config}/quern/config
 *     the environment: QUERN_ and the option's name in capitals, '_' for '-'; lists with commas
 *     the command line (options.h)
 *
 * `--config F` (or QUERN_CONFIG) replaces the two files. A list from one source replaces a list
 * from an earlier one. All commands share the files: a key that only another command has is passed
 * over; a key that no command has is an error.
 *
 * Thread: main.
 * Memory: owns the texts that options point to, until settings_release. */

#include "cli/options.h"

/* What a load says of the sources. Both may be NULL. */
struct settings_told {
    /* One wrong setting, with its file and line or its variable; the load goes on behind it. NULL:
     * the first one ends the load. */
    void (*fault)(void *context, const char *sentence);
    /* A file that was read, or was not there, and its settings. */
    void (*file)(void *context, const char *path, bool is_there, size_t count);
    void *context;
};

/* Zero is a valid start. */
struct settings {
    char **texts;
    size_t text_count;
    struct settings_told told;
};

/* The variable of the environment that sets the option. */
#define SETTINGS_VARIABLE_BYTES 80
void settings_variable(const struct option *option, char ret_name[SETTINGS_VARIABLE_BYTES]);
/* The value of --config in the arguments, or NULL. */
const char *settings_find_config(int argc, char **argv);
/* Reads the files and the environment; `config` NULL: the usual files. ERR_INVALID with the name
 * and the line of the file, or the name of the variable, unless told.fault gets it. */
enum err settings_load(struct settings *settings, struct options *options, const char *config,
                       struct error *error) MUST_CHECK;
void settings_release(struct settings *settings);
