/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

/* Completions of the shells, printed from the tables that --help prints. An option's value is one
 * of its words, a file, a folder, or free: the name of the value tells. Options of other programs
 * (vllm_options.h) are left out: none of them changes anything here. */

enum value_kind { VALUE_NONE, VALUE_FREE, VALUE_WORDS, VALUE_FILE, VALUE_FOLDER };

static enum value_kind value_kind_of(const struct option *option) {
    static const char *const files[] = {"F", "FILE", "F.jinja", "IN", "OUT", "M", "[ALIAS=]M"};
    if (option_is_switch(option) || !option->value) return VALUE_NONE;
    if (option->words) return VALUE_WORDS;
    if (strcmp(option->value, "DIR") == 0) return VALUE_FOLDER;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(option->value, files[i]) == 0) return VALUE_FILE;
    return VALUE_FREE;
}

/* Prints the words with a space between them. */
static void print_words(const char *words) {
    struct str rest = str_from(words), word;
    for (const char *before = ""; option_next_word(&rest, &word); before = " ")
        printf("%s%.*s", before, STR_ARGS(word));
}

typedef void (*row_fn)(const struct command *command, const struct option *row);

/* Calls `print` for each option of the command that is quern's own. */
static void each_row(const struct command *command, row_fn print) {
    for (size_t i = 0; i < command->table_count; i++)
        for (const struct option *row = command->tables[i].rows; row->name; row++)
            if (!option_is_foreign(row)) print(command, row);
}

/* --- bash --- */

static void bash_name(const struct command *command, const struct option *row) {
    (void)command;
    printf(" --%s", row->name);
    if (row->kind == OPTION_SWITCH) printf(" --no-%s", row->name);
}

/* A branch of `case`: what the value of the option before the cursor can be. */
static void bash_value(const struct command *command, const struct option *row) {
    enum value_kind kind = value_kind_of(row);
    (void)command;
    if (kind == VALUE_NONE) return;
    printf("            --%s", row->name);
    if (row->letter) printf(" | -%c", row->letter);
    if (kind == VALUE_WORDS) {
        printf(") words='");
        print_words(row->words);
        printf("' ;;\n");
    } else {
        printf(") kind=%s ;;\n", kind == VALUE_FILE     ? "file"
                                 : kind == VALUE_FOLDER ? "folder"
                                                        : "none");
    }
}

static void bash_command(const struct command *command) {
    printf("    %s)\n        options='--help", command->name);
    each_row(command, bash_name);
    printf("'\n");
    if (command->words) {
        printf("        operands='");
        print_words(command->words);
        printf("'\n");
    }
    printf("        case $previous in\n");
    each_row(command, bash_value);
    printf("        esac ;;\n");
}

static void print_bash(void) {
    printf("# Completions of quern %s for bash, printed by `quern completion bash`.\n"
           "_quern() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
           "    local options= operands= words= kind=\n"
           "    COMPREPLY=()\n"
           "    # bash takes --name=value for three words.\n"
           "    if [[ $current == = ]]; then\n"
           "        current=\n"
           "    elif [[ $previous == = ]]; then\n"
           "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
           "    fi\n"
           "    if ((COMP_CWORD == 1)); then\n"
           "        COMPREPLY=($(compgen -W '",
           QUERN_VERSION);
    for (size_t i = 0; commands[i]; i++)
        if (!commands[i]->is_hidden) printf("%s ", commands[i]->name);
    printf("help --help --version' -- \"$current\"))\n"
           "        return\n"
           "    fi\n"
           "    case ${COMP_WORDS[1]} in\n"
           "    help) operands='");
    for (size_t i = 0; commands[i]; i++)
        if (!commands[i]->is_hidden) printf("%s%s", i ? " " : "", commands[i]->name);
    printf("' ;;\n");
    for (size_t i = 0; commands[i]; i++)
        if (!commands[i]->is_hidden) bash_command(commands[i]);
    printf("    esac\n"
           "    if [[ -z $words && -z $kind && $current == -* ]]; then\n"
           "        words=$options\n"
           "    elif [[ -z $words && -z $kind ]]; then\n"
           "        kind=file\n"
           "        if ((COMP_CWORD == 2)) && [[ -n $operands ]]; then words=$operands kind=; fi\n"
           "    fi\n"
           "    case $kind in\n"
           "    none) ;;\n"
           "    file | folder)\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        local action=-f\n"
           "        [[ $kind == folder ]] && action=-d\n"
           "        local IFS=$'\\n'\n"
           "        COMPREPLY=($(compgen $action -- \"$current\"))\n"
           "        ;;\n"
           "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
           "    esac\n"
           "}\n"
           "complete -F _quern quern\n");
}

/* --- zsh --- */

/* Prints a text inside single quotes; `special` are the characters that take a backslash. */
static void print_quoted(const char *text, const char *special, const char *quote) {
    for (; *text; text++) {
        if (*text == '\'')
            printf("%s", quote);
        else if (strchr(special, *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

#define ZSH_QUOTE "'\\''"

static void zsh_value(const struct option *row) {
    printf(":");
    print_quoted(row->value, "[]:\\", ZSH_QUOTE);
    switch (value_kind_of(row)) {
    case VALUE_WORDS:
        printf(":(");
        print_words(row->words);
        printf(")");
        break;
    case VALUE_FILE: printf(":_files"); break;
    case VALUE_FOLDER: printf(":_files -/"); break;
    default: printf(": "); break;
    }
}

static void zsh_row(const struct command *command, const struct option *row) {
    bool has_value = value_kind_of(row) != VALUE_NONE;
    (void)command;
    printf(" \\\n            %s", option_is_list(row) ? "'*'" : "");
    if (row->letter && !option_is_list(row)) printf("'(-%c --%s)'", row->letter, row->name);
    if (row->letter)
        printf("{-%c%s,--%s%s}", row->letter, has_value ? "+" : "", row->name,
               has_value ? "=" : "");
    else
        printf("--%s%s", row->name, has_value ? "=" : "");
    printf("'[");
    print_quoted(row->help, "[]:\\", ZSH_QUOTE);
    printf("]");
    if (has_value) zsh_value(row);
    printf("'");
    if (row->kind == OPTION_SWITCH) printf(" \\\n            '!--no-%s'", row->name);
}

static void zsh_command(const struct command *command) {
    printf("    %s)\n        _arguments -s '(- *)--help[show the help]'", command->name);
    each_row(command, zsh_row);
    if (command->words) {
        printf(" \\\n            '1: :(");
        print_words(command->words);
        printf(")'");
    }
    printf(" \\\n            '*:file:_files' ;;\n");
}

static void print_zsh(void) {
    printf("#compdef quern\n"
           "# Completions of quern %s for zsh, printed by `quern completion zsh`.\n"
           "_quern() {\n"
           "    local -a names=(\n",
           QUERN_VERSION);
    for (size_t i = 0; commands[i]; i++) {
        if (commands[i]->is_hidden) continue;
        printf("        '%s:", commands[i]->name);
        print_quoted(commands[i]->summary, ":\\", ZSH_QUOTE);
        printf("'\n");
    }
    printf("        'help:show the help of a command'\n"
           "    )\n"
           "    if ((CURRENT == 2)); then\n"
           "        _describe command names\n"
           "        return\n"
           "    fi\n"
           "    shift words\n"
           "    ((CURRENT--))\n"
           "    case ${words[1]} in\n"
           "    help) _describe command names ;;\n");
    for (size_t i = 0; commands[i]; i++)
        if (!commands[i]->is_hidden) zsh_command(commands[i]);
    printf(
        "    esac\n"
        "}\n"
        "if [[ ${funcstack[1]} == _quern ]]; then _quern \"$@\"; else compdef _quern quern; fi\n");
}

/* --- fish --- */

#define FISH_QUOTE "\\'"

static void fish_row(const struct command *command, const struct option *row) {
    printf("complete -c quern -n '__fish_seen_subcommand_from %s' -l %s", command->name, row->name);
    if (row->letter) printf(" -s %c", row->letter);
    switch (value_kind_of(row)) {
    case VALUE_NONE: break;
    case VALUE_FREE: printf(" -x"); break;
    case VALUE_FILE: printf(" -r -F"); break;
    case VALUE_FOLDER: printf(" -x -a '(__fish_complete_directories)'"); break;
    case VALUE_WORDS:
        printf(" -x -a '");
        print_words(row->words);
        printf("'");
        break;
    }
    printf(" -d '");
    print_quoted(row->help, "\\", FISH_QUOTE);
    printf("'\n");
}

static void print_fish(void) {
    printf("# Completions of quern %s for fish, printed by `quern completion fish`.\n"
           "complete -c quern -n __fish_use_subcommand -f\n"
           "complete -c quern -l help -s h -d 'show the help'\n"
           "complete -c quern -n __fish_use_subcommand -a help -d 'show the help of a command'\n",
           QUERN_VERSION);
    for (size_t i = 0; commands[i]; i++) {
        if (commands[i]->is_hidden) continue;
        printf("complete -c quern -n __fish_use_subcommand -a %s -d '", commands[i]->name);
        print_quoted(commands[i]->summary, "\\", FISH_QUOTE);
        printf("'\n");
        if (commands[i]->words) {
            printf("complete -c quern -n '__fish_seen_subcommand_from %s' -a '", commands[i]->name);
            print_words(commands[i]->words);
            printf("'\n");
        }
        each_row(commands[i], fish_row);
    }
}

/* --- the command --- */

static const struct shell {
    const char *name;
    void (*print)(void);
} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

static const struct shell *find_shell(const char *name) {
    for (size_t i = 0; name && i < sizeof shells / sizeof *shells; i++)
        if (strcmp(name, shells[i].name) == 0) return &shells[i];
    return NULL;
}

static enum err check(struct command_call *call, struct error *error) {
    if (find_shell(call->operands[0])) return OK;
    return err_set(error, ERR_INVALID, "say `quern completion bash`, zsh or fish");
}

static enum err run(struct command_call *call, struct error *error) {
    (void)error;
    find_shell(call->operands[0])->print();
    return OK;
}

static const struct option rows[] = {{0}};
static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_completion = {
    .name = "completion",
    .summary = "print completions for bash, zsh or fish",
    .usage = "completion bash|zsh|fish",
    .help =
        "Prints the completions of all commands and options for a shell. `make install` and the\n"
        "packages install them; by hand, for bash: source <(quern completion bash)\n",
    .tables = tables,
    .table_count = 1,
    .operands_max = 1,
    .words = "bash|zsh|fish",
    .check = check,
    .run = run,
};
