/* SPDX-License-Identifier: Apache-2.0 */

/* One input file of a batch. Validation must take any bytes, agree with the JSON reader about JSON,
 * and every line that it accepts must be readable again by itself. */

#include "batch/index.h"
#include "batch/line.h"
#include "batch/result.h"
#include "batch/validate.h"
#include "json/json.h"
#include "json/span.h"

#include "base/os.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool serves(void *context, struct str model) {
    (void)context;
    return model.bytes > 0;
}

/* The tree reader takes all texts that the span scanner takes, except for the range of numbers and
 * NUL in keys; the scanner takes all texts that the tree reader takes. */
static void compare_readers(struct str text) {
    struct error error;
    json_t *value = NULL;
    bool tree = json_read(&value, text, &error) == OK;
    bool span = json_span_is_utf8(text) && json_span_read(text, NULL);
    /* jansson takes a NUL behind the value for its end. */
    if (text.bytes > 0 && memchr(text.at, '\0', text.bytes)) span |= tree;
    assert(!tree || span);
    if (span && !tree) {
        bool known = false;
        static const char *const reasons[] = {"cannot hold", "NUL in a key"};
        for (size_t i = 0; i < 2; i++) known |= strstr(error.text, reasons[i]) != NULL;
        assert(known);
    }
    json_decref(value);
}

static void check_good(struct str text, const char *index_path, const unsigned char *sha256,
                       uint64_t total) {
    struct line_index *index;
    struct error error;
    struct buf id;
    buf_init(&id, 1 << 24);
    if (index_open(&index, index_path, sha256, &error) != OK) abort();
    assert(index_count(index) == total);
    for (uint32_t i = 0; i < total; i++) {
        struct index_entry entry = index_entry(index, i);
        struct batch_line line;
        enum endpoint endpoint;
        assert(entry.offset + entry.bytes <= text.bytes);
        struct str part = {text.at + entry.offset, entry.bytes};
        assert(batch_line_read(part, &line) == BATCH_LINE_READ);
        assert(batch_line_endpoint(&line, &endpoint));
        buf_clear(&id);
        batch_custom_id_write(&id, line.custom_id);
        json_t *decoded;
        if (json_read(&decoded, buf_str(&id), &error) != OK) abort();
        for (size_t j = 0; j < id.bytes; j++) assert((unsigned char)id.at[j] < 0x80);
        json_decref(decoded);
    }
    index_close(index);
    buf_release(&id);
}

/* A name of this process for the index, which is made anew for each input. */
static const char *index_path(void) {
    static char path[64];
    if (!path[0]) snprintf(path, sizeof path, "/tmp/quern-fuzz-index-%d", (int)getpid());
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    memcpy(copy, data, size);
    struct str text = {size ? copy : NULL, size};
    compare_readers(text);
    int fd = memfd_create("input", 0);
    const char *path = index_path();
    struct error error;
    struct sha256 hash;
    unsigned char digest[SHA256_BYTES];
    struct batch_validation result;
    if (size > 0 && os_write_all(fd, copy, size, &error) != OK) abort();
    sha256_init(&hash);
    sha256_add(&hash, copy, size);
    sha256_end(&hash, digest);
    struct batch_validate_options options = {.input_fd = fd,
                                             .input_bytes = size,
                                             .input_sha256 = digest,
                                             .index_path = path,
                                             .endpoint = ENDPOINT_CHAT,
                                             .rules = batch_rules_default(),
                                             .serves = serves,
                                             .shapes = shape_check_open(1000000)};
    if (batch_validate(&options, &result, &error) != OK) abort();
    shape_check_close(options.shapes);
    assert((result.errors != NULL) == (result.total == 0));
    if (result.errors) {
        json_t *errors;
        if (json_read(&errors, str_from(result.errors), &error) != OK) abort();
        assert(json_array_size(errors) == result.error_count);
        json_decref(errors);
    } else {
        check_good(text, path, digest, result.total);
    }
    batch_validation_release(&result);
    close(fd);
    unlink(path);
    free(copy);
    return 0;
}
