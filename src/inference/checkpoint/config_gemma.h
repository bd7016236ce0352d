/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_gemma: the sizes of Gemma 4 that differ between its layers, and the layers that read the
 * keys and values of others.
 *
 * Thread: any.
 * Memory: none.
 * Invariant: a layer that reads keys of another follows it, and has the same window and sizes. */

#include "checkpoint/config.h"

/* Reads them from a GGUF, after all that other families have too. ERR_INVALID names the key. */
enum err config_read_gemma(struct model_config *config, const struct gguf *gguf,
                           struct error *error) MUST_CHECK;

/* The last `shared` layers read keys and values of the last layer before them with the same kind of
 * window. `key` names the number. ERR_INVALID when there is none. */
enum err config_share_keys(struct model_config *config, uint32_t shared, const char *key,
                           struct error *error) MUST_CHECK;
