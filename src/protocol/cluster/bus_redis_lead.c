/* SPDX-License-Identifier: Apache-2.0 */

/* Which server leads a cluster, and the stream of results that is its own. */

#include "base/clock.h"
#include "cluster/bus_redis_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* "ID EPOCH" */
static uint64_t epoch_in(struct str value, struct str *ret_id) {
    size_t space = value.bytes;
    uint64_t epoch = 0;
    while (space > 0 && value.at[space - 1] != ' ') space--;
    *ret_id = (struct str){value.at, space > 0 ? space - 1 : 0};
    if (space == 0 || !str_to_u64(str_skip(value, space), &epoch)) return 0;
    return epoch;
}

static enum err another_leads(struct redis_bus *own, struct str value, struct error *error) {
    return err_set(error, ERR_CONFLICT,
                   "another server leads the cluster '%s': %.*s; one state directory has one "
                   "cluster",
                   own->cluster, (int)(value.bytes < 100 ? value.bytes : 100), value.at);
}

/* The key `server` is there while the server is, `last` for good. The stream of results of the
 * server before becomes that of this one, or goes. So a node can put nothing for the epoch before
 * any more. All of it is one message: a server that is killed has changed all or nothing, and the
 * next one finds the stream under the epoch that the keys name. */
static enum err take_over(struct redis_bus *own, uint64_t before, bool follows,
                          struct error *error) {
    struct key old = bus_redis_results_key(own, before),
               results = bus_redis_results_key(own, own->epoch);
    struct key key = bus_redis_key(own, "server", ""), last = bus_redis_key(own, "last", "");
    const struct reply_value *reply;
    bool has_old = false;
    if (before > 0) {
        enum err err =
            bus_redis_ask(own, COMMAND("PEXPIRE", old.text, STREAM_TTL_MS), &reply, error);
        if (err != OK) return err;
        has_old = reply->kind == REPLY_NUMBER && reply->number != 0;
    }
    if (has_old && follows) bus_redis_add(own, COMMAND("RENAME", old.text, results.text));
    if (has_old && !follows) bus_redis_add(own, COMMAND("DEL", old.text));
    bus_redis_add(own, COMMAND("SET", last.text, own->leader));
    bus_redis_add(own, COMMAND("SET", key.text, own->leader, "PX", SIGN_TTL_MS));
    enum err err = bus_redis_run(own, has_old ? 3 : 2, error);
    struct error ignored;
    /* A full queue takes no value: the next try looks where the keys say. */
    if (err == ERR_LIMIT && has_old && follows)
        (void)!bus_redis_ask(own, COMMAND("RENAME", results.text, old.text), &reply, &ignored);
    return err;
}

enum err bus_redis_lead(struct redis_bus *own, const char *id, uint64_t *ret_epoch,
                        bool *ret_follows, struct error *error) {
    struct key key = bus_redis_key(own, "server", ""), last = bus_redis_key(own, "last", "");
    const struct reply_value *reply;
    struct str leader = {0};
    uint64_t epoch = (uint64_t)clock_unix_s(), before = 0;
    enum err err = bus_redis_ask(own, COMMAND("GET", key.text), &reply, error);
    if (err != OK) return err;
    if (reply->kind == REPLY_TEXT) before = epoch_in(reply->text, &leader);
    if (reply->kind == REPLY_TEXT && !str_is(leader, id))
        return another_leads(own, reply->text, error);
    *ret_follows = before > 0;
    err = bus_redis_ask(own, COMMAND("GET", last.text), &reply, error);
    if (err != OK) return err;
    uint64_t ended = reply->kind == REPLY_TEXT ? epoch_in(reply->text, &leader) : 0;
    if (ended > before) *ret_follows = str_is(leader, id);
    if (ended > before) before = ended;
    if (before >= epoch && before < UINT64_MAX >> 25) epoch = before + 1;
    own->epoch = *ret_epoch = epoch;
    snprintf(own->leader, sizeof own->leader, "%.256s %" PRIu64, id, epoch);
    return take_over(own, before, *ret_follows, error);
}

enum err bus_redis_keep_results(struct redis_bus *own, struct error *error) {
    struct key key = bus_redis_results_key(own, own->epoch);
    const struct reply_value *reply;
    enum err err = bus_redis_ask(own, COMMAND("PEXPIRE", key.text, STREAM_TTL_MS), &reply, error);
    if (err != OK || reply->kind != REPLY_NUMBER || reply->number != 0) return err;
    bus_redis_add(own, COMMAND("XADD", key.text, "0-1", "p", ""));
    bus_redis_add(own, COMMAND("XDEL", key.text, "0-1"));
    bus_redis_add(own, COMMAND("PEXPIRE", key.text, STREAM_TTL_MS));
    return bus_redis_run(own, 3, error);
}

enum err bus_redis_keep_leading(struct redis_bus *own, struct error *error) {
    struct key key = bus_redis_key(own, "server", "");
    const struct reply_value *reply;
    enum err err = bus_redis_ask(own, COMMAND("GET", key.text), &reply, error);
    if (err != OK) return err;
    if (reply->kind == REPLY_TEXT && !str_is(reply->text, own->leader))
        return another_leads(own, reply->text, error);
    if (reply->kind == REPLY_TEXT)
        return bus_redis_ask(own, COMMAND("PEXPIRE", key.text, SIGN_TTL_MS), &reply, error);
    err = bus_redis_ask(own, COMMAND("SET", key.text, own->leader, "NX", "PX", SIGN_TTL_MS), &reply,
                        error);
    if (err == OK && reply->kind == REPLY_NONE)
        return another_leads(own, STR("it came at the same moment"), error);
    return err;
}
