/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include "json/json.h"

#include <stdio.h>

#define RETRY_S 30 /* the default; another value is the user's wish to wait in any case */

#define AT(field) offsetof(struct session_choice, field)
const struct option session_option_rows[] = {
    {"json", OPTION_SWITCH, AT(json), .help = "print objects of the server, one JSON per line"},
    {"retry-seconds", OPTION_INTEGER, AT(retry_seconds), "N",
     .help = "time to try again while the server is silent or busy, in a watch at least 3600 s "
             "(default 30 s; with it, none if no server listens on this machine)",
     .max = 1e9},
    {0},
};

void session_set_defaults(struct session_choice *choice) {
    choice->retry_seconds = RETRY_S;
}

static void say(void *context, const char *sentence) {
    struct session *session = context;
    terminal_clear(&session->terminal);
    fprintf(stderr, "quern %s: %s\n", session->command, sentence);
}

void session_say(struct session *session, const char *format, ...) {
    char text[ERROR_TEXT_BYTES];
    struct error note;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)(err_set)(&note, ERR_UNAVAILABLE, "%s", text);
    say(session, note.text);
}

enum err session_open(struct session *ret_session, const char *command,
                      const struct session_choice *choice, const volatile bool *stop,
                      struct error *error) {
    *ret_session = (struct session){.command = command, .stop = stop};
    terminal_init(&ret_session->terminal);
    enum err err = remote_place_read(&choice->remote, &ret_session->place, error);
    if (err != OK) return err;
    const struct remote_options options = {.base_url = ret_session->place.base_url,
                                           .key = ret_session->place.key.text,
                                           .certificates = ret_session->place.ca_file,
                                           .patience_ms = choice->retry_seconds * 1000,
                                           .expects_server = choice->retry_seconds == RETRY_S,
                                           .stop = stop,
                                           .context = ret_session,
                                           .say = say};
    return remote_open(&ret_session->remote, &options, error);
}

void session_close(struct session *session) {
    remote_close(session->remote);
    remote_place_release(&session->place);
}

void session_print_json(const json_t *object) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, object);
    puts(text.at);
    fflush(stdout);
    buf_release(&text);
}

enum err session_check(const struct session_choice *choice, struct error *error) {
    return remote_place_check(&choice->remote, error);
}

enum err session_check_id(const struct session_choice *choice, const char *operand,
                          struct error *error) {
    if (!operand)
        return err_set(error, ERR_INVALID, "the ID of a batch is missing; see quern list");
    if (object_id_is_sane(str_from(operand))) return session_check(choice, error);
    return err_set(error, ERR_INVALID, "'%.80s' is no id of a batch", operand);
}

enum err session_read_batch(json_t *object, struct batch_object *ret_batch, struct error *error) {
    enum err err = batch_object_read(ret_batch, object, error);
    if (err != OK) json_decref(object);
    return err;
}
