/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* settings: an option table filled from everywhere a setting may come from, the later winning:
 *
 *     defaults (what the targets hold)
 *     /etc/quern/config
 *     ${XDG_CONFIG_HOME:-~/.config}/quern/config
 *     the environment: QUERN_ and the option's name in capitals, '_' for '-'; lists with commas
 *     the command line
 *
 * `--config F` (or QUERN_CONFIG) takes the place of the two files. A list given in one place takes
 * the place of a list from before. Both kinds of files are for all commands: a key that only
 * another command has is passed over, one that none has is an error.
 *
 * Thread: main.  Memory: owns the texts that targets point to, until settings_release. */

#include "cli/options.h"

struct settings {
    struct option_origin origins[OPTIONS_MAX]; /* one for each row of the table */
    char **texts;
    size_t text_count;
};

/* As options_read, with all sources. Zero *settings before. */
enum err settings_read(struct settings *settings, const struct option *options, size_t count,
                       const struct options_help *help, int argc, char **argv,
                       const char **ret_rest, size_t rest_max, bool *ret_done,
                       struct error *error) MUST_CHECK;
/* Files and environment only; `config` NULL: the usual files. */
enum err settings_load(struct settings *settings, const struct option *options, size_t count,
                       const char *config, struct error *error) MUST_CHECK;
void settings_release(struct settings *settings);

typedef void (*settings_visit_fn)(void *context, const struct option *options, size_t count);
/* The tables of the commands that have settings, with their defaults. */
void cmd_run_settings(settings_visit_fn visit, void *context);
void cmd_serve_settings(settings_visit_fn visit, void *context);
