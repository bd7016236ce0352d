/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cpu_weights: the weights of a checkpoint in tiles for the CPU, without a cache, for tests that
 * run a forward pass by its parts. */

#include "cpu/tile_store.h"
#include "weights/weights.h"

struct cpu_weights {
    struct tile_store *store;
    struct weights *weights;
};

/* One that is all zero is allowed. */
static inline void cpu_weights_close(struct cpu_weights *cpu) {
    tile_store_close(cpu->store);
    weights_close(cpu->weights);
    *cpu = (struct cpu_weights){0};
}

static inline enum err cpu_weights_open(struct cpu_weights *ret_cpu,
                                        const struct checkpoint *checkpoint,
                                        const struct model_config *config,
                                        const struct kernels *kernels, struct pool *pool,
                                        struct error *error) {
    struct cpu_weights cpu = {
        .store = tile_store_open(&(struct tile_store_options){
            .checkpoint = checkpoint, .config = config, .kernels = kernels, .pool = pool})};
    struct weights_options options = {.checkpoint = checkpoint,
                                      .config = config,
                                      .store = tile_store_interface(cpu.store),
                                      .pool = pool};
    enum err err = weights_open(&cpu.weights, &options, error);
    if (err == OK) err = weights_fill(cpu.weights, error);
    if (err == OK)
        *ret_cpu = cpu;
    else
        cpu_weights_close(&cpu);
    return err;
}
