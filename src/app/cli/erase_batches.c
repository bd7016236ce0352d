/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/erase_batches.h"

#include "base/printable.h"
#include "client/remote_batches.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool erase_batches_is_id(const char *operand) {
    return operand && strncmp(operand, "batch_", strlen("batch_")) == 0 &&
           object_id_is_sane(str_from(operand)) && access(operand, F_OK) != 0;
}

enum err erase_batches_check(struct command_call *call, const struct session_choice *choice,
                             struct error *error) {
    for (size_t i = 0; call->operands[i]; i++)
        if (!erase_batches_is_id(call->operands[i]))
            return err_set(error, ERR_INVALID,
                           "'%.80s' is no id of a batch, and '%.80s' is one: erase files and "
                           "batches of a server one after the other",
                           call->operands[i], call->operands[0]);
    return session_check(choice, error);
}

static json_t *body_of(const struct command_call *call, const struct line_ids *ids,
                       const char *reason) {
    json_t *custom_ids = json_array(), *others = json_array();
    for (size_t i = 0; i < ids->count; i++)
        json_array_append_new(custom_ids, json_string(line_ids_at(ids, i)));
    for (size_t i = 1; call->operands[i]; i++)
        json_array_append_new(others, json_string(call->operands[i]));
    json_t *body = json_object();
    json_object_set_new(body, "custom_ids", custom_ids);
    json_object_set_new(body, "reason", json_string(reason));
    if (json_array_size(others) > 0) json_object_set(body, "batch_ids", others);
    json_decref(others);
    return body;
}

static uint64_t number(const json_t *object, const char *name) {
    json_int_t value = json_integer_value(json_member(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

static void show(struct session *session, const json_t *erasure) {
    uint64_t requests = number(erasure, "requests"), lines = number(erasure, "lines");
    uint64_t judgements = number(erasure, "judgements");
    uint64_t tasks = number(erasure, "label_studio_tasks");
    const json_t *batches = json_member(erasure, "batches"), *batch;
    size_t index;
    printf("%" PRIu64 " %s erased, %" PRIu64 " %s and %" PRIu64 " %s; the files now:\n", requests,
           plural(requests, "request was", "requests were"), lines, plural(lines, "line", "lines"),
           judgements, plural(judgements, "judgement", "judgements"));
    json_array_foreach(batches, index, batch) {
        printf("  %s:", printable(json_string_value(json_member(batch, "id"))).text);
        static const char *const names[] = {"input_file_id", "output_file_id", "error_file_id"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const char *id = json_string_value(json_member(batch, names[i]));
            if (id && *id) printf(" %s", printable(id).text);
        }
        putchar('\n');
    }
    if (tasks)
        session_say(session, "%" PRIu64 " %s in Label Studio %s what was erased: delete %s there",
                    tasks, plural(tasks, "task", "tasks"), plural(tasks, "has", "have"),
                    plural(tasks, "it", "them"));
    session_say(session, "backups, copies and downloaded files keep what they had");
}

/* The server tells the place of an id that has no line, since logs have its sentences. */
static void name_id(const struct line_ids *ids, struct error *error) {
    static const char place[] = "custom_ids[";
    const char *at = strstr(error->text, place);
    unsigned long index = at ? strtoul(at + strlen(place), NULL, 10) : ids->count;
    if (index < ids->count)
        err_set(error, ERR_NOT_FOUND, "the batch has no line with the custom_id '%.200s'",
                line_ids_at(ids, index));
}

static enum err erase(struct session *session, struct command_call *call,
                      const struct session_choice *choice, struct str body, struct error *error) {
    json_t *erasure = NULL;
    enum err err = remote_batches_erase(session->remote, call->operands[0], body, &erasure, error);
    if (err != OK) return err;
    if (!erasure)
        session_say(session, "the lines are erased; the server's answer was lost");
    else if (choice->json)
        session_print_json(erasure);
    else
        show(session, erasure);
    json_decref(erasure);
    return OK;
}

enum err erase_batches_run(struct command_call *call, const struct session_choice *choice,
                           const struct line_ids *ids, const char *reason, struct error *error) {
    struct session session;
    struct buf text;
    if (ids->count == 0)
        return err_set(error, ERR_INVALID,
                       "nothing to erase: --custom-id ID or --ids FILE names whose lines");
    json_t *body = body_of(call, ids, reason);
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, body);
    json_decref(body);
    enum err err = session_open(&session, "erase", choice, call->stop, error);
    if (err == OK) err = erase(&session, call, choice, buf_str(&text), error);
    if (err == ERR_NOT_FOUND) name_id(ids, error);
    session_close(&session);
    buf_release(&text);
    return err;
}
