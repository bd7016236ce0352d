/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tune_arguments: today's options of an engine as a command line for `quern run`.
 *
 * The options may come from files, variables and the command line; a trial reads none of these, so
 * it gets every option that differs from its default.
 *
 * Thread: main.
 * Memory: the struct owns its texts; tune_arguments_release frees them. */

#include "cli/engine_options.h"

#define TUNE_ARGUMENTS_MAX 160

struct tune_arguments {
    const char *at[TUNE_ARGUMENTS_MAX + 1]; /* ends in NULL */
    char *texts[TUNE_ARGUMENTS_MAX];
    size_t count, text_count;
};

/* Fills the arguments from the options and the one model that was found. ERR_LIMIT if they are too
 * many. */
enum err tune_arguments_fill(struct tune_arguments *ret_arguments,
                             const struct engine_choice *choice, const struct model_choice *model,
                             struct error *error) MUST_CHECK;
/* Adds the options of an engine that differ from their defaults, but for names of models, and for
 * options that `skips` is true of (NULL: none). */
enum err tune_arguments_add_engine(struct tune_arguments *arguments,
                                   const struct engine_choice *choice,
                                   bool (*skips)(const char *name), struct error *error) MUST_CHECK;
/* Adds one more option with its value; ERR_LIMIT likewise. */
enum err tune_arguments_add(struct tune_arguments *arguments, const char *name, const char *value,
                            struct error *error) MUST_CHECK;
void tune_arguments_release(struct tune_arguments *arguments);
