/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_process: an engine behind one end of a socket: what `quern engine --fd N` is.
 *
 * It waits for HELLO, shuts itself into a sandbox, opens the model, answers READY (or FATAL with
 * one sentence), then serves jobs until DRAIN is done or the socket ends. Whatever kills the server
 * ends the engine too. It opens no file but the model's, listens nowhere and needs no secret.
 *
 * Threads: the caller's reads the socket; one writes it; the engine has its own. Answers wait in
 * one buffer of at most ENGINE_OUT_BYTES_MAX; past that the engine waits for the server to read. */

#include "engine/served_model.h"

#define ENGINE_OUT_BYTES_MAX ((size_t)256 * 1024 * 1024)

enum engine_exit {
    ENGINE_EXIT_DONE = 0,  /* drained, or the server closed the socket */
    ENGINE_EXIT_FATAL = 3, /* told the server why, if it could */
};

/* Reads a model as HELLO asks; served_model_open, or a test's own. */
typedef enum err (*engine_open_model_fn)(struct served_model *ret_model,
                                         const struct wire_hello *options, struct error *error);

/* Serves on `fd`, which it closes, and returns the exit status of the process. `open_model` NULL is
 * served_model_open; the model is closed with `close_model`, NULL being served_model_close. */
struct engine_process_options {
    int fd;
    engine_open_model_fn open_model;
    void (*close_model)(struct served_model *model);
    bool is_sandboxed; /* from HELLO on (model_sandbox.h): the process must have no other thread */
};
int engine_process_run(const struct engine_process_options *options);

/* `quern engine --fd N [--dump-fd N]`: checks the arguments, ties this process's life to its
 * parent's, serves. Its stacks go to the second descriptor when it is asked for them or crashes
 * (base/stacks.h). Returns the exit status. */
int engine_main(int argc, char **argv);
