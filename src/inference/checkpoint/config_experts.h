/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_experts: a mixture of experts from the metadata of a GGUF (config_json_experts.c reads it
 * from a config.json).
 *
 * Thread: any.
 * Memory: none. */

#include "checkpoint/config.h"

/* Reads which layers have experts, their sizes, and how they are chosen; nothing for a family
 * without, whose file must not have any. The number of layers must be set. ERR_INVALID names the
 * key. */
enum err config_read_experts(struct model_config *config, const struct gguf *gguf,
                             struct error *error) MUST_CHECK;
/* Sets the width of shared experts, `count` as wide as the others; 0: there is none. ERR_INVALID
 * names the key when that is too wide. */
enum err config_set_shared_experts(struct model_config *config, const char *key, uint32_t count,
                                   struct error *error) MUST_CHECK;
/* ERR_INVALID when experts and groups do not go together. */
enum err config_check_experts(const struct model_config *config, struct error *error) MUST_CHECK;
