/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/inspect.h"

#include "base/free_memory.h"
#include "base/os.h"
#include "hub/hub_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void hub_copy_printable(char *ret_text, size_t room, struct str text) {
    size_t count = text.bytes < room ? text.bytes : room - 1;
    for (size_t i = 0; i < count; i++)
        ret_text[i] = text.at[i] >= ' ' && text.at[i] < 0x7F ? text.at[i] : '?';
    ret_text[count] = '\0';
}

void inspect_add_tensor(struct inspection *inspection, const char *type, uint64_t elements,
                        uint64_t bytes) {
    uint32_t i = 0;
    inspection->parameters += elements;
    inspection->weight_bytes += bytes;
    while (i < inspection->type_count && strcmp(inspection->types[i].name, type) != 0) i++;
    if (i == INSPECT_TYPES_MAX) return;
    if (i == inspection->type_count) {
        inspection->type_count++;
        snprintf(inspection->types[i].name, sizeof inspection->types[i].name, "%s", type);
    }
    inspection->types[i].tensors++;
    inspection->types[i].bytes += bytes;
}

static int compare_types(const void *a, const void *b) {
    const struct inspect_type *left = a, *right = b;
    if (left->bytes != right->bytes) return left->bytes > right->bytes ? -1 : 1;
    return strcmp(left->name, right->name);
}

enum err inspect_path(struct inspection *ret_inspection, const char *path, struct error *error) {
    struct inspection inspection = {.is_folder = false};
    struct stat status;
    if (stat(path, &status) != 0) return err_set(error, ERR_NOT_FOUND, "no file %.300s", path);
    inspection.is_folder = S_ISDIR(status.st_mode);
    enum err err = inspection.is_folder ? inspect_folder(&inspection, path, error)
                                        : inspect_gguf(&inspection, path, error);
    if (err != OK) return err;
    qsort(inspection.types, inspection.type_count, sizeof *inspection.types, compare_types);
    inspection.kv_far_bytes_per_token = inspection.kv_bytes_per_token;
    buf_init(&inspection.template, BUF_UNLIMITED);
    *ret_inspection = inspection;
    return OK;
}

void inspect_release(struct inspection *inspection) {
    buf_release(&inspection->template);
}

/* --- the machine --- */

struct machine inspect_machine(void) {
    struct machine machine = {.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) *
                                              (uint64_t)sysconf(_SC_PAGESIZE),
                              .free_bytes = free_memory_bytes()};
    return machine;
}

static uint64_t sequence_bytes(const struct inspection *inspection, uint32_t tokens) {
    uint64_t near =
        inspection->window > 0 && inspection->window < tokens ? inspection->window : tokens;
    return inspection->state_bytes + inspection->kv_bytes_per_token * near +
           inspection->kv_far_bytes_per_token * (tokens - near);
}

struct fit inspect_fit(const struct inspection *inspection, const struct machine *machine,
                       uint32_t sequence_tokens) {
    const uint64_t weights =
        inspection->memory_bytes > 0 ? inspection->memory_bytes : inspection->weight_bytes;
    struct fit fit = {.needed_bytes = weights + ENGINE_OTHER_BYTES,
                      .sequence_tokens = sequence_tokens};
    if (sequence_tokens == 0 || (inspection->context > 0 && sequence_tokens > inspection->context))
        fit.sequence_tokens = inspection->context;
    uint64_t each = sequence_bytes(inspection, fit.sequence_tokens);
    fit.sequence_bytes = each;
    uint64_t left =
        machine->free_bytes > fit.needed_bytes ? machine->free_bytes - fit.needed_bytes : 0;
    if (each > 0) fit.sequences = left / each;
    fit.is_in_memory = left > 0 && (each == 0 || fit.sequences > 0);
    fit.least_bytes = fit.needed_bytes - inspection->expert_bytes;
    if (!fit.is_in_memory && inspection->expert_bytes > 0 &&
        machine->free_bytes > fit.least_bytes + each) {
        fit.left_bytes = fit.needed_bytes + each - machine->free_bytes;
        fit.sequences = 1;
    }
    return fit;
}
