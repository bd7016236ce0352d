/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* line: one request of an input file, found in its text without building a tree, and the checks
 * that need only the line itself.
 *
 * Thread: any; pure.
 * Memory: all spans are views of the line's text. */

#include "base/buf.h"
#include "json/envelope.h"
#include "protocol/request.h"

/* Raw JSON values; the `at` of an absent or null member is NULL. */
struct batch_line {
    struct str custom_id;
    struct str method;
    struct str url;
    struct str body;
    /* Members of the body, if it is an object. */
    struct str model;
    struct str stream;
    struct str messages;
    struct str prompt;
    struct str input, state;
    struct str text_1, text_2, query, documents, questions;
    struct str queries, items, data_1, data_2; /* other names of a score's texts */
    /* The fields that ask for a shape of the answer, in the order of batch_line_shape. */
    struct str response_format, structured_outputs, guided_json, guided_regex, guided_choice,
        guided_json_object, guided_grammar, guided_whitespace_pattern, json_schema, regex, grammar,
        ebnf, structural_tag, format, output_format, text, output_config, tools, tool_choice;
    bool may_constrain; /* the body has other members that may be constraints */
    /* The first of these members that is given twice; NULL: none. Readers differ in which of the
     * two counts, and here the last one stands. */
    const char *twice;
    /* Set by batch_line_check_target. */
    enum endpoint endpoint; /* where the line runs */
};

enum batch_line_reading { BATCH_LINE_READ, BATCH_LINE_NOT_JSON, BATCH_LINE_NOT_OBJECT };

/* Finds the parts. It checks that the text is JSON, but not that it is UTF-8. Of a line that is no
 * JSON object no part is found. */
enum batch_line_reading batch_line_read(struct str text, struct batch_line *ret_line);

/* The checks, in the order of the contract; each is false with the first fault. validate.c checks
 * between the first and the second that the custom_id is unique. */
/* The form: four members of the right types, a custom_id that is not empty, no member twice but in
 * a body that is translated. */
bool batch_line_check_form(const struct batch_line *line, struct refusal *ret_refusal);
/* The target: method and url. Sets line->endpoint. */
bool batch_line_check_target(struct batch_line *line, enum endpoint batch_endpoint, bool strict_url,
                             struct refusal *ret_refusal);
/* The model is a string, or absent if `may_lack`. */
bool batch_line_check_model(const struct batch_line *line, bool may_lack,
                            struct refusal *ret_refusal);
/* The body: its required members, no streaming. */
bool batch_line_check_body(const struct batch_line *line, struct refusal *ret_refusal);

/* Writes the fields that ask for a shape of the answer into `room`, as a JSON object, and returns
 * it; empty if the line has none. */
struct str batch_line_shape(const struct batch_line *line, struct buf *room);
/* True if the line asks for a shape of its answer; whether the shape can be held is not looked at.
 */
bool batch_line_asks_shape(const struct batch_line *line);
/* The body of a line without a model, with `model` added at its end; written into `room`. */
struct str batch_line_with_model(const struct batch_line *line, struct str model, struct buf *room);
/* The member that the line's prefix is taken from: messages, prompt or input; may be empty. */
struct str batch_line_prompt(const struct batch_line *line);
/* True if two raw strings have the same text; false if one of them is no string. */
bool batch_line_same_text(struct str raw_a, struct str raw_b);
/* The endpoint of a line that was validated before. False if the url is not known: then the file
 * has changed since. */
bool batch_line_endpoint(const struct batch_line *line, enum endpoint *ret_endpoint);
