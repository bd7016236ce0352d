/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_body: reads the body of a request within a bound of memory: into a tree of values, and
 * long arrays of token ids into numbers.
 *
 * A tree takes up to 75 times the bytes of its text, so that its cost is known, and too much
 * refused, before it is built. A token id of 6 bytes would cost 48 bytes as a value and costs 4 as
 * a number; prompts of token ids are the only honest texts of that kind. Internal to the readers of
 * requests.
 *
 * Thread: any.
 * Memory: the tree and the ids belong to the caller. */

#include "json/refusal.h"
#include "tokenizer/tokenizer.h"

/* All that a body may cost in the engine's process at its peak: the text, its tree, the rendered
 * prompt and its tokens together. A short body may take BODY_COST_LEAST, because templates and
 * schemas of tools need more than eight times their text. */
#define BODY_COST_FACTOR 8
#define BODY_COST_LEAST ((size_t)8 << 20)

/* The bound for a body of so many bytes. */
size_t request_body_cost_max(size_t text_bytes);

/* Lists of token ids, one after another. Zero is a valid start: no lists. */
struct id_lists {
    struct ids ids; /* tokens of all lists */
    size_t *ends;   /* (count) the place after each list's last id */
    size_t count;   /* number of lists; 0: the body has no long array of ids */
    bool is_list;   /* the array has one array per list */
};

void id_lists_release(struct id_lists *lists);
/* The ids of one list; *ret_count of them. */
const int32_t *id_lists_get(const struct id_lists *lists, size_t index, size_t *ret_count);

struct request_body {
    json_t *values; /* an object; the member of `ids` is 0 in it if `ids` has lists */
    struct id_lists ids;
    size_t memory_left; /* bytes that the request may still take */
};

/* Reads a body. The member `ids_name` (NULL: none) may be a long array of ids below
 * `vocabulary_count`, or of arrays of them; a faulty or short one stays in the tree. False and
 * *ret_refusal: status 400 for a text that is no JSON object or costs too much, 503 if the machine
 * has no memory for it. */
bool request_body_read(struct request_body *ret_body, struct str text, const char *ids_name,
                       uint32_t vocabulary_count, struct refusal *ret_refusal) MUST_CHECK;
/* The memory that encoding a text may take for its longest piece. */
size_t request_body_scratch(size_t memory_left);

/* Refuses a body, or (`param`) a text in it, that costs too much (ERR_LIMIT) or for which the
 * machine has no memory (ERR_UNAVAILABLE). Returns false. */
bool request_body_refuse(struct refusal *refusal, enum err err, const char *param,
                         const struct error *error);
