/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tune_arguments.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 8192

/* Keeps a copy. A text over the last place is dropped; the caller compares the counts. */
static void add(struct tune_arguments *arguments, const char *text) {
    if (arguments->count < TUNE_ARGUMENTS_MAX)
        arguments->at[arguments->count] = arguments->texts[arguments->text_count++] =
            mem_text(text);
    arguments->count++;
}

static void add_pair(struct tune_arguments *arguments, const char *name, const char *value) {
    char option[96];
    snprintf(option, sizeof option, "--%.90s", name);
    add(arguments, option);
    add(arguments, value);
}

static void add_switch(struct tune_arguments *arguments, const char *name, bool value) {
    char option[96];
    snprintf(option, sizeof option, "--%s%.85s", value ? "" : "no-", name);
    add(arguments, option);
}

/* Options that a trial gets from its caller, or that are no business of an engine. */
static bool is_left_out(const struct option *row) {
    static const char *const names[] = {"config", "model",      "pull",     "upstream",
                                        "alias",  "log-format", "log-level"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(row->name, names[i]) == 0) return true;
    return false;
}

/* Adds the option if it differs from its default. */
static void add_row(struct tune_arguments *arguments, const struct option *row,
                    const struct engine_choice *choice, const struct engine_choice *usual) {
    const char *here = (const char *)choice + row->at, *there = (const char *)usual + row->at;
    char text[64];
    switch (row->kind) {
    case OPTION_TEXT:
        if (*(const char *const *)here) add_pair(arguments, row->name, *(const char *const *)here);
        break;
    case OPTION_INTEGER:
        snprintf(text, sizeof text, "%" PRId64, *(const int64_t *)here);
        if (*(const int64_t *)here != *(const int64_t *)there) add_pair(arguments, row->name, text);
        break;
    case OPTION_NUMBER:
        snprintf(text, sizeof text, "%.17g", *(const double *)here);
        if (*(const double *)here > 0) add_pair(arguments, row->name, text);
        break;
    case OPTION_SWITCH:
        if (*(const bool *)here != *(const bool *)there)
            add_switch(arguments, row->name, *(const bool *)here);
        break;
    default: break; /* names, which the model has found, and other programs' options */
    }
}

static enum err check_count(const struct tune_arguments *arguments, struct error *error) {
    if (arguments->count <= TUNE_ARGUMENTS_MAX) return OK;
    return err_set(error, ERR_LIMIT, "there are too many options for a trial");
}

enum err tune_arguments_add_engine(struct tune_arguments *arguments,
                                   const struct engine_choice *choice,
                                   bool (*skips)(const char *name), struct error *error) {
    static struct engine_choice usual;
    engine_options_set_defaults(&usual);
    for (const struct option *row = engine_option_rows; row->name; row++)
        if (!is_left_out(row) && !(skips && skips(row->name)))
            add_row(arguments, row, choice, &usual);
    return check_count(arguments, error);
}

enum err tune_arguments_fill(struct tune_arguments *ret_arguments,
                             const struct engine_choice *choice, const struct model_choice *model,
                             struct error *error) {
    char text[TEXT_BYTES];
    *ret_arguments = (struct tune_arguments){.count = 0};
    snprintf(text, sizeof text, "%s=%s", model->names[0], model->is_echo ? "echo" : model->path);
    add_pair(ret_arguments, "model", text);
    for (size_t i = 1; i < model->name_count; i++) {
        snprintf(text, sizeof text, "%s=%s", model->names[i], model->names[0]);
        add_pair(ret_arguments, "alias", text);
    }
    return tune_arguments_add_engine(ret_arguments, choice, NULL, error);
}

enum err tune_arguments_add(struct tune_arguments *arguments, const char *name, const char *value,
                            struct error *error) {
    add_pair(arguments, name, value);
    return check_count(arguments, error);
}

void tune_arguments_release(struct tune_arguments *arguments) {
    for (size_t i = 0; i < arguments->text_count; i++) free(arguments->texts[i]);
    *arguments = (struct tune_arguments){.count = 0};
}
