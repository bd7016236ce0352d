/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fields: members of a JSON body read against a table. The same table writes the body's schema for
 * the OpenAPI document, so that what is checked and what is said cannot differ.
 *
 * Members that no row names are ignored, and null means absent.
 *
 * Thread: any.  Memory: texts are borrowed from the body. */

#include "http/http.h"
#include "json/json.h"

enum api_field_kind {
    API_FIELD_TEXT,    /* min..max bytes, no NUL */
    API_FIELD_INTEGER, /* min..max */
    API_FIELD_CHOICE,  /* one of `choices` */
    API_FIELD_MD5,     /* 32 hexadecimal digits */
    API_FIELD_TEXTS,   /* min..max texts, see api_texts */
    API_FIELD_EXPIRY,  /* {"anchor":"created_at","seconds":min..max}; the value is the seconds */
    API_FIELD_NUMBER,  /* min..max, whole or not */
};

struct api_field {
    const char *name;
    enum api_field_kind kind;
    bool required;
    int64_t min, max;
    const char *const *choices; /* NULL at the end */
    const char *description;
};

struct api_value {
    bool given;
    struct str text;
    int64_t integer;
    double number;
    const json_t *array;
};

/* Fills ret_values in the order of the table. False, and answered with 400, when one is wrong. */
bool api_fields_read(struct http_request *request, const json_t *body,
                     const struct api_field *fields, size_t field_count,
                     struct api_value *ret_values);
/* Appends the JSON Schema of such a body. */
void api_fields_write_schema(struct buf *buf, const struct api_field *fields, size_t field_count);
