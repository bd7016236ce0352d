/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vllm_options: the options of `vllm serve` and `vllm run-batch` that are none of quern's, each
 * with what becomes of it: it changes nothing, and a line says why, or it is refused, with what to
 * use instead. None is ignored in silence.
 *
 * An option that would change answers, or who may ask, is refused; one that tunes vLLM's own
 * machinery changes nothing. Options that quern has under vLLM's names are in the tables of the
 * commands, and win where a name is in both.
 *
 * Thread: main.
 * Memory: none. */

#include "cli/options.h"

extern const struct option vllm_option_rows[];
