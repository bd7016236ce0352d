/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/settings.h"

#include <stdlib.h>

struct chosen {
    struct remote_choice remote;
    const char *config;
    const char *state_dir;
    bool json;
};

#define AT(field) offsetof(struct chosen, field)
static const struct option rows[] = {
    {"state-dir", OPTION_TEXT, AT(state_dir), "DIR",
     .help = "state directory to look at (default: that of the settings)"},
    {"config", OPTION_TEXT, AT(config), "F",
     .help = "settings file, `name = value` per line, instead of the usual ones"},
    {"json", OPTION_SWITCH, AT(json), .help = "print the findings as one JSON object"},
    {0},
};

static enum err check(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    return remote_options_check(&chosen->remote, error);
}

/* Reads the settings of `quern serve`, as files and the environment give them. */
static void check_settings(struct doctor *doctor, const struct chosen *chosen, void *serve,
                           struct settings *settings) {
    struct error error = {0};
    struct command_call call = {.chosen = serve};
    const char *config = chosen->config ? chosen->config : getenv("QUERN_CONFIG");
    enum err err = settings_load(settings, doctor->settings, config, &error);
    struct bound_option *state_dir = options_find(doctor->settings, STR("state-dir"));
    if (chosen->state_dir && state_dir) *(const char **)state_dir->target = chosen->state_dir;
    bool has_work =
        doctor_list(doctor, "model")->count + doctor_list(doctor, "upstream")->count > 0;
    if (err == OK && has_work) err = cmd_serve.check(&call, &error);
    if (err != OK)
        doctor_find(doctor, DOCTOR_WRONG, "settings",
                    "correct that line; `quern config show serve --origin` names each source", "%s",
                    error.text);
    else if (!has_work)
        doctor_find(doctor, DOCTOR_HINT, "settings",
                    "name one in /etc/quern/config or with quern serve --model",
                    "no setting names a model or an upstream: a server needs one");
    else
        doctor_find(doctor, DOCTOR_GOOD, "settings", NULL, "the settings of quern serve are valid");
}

static enum err run(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    struct options *options = malloc(sizeof *options);
    struct settings settings = {0};
    if (!options) return err_set(error, ERR_UNAVAILABLE, "no memory");
    void *serve = command_begin(&cmd_serve, options);
    struct doctor doctor = {.settings = options, .remote = chosen->remote, .stop = call->stop};
    check_settings(&doctor, chosen, serve, &settings);
    doctor_check_machine(&doctor);
    doctor_check_state(&doctor);
    doctor_check_secrets(&doctor);
    doctor_check_models(&doctor);
    doctor_check_service(&doctor);
    doctor_check_upstreams(&doctor);
    doctor_check_server(&doctor);
    doctor_check_device(&doctor); /* at last: a driver may start threads */
    size_t wrong = doctor_print(&doctor, chosen->json);
    if (wrong > 0) call->status = EXIT_FAILED;
    doctor_release(&doctor);
    command_end(&cmd_serve, serve);
    settings_release(&settings);
    free(options);
    return OK;
}

static const struct option_table tables[] = {{rows, 0}, {remote_option_rows, AT(remote)}};

const struct command cmd_doctor = {
    .name = "doctor",
    .summary = "tell what is wrong with this installation, and what to do",
    .usage = "doctor [options]",
    .help =
        "Looks at settings, state directory, secrets, models, cards, ports, a running server and\n"
        "upstreams, and tells what is wrong, each with its remedy. It changes nothing. Run it as\n"
        "the user that the server runs as.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct chosen),
    .stops = true,
    .check = check,
    .run = run,
};
