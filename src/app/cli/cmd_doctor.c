/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/doctor_show.h"
#include "cli/remote_options.h"
#include "cli/settings.h"

#include <stdlib.h>

struct doctor_command {
    struct remote_choice remote;
    const char *config;
    const char *state_dir;
    const char *redis, *password_file, *ca_file, *cert_file;
    bool json;
};

#define AT(field) offsetof(struct doctor_command, field)
static const struct option rows[] = {
    {"state-dir", OPTION_TEXT, AT(state_dir), "DIR",
     .help = "state directory to look at (default: that of the settings)"},
    {"config", OPTION_TEXT, AT(config), "F",
     .help = "settings file, `name = value` per line, instead of the usual ones"},
    {"redis", OPTION_TEXT, AT(redis), "URL",
     .help = "queue between machines to look at, as for quern serve --queue (default: that of the "
             "settings)"},
    {"queue-password-file", OPTION_TEXT, AT(password_file), "F",
     .help = "file of its password (default: that of the settings)"},
    {"queue-ca-file", OPTION_TEXT, AT(ca_file), "F",
     .help = "authorities for its certificate, as PEM (default: that of the settings)"},
    {"queue-cert-file", OPTION_TEXT, AT(cert_file), "F",
     .help = "own certificate and key for it, as PEM (default: that of the settings)"},
    {"json", OPTION_SWITCH, AT(json), .help = "print the findings as one JSON object"},
    {0},
};

static enum err check(struct command_call *call, struct error *error) {
    const struct doctor_command *chosen = call->chosen;
    return remote_place_check(&chosen->remote, error);
}

static const void *target_of(struct options *options, const char *name) {
    const struct bound_option *option = options_find(options, str_from(name));
    return option ? option->target : NULL;
}

static const char *text_of(struct options *options, const char *name) {
    const char *const *target = target_of(options, name);
    return target ? *target : NULL;
}

static const struct option_list *list_of(struct options *options, const char *name) {
    static const struct option_list none;
    const struct option_list *target = target_of(options, name);
    return target ? target : &none;
}

/* The values of the options of `quern serve` that the doctor looks at. */
static struct doctor_settings values_of(struct options *options) {
    const struct option_list *models = list_of(options, "model");
    const struct option_list *upstreams = list_of(options, "upstream");
    const int64_t *port = target_of(options, "port");
    return (struct doctor_settings){
        .models = models->values,
        .model_count = models->count,
        .upstreams = upstreams->values,
        .upstream_count = upstreams->count,
        .state_dir = text_of(options, "state-dir"),
        .device = text_of(options, "device"),
        .device_plugin = text_of(options, "device-plugin"),
        .host = text_of(options, "host"),
        .port = port ? *port : 0,
        .certificate = text_of(options, "ssl-certfile"),
        .certificate_key = text_of(options, "ssl-keyfile"),
        .api_key_file = text_of(options, "api-key-file"),
        .webhook_secret_file = text_of(options, "webhook-secret-file"),
        .env_file = text_of(options, "env-file"),
        .copy_to = text_of(options, "copy-to"),
        .queue = text_of(options, "queue"),
        .queue_password_file = text_of(options, "queue-password-file"),
        .queue_ca_file = text_of(options, "queue-ca-file"),
        .queue_cert_file = text_of(options, "queue-cert-file"),
    };
}

/* Reads the settings of `quern serve`, as files and the environment give them. */
static void read_settings(struct doctor *doctor, const struct doctor_command *chosen, void *serve,
                          struct options *options, struct settings *settings) {
    struct error error = {0};
    struct command_call call = {.chosen = serve};
    const char *config = chosen->config ? chosen->config : getenv("QUERN_CONFIG");
    enum err err = settings_load(settings, options, config, &error);
    struct bound_option *state_dir = options_find(options, STR("state-dir"));
    if (chosen->state_dir && state_dir) *(const char **)state_dir->target = chosen->state_dir;
    doctor->settings = values_of(options);
    bool has_work = doctor->settings.model_count + doctor->settings.upstream_count > 0 ||
                    doctor->settings.queue;
    if (err == OK && has_work) err = cmd_serve.check(&call, &error);
    doctor->settings = values_of(options); /* the check may have completed them */
    if (err != OK)
        doctor_find(doctor, DOCTOR_WRONG, "settings",
                    "correct that line; `quern config show serve --origin` names each source", "%s",
                    error.text);
    else if (!has_work)
        doctor_find(doctor, DOCTOR_HINT, "settings",
                    "name one in /etc/quern/config or with quern serve --model",
                    "no setting names a model, an upstream or a queue: a server needs one");
    else
        doctor_find(doctor, DOCTOR_GOOD, "settings", NULL, "the settings of quern serve are valid");
}

/* Options of this command stand for those of the settings. Those of another queue do not. */
static void name_queue(struct doctor_settings *settings, const struct doctor_command *chosen) {
    if (chosen->redis) {
        settings->queue = chosen->redis;
        settings->queue_password_file = settings->queue_ca_file = settings->queue_cert_file = NULL;
    }
    if (chosen->password_file) settings->queue_password_file = chosen->password_file;
    if (chosen->ca_file) settings->queue_ca_file = chosen->ca_file;
    if (chosen->cert_file) settings->queue_cert_file = chosen->cert_file;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct doctor_command *chosen = call->chosen;
    struct options *options = malloc(sizeof *options);
    struct settings settings = {0};
    if (!options) return err_set(error, ERR_UNAVAILABLE, "no memory");
    void *serve = command_begin(&cmd_serve, options);
    struct doctor doctor = {.remote = chosen->remote, .stop = call->stop};
    read_settings(&doctor, chosen, serve, options, &settings);
    name_queue(&doctor.settings, chosen);
    doctor_check(&doctor);
    size_t wrong = doctor_show(&doctor, chosen->json);
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
    .summary = "report what is wrong with this installation, and what to do",
    .usage = "doctor [options]",
    .help = "Looks at settings, state directory, secrets, models, GPUs, ports, a running server,\n"
            "upstreams and the queue between machines, and reports what is wrong, each with its "
            "remedy. It changes nothing. Run it "
            "as\n"
            "the user that the server runs as.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct doctor_command),
    .stops = true,
    .check = check,
    .run = run,
};
