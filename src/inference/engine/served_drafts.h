/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* served_drafts: the small model of --speculative-model beside the one that an engine serves.
 *
 * Thread: that of served_model_open.
 * Memory: the served model owns what is opened.
 * Invariant: each token of the served model's vocabulary that both know has the same text in
 *     both. */

#include "engine/served_model.h"

/* Opens the model that HELLO names and gives it to `model`, which is open. ERR_INVALID, with a
 * sentence that begins with the option: it is no model that generates, its vocabulary differs, or
 * one of the two cannot take a guess back. */
enum err served_drafts_open(struct served_model *model, const struct wire_hello *options,
                            struct error *error) MUST_CHECK;
