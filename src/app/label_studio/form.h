/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* form: the fields of an answer as the controls of a Label Studio project.
 *
 * A form comes from the JSON schema that the requests ask for, or, without one, from the values of
 * the answers. A field of an object inside an object is "outer.inner", one of the third object of an
 * array "outer.2.inner". Such an array has controls for as many objects as the longest one of the
 * answers has, and for one more, at most FORM_ELEMENTS_MAX and its maxItems. An array of objects in
 * another one, or an object of any fields, has no control; the whole answer is shown.
 *
 *     schema                            control
 *     enum, const, boolean              Choices, one of them
 *     array of an enum                  Choices, any of them
 *     integer from 1 to at most 10      Rating
 *     other numbers                     Number
 *     string                            TextArea of one text
 *     array of strings                  TextArea of several texts
 *     each object of an array           its fields, and Choices to remove it
 *
 * Thread: any.
 * Memory: form_release frees the fields and options.
 * Invariant: no two controls have the same name or the same field. */

#include "base/err.h"
#include "base/str.h"

#include <jansson.h>

#define FORM_NAME_BYTES 72
#define FORM_CONTROLS_MAX 200
#define FORM_OPTIONS_MAX 500
#define FORM_ELEMENTS_MAX 10
#define FORM_REMOVE "remove this entry" /* the option of CONTROL_REMOVE */
/* Names that no field has: the two texts that are shown, and the two controls of every project. */
#define FORM_TEXT "quern_text"
#define FORM_ANSWER "quern_answer"
#define FORM_STARS "quern_rating"
#define FORM_COMMENT "quern_comment"

enum control_kind {
    CONTROL_CHOICE,
    CONTROL_CHOICES,
    CONTROL_NUMBER,
    CONTROL_RATING,
    CONTROL_TEXT,
    CONTROL_TEXTS,
    CONTROL_REMOVE, /* takes an object out of its array */
    CONTROL_KINDS
};

struct control {
    char name[FORM_NAME_BYTES]; /* in the config */
    char *field;                /* field in the answer */
    enum control_kind kind;
    json_t *options; /* for a choice: the values of the field; NULL: none */
    bool is_integer, has_min, has_max;
    double min, max;
};

/* Zero is an empty form. */
struct form {
    struct control *at; /* (count) */
    size_t count, capacity;
};

/* The schema that the body of a request asks for; borrowed. NULL: none. */
const json_t *form_find_schema(const json_t *body);
/* Adds the fields of an object's schema. `lengths` ({field: most objects}, NULL: none) says how long
 * arrays of objects are. */
void form_add_schema(struct form *form, const json_t *schema, const json_t *lengths);
/* Whether a schema has an array of objects, whose length the answers tell. */
bool form_has_arrays(const json_t *schema);
/* Takes the lengths of the arrays of objects in an answer. */
void form_add_lengths(json_t *lengths, const json_t *object);
/* Adds fields that the form does not have, by an answer (reply.h). */
void form_add_values(struct form *form, const json_t *object);
void form_release(struct form *form);
const struct control *form_find(const struct form *form, struct str name);
/* Removes a control that the config of a project lacks. */
void form_drop(struct form *form, size_t index);

/* The form as an array of objects, for the file that keeps it. */
json_t *form_to_json(const struct form *form);
/* ERR_CORRUPT for an array that form_to_json does not make. */
enum err form_from_json(struct form *ret_form, const json_t *array, struct error *error) MUST_CHECK;

/* The tag in the config: "Choices", "Number" and so on. */
const char *control_tag(const struct control *control);
/* The type of a result in Label Studio: "choices", "number" and so on. */
const char *control_type(const struct control *control);
/* The text of an option, for a person; the caller frees it. */
char *control_option_text(const json_t *option);
