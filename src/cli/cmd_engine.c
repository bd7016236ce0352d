/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "engine/engine_process.h"

static int run(int argc, char **argv) {
    return engine_main(argc, argv);
}

const struct command cmd_engine = {"engine", "the engine process; the server starts it", true, run};
