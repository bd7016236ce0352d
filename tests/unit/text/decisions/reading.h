/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* reading: JSON texts for the tests of decisions.
 *
 * Thread: the test's.
 * Memory: the caller frees. */

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static inline json_t *read_value(const char *text) {
    json_t *value;
    struct error error;
    if (json_read(&value, str_from(text), &error) != OK) fail_msg("%s: %s", text, error.text);
    return value;
}
