/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fields: members of a JSON object, read by the rows of a table into a struct, and the JSON Schema
 * of such an object from the same rows: what is checked and what is documented cannot differ.
 *
 * Members that no row names are ignored; null means absent. The reader finds what is wrong, and a
 * function of the table's owner says it, since the sentences of the APIs that quern follows differ.
 *
 * Thread: any.
 * Memory: texts and arrays are borrowed from the object. */

#include "json/envelope.h"

enum field_kind {
    FIELD_BOOL,    /* bool */
    FIELD_INTEGER, /* int64_t, min..max */
    FIELD_NUMBER,  /* double, min..max */
    FIELD_TEXT,    /* struct str, min..max bytes without NUL */
    FIELD_CHOICE,  /* struct str, one of `choices` */
    FIELD_MD5,     /* struct str, 32 hexadecimal digits */
    FIELD_TEXTS,   /* const json_t *, an array of min..max strings */
    FIELD_EXPIRY,  /* int64_t, the min..max seconds of {"anchor":"created_at","seconds":…} */
};

#define FIELD_REQUIRED 1u  /* absence is refused */
#define FIELD_ABOVE_MIN 2u /* `min` itself is out of range */
#define FIELD_ANY 1u       /* `sets` of a table that serves one kind of object */

struct field {
    const char *name;
    enum field_kind kind;
    unsigned sets; /* a bit per kind of object that may have the field */
    double min, max;
    unsigned flags;
    size_t offset;              /* place of the member in the struct; the kind names its type */
    const char *const *choices; /* NULL at the end */
    const char *description;    /* for the schema; no quotes in it */
};

enum field_trouble {
    FIELD_MISSING,
    FIELD_WRONG_TYPE,
    FIELD_BELOW, /* a number, or the length of a text or an array */
    FIELD_ABOVE,
    FIELD_HAS_NUL,
    FIELD_NO_CHOICE, /* not one of the choices */
    FIELD_NO_MD5,
};

struct field_fault {
    enum field_trouble trouble;
    const struct field *field; /* or one with a dotted name, for a member of the field's object */
    const json_t *got;         /* NULL: missing */
};

struct fields {
    const struct field *rows;
    size_t count;
    bool takes_whole_decimals; /* 5.0 is an integer */
    /* Fills *refusal with the sentence and returns false. */
    bool (*refuse)(struct refusal *refusal, const struct field_fault *fault);
};

/* Fills the members of *ret_struct that `object` has, by the rows with a bit of `sets`; the others
 * stay as they are. False, and *ret_refusal, at the first that is wrong. */
bool fields_read(const struct fields *fields, unsigned sets, const json_t *object, void *ret_struct,
                 struct refusal *ret_refusal) MUST_CHECK;
/* Fills one member by a row, which need not be one of the table. */
bool field_read(const struct fields *fields, const struct field *field, const json_t *value,
                void *ret_struct, struct refusal *ret_refusal) MUST_CHECK;
/* True, and *ret_value, for an integer, or for a decimal without fraction up to 2^53. */
bool field_whole_number(const json_t *value, int64_t *ret_value) MUST_CHECK;

/* The JSON type that a kind expects, as a sentence names it: "an integer". */
const char *field_expected(enum field_kind kind);
/* Appends the choices as a sentence lists them: 'a', 'b'. */
void field_list_choices(struct buf *buf, const struct field *field);
/* Appends the JSON Schema of an object with all rows. */
void fields_write_schema(struct buf *buf, const struct fields *fields);
