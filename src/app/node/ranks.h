/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ranks: the engines that one model has, and what each of them computes on. vLLM calls it data
 * parallelism: rank r runs on GPU r, or on its share of the cores.
 *
 * Each rank is a whole engine with weights and KV cache of its own. The runner gives lines with a
 * common beginning to the same one (runner/leases.h). Knows no process and no model.
 *
 * Thread: any.
 * Memory: none. */

#include "node/node.h"

#define RANK_DEVICE_BYTES 16

/* The engines per model: as the option says, else with --device cuda one per GPU, else one. */
uint32_t ranks_count(const struct node_options *options);
/* The settings of one rank of `count`. They borrow ret_device. */
struct engine_settings ranks_settings(const struct engine_settings *settings, uint32_t rank,
                                      uint32_t count, char ret_device[RANK_DEVICE_BYTES]);
