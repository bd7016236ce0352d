/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/printable.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/session.h"
#include "client/remote_batches.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IDS_MAX (COMMAND_OPERANDS_MAX - 1) /* the last operand is NULL */
#define LISTED_MAX 1000000                 /* batches that --older-than looks at */

struct rm_command {
    struct session_choice session;
    const char *older_than; /* NULL: the ids of the command line */
    int64_t older_s;
    bool yes;
};

#define AT(field) offsetof(struct rm_command, field)
static const struct option rows[] = {
    {"older-than", OPTION_TEXT, AT(older_than), "30d",
     .help = "delete all batches that ended longer ago: days, hours or minutes (30d, 12h, 90m)"},
    {"yes", OPTION_SWITCH, AT(yes), .help = "do not ask before --older-than deletes",
     .letter = 'y'},
    {0},
};

/* The batches to delete, and what the server says it freed. */
struct removal {
    struct session session;
    int64_t before_unix_s;
    char (*ids)[OBJECT_ID_BYTES];
    size_t count, capacity;
    uint64_t deleted, bytes;
};

static bool read_age(const char *text, int64_t *ret_s) {
    struct str rest = str_from(text);
    uint64_t number;
    if (rest.bytes < 2) return false;
    char unit = rest.at[--rest.bytes];
    int64_t unit_s = unit == 'd' ? 86400 : unit == 'h' ? 3600 : unit == 'm' ? 60 : 0;
    if (!unit_s || !str_to_u64(rest, &number) || number > 1000000) return false;
    *ret_s = (int64_t)number * unit_s;
    return true;
}

static void add_id(struct removal *removal, const char *id) {
    removal->ids = vec_grow(removal->ids, removal->count, &removal->capacity, sizeof *removal->ids);
    snprintf(removal->ids[removal->count++], OBJECT_ID_BYTES, "%s", id);
}

static bool take(void *context, const json_t *object) {
    struct removal *removal = context;
    struct batch_object batch;
    struct error ignored;
    if (batch_object_read(&batch, object, &ignored) != OK || !batch_object_is_over(&batch))
        return true;
    if (batch.ended_unix_s && batch.ended_unix_s < removal->before_unix_s)
        add_id(removal, batch.id);
    return true;
}

/* True for a yes on the terminal. */
static bool is_wanted(const struct removal *removal) {
    char answer[16] = "";
    fprintf(stderr, "quern rm: delete %zu %s with their files, for ever? [y/N] ", removal->count,
            plural(removal->count, "batch", "batches"));
    fflush(stderr);
    if (!fgets(answer, sizeof answer, stdin)) return false;
    return answer[0] == 'y' || answer[0] == 'Y';
}

static enum err choose(struct removal *removal, const struct command_call *call,
                       struct error *error) {
    const struct rm_command *chosen = call->chosen;
    if (!chosen->older_than) {
        for (size_t i = 0; i < IDS_MAX && call->operands[i]; i++)
            add_id(removal, call->operands[i]);
        return OK;
    }
    removal->before_unix_s = clock_unix_s() - chosen->older_s;
    enum err err = remote_batches_list(removal->session.remote, LISTED_MAX, take, removal, error);
    if (err != OK || removal->count == 0 || chosen->yes) return err;
    if (!isatty(STDIN_FILENO))
        return err_set(
            error, ERR_INVALID, "%zu %s ended longer ago than %s; --yes deletes without a question",
            removal->count, plural(removal->count, "batch", "batches"), chosen->older_than);
    return is_wanted(removal) ? OK : err_set(error, ERR_CANCELLED, "nothing was deleted");
}

static enum err delete_one(struct removal *removal, const char *id, bool json,
                           struct error *error) {
    json_t *object = NULL;
    enum err err = remote_batches_delete(removal->session.remote, id, &object, error);
    if (err != OK) return err_prefix(error, "%s", printable(id).text);
    const json_t *own = json_member(object, "quern");
    int64_t files = json_integer_value(json_member(own, "files"));
    int64_t bytes = json_integer_value(json_member(own, "bytes"));
    removal->deleted++;
    if (bytes > 0) removal->bytes += (uint64_t)bytes;
    if (json && object)
        session_print_json(object);
    else if (!json)
        printf("%s deleted: %" PRId64 " %s, %" PRId64 " bytes\n", printable(id).text, files,
               plural((uint64_t)files, "file", "files"), bytes);
    json_decref(object);
    return OK;
}

/* Goes on after a batch that cannot be deleted; the first such error is told at the end. */
static enum err delete_all(struct removal *removal, bool json, struct error *error) {
    enum err first = OK;
    for (size_t i = 0; i < removal->count; i++) {
        struct error one;
        enum err err = delete_one(removal, removal->ids[i], json, &one);
        if (err == OK) continue;
        bool ends = err == ERR_UNAVAILABLE || err == ERR_CANCELLED;
        if (first == OK) {
            *error = one;
            first = err;
        } else if (!ends) {
            session_say(&removal->session, "%s", one.text);
        }
        if (ends) break;
    }
    if (removal->count != 1 && !json)
        printf("%" PRIu64 " of %zu batches deleted, %" PRIu64 " bytes freed\n", removal->deleted,
               removal->count, removal->bytes);
    return first;
}

static enum err check(struct command_call *call, struct error *error) {
    struct rm_command *chosen = call->chosen;
    if (chosen->older_than && call->operands[0])
        return err_set(error, ERR_INVALID, "give ids or --older-than, not both");
    if (chosen->older_than && !read_age(chosen->older_than, &chosen->older_s))
        return err_set(error, ERR_INVALID, "--older-than: '%s' is not a time such as 30d, 12h, 90m",
                       chosen->older_than);
    if (!chosen->older_than && !call->operands[0])
        return err_set(error, ERR_INVALID, "which batch? give its id, or --older-than 30d");
    enum err err = session_check(&chosen->session, error);
    for (size_t i = 0; err == OK && i < IDS_MAX && call->operands[i]; i++)
        err = session_check_id(&chosen->session, call->operands[i], error);
    return err;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct rm_command *chosen = call->chosen;
    struct removal removal = {.before_unix_s = 0};
    enum err err = session_open(&removal.session, "rm", &chosen->session, call->stop, error);
    if (err == OK) err = choose(&removal, call, error);
    if (err == OK) err = delete_all(&removal, chosen->session.json, error);
    session_close(&removal.session);
    free(removal.ids);
    return err;
}

static void set_defaults(void *context) {
    struct rm_command *chosen = context;
    session_set_defaults(&chosen->session);
}

static const struct option_table tables[] = {{rows, 0}, SESSION_TABLES(AT(session))};

const struct command cmd_rm = {
    .name = "rm",
    .summary = "delete ended batches of a server with their files",
    .usage = "rm ID... | rm --older-than 30d [options]",
    .help = "Deletes ended batches of a quern server: their input (unless another batch has it),\n"
            "results, judgements and events. Nothing brings them back. Prints what was freed.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct rm_command),
    .operands_max = IDS_MAX,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
