/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* judgement_body: the body of POST /v1/batches/{id}/judgements. Every member is checked, and an
 * unknown one is refused: a typing error in a name must not lose a curator's work.
 *
 * Thread: any.
 * Memory: the row owns its texts; store_judgement_release frees them. */

#include "json/envelope.h"
#include "store/judgements.h"

/* Fills id, custom_id, curator, version, verdict, flagged, rating, fields and comment of *ret_row,
 * with `curator` where the body names none. False and *ret_refusal if a member is wrong; then the
 * row owns nothing. */
bool judgement_body_read(struct store_judgement *ret_row, const json_t *body, const char *curator,
                         struct refusal *ret_refusal);
/* True for the name of a curator: 1 to 64 characters, none of them a control character. */
bool judgement_curator_check(struct str curator, struct refusal *ret_refusal);
/* Appends the JSON Schema of the body. */
void judgement_body_write_schema(struct buf *buf);
