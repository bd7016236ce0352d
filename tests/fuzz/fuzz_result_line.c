/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of result files. With and without values, a line is taken or refused alike, unless only its
 * body is no JSON that quern reads; the values of a line are one object of values without objects
 * inside but empty ones and whole bodies. An unanswered line has no confidence. */
#include "compare/result_line.h"
#include "evaluate/confidence.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_values(const json_t *values) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)values, key, value) assert(
        !json_is_object(value) || json_object_size(value) == 0 || strcmp(key, RESULT_BODY) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct str text = {copy, bytes};
    struct result_line line;
    struct error error;
    struct buf id, out;
    buf_init(&id, 1 << 16);
    buf_init(&out, 1 << 24);
    bool is_line = result_line_read(&line, text, false, &id, &error) == OK;
    if (result_line_read(&line, text, true, &id, &error) == OK) {
        assert(is_line && line.is_answered == (line.values != NULL));
        if (line.values) check_values(line.values);
        result_line_write_answer(&out, &line);
        result_line_release(&line);
    }
    bool is_answered;
    double confidence;
    if (confidence_of(text, &is_answered, &confidence, &error) == OK)
        assert(is_answered || isnan(confidence));
    buf_release(&id);
    buf_release(&out);
    free(copy);
    return 0;
}
