/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of an erasure, and the numbers of rows in its record. What reads has paths that begin with
 * a slash; numbers ascend. */
#include "dossier/erased_rows.h"
#include "dossier/erasure_list.h"
#include "json/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void try_list(struct str text) {
    struct erasure_list list;
    struct error error = {0};
    if (erasure_list_read(&list, text, &error) != OK) {
        assert(*error.text && list.count == 0 && !list.list);
        return;
    }
    assert((list.count > 0) != (list.list != NULL));
    assert(list.count <= ERASURE_LIST_FILES_MAX && list.run_count <= ERASURE_LIST_RUNS_MAX);
    for (size_t i = 0; i < list.count; i++) assert(list.files[i].path[0] == '/');
    for (size_t i = 0; i < list.run_count; i++) assert(list.runs[i][0] == '/');
    erasure_list_release(&list);
}

static void try_numbers(struct str text) {
    struct row_numbers numbers;
    struct run_table table;
    struct error error = {0};
    json_t *whole;
    if (json_read(&whole, text, &error) != OK) return;
    if (row_numbers_read(&numbers, whole, &error) == OK) {
        for (size_t i = 0; i < numbers.count; i++) {
            assert(row_numbers_up_to(&numbers, numbers.list[i]) == i + 1);
            assert(row_numbers_have(&numbers, numbers.list[i]));
        }
        row_numbers_release(&numbers);
    }
    (void)(run_table_read(&table, whole, &error) == OK);
    json_decref(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    try_list((struct str){copy, bytes});
    try_numbers((struct str){copy, bytes});
    free(copy);
    return 0;
}
