/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* validate: checks an input file line by line, all or nothing, and makes its line index on the way.
 * It streams: memory is one line, 8 bytes a request for the order and up to 20 for finding equal
 * custom_ids, whatever the size of the file.
 *
 * Thread: one.  Memory: *ret_result owns its errors; batch_validation_release frees them. */

#include "batch/batch.h"

struct batch_validate_options {
    int input_fd; /* read from 0 on, and at any offset */
    uint64_t input_bytes;
    const unsigned char *input_sha256; /* of the row; bytes that differ are ERR_CORRUPT */
    const char *index_path;
    enum endpoint endpoint;
    struct batch_rules rules;
    void *context;
    /* True when requests for the model can be run. */
    bool (*serves)(void *context, struct str model);
    /* The model of lines that name none, when exactly one is served; else false. NULL: there is
     * none. */
    bool (*default_model)(void *context, char ret_model[MODEL_NAME_BYTES]);
    /* Asked now and then; true ends with ERR_CANCELLED. NULL allowed. */
    bool (*stopped)(void *context);
};

struct batch_validation {
    uint64_t total; /* requests; 0 when the file is refused */
    char *errors;   /* JSON text of the array, or NULL when the file is good */
    size_t error_count;
    char model[MODEL_NAME_BYTES]; /* empty when lines name several */
};

/* OK both for good files and refused ones: see errors. ERR_UNAVAILABLE when the disk is full. */
enum err batch_validate(const struct batch_validate_options *options,
                        struct batch_validation *ret_result, struct error *error) MUST_CHECK;
void batch_validation_release(struct batch_validation *result);

/* The array of one error that is about no line: for a file that is missing or of another purpose,
 * or a fault of the server. The caller frees it. */
char *batch_single_error(const char *code, const char *param, const char *message);
