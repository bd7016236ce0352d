/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* record: a result line as the fields of its answer, found in the text without building a tree.
 *
 * The answer is that of the choice with the lowest index, by the rule of answer/answer_member.h. If
 * it is a JSON object, also inside a Markdown code block, its scalars are fields: "name", or
 * "outer.name" for nested objects; an array is the number "name.length". The answers of
 * a decision are the fields "question.choice", "question.confidence" and so on. A name that
 * begins with a dot gets a second dot, so that it differs from the line's own fields.
 *
 * Answers are foreign text: at most RECORD_FIELDS_MAX values are read, in objects nested at most
 * RECORD_DEPTH_MAX deep. Of invalid JSON, the fields before the fault count.
 *
 * The labels of an answer, by which two runs are compared, are its numbers, truth values and texts
 * of at most 64 bytes, by name, also inside arrays. A decision has a label per question: true or
 * false, the choice, or the most probable level. Any other answer is one label, its text.
 *
 * Thread: any; one struct per thread.
 * Memory: views of the line, and three buffers that keep their size until record_release. */

#include "base/buf.h"

#define RECORD_FIELDS_MAX 1000
#define RECORD_DEPTH_MAX 4

struct record_value {
    enum { RECORD_NUMBER, RECORD_BOOL, RECORD_TEXT } kind;
    double number;   /* also a truth value, as 1 or 0 */
    struct str text; /* decoded; valid until the next value */
    struct str raw;  /* the JSON of an answer's field, with all digits */
};

/* A reader of lines; record_init makes it. */
struct record {
    struct str custom_id; /* raw JSON string */
    struct str status;    /* raw number; empty: the line never ran */
    struct str body;      /* raw value, usually an object; empty without a response */
    struct str error;     /* raw object, or null */
    uint64_t line;
    /* Buffers: the answer's text, a name, a value. */
    struct buf answer, name, scratch;
    /* Progress of the current walk. */
    size_t fields, elements;
    double entropy_sum;
    size_t entropy_count;
    struct record_walk *walk;
    bool has_answer;
    /* After record_each: a hash of the labels, equal for equal labels; 0: the line has no
     * answer. */
    uint64_t labels;
};

void record_init(struct record *record);
void record_release(struct record *record);
/* Finds the parts of a result line; false for a line that quern did not write. */
bool record_read(struct record *record, struct str text);
/* The text of the answer, decoded; empty if it has none. Valid until the next call. */
struct str record_answer(struct record *record);

/* Receives the fields one after another: the line's own by their number in enum table_fixed, and
 * those of the answer by their name. */
struct record_walk {
    void *context;
    void (*fixed)(void *context, unsigned field, const struct record_value *value);
    void (*field)(void *context, struct str name, const struct record_value *value);
    /* NULL, or receives each array of the answer's fields, raw, before the number NAME.length. */
    void (*array)(void *context, struct str name, struct str array);
};
void record_each(struct record *record, struct record_walk *walk);
