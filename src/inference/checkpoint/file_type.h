/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* file_type: the name of the mixture of types that the weights of a GGUF file have.
 *
 * Most files of quantised weights mix types ("Q4_K_M" has weights of Q4_K and of Q6_K). The number
 * of general.file_type names the mixture; the types of the tensors decide what is computed.
 *
 * Thread: any; pure.
 * Memory: texts are constants.
 * Source: enum llama_ftype of llama.cpp. */

#include "checkpoint/gguf.h"

/* "Q4_K_M"; NULL if the file does not say, or says a number without a name. */
const char *file_type_name(const struct gguf *gguf);
