/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* node_internal: the inside of a node, and its part about models that come, go and get names while
 * it runs. For this folder only.
 *
 * Thread: main, except where node.h says otherwise.
 * Memory: as node.h says. */

#include "base/hash.h"
#include "node/node.h"
#include "node/seats.h"
#include "protocol/names_added.h"

#include <pthread.h>

struct node {
    struct store *store;
    struct runner *runner; /* NULL: the workers are an agent's */
    struct agent *agent;   /* owned */
    struct seats seats;
    struct fleet *fleet;                      /* NULL: no queue */
    uint32_t rank_count;                      /* engines per model */
    struct turns *turns[NODE_ENGINES_MAX];    /* one per rank; NULL: all models stay loaded */
    struct card_watch *cards;                 /* NULL: nothing is told about GPUs */
    struct worker *workers[NODE_ENGINES_MAX]; /* engines only; the ranks of a model together */
    char *paths[NODE_ENGINES_MAX];            /* the files of these engines' models */
    size_t worker_count;
    const struct node_options *options; /* with a shelf; otherwise NULL */
    pthread_mutex_t adopting;           /* held while models come, go or get names; guards `seen` */
    unsigned char seen[SHA256_BYTES];   /* sum of the models that lay on this machine */
    char dump_dir[4096];
    struct worker *upstreams[NODE_UPSTREAMS_MAX];
    size_t upstream_count;
    size_t first_count; /* engines that load at the start: the first of `workers` */
    /* Texts that workers and the runner borrow. */
    struct model_choice models[NODE_MODELS_MAX];
    struct name_alias aliases[NODE_ALIASES_MAX];
    struct names aliased;                                    /* with `added`, which the node owns */
    const char *names[NODE_MODELS_MAX][MODEL_NAMES_MAX + 1]; /* each ends in NULL */
};

/* node.c */
/* Opens the workers of the model, one per rank. `known` NULL: nothing is known of it but its path.
 */
enum err node_open_model(struct node *node, const struct model_choice *choice,
                         const struct shelf_model *known, const struct node_options *from,
                         struct error *error) MUST_CHECK;
/* Whether the model of this path is one of the --model options. */
bool node_is_chosen(const struct node_options *options, const char *path);

/* node_models.c */
/* Notes the models that lie on this machine now. */
void node_models_note(struct node *node);
/* As runner_options.look. */
bool node_models_look(void *context);

/* node_names.c */
/* Reads the names that clients have given, which the store keeps. */
enum err node_names_read(struct node *node, struct error *error) MUST_CHECK;
