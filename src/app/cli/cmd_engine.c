/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "engine/engine_process.h"

const struct command cmd_engine = {
    .name = "engine",
    .summary = "the engine process, which the server starts",
    .is_hidden = true,
    .main = engine_main,
};
