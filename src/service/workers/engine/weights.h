/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* weights: a mark that copies of the same weights have in common, on whatever machine they are.
 *
 * It hashes the size of each file and samples of its bytes: the head, the end, and 64 places
 * between. Another quantization, another training or another model differ in all of them. A damaged
 * byte may go unseen; `quern models verify` reads every byte.
 *
 * Thread: any.
 * Memory: one sample. */

#include "base/err.h"

#include <stdbool.h>

#define WEIGHTS_MARK_BYTES 32

/* `path` is a file, or a folder whose .safetensors files count. False if it cannot be read. */
bool weights_mark(const char *path, unsigned char ret_mark[WEIGHTS_MARK_BYTES]);
