/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of quern's own commands that a server reads: `quern models --json`, which tells what
 * foreign files say, and `quern pull --events`. For any bytes a shelf has at most one model per
 * line, with a name and a path, and no progress passes its total. */
#include "node/shelf.h"
#include "server/pull_child.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_shelf(const struct shelf *shelf, size_t lines) {
    assert(shelf_count(shelf) <= lines);
    for (size_t i = 0; i < shelf_count(shelf); i++) {
        const struct shelf_model *model = shelf_at(shelf, i);
        assert(model->choice.name_count >= 1 && model->choice.name_count <= MODEL_NAMES_MAX);
        assert(*model->choice.names[0] && *model->choice.path);
        assert(shelf_find(shelf, model->choice.path) == model);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct str rest = {copy, bytes};
    struct shelf *shelf = shelf_new();
    size_t lines = 0;
    while (rest.bytes > 0) {
        size_t end = str_find_byte(rest, '\n', 0);
        struct str line = {rest.at, end == SIZE_MAX ? rest.bytes : end};
        uint64_t done = 0, total = 0;
        shelf_add_line(shelf, line);
        check_shelf(shelf, ++lines);
        if (pull_child_read_line(line, &done, &total)) assert(done <= total);
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 1);
    }
    shelf_close(shelf);
    free(copy);
    return 0;
}
