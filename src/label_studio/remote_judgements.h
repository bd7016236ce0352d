/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* remote_judgements: the judgements of one batch on a quern server, for a pull.
 *
 * A judgement is posted with an id of its own, so that a call may be repeated. Its
 * version is the number of judgements that the (line, curator) has, from one read of the list.
 *
 * Thread: one.
 * Memory: all ids, and the newest judgement of each (line, curator). */

#include "base/map.h"
#include "client/remote.h"

#include <jansson.h>

struct remote_judgements {
    struct remote *remote;
    char *batch;
    struct map ids;
    json_t *newest; /* {custom_id: {curator: {version, judgement}}} */
};

/* ERR_NOT_FOUND if the server keeps no judgements, or has no such batch. */
enum err remote_judgements_open(struct remote_judgements *ret_list, struct remote *remote,
                                const char *batch, struct error *error) MUST_CHECK;
void remote_judgements_close(struct remote_judgements *list);
bool remote_judgements_has(const struct remote_judgements *list, const char *id);
/* Posts a judgement without its version (judgement.h). */
enum err remote_judgements_post(struct remote_judgements *list, const json_t *judgement,
                                struct error *error) MUST_CHECK;
/* A differing judgement of another curator, made on quern; borrowed. NULL: none. *ret_curator is
 * the curator. */
const json_t *remote_judgements_conflict(const struct remote_judgements *list,
                                         const json_t *judgement, const char **ret_curator);
