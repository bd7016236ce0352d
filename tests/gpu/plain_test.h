/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plain_test: what the tests of the plain GPU share: cmocka and expect_ok.
 *
 * Thread: one.
 * Memory: none. */

#include "plain_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct world_traits small_traits
    __attribute__((unused)) = {"small", 32, 48, 4, 2, 16, .embed_scale = 1.0f, .has_head = true};

static inline void expect_ok(enum err err, const struct error *error) {
    if (err != OK) fail_msg("%s", error->text);
}
