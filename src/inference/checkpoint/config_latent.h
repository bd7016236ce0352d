/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_latent: the sizes of latent attention from the metadata of a GGUF (config_json_latent.c
 * reads them from a config.json).
 *
 * Thread: any.
 * Memory: none. */

#include "checkpoint/config.h"

/* Reads the sizes of the layers of a family whose row says so; the number of heads must be set.
 * ERR_INVALID names the key. */
enum err config_read_latent(struct model_config *config, const struct gguf *gguf,
                            struct error *error) MUST_CHECK;
