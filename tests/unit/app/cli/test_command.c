/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* --- exit statuses --- */

static void every_error_has_a_status_and_usage_is_none_of_them(void **state) {
    (void)state;
    static const int statuses[] = {
        [OK] = 0,        [ERR_INVALID] = 3,     [ERR_NOT_FOUND] = 4, [ERR_CONFLICT] = 7,
        [ERR_LIMIT] = 3, [ERR_CANCELLED] = 130, [ERR_DENIED] = 5,    [ERR_UNAVAILABLE] = 6,
        [ERR_IO] = 1,    [ERR_CORRUPT] = 3,     [ERR_EXHAUSTED] = 6,
    };
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        assert_int_equal(exit_status_of((enum err)i), statuses[i]);
    assert_int_equal(EXIT_USAGE, 2);
    assert_int_equal(EXIT_DAMAGED, 10);
}

/* --- the tables --- */

static void *chosen_of(const struct command *command, struct options *ret_options) {
    if (command->main) return NULL;
    return command_begin(command, ret_options);
}

static void names_and_letters_are_unique_and_every_row_has_its_help(void **state) {
    (void)state;
    for (size_t i = 0; commands[i]; i++) {
        struct options options;
        void *chosen = chosen_of(commands[i], &options);
        if (!chosen) continue;
        for (size_t j = 0; j < options.count; j++) {
            const struct option *row = options.at[j].is;
            if (!row->help) fail_msg("%s: no help", row->name);
            if (option_is_switch(row) != !row->value)
                fail_msg("%s: a value's name is wrong", row->name);
            for (size_t k = 0; k < j; k++)
                if (strcmp(options.at[k].is->name, row->name) == 0 ||
                    (row->letter && options.at[k].is->letter == row->letter))
                    fail_msg("%s: twice in %s", row->name, commands[i]->name);
        }
        command_end(commands[i], chosen);
    }
}

/* "(default 30 s)" → 30; false for words such as "(default: one per core)". */
static bool read_default(const char *help, int64_t *ret_value) {
    const char *at = strstr(help, "(default ");
    char unit[8] = "";
    if (!at || sscanf(at + strlen("(default "), "%" SCNd64 " %7[A-Za-z]", ret_value, unit) < 1)
        return false;
    if (strcmp(unit, "MiB") == 0) *ret_value <<= 20;
    if (strcmp(unit, "GiB") == 0) *ret_value <<= 30;
    return true;
}

/* A default of 0 stands for one that is chosen later, by the engine or the server. */
static void the_help_tells_the_default_that_is_set(void **state) {
    (void)state;
    size_t compared = 0;
    for (size_t i = 0; commands[i]; i++) {
        struct options options;
        void *chosen = chosen_of(commands[i], &options);
        if (!chosen) continue;
        for (size_t j = 0; j < options.count; j++) {
            const struct option *row = options.at[j].is;
            int64_t told = 0, set = 0;
            if (row->kind != OPTION_INTEGER) continue;
            memcpy(&set, options.at[j].target, sizeof set);
            if (set != 0 && (!read_default(row->help, &told) || told != set))
                fail_msg("%s --%s: the default is %" PRId64 ", the help says: %s",
                         commands[i]->name, row->name, set, row->help);
            compared += set != 0;
        }
        command_end(commands[i], chosen);
    }
    assert_true(compared > 10);
}

static void only_a_hidden_command_takes_its_arguments_itself(void **state) {
    (void)state;
    for (size_t i = 0; commands[i]; i++) {
        const struct command *command = commands[i];
        assert_ptr_equal(command_find(command->name), command);
        assert_true(!command->main == !command->is_hidden);
        assert_true(command->main || (command->run && command->usage && command->help));
        assert_true(!command->has_settings || command->set_defaults);
    }
    assert_null(command_find("nonesuch"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_a_status_and_usage_is_none_of_them),
        cmocka_unit_test(names_and_letters_are_unique_and_every_row_has_its_help),
        cmocka_unit_test(the_help_tells_the_default_that_is_set),
        cmocka_unit_test(only_a_hidden_command_takes_its_arguments_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
