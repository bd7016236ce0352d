/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_recurrent: the sizes of recurrent layers, and which layers are recurrent, from the
 * metadata of a GGUF (config_json_recurrent.c reads them from a config.json).
 *
 * Thread: any.
 * Memory: none. */

#include "checkpoint/config.h"

/* Takes layers that no pass needs off the end, and reads the kinds of a hybrid's layers and their
 * sizes; nothing for another family. The number of layers must be set. ERR_INVALID names the key.
 */
enum err config_read_recurrent(struct model_config *config, const struct gguf *gguf,
                               struct error *error) MUST_CHECK;
/* Reads the KV heads of a hybrid, whose file may have a number for each layer, with 0 for the
 * recurrent ones. */
enum err config_read_kv_heads(struct model_config *config, const struct gguf *gguf,
                              struct error *error) MUST_CHECK;
/* Sets the sizes of layers that are a convolution alone, over `taps` inputs. */
void config_set_conv(struct model_config *config, uint32_t taps);
/* ERR_INVALID when the sizes do not go together, or no layer is of attention. */
enum err config_check_recurrent(const struct model_config *config, struct error *error) MUST_CHECK;
