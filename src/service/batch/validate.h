/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* validate: checks an input file line by line and makes its line index on the way. One bad line
 * refuses the whole file.
 *
 * Thread: one.
 * Memory: one line, 8 bytes per request for the order, and up to 20 per request for finding equal
 * custom_ids, whatever the size of the file. *ret_result owns its errors;
 * batch_validation_release frees them. */

#include "batch/parameters.h"
#include "grammar/shape_check.h"

struct batch_validate_options {
    int input_fd; /* read from 0 on, and again at earlier offsets */
    uint64_t input_bytes;
    const unsigned char *input_sha256; /* sum in the row; bytes that differ are ERR_CORRUPT; NULL:
                                          not checked */
    const char *index_path;
    enum endpoint endpoint;
    struct batch_rules rules;
    void *context;
    /* True if requests for the model can be run. */
    bool (*serves)(void *context, struct str model);
    /* True, with the model of lines that name none, if exactly one model is served. NULL: lines
     * must name their model. */
    bool (*default_model)(void *context, char ret_model[MODEL_NAME_BYTES]);
    /* Appends to the error of a model that is not served what the client can do. NULL allowed. */
    void (*advise)(void *context, struct str model, struct buf *advice);
    /* Compiles the shapes of the lines whose model holds its answers to them. NULL: none is. */
    struct shape_check *shapes;
    /* What becomes of requests for a shape for a model that is served. NULL: they are held. */
    enum shape_handling (*handles_shapes)(void *context, struct str model);
    /* Called for each line that is refused, instead of an entry in `errors`, which then has only
     * what concerns the whole file; rules.errors_max does not count. NULL allowed. */
    void (*refused)(void *context, uint64_t number, const struct refusal *refusal);
    /* Asked once per piece of the file; true ends with ERR_CANCELLED. NULL allowed. */
    bool (*stopped)(void *context);
};

struct batch_validation {
    uint64_t total; /* requests; 0 if the file is refused */
    char *errors;   /* JSON text of the array; NULL: the file is good */
    size_t error_count;
    char model[MODEL_NAME_BYTES]; /* empty: the lines name several */
};

/* OK for good files and for refused ones, which have `errors`. ERR_UNAVAILABLE if the disk is
 * full. */
enum err batch_validate(const struct batch_validate_options *options,
                        struct batch_validation *ret_result, struct error *error) MUST_CHECK;
void batch_validation_release(struct batch_validation *result);

/* The array of one error that belongs to no line: the file is missing or has another purpose, or
 * the server has failed. The caller frees it. */
char *batch_single_error(const char *code, const char *param, const char *message);
