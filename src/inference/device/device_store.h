/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device_store: the store of a model's matrices (program/weight_store.h) on a device.
 *
 * It numbers the matrices as they are opened and gives each the form in which the device keeps it.
 * The device takes its memory later, in prepare (device/executor_device.h). Then the store passes
 * the rows on as the file has them, part by part: the device converts them. After the last matrix
 * it warms the device up.
 *
 * Thread: the thread that loads.
 * Memory: the store owns the list; the loader closes the matrices. */

#include "kernels/device.h"
#include "program/weight_store.h"

/* The form of products of a file that bf16 makes too large, with DEVICE_BLOCKS of a matrix that
 * cannot be kept so, and with DEVICE_E4M3 of the head, whose errors go straight into the logits:
 * half as far from float32 as E4M3 (docs/internals/inference/device.md). */
#define DEVICE_SMALL_FORM DEVICE_INT8

struct device_store;

struct device_store_options {
    const struct device_table *table;
    struct device *device; /* open */
    enum device_form form; /* of products. An embedding has no 8-bit form, even if it is the head */
    const char *notes_dir; /* keeps what warm finds out (device_notes.h); NULL: nothing is kept */
    const char *card_uuid; /* names its file there */
};

/* The least rows of a step, up to `most`, that use the device fully (device_rows.h): once the store
 * has been filled, before the first step. */
enum err device_store_rows(struct device_store *store, uint32_t most, uint32_t *ret_rows,
                           struct error *error) MUST_CHECK;

struct device_store *device_store_open(const struct device_store_options *options);
void device_store_close(struct device_store *store); /* NULL is allowed */
/* The interface for weights_open; it lives as long as the store. */
struct weight_store device_store_interface(struct device_store *store);
/* A matrix in the form that the options ask for, as far as it can have it. An embedding is BF16.
 * A head of its own is DEVICE_SMALL_FORM where E4M3 or blocks are asked for: in blocks it would be by
 * far the largest matrix to be unpacked. Other matrices stay in blocks if all their parts have types
 * of fewer than 8 bits per number. */
struct device_matrix device_store_matrix(const struct device_store_options *options,
                                         const struct weight_matrix *from);
/* The matrices opened so far, by handle; valid until the next one is opened. */
const struct device_matrix *device_store_matrices(const struct device_store *store,
                                                  uint32_t *ret_count);
