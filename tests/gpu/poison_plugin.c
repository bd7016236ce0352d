/* SPDX-License-Identifier: Apache-2.0 */

/* poison_plugin: another plugin with planted faults, for tests on a real GPU and on the made-up one
 * of tests/gpu/cuda/host. A step with a token POISON stores the key and value of its row far
 * outside the KV cache, so that the GPU itself reports an illegal access. On a real GPU alone a
 * step with a token HANG stands behind a kernel that never ends, and beside a step with a token
 * LOSE the last of several GPUs, or the one, has a kernel that stores outside.
 *
 * The first line of the file PATH.of, where PATH is this plugin's path, names the other plugin.
 * Both are loaded before the sandbox. */

#include "planted_kernels.h"

#include "gpu/table.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON 77
#define HANG 78
#define LOSE 79
#define SLOT_OUTSIDE 0x70000000u /* beyond any cache, which has at most 2^28 slots */

static struct gpu_table table;
static const struct gpu_table *inner;
static uint32_t group_count;
static bool has_kernels;

static enum err open_card(struct gpu **ret_gpu, const struct gpu_options *options,
                          struct error *error) {
    enum err err = inner->open(ret_gpu, options, error);
    const uint32_t more = options->more_count;
    has_kernels =
        err == OK && planted_kernels_load(more > 0 ? options->more[more - 1] : options->index);
    return err;
}

static enum err prepare(struct gpu *gpu, const struct gpu_program *program,
                        const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                        struct error *error) {
    group_count = limits->group_count;
    assert(group_count <= GPU_GROUPS_MAX);
    return inner->prepare(gpu, program, limits, ret_ledger, error);
}

static enum err submit_poisoned(struct gpu *gpu, const struct gpu_step *step, uint32_t row,
                                const struct gpu_samples *samples, struct error *error) {
    struct gpu_group groups[GPU_GROUPS_MAX];
    memcpy(groups, step->groups, group_count * sizeof *groups);
    size_t bytes = step->row_count * sizeof(uint32_t);
    uint32_t *slots = malloc(bytes);
    assert(slots);
    memcpy(slots, groups[0].slots, bytes);
    slots[row] = SLOT_OUTSIDE;
    groups[0].slots = slots;
    struct gpu_step changed = *step;
    changed.groups = groups;
    enum err err = inner->submit(gpu, &changed, samples, error);
    free(slots);
    return err;
}

static enum err submit(struct gpu *gpu, const struct gpu_step *step,
                       const struct gpu_samples *samples, struct error *error) {
    bool is_losing = false;
    for (uint32_t row = 0; row < step->row_count; row++) {
        if (step->tokens[row] == POISON) return submit_poisoned(gpu, step, row, samples, error);
        if (step->tokens[row] == HANG && has_kernels) endless_kernel_start();
        is_losing |= step->tokens[row] == LOSE && has_kernels;
    }
    if (is_losing) outside_kernel_start(); /* before it, or the answer may be there first */
    return inner->submit(gpu, step, samples, error);
}

__attribute__((constructor)) static void load_inner(void) {
    static const int here;
    char path[PATH_MAX + sizeof ".of"], other[PATH_MAX];
    Dl_info info;
    if (!dladdr(&here, &info)) return;
    (void)snprintf(path, sizeof path, "%s.of", info.dli_fname);
    FILE *file = fopen(path, "re");
    if (!file) return;
    if (!fgets(other, sizeof other, file)) other[0] = '\0';
    (void)fclose(file);
    other[strcspn(other, "\n")] = '\0';
    void *library = dlopen(other, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, GPU_SYMBOL) : NULL;
    if (!symbol) return;
    gpu_table_fn *give;
    memcpy(&give, &symbol, sizeof give);
    inner = give();
    table = *inner;
    table.open = open_card;
    table.prepare = prepare;
    table.submit = submit;
}

const struct gpu_table *quern_gpu_table(void);
const struct gpu_table *quern_gpu_table(void) {
    return inner ? &table : NULL;
}
