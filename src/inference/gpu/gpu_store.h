/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_store: the store of a model's matrices (program/weight_store.h) on a device.
 *
 * It numbers the matrices as they are opened and gives each the form in which the GPU keeps it.
 * The GPU takes its memory later, in prepare (gpu/executor_gpu.h). Then the store passes
 * the rows on as the file has them, part by part: the GPU converts them. After the last matrix
 * it warms the GPU up.
 *
 * Thread: the thread that loads.
 * Memory: the store owns the list; the loader closes the matrices. */

#include "gpu/table.h"
#include "program/weight_store.h"

/* The form of products of a file that bf16 makes too large, with GPU_BLOCKS of a matrix that
 * cannot be kept so, and with GPU_E4M3 of the head, whose errors go straight into the logits:
 * half as far from float32 as E4M3 (docs/internals/inference/gpu.md). */
#define GPU_SMALL_FORM GPU_INT8

struct gpu_store;

struct gpu_store_options {
    const struct gpu_table *table;
    struct gpu *gpu;       /* open */
    enum gpu_form form;    /* for products; an embedding has no 8-bit form, not even as the head */
    const char *notes_dir; /* keeps what warm finds out (gpu_notes.h); NULL: nothing is kept */
    const char *card_uuid; /* names its file there */
};

struct gpu_store *gpu_store_open(const struct gpu_store_options *options);
void gpu_store_close(struct gpu_store *store); /* NULL is allowed */
/* The interface for weights_open; it lives as long as the store. */
struct weight_store gpu_store_interface(struct gpu_store *store);
/* A matrix in the form that the options ask for, as far as it can have it. One of an expert is that
 * of all experts of the layer, one behind another, in blocks if all have four bits of one kind. An
 * embedding and a router are BF16: an error of a router's logits changes which experts a row has.
 * A head of its own is GPU_SMALL_FORM where E4M3 or blocks are asked for: in blocks it would be by
 * far the largest matrix to be unpacked. Other matrices stay in blocks if all their parts have
 * types of fewer than 8 bits per number. */
struct gpu_matrix gpu_store_matrix(const struct gpu_store_options *options,
                                   const struct weight_matrix *from);
/* The matrices opened so far, by handle; valid until the next one is opened. */
const struct gpu_matrix *gpu_store_matrices(const struct gpu_store *store, uint32_t *ret_count);
