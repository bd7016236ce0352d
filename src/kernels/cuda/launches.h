/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* launches: kernels of our own as nodes of a graph, which later steps give other arguments.
 *
 * Every kernel of ours reaches the card through dependent.cuh or tma.cuh. Usually it is launched.
 * Between launches_record and launches_end, while its stream is captured, its node is noted as well.
 * Between launches_replay and launches_end nothing is launched: each launch gives its kernel, blocks
 * and arguments to the next node of a graph that was made of the recording, and one without blocks
 * turns its node off. So a replay makes the launches of the recording in their order, those without
 * work included. The next start of the graph has all of it; a start before it, under way or not, has
 * what it was started with.
 *
 * Nothing here knows operations or steps, and kernels of libraries are not noted.
 *
 * Thread: one per process, that of its card.
 * Memory: nodes belong to the graph; the list of them is the caller's, freed with launches_free. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUgraphExec_st;
struct CUgraphNode_st;
struct launch_node;

/* Nodes in the order of their launches; zero is an empty list. */
struct launches {
    struct launch_node *nodes;
    uint32_t count;
    uint32_t room;
};

/* Notes launches from here on. The list is empty, and every launch has blocks. */
void launches_record(struct launches *list);
/* Gives launches from here on to the nodes of `exec`, which was made of the recorded graph. That
 * graph, which owns the nodes, is still there. */
void launches_replay(struct launches *list, struct CUgraphExec_st *exec);
/* Launches are launched again. False when a replay had fewer of them than its recording, as one has
 * that was given up. */
bool launches_end(void);
void launches_free(struct launches *list);

#ifdef __cplusplus
}
#endif
