/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cases: runs one case of a JSON file of cases,
 * {id, source, expected} or {id, source, error_kind[, error]}; included by the tests that do so. */

#include "jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 2026-01-15T12:34:56, the `now` of the files of cases. */
#define CASES_NOW_UNIX_S 1768480496

static inline bool case_fails(const json_t *item, const char *what, struct str got) {
    fprintf(stderr, "# %s: %s: %.*s\n", json_string_value(json_object_get(item, "id")), what,
            STR_ARGS(got));
    return false;
}

/* True when the outcome is the one the case asks for. */
static inline bool case_holds(const json_t *item, struct str source, json_t *context) {
    const json_t *expected = json_object_get(item, "expected");
    const char *kind = json_string_value(json_object_get(item, "error_kind"));
    const char *message = json_string_value(json_object_get(item, "error"));
    struct jinja_template *template = NULL;
    struct error error = {0};
    struct buf out;
    struct jinja_options options = {.now_unix_s = CASES_NOW_UNIX_S};
    buf_init(&out, (size_t)64 << 20);
    enum err err = jinja_template_open(&template, source, &error);
    bool opened = err == OK;
    if (opened) err = jinja_template_render(template, context, &options, &out, NULL, &error);
    jinja_template_close(template);
    bool holds = true;
    if (expected) {
        struct str wanted = {json_string_value(expected), json_string_length(expected)};
        if (err) {
            holds = case_fails(item, "failed", str_from(error.text));
        } else if (!str_equals(buf_str(&out), wanted)) {
            holds = case_fails(item, "rendered", buf_str(&out));
        }
    } else if (err != ERR_INVALID) {
        holds = case_fails(item, "did not fail as it should, but gave", buf_str(&out));
    } else if (message && strcmp(message, error.text) != 0) {
        holds = case_fails(item, "failed with another message", str_from(error.text));
    } else if (opened && kind && strcmp(kind, "syntax") == 0 &&
               !strstr(error.text, "there is no")) {
        holds = case_fails(item, "failed only while rendering", str_from(error.text));
    }
    buf_release(&out);
    return holds;
}

/* The path of a file under QUERN_SHARED or QUERN_SOURCE; the caller frees it. */
static inline char *case_path(const char *variable, const char *file) {
    const char *root = getenv(variable);
    char *path = NULL;
    if (!root || asprintf(&path, "%s/%s", root, file) < 0) return NULL;
    return path;
}
