/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* json_changed: a config.json with some members changed, opened as one of a folder is.
 *
 * Thread: the test's.
 * Memory: the caller's json_config. */

#include "checkpoint/config_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Both texts are objects; the members of `changes` replace those of `base`, and null is no value. */
static inline enum err json_changed_open(const char *base, const char *changes,
                                         struct json_config *ret_config, struct error *error) {
    json_t *root = json_loads(base, 0, NULL), *more = json_loads(changes, 0, NULL);
    assert_non_null(root);
    assert_non_null(more);
    assert_int_equal(json_object_update(root, more), 0);
    enum err err = config_json_init(ret_config, root, error);
    json_decref(root);
    json_decref(more);
    return err;
}

/* Fails the test with the sentence of a refusal. */
static inline void json_changed_open_good(const char *base, const char *changes,
                                          struct json_config *ret_config) {
    struct error error = {0};
    enum err err = json_changed_open(base, changes, ret_config, &error);
    if (err != OK) fail_msg("%s: %s", changes, error.text);
}
