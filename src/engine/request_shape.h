/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_shape: the fields by which a client asks for a shape of the answer: response_format,
 * structured_outputs and the guided_* fields of older vLLM. Internal to request.c.
 *
 * Thread: as request.h.
 * Memory: as request.h. */

#include "engine/request.h"

/* Reads the fields into request->shape. At most one of them may ask for a shape. */
bool request_parse_shape(struct request *request, struct refusal *refusal);
