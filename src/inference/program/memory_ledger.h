/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* memory_ledger: where a GPU's memory goes, part by part.
 *
 * A plugin fills it when it lays out a program (gpu/table.h), and an executor describes itself with
 * it, so it stands below both. It knows no GPU.
 *
 * Thread: any.
 * Memory: none of its own. */

#include <stdint.h>

/* In bytes. used is the sum of the parts below it, and at most limit. */
struct memory_ledger {
    uint64_t
        limit; /* at most gpu_options.memory_bytes (gpu/table.h): what the GPU took of it at open */
    uint64_t used;
    uint64_t context;     /* driver, context and libraries, outside of the GPU's own memory */
    uint64_t weights;     /* matrices and vectors */
    uint64_t activations; /* buffers of a step, partial results of attention */
    uint64_t logits;
    uint64_t steps;     /* copies of the steps' arrays */
    uint64_t workspace; /* for the library for products, and for fill */
    uint64_t states;    /* states of recurrent layers: state_places · state_bytes */
    uint64_t kv;        /* page_count · page_bytes */
    uint64_t page_bytes;
    uint64_t state_bytes; /* bytes of a sequence's state, in all layers */
    uint64_t away;        /* experts in the host's memory, of which `used` has none */
    uint32_t page_count;
    uint32_t state_places;
};
