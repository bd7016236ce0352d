/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/manifest_options.h"

#include "cli/state_dir.h"
#include "cli/tune_arguments.h"
#include "proof/signing_key.h"
#include "server/run_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options that change no answer, or that load code. */
static bool is_left_out(const char *name) {
    static const char *const names[] = {"config",
                                        "model",
                                        "pull",
                                        "upstream",
                                        "alias",
                                        "log-format",
                                        "log-level",
                                        "served-model-name",
                                        "packed-cache",
                                        "packed-cache-dir",
                                        "packed-cache-bytes",
                                        "result-cache-bytes",
                                        "device-plugin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* The row of "--name" or "--no-name", or NULL. */
static const struct option *find_row(const char *option) {
    for (const struct option *row = engine_option_rows; row->name; row++) {
        bool is_no = row->kind == OPTION_SWITCH && strncmp(option, "--no-", 5) == 0;
        if (strncmp(option, "--", 2) == 0 && strcmp(option + (is_no ? 5 : 2), row->name) == 0)
            return is_left_out(row->name) ? NULL : row;
    }
    return NULL;
}

enum replay_setting manifest_setting_kind(const char *option) {
    const struct option *row = find_row(option);
    if (!row) return REPLAY_SETTING_NONE;
    return row->kind == OPTION_SWITCH ? REPLAY_SETTING_SWITCH : REPLAY_SETTING_VALUE;
}

json_t *manifest_settings(const struct engine_choice *choice) {
    struct tune_arguments arguments = {.count = 0};
    struct error ignored;
    char whole[PATH_MAX];
    json_t *list = json_array();
    (void)(tune_arguments_add_engine(&arguments, choice, is_left_out, &ignored) == OK);
    for (size_t i = 0; i < arguments.text_count; i++) {
        /* A template is found from any folder. */
        const char *text = arguments.texts[i];
        bool is_file = i > 0 && strcmp(arguments.texts[i - 1], "--chat-template") == 0 &&
                       realpath(text, whole);
        json_array_append_new(list, run_record_text(is_file ? whole : text));
    }
    tune_arguments_release(&arguments);
    return list;
}

void manifest_key_usual(char ret_path[PATH_MAX]) {
    char folder[PATH_MAX];
    state_dir_default(folder);
    if (!*folder || snprintf(ret_path, PATH_MAX, "%s/" SIGNING_KEY_NAME, folder) >= PATH_MAX)
        *ret_path = '\0';
}
