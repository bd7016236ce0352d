/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* launches: gives the kernels of a graph new blocks and arguments before each start.
 *
 * dependent.cuh and tma.cuh hand every launch of a kernel to launches_take, which
 *
 *   - usually launches it;
 *   - between launches_record and launches_end also notes its node, while the stream is captured;
 *   - between launches_replay and launches_end launches nothing: kernel, blocks and arguments go to
 *     the next noted node. A launch without blocks turns its node off.
 *
 * A start of a graph has the arguments of the last replay before it, and keeps them while it runs.
 *
 * It does not know operations or steps. Kernels of libraries are launched past it.
 *
 * Thread: the process's one that uses the GPU.
 * Memory: the recorded graph owns the nodes; the caller owns the list of them.
 * Invariant: a replay makes the launches of its recording, in the same order. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUgraphExec_st;
struct launch_node;

/* The nodes of a recording in the order of their launches; zeroed it is empty. */
struct launches {
    struct launch_node *nodes;
    uint32_t count;
    uint32_t room;
};

/* Begins a recording into an empty list. Every launch of it has blocks. */
void launches_record(struct launches *list);
/* Begins a replay. `exec` was made of the recorded graph, which still exists. */
void launches_replay(struct launches *list, struct CUgraphExec_st *exec);
/* Ends a recording or a replay. False: the replay was given up before its last node. */
bool launches_end(void);
/* Frees the list and leaves it empty. */
void launches_free(struct launches *list);

#ifdef __cplusplus
}
#endif
