/* SPDX-License-Identifier: Apache-2.0 */

/* The port, a server that runs, its service, and the upstreams. */

#include "doctor/doctor_internal.h"

#include "base/address.h"
#include "base/str.h"
#include "client/objects.h"
#include "client/remote.h"
#include "json/json.h"
#include "node/node.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVER "server"
#define ANSWER_MS 5000
#define UNIT "quern.service"

/* --- asking --- */

static void say_nothing(void *context, const char *sentence) {
    (void)context;
    (void)sentence;
}

static enum err open_remote(struct doctor *doctor, const char *base_url, const char *key,
                            struct remote **ret_remote, struct error *error) {
    const struct remote_options options = {.base_url = base_url,
                                           .key = key,
                                           .certificates = doctor->remote.ca_file,
                                           .stop = doctor->stop,
                                           .say = say_nothing};
    return remote_open(ret_remote, &options, error);
}

/* Asks once. *ret_object is NULL for an answer that is no object. */
static enum err ask(struct remote *remote, const char *path, bool at_root, int *ret_status,
                    json_t **ret_object, struct error *error) {
    struct remote_answer answer;
    struct error ignored;
    const struct remote_call call = {.path = path, .at_root = at_root, .answer_ms = ANSWER_MS};
    enum err err = remote_try(remote, &call, &answer, error);
    if (err == OK && answer.end != REMOTE_ANSWERED)
        err = err_set(error, ERR_UNAVAILABLE, "%s", answer.why);
    if (err != OK) return err;
    *ret_status = answer.status;
    if (object_read(answer.body, ret_object, &ignored) != OK) *ret_object = NULL;
    return OK;
}

/* --- a server that runs --- */

static void copy_member(const json_t *object, const char *name, char *ret_text, size_t bytes) {
    object_copy_text(json_member_str(object, name), ret_text, bytes);
}

static void check_version(struct doctor *doctor, const char *url, const json_t *object) {
    char version[64];
    copy_member(object, "version", version, sizeof version);
    if (!*version)
        doctor_find(doctor, DOCTOR_HINT, SERVER, NULL,
                    "%s answers, but reports no version: it is not quern", url);
    else if (strcmp(version, QUERN_VERSION) != 0)
        doctor_find(doctor, DOCTOR_HINT, SERVER, "restart the server after an update",
                    "%s is of version %s, and this program of %s", url, version, QUERN_VERSION);
    else
        doctor_find(doctor, DOCTOR_GOOD, SERVER, NULL, "%s runs quern %s", url, version);
}

static void check_ready(struct doctor *doctor, struct remote *remote, const char *url) {
    struct error error = {0};
    char text[256];
    int status;
    json_t *object;
    if (ask(remote, "/ready", true, &status, &object, &error) != OK || status == 404) return;
    copy_member(object, "text", text, sizeof text);
    if (status == 200)
        doctor_find(doctor, DOCTOR_GOOD, SERVER, NULL, "%s takes work", url);
    else if (status == 503)
        doctor_find(doctor, DOCTOR_WRONG, SERVER,
                    "its log says more; `quern top` shows its engines", "%s takes no work now%s%s",
                    url, *text ? ": " : "", text);
    json_decref(object);
}

/* What the server says of its copy. Nothing without the right to ask. */
static void check_copy(struct doctor *doctor, struct remote *remote, const char *url) {
    struct error error = {0};
    char state[16], why[400];
    int status;
    json_t *object;
    if (ask(remote, "/machine", false, &status, &object, &error) != OK) return;
    const json_t *copy = json_object_get(object, "copy");
    copy_member(copy, "state", state, sizeof state);
    copy_member(copy, "error", why, sizeof why);
    if (strcmp(state, "stored") == 0 && !*why)
        doctor_find(doctor, DOCTOR_GOOD, SERVER, NULL, "the copy of %s has all that it told", url);
    else if (*state)
        doctor_find(doctor, DOCTOR_WRONG, SERVER,
                    "nothing is lost: changes get 503 and batches pause until the storage takes it",
                    "the copy of %s lacks changes of the last %" PRId64 " s%s%s", url,
                    (int64_t)json_integer_value(json_object_get(copy, "behind_ms")) / 1000,
                    *why ? ": " : "", why);
    json_decref(object);
}

static void check_key(struct doctor *doctor, struct remote *remote, const char *url) {
    struct error error = {0};
    int status;
    json_t *object;
    if (ask(remote, "/models", false, &status, &object, &error) != OK) return;
    if (status == 401 || status == 403)
        doctor_find(doctor, DOCTOR_HINT, SERVER,
                    "put a key into OPENAI_API_KEY or --api-key-file; `quern key create` makes one",
                    "%s wants a key, and %s", url, "the one given, if any, is not one of its keys");
    json_decref(object);
}

static void check_running(struct doctor *doctor, const struct remote_place *place, bool must_run) {
    struct remote *remote = NULL;
    struct error error = {0};
    int status;
    json_t *object;
    enum err err = open_remote(doctor, place->base_url, place->key.text, &remote, &error);
    if (err == OK) err = ask(remote, "/version", true, &status, &object, &error);
    if (err == OK) {
        check_version(doctor, place->base_url, object);
        json_decref(object);
        check_ready(doctor, remote, place->base_url);
        check_key(doctor, remote, place->base_url);
        check_copy(doctor, remote, place->base_url);
    } else if (must_run) {
        doctor_find(doctor, DOCTOR_WRONG, SERVER,
                    doctor->holds_server ? "it may listen on another port: see its log"
                                         : "start it, or correct the URL",
                    "%s: the server %s", place->base_url, error.text);
    }
    remote_close(remote);
}

/* --- the port --- */

/* Tries to take the address of the settings; 0, or the errno. */
static int try_bind(const char *host, int64_t port) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    char service[24];
    int on = 1, result = 0;
    snprintf(service, sizeof service, "%" PRId64, port);
    if (getaddrinfo(host, service, &hints, &list) != 0 || !list) return EADDRNOTAVAIL;
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) result = errno;
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
                    bind(fd, list->ai_addr, list->ai_addrlen) != 0))
        result = errno;
    if (fd >= 0) (void)close(fd);
    freeaddrinfo(list);
    return result;
}

static void check_port(struct doctor *doctor, const char *host, int64_t port) {
    int result = port > 0 ? try_bind(host, port) : 0;
    if (result == 0)
        doctor_find(doctor, DOCTOR_GOOD, "port", NULL, "%s port %" PRId64 " is free", host, port);
    else if (result == EADDRINUSE && !doctor->holds_server)
        doctor_find(doctor, DOCTOR_HINT, "port",
                    "stop that program, or choose another --port; `ss -ltnp` names it",
                    "%s port %" PRId64 " is taken, and not by a server of this state directory",
                    host, port);
    else if (result == EACCES)
        doctor_find(doctor, DOCTOR_WRONG, "port", "choose a --port above 1023",
                    "this user may not listen on port %" PRId64, port);
    else if (result == EADDRNOTAVAIL)
        doctor_find(doctor, DOCTOR_WRONG, "port", "correct --host",
                    "this machine has no address %s", host);
}

/* The server of the settings as a client reaches it. */
static enum err find_place(struct doctor *doctor, struct remote_place *ret_place,
                           struct error *error) {
    char url[REMOTE_URL_BYTES];
    struct remote_choice choice = doctor->remote;
    struct address address;
    const char *host = doctor->settings.host;
    const char *variable = getenv("OPENAI_BASE_URL");
    bool is_any = !host || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    bool is_v6 = host && address_read(&address, str_from(host)) && strchr(host, ':');
    snprintf(url, sizeof url, "http%s://%s%s%s:%" PRId64 "/v1",
             doctor->settings.certificate ? "s" : "", is_v6 ? "[" : "", is_any ? "127.0.0.1" : host,
             is_v6 ? "]" : "", doctor->settings.port);
    if (!choice.base_url && !(variable && *variable)) choice.base_url = url;
    return remote_place_read(&choice, ret_place, error);
}

void doctor_check_server(struct doctor *doctor) {
    struct remote_place place = {0};
    struct error error = {0};
    const char *host = doctor->settings.host, *variable = getenv("OPENAI_BASE_URL");
    bool is_named = doctor->remote.base_url || (variable && *variable);
    if (find_place(doctor, &place, &error) != OK)
        doctor_find(doctor, DOCTOR_WRONG, SERVER, "correct the option or the variable", "%s",
                    error.text);
    else if (is_named || doctor->settings.port > 0)
        check_running(doctor, &place, is_named || doctor->holds_server);
    if (!doctor->holds_server) check_port(doctor, host, doctor->settings.port);
    remote_place_release(&place);
}

/* --- upstreams --- */

static void check_upstream(struct doctor *doctor, const struct upstream_spec *spec) {
    struct remote *remote = NULL;
    struct secret key = {0};
    struct error error = {0};
    int status = 0;
    json_t *object = NULL;
    enum err err = *spec->key_file ? secret_read_file(&key, spec->key_file, &error) : OK;
    if (key.text) key.text[strcspn(key.text, "\r\n")] = '\0';
    if (err == OK) err = open_remote(doctor, spec->base, key.text, &remote, &error);
    if (err == OK) err = ask(remote, "/models", false, &status, &object, &error);
    if (err != OK)
        doctor_find(doctor, DOCTOR_WRONG, "upstreams", "start that server, or correct its URL",
                    "%s (%s): %s", spec->name, spec->base, error.text);
    else if (status == 401 || status == 403)
        doctor_find(doctor, DOCTOR_WRONG, "upstreams",
                    "give it key-file=F with a key of that server", "%s (%s) refuses the key",
                    spec->name, spec->base);
    else if (status != 200 || !json_is_array(json_member(object, "data")))
        doctor_find(doctor, DOCTOR_WRONG, "upstreams", "correct its URL: it ends in /v1 as a rule",
                    "%s (%s) answers %d to /models, and no list", spec->name, spec->base, status);
    else
        doctor_find(doctor, DOCTOR_GOOD, "upstreams", NULL, "%s (%s) lists %zu %s", spec->name,
                    spec->base, json_array_size(json_member(object, "data")),
                    plural(json_array_size(json_member(object, "data")), "model", "models"));
    json_decref(object);
    remote_close(remote);
    secret_release(&key);
}

void doctor_check_upstreams(struct doctor *doctor) {
    const struct doctor_settings *settings = &doctor->settings;
    for (size_t i = 0; i < settings->upstream_count; i++) {
        struct upstream_spec spec;
        struct error error = {0};
        if (upstream_spec_read(settings->upstreams[i], &spec, &error) == OK)
            check_upstream(doctor, &spec);
        else
            doctor_find(doctor, DOCTOR_WRONG, "upstreams", "see quern-serve(1)", "--upstream: %s",
                        error.text);
    }
}

/* --- the service --- */

struct unit {
    char load[32], active[32], sub[32], result[32];
};

static void read_unit_line(struct unit *unit, const char *line) {
    const struct {
        const char *name;
        char *to;
    } rows[] = {{"LoadState=", unit->load},
                {"ActiveState=", unit->active},
                {"SubState=", unit->sub},
                {"Result=", unit->result}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t bytes = strlen(rows[i].name);
        if (strncmp(line, rows[i].name, bytes) == 0)
            object_copy_text(str_trim(str_from(line + bytes)), rows[i].to, sizeof unit->load);
    }
}

void doctor_check_service(struct doctor *doctor) {
    struct unit unit = {0};
    char line[128];
    if (access("/run/systemd/system", F_OK) != 0) return;
    /* No part of the command comes from outside. */
    FILE *from =
        popen("systemctl show -p LoadState,ActiveState,SubState,Result " UNIT " 2>/dev/null", "re");
    if (!from) return;
    while (fgets(line, sizeof line, from)) read_unit_line(&unit, line);
    if (pclose(from) != 0 || strcmp(unit.load, "loaded") != 0) return;
    if (strcmp(unit.active, "failed") == 0)
        doctor_find(doctor, DOCTOR_WRONG, "service",
                    "journalctl -u quern -n 50; then systemctl restart quern",
                    "the service quern has failed (%s)", unit.result);
    else if (strcmp(unit.active, "active") == 0)
        doctor_find(doctor, DOCTOR_GOOD, "service", NULL, "the service quern runs (%s)", unit.sub);
    else
        doctor_find(doctor, DOCTOR_HINT, "service", "systemctl enable --now quern starts it",
                    "the service quern is installed and %s", unit.active);
}
