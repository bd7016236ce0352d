/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"

#include "base/log.h"
#include "base/mem.h"
#include "cli/settings.h"
#include "cli/stop.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct command *const commands[] = {
    &cmd_run,    &cmd_serve,        &cmd_worker,     &cmd_submit,  &cmd_list,     &cmd_status,
    &cmd_watch,  &cmd_results,      &cmd_rm,         &cmd_cancel,  &cmd_retry,    &cmd_preflight,
    &cmd_pull,   &cmd_models,       &cmd_config,     &cmd_top,     &cmd_evaluate, &cmd_tune,
    &cmd_doctor, &cmd_fsck,         &cmd_audit,      &cmd_backup,  &cmd_restore,  &cmd_key,
    &cmd_bench,  &cmd_calibrate,    &cmd_compare,    &cmd_verify,  &cmd_replay,   &cmd_log,
    &cmd_erase,  &cmd_label_studio, &cmd_table,      &cmd_openapi, &cmd_tokenize, &cmd_render,
    &cmd_logits, &cmd_embed,        &cmd_completion, &cmd_engine,  NULL,
};

const struct command *command_find(const char *name) {
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(name, commands[i]->name) == 0) return commands[i];
    return NULL;
}

void *command_begin(const struct command *command, struct options *ret_options) {
    void *chosen = mem_new(1, command->chosen_bytes + 1);
    if (command->set_defaults) command->set_defaults(chosen);
    options_bind(ret_options, command->tables, command->table_count, chosen);
    return chosen;
}

void command_end(const struct command *command, void *chosen) {
    if (command->release) command->release(chosen);
    free(chosen);
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static void print_help(const struct command *command, const struct options *options) {
    printf("usage: quern %s\n\n%s\n", command->usage, command->help);
    options_print(options);
}

/* Chooses the format of the log before the command line is read, because that has notes to log. A
 * wrong name is refused later. */
static void choose_log_format(struct options *options, int argc, char **argv) {
    struct bound_option *option = options_find(options, STR("log-format"));
    const char *name = option ? *(const char **)option->target : NULL;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--log-format=", 13) == 0) name = argv[i] + 13;
        if (strcmp(argv[i], "--log-format") == 0 && i + 1 < argc) name = argv[i + 1];
    }
    if (name) (void)log_set_format_by_name(name);
}

/* From the arguments to a call that may run. An ERR_INVALID or ERR_LIMIT is a usage error. */
static enum err read_call(const struct command *command, struct command_call *call,
                          struct options *options, struct settings *settings, int argc, char **argv,
                          struct error *error) {
    enum err err = OK;
    assert(command->operands_max <= COMMAND_OPERANDS_MAX);
    if (command->has_settings)
        err = settings_load(settings, options, settings_find_config(argc, argv), error);
    if (err == OK && command->logs) choose_log_format(options, argc, argv);
    if (err == OK)
        err = options_read(options, argc, argv, call->operands, command->operands_max,
                           command->operand_as, error);
    if (err == OK && command->check) err = command->check(call, error);
    return err;
}

enum err command_read_again(struct command_reading *ret_reading, const struct command_call *call,
                            struct error *error) {
    struct command_reading *reading = ret_reading;
    const struct command *command = call->command;
    reading->settings = (struct settings){0};
    reading->call = (struct command_call){.command = command, .options = &reading->options};
    reading->call.chosen = command_begin(command, &reading->options);
    reading->options.is_quiet = true;
    enum err err = read_call(command, &reading->call, &reading->options, &reading->settings,
                             call->argc, call->argv, error);
    if (err != OK) command_reading_release(reading);
    return err;
}

void command_reading_release(struct command_reading *reading) {
    command_end(reading->call.command, reading->call.chosen);
    settings_release(&reading->settings);
}

static enum exit_status run_command(const struct command *command, int argc, char **argv) {
    struct options options;
    struct command_call call = {
        .command = command, .argc = argc, .argv = argv, .options = &options, .status = EXIT_GOOD};
    struct settings settings = {0};
    struct error error = {0};
    call.chosen = command_begin(command, &options);
    if (asks_for_help(argc, argv)) {
        print_help(command, &options);
    } else {
        enum err err = read_call(command, &call, &options, &settings, argc, argv, &error);
        if (err == OK) {
            if (command->stops) call.stop = stop_on_signals();
            err = command->run(&call, &error);
            if (err != OK) call.status = exit_status_of(err);
        } else {
            bool is_usage = err == ERR_INVALID || err == ERR_LIMIT;
            call.status = is_usage ? EXIT_USAGE : exit_status_of(err);
        }
        if (err != OK && command->logs && log_is_json())
            log_error("event=ended error=\"%s\"", error.text);
        else if (err != OK)
            fprintf(stderr, "quern %s: %s\n", command->name, error.text);
    }
    command_end(command, call.chosen);
    settings_release(&settings);
    return call.status;
}

static void print_usage(FILE *to) {
    fprintf(to, "quern " QUERN_VERSION ": batch inference, one result for every line\n\n"
                "usage: quern COMMAND [options]\n"
                "       quern COMMAND --help\n"
                "       quern help COMMAND\n\n");
    for (size_t i = 0; commands[i]; i++)
        if (!commands[i]->is_hidden)
            fprintf(to, "  %-10s  %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\nexample:\n"
                "  quern run -i requests.jsonl -o results.jsonl --model smollm2\n");
}

int command_main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("quern " QUERN_VERSION "\n");
        return EXIT_GOOD;
    }
    bool asks_help =
        strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (asks_help && (argc == 2 || argv[2][0] == '-')) {
        print_usage(stdout);
        return EXIT_GOOD;
    }
    if (asks_help) name = argv[2];
    const struct command *command = command_find(name);
    if (asks_help && command && !command->main)
        return run_command(command, 1, (char *[]){"--help"});
    if (command) {
        log_set_process(command->name);
        if (command->main) return command->main(argc - 2, argv + 2);
        return run_command(command, argc - 2, argv + 2);
    }
    if (*name) fprintf(stderr, "quern: no command '%s'\n\n", name);
    print_usage(stderr);
    return EXIT_USAGE;
}
