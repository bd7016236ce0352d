/* SPDX-License-Identifier: Apache-2.0 */
/* A server's answer as a batch, a file and an error. For any bytes, the id of a batch can stand in
 * a URL and in a name of a file, and neither the id of a file nor any text can command a
 * terminal. */
#include "base/utf8.h"
#include "client/objects.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_id(const char *id) {
    assert(!*id || object_id_is_sane(str_from(id)));
}

static void check_text(const char *text) {
    assert(utf8_is_valid(str_from(text)));
    for (const char *at = text; *at; at++) {
        assert((unsigned char)*at >= ' ' && *at != 0x7F);
        assert(!((unsigned char)at[0] == 0xC2 && ((unsigned char)at[1] & 0xE0) == 0x80));
    }
}

static void check_batch(const json_t *object) {
    struct batch_object batch;
    struct error error = {0};
    if (batch_object_read(&batch, object, &error) != OK) {
        assert(*error.text);
        return;
    }
    assert(*batch.id && *batch.status);
    check_id(batch.id);
    check_text(batch.input_file_id);
    check_text(batch.output_file_id);
    check_text(batch.error_file_id);
    check_id(batch.submission);
    check_text(batch.status);
    check_text(batch.endpoint);
    check_text(batch.model);
    check_text(batch.waiting_for);
    for (size_t i = 0; i < batch.error_count && i < OBJECT_ERRORS_SHOWN; i++)
        check_text(batch.errors[i].text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1), message[100];
    struct error error = {0};
    struct file_object file;
    json_t *object;
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct str text = {copy, bytes};
    object_error_message(text, message, sizeof message);
    check_text(message);
    if (object_read(text, &object, &error) == OK) {
        check_batch(object);
        if (file_object_read(&file, object, &error) == OK) check_text(file.id);
        json_decref(object);
    } else {
        assert(*error.text);
    }
    free(copy);
    return 0;
}
