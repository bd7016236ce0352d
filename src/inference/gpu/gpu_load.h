/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_load: the plugin of a GPU is found and loaded, and a GPU chosen and opened.
 *
 * The plugin is a shared library with the table of gpu/table.h. It is the only code of quern
 * that is loaded while a process runs, and must be of the same build. It is looked for relative to
 * the program, so an installed quern, a build tree and a folder that was copied each find their
 * own. Knows no model.
 *
 * Thread: one, before the sandbox: the plugin opens files, maps code and starts threads.
 * Memory: a library that was asked for its GPUs stays loaded, because its threads may run on. The
 *     texts of the settings are borrowed for gpu_load alone. */

#include "gpu/gpu_settings.h"
#include "gpu/table.h"

#include <limits.h>

#define GPU_CARDS_MAX 64
/* The first steps of a careful GPU (gpu_options.careful_steps). Suspects run before all other
 * lines, and at last alone, so these are enough for a line that takes the GPU down within some
 * 4,000 tokens of its answer. A step has some 430 operations: at 20 us per wait all of these steps
 * together take half a minute longer, about as much as another death would. */
#define GPU_CAREFUL_STEPS 4096u

/* Zero is a valid start: the CPU. */
struct loaded_gpu {
    struct gpu_settings settings;
    const struct gpu_table *table; /* NULL: the CPU computes */
    struct gpu *gpu;
    struct gpu_info card;             /* the first of several GPUs, with the least memory of any */
    uint32_t more[GPU_RANKS_MAX - 1]; /* (settings.ranks - 1) indices of the others */
    uint64_t memory_bytes;            /* that each GPU may take */
    bool has_library; /* a plugin was asked for its GPUs: threads of a driver may exist, even when
                         the CPU computes */
    /* Why the CPU computes, a sentence; empty when the settings asked for it. */
    char reason[ERROR_TEXT_BYTES];
    bool is_surprising; /* the machine has a GPU, or a plugin: a person should see the reason */
};

/* Loads the plugin that the settings name and chooses a GPU: of several that can be used, the one
 * with the most free memory; or, with settings.ranks, as many as that, from the named one on.
 * GPU_CHOICE_AUTO without such a GPU is OK, with a reason.
 * GPU_CHOICE_CARD is ERR_UNAVAILABLE then, with the same sentence. */
enum err gpu_load(struct loaded_gpu *ret_loaded, const struct gpu_settings *settings,
                  struct error *error) MUST_CHECK;

/* Opens the chosen GPU, which takes its memory; does nothing for the CPU. Memory that others hold
 * is asked for again with pauses, about 4 s in all: an engine that was killed gives its memory back
 * late. Then ERR_LIMIT. A GPU that cannot be opened is treated as in gpu_load. */
enum err gpu_load_open(struct loaded_gpu *loaded, struct error *error) MUST_CHECK;

/* The forms that the settings choose; where they leave the choice, the GPU's usual form. `has_few`:
 * the file's weights have fewer than 8 bits. */
enum gpu_form gpu_load_weight_form(const struct loaded_gpu *loaded, bool has_few);
enum gpu_form gpu_load_kv_form(const struct loaded_gpu *loaded);
enum gpu_form gpu_load_state_form(const struct loaded_gpu *loaded);
/* Whether weights that are too large may have a smaller form: the settings leave the choice or
 * ask for the file's own form, and the usual form is BF16. */
bool gpu_load_may_shrink(const struct loaded_gpu *loaded);

/* Closes the device. */
void gpu_load_close(struct loaded_gpu *loaded);
