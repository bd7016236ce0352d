/* SPDX-License-Identifier: Apache-2.0 */

/* poison_plugin: another plugin with two planted faults, for tests on a real card and on the made-up
 * one of tests/kernels/cuda/host. A step with a token POISON stores the key and value of its row far
 * outside the KV cache, so that the card itself reports an illegal access. A step with a token HANG,
 * on a real card alone, stands behind a kernel that never ends.
 *
 * The first line of the file PATH.of, where PATH is this plugin's path, names the other plugin.
 * Both are loaded before the sandbox. */

#include "endless_kernel.h"
#include "kernels/device.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON 77
#define HANG 78
#define SLOT_OUTSIDE 0x70000000u /* beyond any cache, which has at most 2^28 slots */

static struct device_table table;
static const struct device_table *inner;
static uint32_t group_count;
static bool can_hang;

static enum err open_card(struct device **ret_device, const struct device_options *options,
                          struct error *error) {
    enum err err = inner->open(ret_device, options, error);
    can_hang = err == OK && endless_kernel_load();
    return err;
}

static enum err prepare(struct device *device, const struct device_program *program,
                        const struct device_limits *limits, struct device_ledger *ret_ledger,
                        struct error *error) {
    group_count = limits->group_count;
    assert(group_count <= DEVICE_GROUPS_MAX);
    return inner->prepare(device, program, limits, ret_ledger, error);
}

static enum err submit_poisoned(struct device *device, const struct device_step *step, uint32_t row,
                                const struct device_samples *samples, struct error *error) {
    struct device_group groups[DEVICE_GROUPS_MAX];
    memcpy(groups, step->groups, group_count * sizeof *groups);
    size_t bytes = step->row_count * sizeof(uint32_t);
    uint32_t *slots = malloc(bytes);
    assert(slots);
    memcpy(slots, groups[0].slots, bytes);
    slots[row] = SLOT_OUTSIDE;
    groups[0].slots = slots;
    struct device_step changed = *step;
    changed.groups = groups;
    enum err err = inner->submit(device, &changed, samples, error);
    free(slots);
    return err;
}

static enum err submit(struct device *device, const struct device_step *step,
                       const struct device_samples *samples, struct error *error) {
    for (uint32_t row = 0; row < step->row_count; row++) {
        if (step->tokens[row] == POISON) return submit_poisoned(device, step, row, samples, error);
        if (step->tokens[row] == HANG && can_hang) endless_kernel_start();
    }
    return inner->submit(device, step, samples, error);
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
    void *symbol = library ? dlsym(library, DEVICE_SYMBOL) : NULL;
    if (!symbol) return;
    device_table_fn *give;
    memcpy(&give, &symbol, sizeof give);
    inner = give();
    table = *inner;
    table.open = open_card;
    table.prepare = prepare;
    table.submit = submit;
}

const struct device_table *quern_device_table(void);
const struct device_table *quern_device_table(void) {
    return inner ? &table : NULL;
}
