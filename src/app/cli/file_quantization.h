/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* file_quantization: values of vLLM's --quantization that name the form of a model's files, such as
 * awq. quern reads that form from the files themselves, so such a value changes nothing: it is held
 * against each model, and refused where the files have another form.
 *
 * Thread: main.
 * Memory: config.json of a folder, at most 16 MiB, and its tree. */

#include "base/err.h"

/* True for awq, awq_marlin, gptq, gptq_marlin, compressed-tensors and gguf. */
bool file_quantization_is(const char *word);
/* ERR_INVALID, with the word, unless the model (a GGUF file or a folder) has that form. */
enum err file_quantization_check(const char *word, const char *path,
                                 struct error *error) MUST_CHECK;
