/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_process: an engine behind one end of a socket: the process `quern engine --fd N`.
 *
 * It waits for HELLO, opens the device with all its memory, enters its sandbox, opens the model,
 * and answers READY, or FATAL with one sentence. The device comes before the sandbox because a
 * driver opens files, maps code and starts threads; no byte of a stranger has been read by then.
 * Then it serves jobs until DRAIN is done or the socket ends. It ends with the server, even if that
 * is killed. It opens no file except the model's, listens nowhere and needs no secret.
 *
 * Thread: the caller's reads the socket, one writes it, and the engine has its own.
 * Memory: answers wait in one buffer of at most ENGINE_OUT_BYTES_MAX; when it is full the engine
 * waits for the server to read. */

#include "engine/served_model.h"

#define ENGINE_OUT_BYTES_MAX ((size_t)256 * 1024 * 1024)

enum engine_exit {
    ENGINE_EXIT_DONE = 0,  /* drained, or the server closed the socket */
    ENGINE_EXIT_FATAL = 3, /* it sent FATAL, if it could */
};

/* Opens a model as HELLO asks: served_model_open, or a test's function. */
typedef enum err (*engine_open_model_fn)(struct served_model *ret_model,
                                         const struct wire_hello *options,
                                         struct loaded_gpu *device, struct error *error);

struct engine_process_options {
    int fd;                                          /* taken over */
    engine_open_model_fn open_model;                 /* NULL: served_model_open */
    void (*close_model)(struct served_model *model); /* NULL: served_model_close */
    bool is_sandboxed; /* from HELLO on (model_sandbox.h): the process must have no other thread
                          but those of a device */
};
/* Serves, and returns the exit status of the process. */
int engine_process_run(const struct engine_process_options *options);

/* The command `quern engine --fd N [--dump-fd N]`: checks the arguments, makes this process end
 * with its parent, and serves. It writes its stacks to the second descriptor when it is asked to or
 * crashes (base/stacks.h). Returns the exit status. */
int engine_main(int argc, char **argv);
