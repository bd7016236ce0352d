/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* line: one request of an input file, found in its text without building a tree, and the checks
 * that need nothing but the line itself.
 *
 * Thread: any; pure.  Memory: all spans are views of the line's text. */

#include "batch/batch.h"

/* Raw JSON values; at is NULL for what is absent or null. */
struct batch_line {
    struct str custom_id;
    struct str method;
    struct str url;
    struct str body;
    /* of the body, when it is an object */
    struct str model;
    struct str stream;
    struct str messages;
    struct str prompt;
    struct str input;
    struct str text_1, text_2, query, documents;
    /* set by batch_line_check */
    enum endpoint endpoint; /* where the line runs */
};

enum batch_line_reading { BATCH_LINE_READ, BATCH_LINE_NOT_JSON, BATCH_LINE_NOT_OBJECT };

/* Finds the parts. The text is checked to be JSON, but not to be UTF-8. */
enum batch_line_reading batch_line_read(struct str text, struct batch_line *ret_line);

/* The checks up to the uniqueness of the custom_id, in the contract's order. False with the first
 * that fails. */
bool batch_line_check_form(const struct batch_line *line, struct refusal *ret_refusal);
/* The checks behind it: method, url (sets line->endpoint). */
bool batch_line_check_target(struct batch_line *line, enum endpoint batch_endpoint, bool strict_url,
                             struct refusal *ret_refusal);
/* Then: the model is a string, or left out when `may_lack`. */
bool batch_line_check_model(const struct batch_line *line, bool may_lack,
                            struct refusal *ret_refusal);
/* The last ones: required fields of the body, no streaming. */
bool batch_line_check_body(const struct batch_line *line, struct refusal *ret_refusal);

/* The body with `model` put at its end, for a line that has none; written into `room`. */
struct str batch_line_with_model(const struct batch_line *line, struct str model, struct buf *room);
/* What the line's prefix is taken from: messages, prompt or input; may be empty. */
struct str batch_line_prompt(const struct batch_line *line);
/* True when two raw strings mean the same; false when one of them is no string. */
bool batch_line_same_text(struct str raw_a, struct str raw_b);
/* For lines that were validated before: the endpoint they run at. False when the url is not known,
 * which means that the file is no longer what was validated. */
bool batch_line_endpoint(const struct batch_line *line, enum endpoint *ret_endpoint);
