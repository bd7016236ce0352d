/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_key: the keys of a model's numbers in a GGUF, as the file spells them.
 *
 * llama.cpp's converter and Ollama's give some numbers different names. A reader asks with
 * llama.cpp's name, and gets the key that the file has, or the count under it.
 *
 * Thread: any.
 * Memory: none. */

#include "checkpoint/config.h"

struct config_key {
    char text[96];
};

/* The key that the file has for "ARCHITECTURE.suffix"; llama.cpp's when it has none. */
struct config_key config_key_of(const struct model_config *config, const struct gguf *gguf,
                                const char *suffix);
/* True when the file has the number under any of its names. */
bool config_key_exists(const struct model_config *config, const struct gguf *gguf,
                       const char *suffix);
/* ERR_INVALID when the file states one number under two names with two values. */
enum err config_keys_check(const struct model_config *config, const struct gguf *gguf,
                           struct error *error) MUST_CHECK;
/* A required count in 1..max. An array, one element a layer, is accepted when all are equal. */
enum err config_key_count(const struct model_config *config, const struct gguf *gguf,
                          const char *suffix, uint32_t max, uint32_t *ret_count,
                          struct error *error) MUST_CHECK;
/* ERR_INVALID unless `value` is within 1..max. */
enum err config_key_check_range(const char *key, uint64_t value, uint64_t max,
                                struct error *error) MUST_CHECK;
