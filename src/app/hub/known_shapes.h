/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* known_shapes: the models of the table of names, before they are fetched.
 *
 * known_shapes.json has the sizes of their published config.json: enough to list their tensors, so
 * that the functions which inspect a model on disk tell its memory. Models that generate are there;
 * models for texts are small, and a model whose config nobody here has read is left out.
 *
 * Thread: main.
 * Memory: known_shapes_open reads the table into memory that known_shapes_close frees; a shape
 * borrows from it. */

#include "checkpoint/checkpoint.h"
#include "hub/inspect.h"
#include "protocol/names.h"

#define KNOWN_FORMS 3 /* at most */

struct known_shapes;
struct known_shapes *known_shapes_open(void);
void known_shapes_close(struct known_shapes *shapes);

/* The types in which a model can be fetched, the most exact first; the rest of the list is not
 * set. Returns their number. */
size_t known_shape_forms(const struct known_shapes *shapes, const struct known_name *name,
                         enum shape_types ret_forms[KNOWN_FORMS]);
/* "Q4_K_M" */
const char *known_shape_form_name(enum shape_types form);
/* The checkpoint of a model in one of these forms; false if the table lacks the model. */
bool known_shape_read(const struct known_shapes *shapes, const struct known_name *name,
                      enum shape_types form, struct checkpoint **ret_checkpoint);
/* Sizes, and file_bytes as the sum of the tensors. inspect_release frees it. */
void known_shape_inspect(struct inspection *ret_inspection, const struct checkpoint *checkpoint);
