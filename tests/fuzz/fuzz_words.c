/* SPDX-License-Identifier: Apache-2.0 */

/* The files next to a tokenizer.json in a hostile folder: one part per line, in the order of enum
 * vocabulary_part; an empty line is a file that does not exist. */

#include "engine/vocabulary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tokenizer[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct vocabulary vocabulary = {.unknown = TOKEN_NONE, .padding = TOKEN_NONE};
    struct str parts[VOCABULARY_PART_COUNT] = {{NULL, 0}};
    char *copies[VOCABULARY_PART_COUNT] = {NULL};
    struct error error = {0};
    if (tokenizer_open_json(&vocabulary.tokenizer, str_from(tokenizer), &error) != OK) abort();
    struct str rest = {(const char *)data, size};
    for (int i = 0; i < VOCABULARY_PART_COUNT && rest.bytes > 0; i++) {
        size_t end = str_find_byte(rest, '\n', 0);
        if (end == SIZE_MAX) end = rest.bytes;
        if (end > 0) {
            copies[i] = malloc(end);
            if (!copies[i]) abort();
            memcpy(copies[i], rest.at, end);
            parts[i] = (struct str){copies[i], end};
        }
        rest = str_skip(rest, end + 1);
    }
    enum err err = vocabulary_add_parts(&vocabulary, parts, &error);
    assert(err == OK || error.text[0] != '\0');
    for (size_t i = 0; i < vocabulary.end_count; i++)
        assert(vocabulary.ends[i] >= 0 &&
               (size_t)vocabulary.ends[i] < tokenizer_count(vocabulary.tokenizer));
    assert(vocabulary.bos < (int32_t)tokenizer_count(vocabulary.tokenizer));
    vocabulary_close(&vocabulary);
    for (int i = 0; i < VOCABULARY_PART_COUNT; i++) free(copies[i]);
    return 0;
}
