/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* workspace: the arrays of a forward program, one after another in one mapping.
 *
 * A program writes its layout once, as calls of workspace_take, and runs it twice: the first run
 * counts the bytes, workspace_open maps them, and the second run hands them out. So the formula of
 * the size cannot differ from the use. The bounds of checkpoint/config.h keep every size and the
 * sum far below 2^64.
 *
 * Thread: one, while it is laid out; the arrays are the program's.
 * Memory: owns the mapping. It takes memory as it is first written.
 * Invariant: every array begins at a multiple of 64 bytes. */

#include "weights/weights.h"

struct workspace {
    unsigned char *memory; /* NULL while bytes are counted */
    size_t bytes;          /* size of the mapping */
    size_t at;             /* end of the arrays taken so far */
};

/* The next array, zeroed; NULL while bytes are counted. */
void *workspace_take(struct workspace *workspace, size_t bytes);
/* Maps the counted bytes. ERR_LIMIT without memory. */
enum err workspace_open(struct workspace *workspace, struct error *error) MUST_CHECK;
void workspace_close(struct workspace *workspace); /* one that was never opened is allowed */

/* Maps zeroed memory on huge pages where the system has them; NULL without memory. */
void *workspace_map(size_t bytes);
/* Bytes of the widest row of activations that any matrix of the model reads. */
size_t workspace_activation_bytes(const struct weights *weights);
/* The same for the matrices of experts; 0 without experts. */
size_t workspace_expert_activation_bytes(const struct weights *weights);
/* Bytes of the largest tile of an expert's matrix; 0 without experts. */
size_t workspace_expert_tile_bytes(const struct weights *weights);
/* As workspace_activation_bytes, of the matrices that a head has of its own. */
size_t workspace_head_bytes(const struct weights *weights);
