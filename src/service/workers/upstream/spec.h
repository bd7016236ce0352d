/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_spec: what `--upstream NAME=URL[,KEY=VALUE]...` says, checked.
 *
 *     key-file=F            a file with the API key alone, readable by its owner only
 *     concurrency=N         requests in flight at most (default 64)
 *     models=M|ALIAS=M|...  the models it serves, and its own names for them (default: as
 *                           /v1/models lists them)
 *     weight=W              share of the lines, where several workers serve a model (default 1)
 *     connect-timeout=S     for a connection (default 10 s)
 *     timeout=S             to the first byte, and from there to the end of an answer that is not
 *                           streamed (default 3600 s)
 *     stall-timeout=S       between two bytes of an answer (default 120 s)
 *     health=PATH           asked after failures, before any request is sent (default /health)
 *     proxy=env             the proxy that the environment names (default: no proxy)
 *     shapes=pass|refuse    requests for a shape of the answer are passed on and the answers of
 *                           lines checked (default), or lines with such requests refused
 *
 * Thread: any; pure.
 * Memory: the caller's struct. */

#include "base/err.h"
#include "base/str.h"

#define UPSTREAM_NAME_BYTES 64
#define UPSTREAM_URL_BYTES 1024
#define UPSTREAM_PATH_BYTES 1024
#define UPSTREAM_MODEL_BYTES 256
#define UPSTREAM_FIXED_MODELS_MAX 32
#define UPSTREAM_KEY_BYTES 4096
#define UPSTREAM_CONCURRENCY 64
#define UPSTREAM_CONCURRENCY_MAX 4096

struct upstream_spec {
    char name[UPSTREAM_NAME_BYTES];
    char base[UPSTREAM_URL_BYTES];      /* http(s)://host[:port]/v1, without a slash at the end */
    char health[UPSTREAM_URL_BYTES];    /* the whole URL */
    char key_file[UPSTREAM_PATH_BYTES]; /* empty: no key */
    uint32_t concurrency;
    uint32_t weight;
    int64_t connect_ms, first_byte_ms, stall_ms;
    bool proxy_from_environment;
    bool refuses_shapes;
    size_t model_count; /* 0: as /v1/models lists them */
    struct upstream_spec_model {
        char name[UPSTREAM_MODEL_BYTES];   /* for clients */
        char theirs[UPSTREAM_MODEL_BYTES]; /* the upstream's own name */
    } models[UPSTREAM_FIXED_MODELS_MAX];
};

/* ERR_INVALID with a sentence that names the key and the value. */
enum err upstream_spec_read(const char *text, struct upstream_spec *ret_spec,
                            struct error *error) MUST_CHECK;
/* Checks that the text, which was read at `where`, can be a key: visible ASCII only. ERR_INVALID
 * with a sentence that never shows it. */
enum err upstream_spec_check_key(struct str key, const char *where, struct error *error) MUST_CHECK;
