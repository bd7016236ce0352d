/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kept_judgements: the judgements of one batch that quern has, from a server or from a file.
 *
 * With a server, new ones are posted. A judgement is posted with an id of its own, so that a call
 * may be repeated. Its version is the number of judgements that the (line, curator) has, from one
 * read of the list. Without a server, the new ones of a pull are in the link alone.
 *
 * Thread: one.
 * Memory: all ids, and the newest judgement of each (line, curator). */

#include "base/map.h"
#include "client/remote.h"

#include <jansson.h>

struct kept_judgements {
    struct remote *remote; /* NULL: no server */
    char *batch;
    struct map ids;
    json_t *newest; /* {custom_id: {curator: judgement}} */
};

/* The judgements of a server that `remote` reaches, or of the file `path`, one JSON object per
 * line; none if both are NULL. ERR_NOT_FOUND if the server keeps no judgements, or has no such
 * batch. */
enum err kept_judgements_open(struct kept_judgements *ret_list, struct remote *remote,
                              const char *path, const char *batch, struct error *error) MUST_CHECK;
void kept_judgements_close(struct kept_judgements *list);
bool kept_judgements_has(const struct kept_judgements *list, const char *id);
/* True for a judgement that a pull has made of an annotation. */
bool kept_judgements_is_pulled(const json_t *judgement);
/* Posts a judgement without its version (judgement.h); without a server nothing is done. */
enum err kept_judgements_post(struct kept_judgements *list, const json_t *judgement,
                              struct error *error) MUST_CHECK;
/* A differing judgement of another curator, made on quern; borrowed. NULL: none. *ret_curator is
 * the curator. */
const json_t *kept_judgements_conflict(const struct kept_judgements *list, const json_t *judgement,
                                       const char **ret_curator);
