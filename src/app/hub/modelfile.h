/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* modelfile: what a Modelfile says for a model of Ollama's store: its parameters and its system
 * text. Read anew for each request, so that `ollama create` counts at once.
 *
 * It knows no server.
 *
 * Thread: any.
 * Memory: the caller's; a text has at most MODELFILE_BYTES_MAX bytes. */

#include "dialects/ollama_preset.h"

#define MODELFILE_BYTES_MAX ((size_t)1 << 20)

/* Appends what the store says for the model that is called `name` there, with or without a tag,
 * whose weights have `weights_bytes`: a name may also be that of another model here. Texts that are
 * damaged or too long are left out, with a line in the log. False if nothing was appended. */
bool modelfile_read(struct str name, uint64_t weights_bytes, struct ollama_preset *ret_preset);
