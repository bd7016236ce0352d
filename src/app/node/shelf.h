/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* shelf: the models that lie on this machine, with what their heads say, for a server that loads
 * them on demand.
 *
 * Foreign files are read by `quern models --json` in a process of its own, in its sandbox. Its lines
 * are read here with bounds, as foreign bytes are.
 *
 * Thread: any, one per shelf.
 * Memory: shelf_close frees all texts. */

#include "hub/catalog.h"
#include "protocol/wire_messages.h"

#define SHELF_MODELS_MAX 256

struct shelf_model {
    struct model_choice choice; /* as --model would choose it */
    struct wire_ready foretold; /* for worker_engine_options; borrowed from the shelf */
    uint64_t needed_bytes;      /* memory for the weights and what an engine takes besides */
    uint64_t least_bytes;       /* the same while all experts stay in the file */
    uint64_t token_bytes;       /* keys and values of one token; 0: it keeps none */
};

struct shelf;

/* Reads the models that can be served, each path once, with all its names. ERR_CANCELLED if *stop
 * becomes true. */
enum err shelf_open(struct shelf **ret_shelf, const volatile bool *stop,
                    struct error *error) MUST_CHECK;
/* Reads the one model that `name` means now; none if it cannot be served. */
enum err shelf_open_one(struct shelf **ret_shelf, const char *name, struct error *error) MUST_CHECK;
/* An empty one, for shelf_add_line. */
struct shelf *shelf_new(void);
void shelf_close(struct shelf *shelf); /* NULL is allowed */
size_t shelf_count(const struct shelf *shelf);
const struct shelf_model *shelf_at(const struct shelf *shelf, size_t index);
/* The model with this path; NULL: there is none. */
const struct shelf_model *shelf_find(const struct shelf *shelf, const char *path);

/* Adds the model of one line of `quern models --json`; a line that is malformed, or whose model
 * cannot be served, is passed over. */
void shelf_add_line(struct shelf *shelf, struct str line);
