/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* models: which models the workers of a runner serve together.
 *
 * Thread: any, without the runner's lock, because workers are asked.
 * Memory: none kept. */

#include "runner/runner.h"

enum serving {
    SERVED,
    NOT_SERVED,
    SERVING_UNKNOWN, /* a worker that may serve it does not know its names yet */
};

enum serving runner_serving(struct runner *runner, struct str model);
/* The model of requests that name none: the first name of the only worker. */
enum serving runner_default_model(struct runner *runner, char ret_model[MODEL_NAME_BYTES]);
/* The fate of requests for a shape: refused if a worker that serves the model refuses them,
 * held if all hold answers to them, else passed on. */
enum shape_handling runner_shapes(struct runner *runner, struct str model);
/* ERR_UNAVAILABLE, with the reason, if every worker that serves the model has failed. */
enum err runner_check_model(struct runner *runner, struct str model,
                            struct error *error) MUST_CHECK;
/* Checks as runner_check_model for a single request, which does not wait for a held model. */
enum err runner_check_request(struct runner *runner, struct str model,
                              struct error *error) MUST_CHECK;
/* Whether the worker runs requests for the name, and what it calls that model. */
bool runner_finds(const struct runner *runner, struct worker *worker, struct str model,
                  char ret_served[MODEL_NAME_BYTES]);
/* Tells the workers that serve the model, and have no room, that a job waits. */
void runner_want(struct runner *runner, struct str model, enum tier tier, int64_t deadline_unix_s);
/* The workers attached so far. */
size_t runner_workers(struct runner *runner, struct worker *ret_workers[RUNNER_WORKERS_MAX]);
