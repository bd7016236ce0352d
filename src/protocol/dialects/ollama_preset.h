/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ollama_preset: what a Modelfile says for requests that do not say it themselves: PARAMETER and
 * SYSTEM. They are written into the request before it is read.
 *
 * It knows no model and no store.
 *
 * Thread: any; pure.
 * Memory: the caller's buffer, which gets a copy of the request.
 * Invariant: what a request says counts before what the Modelfile says. */

#include "dialects/dialect.h"

/* Empty texts: the Modelfile says nothing. */
struct ollama_preset {
    struct buf params; /* a JSON object with options of Ollama by name */
    struct buf system; /* a JSON string */
};

void ollama_preset_init(struct ollama_preset *preset);
void ollama_preset_release(struct ollama_preset *preset);

/* Appends `object`, the span of a valid request of `dialect`, with the options and the system text
 * that it lacks. A value of a wrong kind stays as it is, for the dialect to refuse. False, with
 * nothing appended, if the request gets nothing: of another dialect, raw, or without a question. */
bool ollama_preset_apply(const struct ollama_preset *preset, const struct dialect *dialect,
                         struct str object, struct buf *ret_object);

/* Appends a line "name value" per parameter, texts in quotes, as Ollama's show has them. `before`
 * stands in front of each. */
void ollama_preset_write_lines(const struct ollama_preset *preset, const char *before,
                               struct buf *text);
