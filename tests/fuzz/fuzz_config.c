/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: every setting lies inside the text, in clean bytes, on a line that counts.
 */
#include "cli/config_file.h"

#include "base/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct config_reader reader = {.rest = {copy, bytes}};
    struct config_setting setting;
    struct error error = {0};
    enum err err;
    uint32_t line = 0;
    while (config_next(&reader, &setting, &err, &error)) {
        assert(reader.line > line);
        line = reader.line;
        assert(setting.key.at >= copy && setting.key.bytes > 0 &&
               setting.key.bytes <= CONFIG_KEY_BYTES_MAX);
        assert(setting.value.at > setting.key.at && setting.value.bytes > 0 &&
               setting.value.at + setting.value.bytes <= copy + bytes);
        assert(utf8_valid_prefix(setting.value) == setting.value.bytes);
        assert(!memchr(setting.value.at, '\0', setting.value.bytes) &&
               !memchr(setting.value.at, '\n', setting.value.bytes));
    }
    assert(err == OK ? reader.rest.bytes == 0 : *error.text);
    free(copy);
    return 0;
}
