/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "model/model_internal.h"

#include <stdlib.h>

static enum err check_request(const struct model *model, const struct logits_request *request,
                              struct error *error) {
    const struct backend_caps *caps = &model->backend.caps;
    if (!model_generates(model))
        return err_set(error, ERR_INVALID, "the model does not generate, so it has no logits");
    uint32_t block_count = caps->page_count / kv_layout_groups(&model->layout);
    if (request->count == 0) return err_set(error, ERR_INVALID, "the prompt is empty");
    if (request->count > caps->context_tokens_max ||
        backend_blocks_for(request->count) > block_count)
        return err_set(error, ERR_LIMIT,
                       "%u tokens do not fit into a context of %u and %u blocks of %d",
                       request->count, caps->context_tokens_max, block_count, KV_BLOCK_TOKENS);
    for (uint32_t i = 0; i < request->count; i++)
        if (request->ids[i] < 0 || (uint32_t)request->ids[i] >= caps->vocab)
            return err_set(error, ERR_INVALID, "token %u is %d, not 0..%u", i, request->ids[i],
                           caps->vocab - 1);
    for (uint32_t i = 0; i < request->position_count; i++)
        if (request->positions[i] >= request->count ||
            (i > 0 && request->positions[i] <= request->positions[i - 1]))
            return err_set(error, ERR_INVALID,
                           "position %u does not ascend or is not below the %u of the prompt",
                           request->positions[i], request->count);
    return OK;
}

enum err model_logits(struct model *model, const struct logits_request *request, float *ret_logits,
                      struct error *error) {
    enum err err = check_request(model, request, error);
    if (err != OK) return err;
    uint32_t block_count = backend_blocks_for(request->count);
    const struct executor *executor = &model->executor;
    uint32_t rows_max = executor->caps.rows_max;
    uint32_t page_count = block_count * kv_layout_groups(&model->layout);
    uint32_t *pages = mem_new(page_count, sizeof *pages);
    uint32_t *positions = mem_new(request->count, sizeof *positions);
    struct logit_row *rows = mem_new(rows_max, sizeof *rows);
    for (uint32_t i = 0; i < page_count; i++) pages[i] = i;
    for (uint32_t i = 0; i < request->count; i++) positions[i] = i;
    uint32_t done = 0; /* entries of request->positions */
    for (uint32_t begin = 0; begin < request->count && err == OK; begin += rows_max) {
        uint32_t left = request->count - begin, count = 0;
        struct step_sequence sequence = {.slot_is_new = begin == 0,
                                         .state_from = begin == 0 ? BACKEND_STATE_ZERO : 0,
                                         .row_count = left < rows_max ? left : rows_max,
                                         .kv_tokens = begin,
                                         .block_count = block_count,
                                         .page_stride = block_count,
                                         .pages = pages};
        for (; done + count < request->position_count &&
               request->positions[done + count] < begin + sequence.row_count;
             count++)
            rows[count] =
                (struct logit_row){.row = request->positions[done + count] - begin, .index = count};
        struct step step = {.row_count = sequence.row_count,
                            .sequence_count = 1,
                            .logit_count = count,
                            .tokens = request->ids + begin,
                            .positions = positions + begin,
                            .sequences = &sequence,
                            .logit_rows = rows};
        err = executor->ops->logits(executor->self, &step,
                                    ret_logits + (size_t)done * executor->caps.vocab, error);
        done += count;
    }
    free(rows);
    free(pages);
    free(positions);
    return err;
}
