/* SPDX-License-Identifier: Apache-2.0 */

/* How GPUs are opened and warmed up. Under compute-sanitizer the trials of products take more
 * time than all checks. So with a file of notes a GPU begins with the choices of those before
 * it, in this process or an earlier one. */

#include "check_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (UINT64_C(1) << 20) /* limit for a file: 1,024 choices of products are 0.2 MiB */

static struct {
    const char *path; /* NULL: each GPU tries anew */
    char *text;
    size_t bytes;
} notes;

void notes_read(const char *path) {
    FILE *file = fopen(path, "rb");
    notes.path = path;
    if (!file) return; /* the first process */
    notes.text = malloc(BYTES_MAX);
    notes.bytes = fread(notes.text, 1, BYTES_MAX, file);
    (void)fclose(file);
}

static void notes_keep(const char *text, size_t bytes) {
    struct error error = {0};
    FILE *file = fopen(notes.path, "wb");
    free(notes.text);
    notes.text = malloc(bytes);
    notes.bytes = bytes;
    memcpy(notes.text, text, bytes);
    if (!file || fwrite(text, 1, bytes, file) != bytes || fclose(file) != 0)
        must(err_set(&error, ERR_IO, "%s cannot be written", notes.path), &error, "notes");
}

static uint32_t ranks = 1;
static bool is_one_gpu, adds_in_host; /* ranks_want */

void ranks_want(uint32_t count, bool are_one, bool are_in_host) {
    ranks = count, is_one_gpu = are_one, adds_in_host = are_in_host;
}

void open_checked(const struct gpu_table *table, struct gpu_options options, struct gpu **ret_gpu) {
    struct error error = {0};
    options.clears_memory = notes.path != NULL;
    options.more_count = ranks - 1;
    options.adds_in_host = adds_in_host;
    for (uint32_t i = 0; i + 1 < ranks; i++)
        options.more[i] = options.index + (is_one_gpu ? 0 : 1 + i);
    must(table->open(ret_gpu, &options, &error), &error, "open");
}

void warm_checked(const struct gpu_table *table, struct gpu *gpu) {
    struct error error = {0};
    const char *text;
    size_t bytes;
    if (notes.text) table->recall(gpu, notes.text, notes.bytes);
    must(table->warm(gpu, &error), &error, "warm");
    if (notes.path && table->tell(gpu, &text, &bytes)) notes_keep(text, bytes);
}
