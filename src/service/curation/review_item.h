/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* review_item: one line as a curator's page shows it, and the shape of its answer. It knows no
 * queue and no HTTP.
 *
 * Thread: any.
 * Memory: the texts of one line, from both batches, each up to LARGE_SMALL_BYTES, or up to
 *     REVIEW_TEXT_BYTES_MAX for the caller that holds the turn of large lines. */

#include "answers/answers.h"
#include "answers/large.h"

#define REVIEW_TEXT_BYTES_MAX ((size_t)16 << 20)      /* one request or result */
#define REVIEW_JUDGEMENT_BYTES_MAX ((size_t)16 << 20) /* the judgements on one line, as JSON */

/* The lines of one batch. */
struct review_lines {
    const char *batch_id;
    struct answers_index *index;
    struct answers_reader *reader;
};

struct review_source {
    struct store *store;
    const struct review_lines *lines;
    const struct review_lines *with; /* another batch, whose answer is shown, too; NULL: none */
    struct large_turn *turn;
};

/* Append the request as it was sent, or the line of the output or error file, without LF. Take the
 * turn for a text over LARGE_SMALL_BYTES. ERR_LIMIT for one over REVIEW_TEXT_BYTES_MAX;
 * ERR_UNAVAILABLE without the turn; else as the functions of answers.h. */
enum err review_item_read_request(const struct review_lines *lines, uint32_t line,
                                  struct large_turn *turn, struct buf *buf,
                                  struct error *error) MUST_CHECK;
enum err review_item_read_result(const struct review_lines *lines, uint32_t line,
                                 struct large_turn *turn, struct buf *buf,
                                 struct error *error) MUST_CHECK;

/* Appends the card of a line that has a result:
 * {"line","custom_id","request","result","answer","text","uncertainty","other","judgements"}. */
enum err review_item_write(struct buf *buf, const struct review_source *source, uint32_t line,
                           struct error *error) MUST_CHECK;
/* Appends the JSON schema that the first request asks for, or null if it asks for none. The schema
 * of a decision is made from its questions. */
enum err review_item_write_schema(struct buf *buf, const struct review_lines *lines,
                                  struct large_turn *turn, struct error *error) MUST_CHECK;
