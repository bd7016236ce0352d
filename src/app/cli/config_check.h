/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_check: `quern config check`, which reads the settings as a start would and says all that
 * is wrong with them.
 *
 * Every command that has settings reads the files and the environment. `quern serve` also compares
 * its settings with each other, as it does before it opens anything. No model, key or certificate
 * is read.
 *
 * Thread: main.
 * Memory: the sentences, CONFIG_FAULTS_MAX at most, until the end of the call. */

#include "base/err.h"

#include <stdbool.h>

#define CONFIG_FAULTS_MAX 100

struct command;

/* Prints each wrong setting to standard error, and else what was read. `config` NULL: the usual
 * files; `only` NULL: every command with settings. *ret_is_good is false after a wrong setting.
 * Errors of settings_load for a file that cannot be read. */
enum err config_check(const char *config, const struct command *only, bool *ret_is_good,
                      struct error *error) MUST_CHECK;
