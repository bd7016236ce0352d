/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* table_options: the options of `quern run` about tables, and what they mean together with the
 * names of its two files.
 *
 * Thread: main.
 * Memory: the plan; the rest borrows the command line. */

#include "cli/options.h"
#include "server/offline_input.h"
#include "table/requests.h"

struct table_choice {
    struct table_options table;
    int64_t limit;
    bool has_tokens, is_excel_safe;
    bool joins;              /* the schema is about a table of results */
    struct table_plan *plan; /* NULL: the input has requests */
};

extern const struct option table_option_rows[];

/* Checks the options against the names of input and output. ERR_INVALID, naming the option. */
enum err table_options_check(struct table_choice *choice, const char *input, const char *output,
                             struct error *error) MUST_CHECK;
/* Reads the files that the options name, and completes *input, whose path is set. Errors of
 * table_plan_open. */
enum err table_options_open(struct table_choice *choice, const char *output,
                            struct offline_input *input, struct error *error) MUST_CHECK;
void table_options_release(struct table_choice *choice);
