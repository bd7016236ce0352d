/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* inspect_internal: the two kinds of models that inspect.h reads.
 *
 * Thread: main.  Memory: the caller's struct. */

#include "base/str.h"
#include "hub/inspect.h"

enum err inspect_gguf(struct inspection *inspection, const char *path,
                      struct error *error) MUST_CHECK;
enum err inspect_folder(struct inspection *inspection, const char *path,
                        struct error *error) MUST_CHECK;

/* Cut to what fits, and to what can be shown. */
void inspect_copy(char *ret_text, size_t room, struct str text);
void inspect_add_tensor(struct inspection *inspection, const char *type, uint64_t elements,
                        uint64_t bytes);
