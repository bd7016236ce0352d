/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/workspace.h"

#include "base/min_max.h"

#include <assert.h>
#include <sys/mman.h>

#define ALIGNMENT ((size_t)64)

void *workspace_take(struct workspace *workspace, size_t bytes) {
    void *here = workspace->memory ? workspace->memory + workspace->at : NULL;
    workspace->at += (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    assert(!here || workspace->at <= workspace->bytes);
    return here;
}

enum err workspace_open(struct workspace *workspace, struct error *error) {
    workspace->memory = workspace_map(workspace->at);
    if (!workspace->memory)
        return err_set(error, ERR_LIMIT, "no memory for a workspace of %zu bytes", workspace->at);
    workspace->bytes = workspace->at;
    workspace->at = 0;
    return OK;
}

void workspace_close(struct workspace *workspace) {
    if (workspace->memory) munmap(workspace->memory, workspace->bytes);
}

void *workspace_map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    /* Attention walks scattered blocks: with small pages it waits for address translation. */
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

size_t workspace_activation_bytes(const struct weights *weights) {
    size_t most = weights->head ? weights->head->activation_bytes : 0;
    if (weights->input_projection)
        most = max_size(most, weights->input_projection->activation_bytes);
    for (uint32_t i = 0; i < weights->layer_count; i++) {
        const struct layer_weights *layer = &weights->layers[i];
        const struct experts *experts = &layer->experts;
        const struct matrix *const matrices[] = {
            layer->qkv,
            layer->output,
            layer->gate_up,
            layer->down,
            layer->recurrent.in,
            layer->recurrent.rates,
            layer->recurrent.output,
            layer->latent.in,
            layer->latent.q_b,
            layer->input_gate,
            layer->input_out,
            experts->router,
            experts->count > 0 ? experts->gate_up[0] : NULL,
            experts->shared_gate_up,
            experts->shared_down,
            experts->shared_scale,
        };
        for (size_t j = 0; j < sizeof matrices / sizeof *matrices; j++)
            if (matrices[j]) most = max_size(most, matrices[j]->activation_bytes);
    }
    return most;
}

size_t workspace_head_bytes(const struct weights *weights) {
    size_t most = 0;
    for (uint32_t i = 0; i < weights->layer_count; i++) {
        const struct latent *latent = &weights->layers[i].latent;
        if (latent->heads == 0) continue;
        most = max_size(most, latent->k_b[0]->activation_bytes);
        most = max_size(most, latent->v_b[0]->activation_bytes);
    }
    return most;
}

size_t workspace_expert_activation_bytes(const struct weights *weights) {
    size_t most = 0;
    for (uint32_t i = 0; i < weights->layer_count; i++) {
        const struct experts *experts = &weights->layers[i].experts;
        if (experts->count == 0) continue;
        most = max_size(most, experts->gate_up[0]->activation_bytes);
        most = max_size(most, experts->down[0]->activation_bytes);
    }
    return most;
}

size_t workspace_expert_tile_bytes(const struct weights *weights) {
    size_t most = 0;
    for (uint32_t i = 0; i < weights->layer_count; i++) {
        const struct experts *experts = &weights->layers[i].experts;
        if (experts->count == 0) continue;
        most = max_size(most, matrix_tile_bytes(experts->gate_up[0]));
        most = max_size(most, matrix_tile_bytes(experts->down[0]));
    }
    return most;
}
